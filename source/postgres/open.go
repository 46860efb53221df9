package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Open implements source.Source. All questions go over a session of their own
// before the replication connection streams.
func (s *Source) Open(ctx context.Context, from source.Position) (source.Stream, error) {
	at, err := parsePlace(from)
	if kind := from.Kind(); err != nil && kind != "" && kind != "pg" {
		return nil, fault.Position(fault.CodeForeign, "give the new connector another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT, or go back to the old source", err,
			"the checkpoint is of another kind of database (%s), the source is PostgreSQL", kind)
	}
	if err != nil {
		return nil, fault.Position(fault.CodeCheckpointUnreadable, "use the source and the version this checkpoint was written by, or see `outboxd checkpoint show`", err, "the stored position can't be read")
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
	id, err := s.identify(ctx, rep)
	if err == nil {
		err = s.judge(ctx, conn, id, at)
	}
	dec := newDecoder(at.at(nil), s.wanted(), s.log)
	if err == nil {
		dec.lookUp = s.baseType
		dec.bases, err = s.columnTypes(ctx, conn)
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
	log.watch = s.startWatch()
	if rest == nil {
		return log, nil
	}
	return s.startSnapshot(ctx, conn, at, rest, log), nil
}

func (s *Source) startReplication(ctx context.Context, rep *pgconn.PgConn, from pglogrepl.LSN) error {
	err := pglogrepl.StartReplication(ctx, rep, quote(s.cfg.Slot), from, pglogrepl.StartReplicationOptions{
		Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{
			"proto_version '1'",
			"publication_names " + quoteLiteral(quote(s.cfg.Publication)),
		},
	})
	if err != nil {
		return s.explain(fmt.Errorf("start replication from slot %q: %w", s.cfg.Slot, err))
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

// judge decides whether this server can go on from at, without a gap.
func (s *Source) judge(ctx context.Context, conn *pgx.Conn, id identity, at place) error {
	if id.system != at.system {
		return fault.Position(fault.CodeForeign,
			"point OUTBOXD_SOURCE_URL at the server this connector has been reading; or, if this is meant to be a new connector, give it another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT", nil,
			"the checkpoint is of database cluster %s, the server is %s: either the address now leads to another server, or the name is reused", at.system, id.system)
	}
	if id.database != at.database || s.cfg.Slot != at.slot {
		return fault.Position(fault.CodeForeign,
			"give the new connector another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT, or go back to the old settings", nil,
			"the checkpoint is of slot %q in database %q, the settings say slot %q in %q", at.slot, at.database, s.cfg.Slot, id.database)
	}
	if id.timeline != at.timeline {
		return fault.Position(fault.CodeDiverged, s.anew(), nil,
			"the server is on timeline %d, the checkpoint on timeline %d at %s: it was promoted or restored, and may lack rows that were published", id.timeline, at.timeline, at.lsn)
	}
	if err := s.judgeSlot(ctx, conn, at); err != nil {
		return err
	}
	return s.judgePublication(ctx, conn, at)
}

func (s *Source) judgeSlot(ctx context.Context, conn *pgx.Conn, at place) error {
	st, err := s.slot(ctx, conn)
	if err != nil {
		return err
	}
	switch {
	case st == nil:
		return fault.Position(fault.CodePositionLost, s.anew(), nil, "slot %q is gone, although the checkpoint at %s says it should be there", s.cfg.Slot, at.lsn)
	case st.lost:
		return s.slotLost(st)
	case s.ours(st, at.database) != nil:
		return s.ours(st, at.database)
	case st.confirmed > at.lsn:
		return fault.Position(fault.CodePositionLost,
			"the rows between are missing in Kafka unless another outboxd published them: compare first; then run `outboxd checkpoint delete` and start: it goes on from the slot's place", nil,
			"slot %q was moved to %s by somebody else, past our checkpoint at %s: the rows between are gone from it", s.cfg.Slot, st.confirmed, at.lsn)
	}
	var end string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return s.explain(fmt.Errorf("ask for the log's end: %w", err))
	}
	if lsn, err := pglogrepl.ParseLSN(end); err != nil {
		return fmt.Errorf("ask for the log's end: %w", err)
	} else if lsn < at.lsn {
		return fault.Position(fault.CodeDiverged, s.anew(), nil,
			"the checkpoint at %s is past the end of the server's log at %s: the server was restored to an earlier state", at.lsn, lsn)
	}
	return s.freeSlot(ctx, conn, st)
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
	if _, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1, $2)", st.activePID, (2 * time.Second).Milliseconds()); err != nil {
		return s.explain(fmt.Errorf("end the walsender with pid %d: %w", st.activePID, err))
	}
	return nil
}

// judgePublication finds out what the server would only warn of: since
// PostgreSQL 18 rows without a publication are skipped, not refused.
func (s *Source) judgePublication(ctx context.Context, conn *pgx.Conn, at place) error {
	p, err := s.publication(ctx, conn)
	if err != nil {
		return err
	}
	switch {
	case p == nil:
		return fault.Position(fault.CodePublicationLost, s.anew(), nil, "publication %q is gone: its slot can't decode without it", s.cfg.Publication)
	case p.oid != at.publication:
		return fault.Position(fault.CodePublicationLost, s.anew(), nil,
			"publication %q was dropped and made anew since the checkpoint: rows committed without it are not in the stream", s.cfg.Publication)
	case s.lacks(p) != "":
		return fault.Position(fault.CodePublicationLost,
			fmt.Sprintf("mend the publication (ALTER PUBLICATION %s ADD TABLE …, or SET (publish = 'insert')) and start again; rows committed while it lacked them are not in the stream", quote(s.cfg.Publication)), nil,
			"publication %q carries no %s", s.cfg.Publication, s.lacks(p))
	}
	return nil
}
