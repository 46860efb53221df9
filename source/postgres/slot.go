package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// slotState is a row of pg_replication_slots.
type slotState struct {
	plugin    string
	database  string
	confirmed pglogrepl.LSN
	lost      bool   // invalidated: its log is gone
	why       string // wal_status, and on PostgreSQL 17 the reason, as the server words them
	activePID int32
	activeApp string // application_name of the session that reads it
	failover  bool   // standbys keep it
	twoPhase  bool   // it sends prepared transactions before they are committed
}

// slot returns nil when there is none.
func (s *Source) slot(ctx context.Context, conn *pgx.Conn) (*slotState, error) {
	var st slotState
	var confirmed *string
	err := conn.QueryRow(ctx, `
		SELECT coalesce(s.plugin, ''), coalesce(s.database, ''), s.confirmed_flush_lsn::text,
		       coalesce(s.wal_status, '') = 'lost',
		       concat_ws(', ', 'wal_status ' || s.wal_status, 'invalidation_reason ' || (to_jsonb(s)->>'invalidation_reason')), coalesce(s.active_pid, 0), coalesce(a.application_name, ''), s.two_phase,
		       coalesce((to_jsonb(s)->>'failover')::bool, false)
		FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
		WHERE s.slot_name = $1`, s.cfg.Slot).
		Scan(&st.plugin, &st.database, &confirmed, &st.lost, &st.why, &st.activePID, &st.activeApp, &st.twoPhase, &st.failover)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(fmt.Errorf("look for slot %q: %w", s.cfg.Slot, err))
	}
	if confirmed != nil {
		if st.confirmed, err = pglogrepl.ParseLSN(*confirmed); err != nil {
			return nil, fmt.Errorf("read the confirmed place of slot %q: %w", s.cfg.Slot, err)
		}
	}
	return &st, nil
}

// ours refuses a slot that serves somebody else.
func (s *Source) ours(st *slotState, database string) error {
	const fix = "set another OUTBOXD_NAME or OUTBOXD_POSTGRES_SLOT"
	switch {
	case st.database != database:
		return fault.Config(fault.CodeNameTaken, fix, nil, "slot %q belongs to database %q, not to %q", s.cfg.Slot, st.database, database)
	case st.plugin != "pgoutput":
		return fault.Config(fault.CodeNameTaken, fix, nil, "slot %q uses the plugin %q, not pgoutput", s.cfg.Slot, st.plugin)
	case st.twoPhase:
		return fault.Config(fault.CodeServerSetting, "make the slot anew without it, with nothing written to the outbox meanwhile: "+dropSlotSQL(s.cfg.Slot)+"; "+s.slotSQL(), nil,
			"slot %q was made for two-phase commit: it sends the rows of PREPARE TRANSACTION before anybody knows whether they will be committed", s.cfg.Slot)
	}
	return nil
}

// publicationState is what the server knows of our publication.
type publicationState struct {
	oid     uint32
	inserts bool
	viaRoot bool // rows of partitions are told as their root's
	tables  []TableName

	marks    marks
	filtered []TableName // ours that it carries with a row filter
}

// publication returns nil when there is none.
func (s *Source) publication(ctx context.Context, conn *pgx.Conn) (*publicationState, error) {
	var p publicationState
	err := conn.QueryRow(ctx, `SELECT oid, pubinsert, pubviaroot FROM pg_publication WHERE pubname = $1`, s.cfg.Publication).Scan(&p.oid, &p.inserts, &p.viaRoot)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, s.explain(fmt.Errorf("look for publication %q: %w", s.cfg.Publication, err))
	}
	rows, err := conn.Query(ctx, `SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = $1`, s.cfg.Publication)
	if err != nil {
		return nil, s.explain(fmt.Errorf("read publication %q: %w", s.cfg.Publication, err))
	}
	if p.tables, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TableName]); err != nil {
		return nil, s.explain(fmt.Errorf("read publication %q: %w", s.cfg.Publication, err))
	}
	return &p, s.readMarks(ctx, conn, &p)
}

