package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// stored reads a position that was saved.
func stored(from source.Position) (place, error) {
	at, err := parsePlace(from)
	if kind := from.Kind(); err != nil && kind != "" && kind != "pg" {
		return at, fault.Position(fault.CodeForeign, "give the new connector another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT, or go back to the old source", err,
			"the checkpoint is of another kind of database (%s), the source is PostgreSQL", kind)
	}
	if err != nil {
		return at, fault.Position(fault.CodeCheckpointUnreadable, "use the source and the version this checkpoint was written by, or see `outboxd checkpoint show`", err, "the stored position can't be read")
	}
	return at, nil
}

// Judge implements source.Judge.
func (s *Source) Judge(ctx context.Context, from source.Position) error {
	at, err := stored(from)
	if err != nil {
		return err
	}
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	rep, err := s.connectReplication(ctx)
	if err != nil {
		return err
	}
	defer closePgConn(rep)
	_, err = s.judge(ctx, conn, rep, at)
	return s.inSnapshot(at, err)
}

// Open implements source.Source. All questions go over a session of their own
// before the replication connection streams.
func (s *Source) Open(ctx context.Context, from source.Position) (source.Stream, error) {
	at, err := stored(from)
	if err != nil {
		return nil, err
	}
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer closeConn(conn)
	rep, err := s.connectReplication(ctx)
	if err != nil {
		return nil, err
	}
	at, err = s.judge(ctx, conn, rep, at)
	err = s.inSnapshot(at, err)
	dec := newDecoder(at.at(nil), s.wanted(), s.log)
	if s.cfg.MessagePrefix != "" {
		dec.messages = &messages{prefix: s.cfg.MessagePrefix, log: s.log, shapes: map[string]*source.Table{}}
	}
	if err == nil {
		dec.lookUp = s.baseType
		dec.bases, err = s.columnTypes(ctx, conn)
	}
	if err == nil {
		dec.notNull, err = s.notNull(ctx, conn)
	}
	if err != nil {
		closePgConn(rep)
		return nil, err
	}
	var rest *view
	if at.snapshot != nil {
		rest, err = s.resume(ctx, conn, at)
	} else {
		s.dropView()
	}
	if err == nil {
		err = s.startReplication(ctx, rep, at.lsn)
	}
	if err != nil {
		closePgConn(rep)
		return nil, err
	}
	hijacked, err := rep.Hijack()
	if err != nil {
		closePgConn(rep)
		return nil, fmt.Errorf("take over the replication connection: %w", err)
	}
	log, err := startStream(hijacked, at.at(nil), dec, s.log)
	if err != nil {
		return nil, err
	}
	log.watch = s.startWatch(at)
	if rest == nil {
		return log, nil
	}
	return s.startSnapshot(ctx, conn, at, rest, log), nil
}

func (s *Source) startReplication(ctx context.Context, rep *pgconn.PgConn, from pglogrepl.LSN) error {
	arguments := []string{
		"proto_version '1'",
		"publication_names " + quoteLiteral(quote(s.cfg.Publication)),
	}
	if s.cfg.MessagePrefix != "" {
		arguments = append(arguments, "messages 'true'")
	}
	err := pglogrepl.StartReplication(ctx, rep, quote(s.cfg.Slot), from, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: arguments,
	})
	if err != nil {
		return s.explain(fmt.Errorf("start replication from slot %q: %w", s.cfg.Slot, inFull(err)))
	}
	return nil
}

func (s *Source) wanted() map[TableName]bool {
	m := make(map[TableName]bool, len(s.tables))
	for _, t := range s.tables {
		m[t] = true
	}
	return m
}

// judge decides whether this server can go on from at, without a gap. It gives
// the place as it stands in this server's history: on its timeline.
func (s *Source) judge(ctx context.Context, conn *pgx.Conn, rep *pgconn.PgConn, at place) (place, error) {
	id, err := s.identify(ctx, rep)
	if err != nil {
		return at, err
	}
	if id.system != at.system {
		return at, fault.Position(fault.CodeForeign,
			"point OUTBOXD_SOURCE_URL at the server this connector has been reading; or, if this is meant to be a new connector, give it another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT", nil,
			"the checkpoint is of database cluster %s, the server is %s: either the address now leads to another server, or the name is reused", at.system, id.system)
	}
	if id.database != at.database || s.cfg.Slot != at.slot {
		return at, fault.Position(fault.CodeForeign,
			"give the new connector another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT, or go back to the old settings", nil,
			"the checkpoint is of slot %q in database %q, the settings say slot %q in %q", at.slot, at.database, s.cfg.Slot, id.database)
	}
	end, err := s.logEnd(ctx, conn)
	if err != nil {
		return at, err
	}
	st, err := s.slot(ctx, conn)
	if err != nil {
		return at, err
	}
	if err := s.judgeHistory(ctx, rep, id, st, end, at); err != nil {
		return at, err
	}
	if err := s.judgeSlot(ctx, rep, st, id, at); err != nil {
		return at, err
	}
	if err := s.freeSlot(ctx, conn, st); err != nil {
		return at, err
	}
	if err := s.keepOnStandbys(ctx, conn, rep, st); err != nil {
		return at, err
	}
	at.timeline = id.timeline
	p, err := s.judgePublication(ctx, conn, at)
	if err != nil {
		return at, err
	}
	for _, t := range p.filtered {
		s.log.Warn("the publication has a row filter: rows that don't match it are no events", zap.String("publication", s.cfg.Publication), zap.Stringer("table", t))
	}
	return at, nil
}

