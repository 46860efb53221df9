package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// view is a session that sees the tables as they were at one moment. It
// outlives a stream, for nobody can make it again.
type view struct {
	*session
	place place // what is not in the view is in the log behind it …
	late  *late // … or was left to the log: rows that a later view has in addition; nil: none
}

// snapshotLog is how often a running snapshot tells how far it is.
const snapshotLog = 10 * time.Second

// asTheLog makes a session read what the log prints, and take our literals for what they are, whatever the server's defaults.
const asTheLog = "SET SESSION sql_mode = '', time_zone = '+00:00'"

// newView takes a view. Its session reads rows as the log prints them, and no limit of
// the server ends it while Kafka stands still.
func (s *Source) newView(ctx context.Context) (*view, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	statements := []string{
		asTheLog,
		"SET SESSION wait_timeout = 31536000",
		fmt.Sprintf("SET SESSION net_write_timeout = %d, max_sort_length = %d, sql_select_limit = 18446744073709551615", int(writeTimeout.Seconds()), sortLength),
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
	}
	if s.server.mariadb {
		statements = append(statements, "SET SESSION max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0")
	} else {
		statements = append(statements, "SET SESSION max_execution_time = 0")
	}
	for _, statement := range append(statements, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY") {
		if _, err := q.query(ctx, statement); err != nil {
			q.close()
			return nil, fmt.Errorf("take a snapshot: %w", err)
		}
	}
	return &view{session: q}, nil
}

// beginSnapshot takes the view and gives the first place, with what there is to read.
func (s *Source) beginSnapshot(ctx context.Context, q *session) (source.Position, error) {
	if _, err := q.query(ctx, asTheLog); err != nil {
		return "", fmt.Errorf("begin a snapshot: %w", err)
	}
	orders, err := s.prepareSnapshot(ctx, q)
	if err != nil {
		return "", err
	}
	v, err := s.firstView(ctx, q)
	if err != nil {
		return "", err
	}
	at := v.place
	if at.snapshot, err = s.survey(ctx, v.session, orders); err != nil || at.snapshot == nil {
		v.close()
		return at.position(), err
	}
	s.view = v
	return at.position(), nil
}

// survey notes what there is to read; nil when there is nothing. What it has looked at stays as
// it is until the view ends: TRUNCATE and ALTER TABLE wait for that.
func (s *Source) survey(ctx context.Context, q *session, orders []order) (*snapshot.Cursor, error) {
	now, err := q.value(ctx, "SELECT FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000)")
	if err != nil {
		return nil, fmt.Errorf("ask the time: %w", err)
	}
	var ms int64
	if _, err := fmt.Sscan(now, &ms); err != nil {
		return nil, fmt.Errorf("ask the time: %w", err)
	}
	c := &snapshot.Cursor{At: time.UnixMilli(ms).UTC(), Where: s.cfg.Snapshot.Where}
	for i, t := range s.cfg.Tables {
		if err := s.orderHolds(ctx, q, t, &orders[i]); err != nil {
			return nil, err
		}
		by := snapshot.Parenthesized(orders[i].by)
		query := fmt.Sprintf("SELECT %s FROM %s", strings.Join(by, ", "), t)
		if c.Where != "" {
			query += " WHERE (" + c.Where + "\n)"
		}
		query += fmt.Sprintf(" ORDER BY %s DESC LIMIT 1", strings.Join(by, " DESC, "))
		var through []string
		err := q.textRows(ctx, query, func(columns []resultColumn, row [][]byte) (err error) {
			through, err = s.literals(t, orders[i].by, columns, row)
			return err
		})
		if fault.As(err) != nil {
			return nil, err
		}
		if err != nil {
			return nil, s.explainSnapshot(t, err)
		}
		if through != nil {
			c.Tables = append(c.Tables, snapshot.Table{Schema: t.Schema, Name: t.Name, Order: orders[i].by, Through: through})
		}
	}
	if len(c.Tables) == 0 {
		return nil, nil
	}
	return c, nil
}

// literals writes the values of an order's expressions in a row.
func (s *Source) literals(t TableName, by []string, columns []resultColumn, row [][]byte) ([]string, error) {
	values := make([]string, len(row))
	for i, v := range row {
		if v == nil {
			return nil, s.noOrder(t, fmt.Sprintf("%s is NULL in some of them", by[i]))
		}
		var err error
		if values[i], err = columns[i].literal(v); err != nil {
			return nil, s.noOrder(t, fmt.Sprintf("%s: %s", by[i], err))
		}
	}
	return values, nil
}