// lacks names what p does not give us; empty when it serves.
func (s *Source) lacks(p *publicationState) string {
	if !p.inserts {
		return "inserts"
	}
	for _, t := range s.tables {
		if !slices.Contains(p.tables, t) {
			return "table " + t.String()
		}
	}
	return ""
}

// rootFix is the way out when a publication carries the partitions and not their root.
func (s *Source) rootFix(p *publicationState) string {
	if p.viaRoot || !p.inserts {
		return ""
	}
	return fmt.Sprintf("; or, if its tables are the partitions of ours: ALTER PUBLICATION %s SET (publish_via_partition_root = true)", quote(s.cfg.Publication))
}

// ensurePublication makes the publication, or judges the one that is there. It
// comes before the slot: a slot never sees a publication made after it.
func (s *Source) ensurePublication(ctx context.Context, conn *pgx.Conn) (*publicationState, error) {
	p, err := s.publication(ctx, conn)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if err := s.createPublication(ctx, conn); err != nil {
			return nil, err
		}
		if p, err = s.publication(ctx, conn); err != nil {
			return nil, err
		}
		if p == nil {
			return nil, fmt.Errorf("create publication %q: it vanished at once", s.cfg.Publication)
		}
	}
	if lack := s.lacks(p); lack != "" {
		names := make([]string, len(p.tables))
		for i, t := range p.tables {
			names[i] = t.String()
		}
		return nil, fault.Config(fault.CodeNameTaken, "set another OUTBOXD_NAME or OUTBOXD_POSTGRES_PUBLICATION"+s.rootFix(p), nil,
			"publication %q carries no %s (its tables: %s)", s.cfg.Publication, lack, strings.Join(names, ", "))
	}
	return p, nil
}

func (s *Source) createPublication(ctx context.Context, conn *pgx.Conn) error {
	statement := s.publicationSQL(s.tables)
	if !s.cfg.AutoSetup {
		// A slot comes after its publication, so there is none either.
		return s.setupNeeded("publication", s.cfg.Publication, statement+"; "+s.slotSQL())
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		if hasCode(err, "42501") {
			return fault.Config(fault.CodeGrantMissing, "as the owner of the tables, with CREATE on the database: "+statement, err,
				"role %q may not create publication %q", conn.Config().User, s.cfg.Publication)
		}
		return s.explain(fmt.Errorf("create publication %q: %w", s.cfg.Publication, err))
	}
	s.log.Info("publication created", zap.String("publication", s.cfg.Publication))
	return nil
}