// logEnd also refuses a server that has become a standby since the lease was taken.
func (s *Source) logEnd(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	var end *string
	err := conn.QueryRow(ctx, "SELECT CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_flush_lsn()::text END").Scan(&end)
	if err != nil {
		return 0, s.explain(fmt.Errorf("ask for the log's end: %w", err))
	}
	if end == nil {
		return 0, errStandby
	}
	lsn, err := pglogrepl.ParseLSN(*end)
	if err != nil {
		return 0, fmt.Errorf("ask for the log's end: %w", err)
	}
	return lsn, nil
}

func (s *Source) judgeSlot(ctx context.Context, rep *pgconn.PgConn, st *slotState, id identity, at place) error {
	switch {
	case st == nil:
		why := "although the checkpoint at %s says it should be there"
		if id.timeline != at.timeline {
			why = "and the server was promoted since the checkpoint at %s: a slot stays on the old primary unless it is a failover slot (PostgreSQL 17) or was carried over"
		}
		return fault.Position(fault.CodePositionLost, s.anew(), s.refusal(ctx, rep), "slot %q is gone, "+why, s.cfg.Slot, at.lsn)
	case fault.Is(s.ours(st, at.database), fault.CodeNameTaken):
		return fault.Config(fault.CodeNameTaken,
			"our slot is gone and its name was given to another one: set another OUTBOXD_POSTGRES_SLOT; rows committed since the last saved place may be missing in Kafka: compare first; then run `outboxd checkpoint delete`, and start with OUTBOXD_START=now", s.ours(st, at.database),
			"the checkpoint at %s is of slot %q in database %q", at.lsn, s.cfg.Slot, at.database)
	case s.ours(st, at.database) != nil:
		return s.ours(st, at.database)
	case st.lost:
		return s.slotLost(st, s.refusal(ctx, rep))
	case st.confirmed > at.lsn:
		return fault.Position(fault.CodePositionLost,
			fmt.Sprintf("the rows between are missing in Kafka unless another outboxd published them: compare first; then `outboxd checkpoint set --to %s` goes on from the slot's place", st.confirmed), nil,
			"slot %q was moved to %s by somebody else, past our checkpoint at %s: the rows between are gone from it", s.cfg.Slot, st.confirmed, at.lsn)
	}
	return nil
}

// refusal has the server say in its own words why it does not read the slot. A
// slot that it does read is not moved by this: no place is confirmed.
func (s *Source) refusal(ctx context.Context, rep *pgconn.PgConn) error {
	var pg *pgconn.PgError
	if err := s.startReplication(ctx, rep, 0); errors.As(err, &pg) {
		return inFull(pg)
	}
	return nil
}

// freeSlot ends a walsender that a former holder of the lease left behind. We
// hold the lease, so one of our own name has no right to the slot any more.
func (s *Source) freeSlot(ctx context.Context, conn *pgx.Conn, st *slotState) error {
	if st.activePID == 0 {
		return nil
	}
	if st.activeApp != s.applicationName() {
		return fmt.Errorf("slot %q is in use by pid %d (application %q): waiting for it", s.cfg.Slot, st.activePID, st.activeApp)
	}
	s.log.Info("ending the walsender of a former session", zap.String("slot", s.cfg.Slot), zap.Int32("pid", st.activePID))
	// The second argument waits for its end (PostgreSQL 14 and newer).
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1, $2)", st.activePID, (2 * time.Second).Milliseconds())
	if hasCode(err, "42501") { // another role's, after a change of OUTBOXD_SOURCE_USER: it ends with its own wal_sender_timeout
		return fmt.Errorf("slot %q is in use by pid %d of another role, which we may not end: waiting for it", s.cfg.Slot, st.activePID)
	}
	if err != nil {
		return s.explain(fmt.Errorf("end the walsender with pid %d: %w", st.activePID, err))
	}
	return nil
}