// dropView lets go of a view that is over, or that a standby must not hold: it keeps the server from purging old rows.
func (s *Source) dropView() {
	if s.view != nil {
		_ = s.view.Close()
		s.view = nil
	}
}

// takeView gives the view of this snapshot that this process still has, or nil.
func (s *Source) takeView(ctx context.Context, at place) *view {
	if s.view == nil {
		return nil
	}
	usable := s.view.addr == s.held && s.view.place.position() == at.reading(nil).position()
	if usable {
		open, err := s.view.value(ctx, "SELECT 1")
		usable = err == nil && open == "1"
	}
	if !usable {
		s.dropView()
	}
	return s.view
}

// restOf gives the view to read the rest of a snapshot from, or nil when the place is in the log alone.
func (s *Source) restOf(ctx context.Context, st start) (*view, error) {
	if st.at.snapshot == nil {
		s.dropView()
		return nil, nil
	}
	return s.resume(ctx, st)
}

// resume finds a view to read the rest of a snapshot from. Without the place's own, which ended
// with the process that took it, a later one serves:
//
//   - a row that was committed before the place is in both, unless it
//     was deleted since;
//   - a row that was committed after it is in the log from that place on, so
//     it is left to the log. The log is read once for the keys of these rows.
//
// The log's end is asked for when the view is there: what the view has is in the log by then. So nothing is missing, and nothing comes twice but what was delivered and not saved.
func (s *Source) resume(ctx context.Context, st start) (*view, error) {
	at := st.at
	for _, t := range at.snapshot.Tables {
		if name := (TableName{t.Schema, t.Name}); !slices.Contains(s.cfg.Tables, name) {
			return nil, fault.Config(fault.CodeConfig, fmt.Sprintf("put %s back into OUTBOXD_TABLES until the snapshot is done", name), nil,
				"the first snapshot is under way and includes table %s, which OUTBOXD_TABLES does not name any more", name)
		}
	}
	if at.snapshot.Where != s.cfg.Snapshot.Where {
		s.log.Warn("the snapshot goes on with the condition it began with", zap.String("where", at.snapshot.Where))
	}
	if v := s.takeView(ctx, at); v != nil {
		return v, nil
	}
	later, err := s.newView(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.status(ctx, later.session)
	if err == nil {
		later.late, err = s.readLate(ctx, st, logPlace{end.file, end.pos})
	}
	if err != nil {
		later.close()
		return nil, err
	}
	later.place = at.reading(nil)
	s.log.Warn("the snapshot's own view is gone: going on with a later one",
		zap.Int("rows_left_to_the_log", len(later.late.rows)), zap.Bool("all_of_them_known", !later.late.overflow),
		zap.String("may_come_twice", later.late.repeats()))
	s.view = later
	return later, nil
}

// inSnapshot gives a place that is lost in the middle of the first snapshot its way out: no other
// place goes with what is left to read.
func inSnapshot(from source.Position, err error) error {
	const begin = "the first snapshot was not done: run `outboxd checkpoint delete`, and start with OUTBOXD_START=snapshot, which begins it anew; what was published comes again"
	f := fault.As(err)
	at, perr := parsePlace(from)
	switch {
	case f == nil || perr != nil || at.snapshot == nil:
		return err
	case f.Code == fault.CodePositionLost:
		return fault.Position(f.Code, begin, f.Err, "%s", f.Found)
	case f.Code == fault.CodeDiverged:
		return fault.Position(f.Code, otherServer+"; if this one was reset, built anew, or took over and lost transactions: "+begin, f.Err, "%s", f.Found)
	}
	return err
}

// estimate asks the server how many rows are left: of all tables, as it believes, without those that were read.
func (s *Source) estimate(ctx context.Context, q *session, c *snapshot.Cursor) int64 {
	var rows int64
	for i, t := range c.Tables {
		text, err := q.value(ctx, "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", t.Schema, t.Name)
		if err != nil {
			return 0
		}
		var n int64
		if _, err := fmt.Sscan(text, &n); err == nil {
			rows += n
		}
		if i == 0 && t.After != nil {
			rows = max(0, rows-c.Done)
		}
	}
	return rows
}

// Snapshot implements source.Snapshotter.
func (s *Source) Snapshot() *source.Snapshot { return s.progress.Load() }