// Begin implements source.Source: publication, then slot, then the place.
func (s *Source) Begin(ctx context.Context, first source.First) (source.Position, error) {
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	rep, err := s.connectReplication(ctx)
	if err != nil {
		return "", err
	}
	defer closePgConn(rep)
	id, err := s.identify(ctx, rep)
	if err != nil {
		return "", err
	}
	st, err := s.slot(ctx, conn)
	if err != nil {
		return "", err
	}
	if st == nil && first.Mode == source.StartResume {
		return "", fault.Position(fault.CodePositionLost, "if this is a first start, set OUTBOXD_START to auto, now or snapshot", nil,
			"OUTBOXD_START is resume, but there is neither a checkpoint nor slot %q", s.cfg.Slot)
	}
	if st != nil {
		if err := s.ours(st, id.database); err != nil {
			return "", err
		}
	}
	if st != nil && st.confirmed == 0 && !st.lost { // an earlier start still waits in the server for it
		if err := s.freeSlot(ctx, conn, st); err != nil {
			return "", err
		}
		return "", fmt.Errorf("slot %q is still being made by a former session: waiting for its end", s.cfg.Slot)
	}
	if st != nil && first.ExactlyOnce && !first.Intended && first.Mode != source.StartNow {
		return "", fault.Position(fault.CodePositionLost,
			"find the checkpoint again; or compare what is in Kafka with the table, and let OUTBOXD_START=now go on from the slot's place: what was delivered behind it comes twice", nil,
			"delivery is exactly-once, and slot %q is there without a checkpoint: what was delivered behind its place %s is not known", s.cfg.Slot, st.confirmed)
	}
	if st != nil && first.Mode == source.StartSnapshot {
		return s.begunAlready(st, first)
	}
	if err := s.slotNeedsPublication(ctx, conn, st); err != nil {
		return "", err
	}
	var orders []order
	if first.Mode == source.StartSnapshot { // before anything is made
		if orders, err = s.prepareSnapshot(ctx, conn); err != nil {
			return "", err
		}
		if first.ExactlyOnce && slices.ContainsFunc(orders, func(o order) bool { return o.loose }) {
			return "", fault.Config(fault.CodeSnapshotOrder, "give the table a primary key, or deliver the snapshot with OUTBOXD_DELIVERY=at-least-once", nil,
				"delivery is exactly-once, and a table without a primary key has no order in which its rows come again the same")
		}
	}
	if st == nil && first.Mode == source.StartAuto { // before anything is made
		if err := s.mustBeEmpty(ctx, conn); err != nil {
			return "", err
		}
	}
	publication, err := s.ensurePublication(ctx, conn)
	if err != nil {
		return "", err
	}
	at := place{system: id.system, timeline: id.timeline, database: id.database, slot: s.cfg.Slot, publication: publication.oid, marks: publication.marks.String()}
	switch {
	case st != nil:
		at.lsn, err = s.adoptSlot(ctx, conn, st, first)
	case first.Mode == source.StartSnapshot:
		at.lsn, err = s.createSlot(ctx, conn, rep, func(name string, lsn pglogrepl.LSN) error {
			at.snapshot, err = s.hold(ctx, name, lsn, orders)
			return err
		})
		if err == nil {
			s.begun = at.position()
		}
	case first.Mode == source.StartAuto:
		// The emptiness is proven in the slot's own snapshot: everything committed later is in its stream.
		at.lsn, err = s.createSlot(ctx, conn, rep, func(name string, _ pglogrepl.LSN) error { return s.emptyAt(ctx, conn, name) })
	default:
		at.lsn, err = s.createSlot(ctx, conn, rep, nil)
	}
	if err != nil {
		return "", err
	}
	return at.position(), nil
}

// begunAlready refuses a slot that was made beforehand: which rows were committed before
// its place can't be told any more. One that this process has just made is taken up,
// as when its place could not be saved.
func (s *Source) begunAlready(st *slotState, first source.First) (source.Position, error) {
	if s.begun != "" && first.Intended {
		if at, err := parsePlace(s.begun); err == nil && at.lsn == st.confirmed {
			return s.begun, nil
		}
	}
	return "", fault.Config(fault.CodeStartChoice,
		fmt.Sprintf("nothing was published from it if this is the first start: drop it (%s) and start again; or OUTBOXD_START=now goes on from its place and leaves the rows that were committed before", dropSlotSQL(s.cfg.Slot)), nil,
		"OUTBOXD_START=snapshot makes slot %q and reads the rows as they were at that moment, but the slot is there already", s.cfg.Slot)
}

// slotNeedsPublication refuses a slot that is older than the publication would
// be: what was committed in between is not in its stream. PostgreSQL 18 skips
// it with a mere warning, older ones refuse to decode it.
func (s *Source) slotNeedsPublication(ctx context.Context, conn *pgx.Conn, st *slotState) error {
	if st == nil {
		return nil
	}
	p, err := s.publication(ctx, conn)
	if err != nil || p != nil {
		return err
	}
	return fault.Position(fault.CodePublicationLost,
		fmt.Sprintf("rows committed since the slot's place %s can't be read through it: compare the table with Kafka; then drop the slot (%s) and start again, which makes publication and slot in the right order", st.confirmed, dropSlotSQL(s.cfg.Slot)), nil,
		"slot %q is there without publication %q, and a slot never sees a publication younger than itself", s.cfg.Slot, s.cfg.Publication)
}

// adoptSlot goes on from the confirmed place of a slot that is there although
// no checkpoint is: it was made by hand, or the checkpoint was lost. What was
// confirmed had been saved (I2), so nothing is skipped.
func (s *Source) adoptSlot(ctx context.Context, conn *pgx.Conn, st *slotState, first source.First) (pglogrepl.LSN, error) {
	if st.lost {
		return 0, s.slotLost(st, nil)
	}
	if first.Intended && first.Mode == source.StartAuto && s.cfg.AutoSetup {
		// Our own half-made first start: nobody knows whether the table was
		// empty when the slot was made, so only an empty one is beyond doubt.
		if err := s.mustBeEmpty(ctx, conn); err != nil {
			return 0, err
		}
	}
	s.log.Warn("no checkpoint: going on from the slot's confirmed place", zap.String("slot", s.cfg.Slot), zap.Stringer("lsn", st.confirmed))
	return st.confirmed, nil
}

// slotLost tells of a slot that was invalidated; cause is the server's refusal to read it, or nil.
func (s *Source) slotLost(st *slotState, cause error) error {
	return fault.Position(fault.CodePositionLost, s.anew(), cause,
		"slot %q was invalidated (%s), and the log that it needs is gone: max_slot_wal_keep_size or idle_replication_slot_timeout was exceeded, or wal_level was lowered", s.cfg.Slot, st.why)
}

func (s *Source) anew() string { return anew(s.cfg.Slot) }

// anew tells how to begin again when a place is lost. The gap is the operator's to judge.
func anew(slot string) string {
	return fmt.Sprintf("rows committed since the last saved place may be missing in Kafka: compare first; then drop the slot if it is there (%s), run `outboxd checkpoint delete`, and start with OUTBOXD_START=now", dropSlotSQL(slot))
}

// anewAt is anew for a place that may be in the middle of the first snapshot, whose rest OUTBOXD_START=now would leave out.
func (s *Source) anewAt(at place) string {
	if at.snapshot == nil {
		return s.anew()
	}
	return fmt.Sprintf("the first snapshot was not done: drop the slot if it is there (%s), run `outboxd checkpoint delete`, and start with OUTBOXD_START=snapshot, which begins it anew; what was published comes again", dropSlotSQL(s.cfg.Slot))
}

// inSnapshot gives a place that is lost in the middle of the first snapshot its way out: no other place goes with what is left to read.
func (s *Source) inSnapshot(at place, err error) error {
	f := fault.As(err)
	switch {
	case f == nil || at.snapshot == nil:
		return err
	case f.Code == fault.CodePositionLost:
		return fault.Position(f.Code, s.anewAt(at), f.Err, "%s", f.Found)
	case f.Code == fault.CodeDiverged:
		return fault.Position(f.Code, "if this is not the server to go on with, point OUTBOXD_SOURCE_URL at the one that is; else: "+s.anewAt(at), f.Err, "%s", f.Found)
	}
	return err
}

func (s *Source) mustBeEmpty(ctx context.Context, conn *pgx.Conn) error {
	t, found, err := s.hasRows(ctx, conn)
	if err != nil || !found {
		return err
	}
	return fault.Config(fault.CodeStartChoice, "OUTBOXD_START=snapshot publishes the rows that are there, and then what is committed from now on; OUTBOXD_START=now leaves the rows that are there; or empty the table first",
		nil, "table %s holds rows already, and this is the first start", t)
}

// createSlot makes the slot. use, which may be nil, is called with the name of
// the slot's own snapshot and its place; when it fails, the slot is dropped.
func (s *Source) createSlot(ctx context.Context, conn *pgx.Conn, rep *pgconn.PgConn, use func(snapshot string, at pglogrepl.LSN) error) (pglogrepl.LSN, error) {
	if !s.cfg.AutoSetup {
		return 0, s.setupNeeded("slot", s.cfg.Slot, s.slotSQL())
	}
	r, err := s.awaitSlot(ctx, conn, rep)
	if err != nil {
		if hasCode(err, "53400") {
			return 0, fault.Config(fault.CodeServerSetting, "raise max_replication_slots, or drop a slot nobody uses", err, "no replication slot is free")
		}
		return 0, s.explain(fmt.Errorf("create slot %q (an open transaction holds this up): %w", s.cfg.Slot, err))
	}
	lsn, err := pglogrepl.ParseLSN(r.ConsistentPoint)
	if err == nil && use != nil {
		err = use(r.SnapshotName, lsn)
	}
	if err != nil {
		// The slot was made by this very call and nobody has read it.
		if derr := pglogrepl.DropReplicationSlot(context.WithoutCancel(ctx), rep, quote(s.cfg.Slot), pglogrepl.DropReplicationSlotOptions{}); derr != nil {
			s.log.Warn("drop the slot of a failed first start", zap.String("slot", s.cfg.Slot), zap.Error(derr))
		}
		return 0, err
	}
	s.log.Info("slot created", zap.String("slot", s.cfg.Slot), zap.Stringer("lsn", lsn))
	return lsn, nil
}

// slotWait is how often a slot that is not there yet is told of.
const slotWait = 10 * time.Second

// awaitSlot asks for the slot and waits. The server gives it when every
// transaction that was open before has ended.
func (s *Source) awaitSlot(ctx context.Context, conn *pgx.Conn, rep *pgconn.PgConn) (pglogrepl.CreateReplicationSlotResult, error) {
	type result struct {
		slot pglogrepl.CreateReplicationSlotResult
		err  error
	}
	pid, made := rep.PID(), make(chan result, 1)
	go func() {
		r, err := s.makeSlot(ctx, rep)
		made <- result{r, err}
	}()
	slow := time.NewTicker(slotWait)
	defer slow.Stop()
	for {
		select {
		case r := <-made:
			return r.slot, r.err
		case <-slow.C:
			s.tellBlockers(ctx, conn, pid)
		}
	}
}

// tellBlockers says whose transaction the making of the slot waits for.
func (s *Source) tellBlockers(ctx context.Context, conn *pgx.Conn, pid uint32) {
	rows, err := conn.Query(ctx, `
		SELECT b.pid, coalesce(a.usename::text, p.owner::text, ''), coalesce(a.application_name, 'prepared transaction ' || p.gid, ''),
		       coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8, 0)
		FROM unnest(pg_blocking_pids($1)) b(pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid AND b.pid <> 0
		LEFT JOIN (SELECT * FROM pg_prepared_xacts ORDER BY prepared LIMIT 1) p ON b.pid = 0`, pid)
	type blocker struct {
		PID               int32
		User, Application string
		Seconds           float64
	}
	var blockers []blocker
	if err == nil {
		blockers, err = pgx.CollectRows(rows, pgx.RowToStructByPos[blocker])
	}
	const waits = "the slot is not there yet: the server waits for an open transaction to end"
	if err != nil || len(blockers) == 0 {
		s.log.Warn(waits, zap.String("slot", s.cfg.Slot), zap.String("see", "pg_stat_activity, xact_start"), zap.Error(err))
	}
	for _, b := range blockers {
		fields := []zap.Field{zap.String("slot", s.cfg.Slot), zap.Int32("pid", b.PID), zap.String("user", b.User), zap.String("application_name", b.Application)}
		if b.Seconds > 0 { // the server shows it to the same user and to members of pg_read_all_stats
			fields = append(fields, zap.Duration("open_for", time.Duration(b.Seconds*float64(time.Second)).Round(time.Second)))
		}
		s.log.Warn(waits, fields...)
	}
}

func (s *Source) emptyAt(ctx context.Context, conn *pgx.Conn, snapshot string) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SET TRANSACTION SNAPSHOT "+quoteLiteral(snapshot)); err != nil {
		return fmt.Errorf("use the slot's snapshot: %w", err)
	}
	return s.mustBeEmpty(ctx, tx.Conn())
}
