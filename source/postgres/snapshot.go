package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// Snapshot says what a first snapshot publishes, and in which order.
type Snapshot struct {
	// Where is an SQL condition on the rows; empty: all of them.
	Where string
	// OrderBy is a list of SQL expressions; empty: found by the table's key.
	OrderBy string
	// Aggregate names the columns that tell a row's aggregate: none when each
	// row is one of its own, known=false when no column does. May be nil.
	Aggregate func(*source.Table) (columns []string, known bool)
}

// view is a session that sees the tables as they were at one moment. The slot's
// own view is exact: what is not in it is in the log from the slot's place on. It
// outlives a stream, for nobody can make it again.
type view struct {
	conn  *pgx.Conn
	place pglogrepl.LSN // the slot's
	late  *late         // rows to leave to the log; nil: none, this is the slot's own view
}

// prepareSnapshot finds the order of each table, before anything is made.
func (s *Source) prepareSnapshot(ctx context.Context, conn *pgx.Conn) ([]order, error) {
	orders := make([]order, len(s.tables))
	for i, t := range s.tables {
		o, err := s.orderOf(ctx, conn, t)
		if err == nil {
			err = s.holds(ctx, conn, t, o)
		}
		if err != nil {
			return nil, err
		}
		orders[i] = o
	}
	return orders, nil
}

// holds finds out whether the order is one, among the rows there are.
func (s *Source) holds(ctx context.Context, conn *pgx.Conn, t TableName, o order) error {
	where := ""
	if s.cfg.Snapshot.Where != "" {
		where = " WHERE (" + s.cfg.Snapshot.Where + "\n)"
	}
	from, err := s.from(ctx, conn, t)
	if err != nil {
		return err
	}
	if o.given {
		found, err := s.exists(ctx, conn, t, fmt.Sprintf("SELECT FROM %s%s%s (%s) IS NULL", from, where, and(where), strings.Join(o.by, ") IS NULL OR (")))
		if err != nil {
			return err
		}
		if found {
			return s.noOrder(t, "an expression of OUTBOXD_SNAPSHOT_ORDER_BY is NULL in some of them")
		}
		return nil
	}
	if len(o.alone) == 0 {
		_, err := s.exists(ctx, conn, t, fmt.Sprintf("SELECT FROM %s%s", from, where))
		return err
	}
	found, err := s.exists(ctx, conn, t, fmt.Sprintf("SELECT FROM %s%s GROUP BY %s HAVING count(*) > 1", from, where, strings.Join(o.alone, ", ")))
	if err != nil {
		return err
	}
	if found {
		return s.noOrder(t, fmt.Sprintf("it has no integer key, and some of its rows are alike in %s", strings.Join(o.alone, ", ")))
	}
	return nil
}

func and(where string) string {
	if where == "" {
		return " WHERE"
	}
	return " AND"
}

func (s *Source) exists(ctx context.Context, conn *pgx.Conn, t TableName, query string) (found bool, err error) {
	if err := conn.QueryRow(ctx, "SELECT EXISTS ("+query+")").Scan(&found); err != nil {
		return false, s.explainSnapshot(conn, t, err)
	}
	return found, nil
}

// explainSnapshot turns what the server refuses in a snapshot's query into a fault.
func (s *Source) explainSnapshot(conn *pgx.Conn, t TableName, err error) error {
	var pg *pgconn.PgError
	switch {
	case hasCode(err, "42501"):
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT SELECT ON %s TO %s", t, quote(conn.Config().User)), err,
			"OUTBOXD_START=snapshot reads %s, and role %q may not", t, conn.Config().User)
	case errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "42") || strings.HasPrefix(pg.Code, "22")) &&
		(s.cfg.Snapshot.Where != "" || s.cfg.Snapshot.OrderBy != ""):
		return fault.Config(fault.CodeConfig, "correct OUTBOXD_SNAPSHOT_WHERE or OUTBOXD_SNAPSHOT_ORDER_BY", err,
			"the server refuses the condition or the order of the snapshot of %s", t)
	}
	return s.explain(fmt.Errorf("read the rows of %s: %w", t, err))
}

// from names the rows that the log would carry under the table's name: those of a table's
// heirs are logged under their own.
func (s *Source) from(ctx context.Context, conn *pgx.Conn, t TableName) (string, error) {
	var partitioned bool
	var filter string
	err := conn.QueryRow(ctx, `
		SELECT c.relkind = 'p', coalesce((SELECT p.rowfilter FROM pg_publication_tables p
			WHERE p.pubname = $3 AND p.schemaname = n.nspname AND p.tablename = c.relname LIMIT 1), '')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
		t.Schema, t.Name, s.cfg.Publication).Scan(&partitioned, &filter)
	if err != nil {
		return "", s.explain(fmt.Errorf("look at table %s: %w", t, err))
	}
	name := "ONLY " + t.String()
	if partitioned {
		name = t.String()
	}
	if filter != "" { // a publication that is not ours may leave out rows
		name = fmt.Sprintf("(SELECT * FROM %s WHERE %s) published", name, filter)
	}
	return name, nil
}

// viewSession opens a session that reads rows as the log prints them, and
// that no limit of the server ends while Kafka stands still.
func (s *Source) viewSession(ctx context.Context) (*pgx.Conn, error) {
	params := textSettings()
	params["standard_conforming_strings"] = "on"
	conn, err := s.connect(ctx, params)
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, `SELECT set_config(name, '0', false) FROM pg_settings
		WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout', 'idle_session_timeout')`)
	if err != nil {
		closeConn(conn)
		return nil, s.explain(fmt.Errorf("set the limits of the snapshot's session: %w", err))
	}
	return conn, nil
}

const beginView = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"

// hold takes the slot's own view over from the session that made the slot, and surveys what is in it.
func (s *Source) hold(ctx context.Context, name string, at pglogrepl.LSN, orders []order) (*snapshot.Cursor, error) {
	conn, err := s.viewSession(ctx)
	if err != nil {
		return nil, err
	}
	var c *snapshot.Cursor
	if _, err = conn.PgConn().Exec(ctx, beginView+"; SET TRANSACTION SNAPSHOT "+quoteLiteral(name)).ReadAll(); err != nil {
		err = s.explain(fmt.Errorf("use the slot's snapshot: %w", err))
	} else {
		c, err = s.survey(ctx, conn, orders)
	}
	if err != nil || c == nil {
		closeConn(conn)
		return nil, err
	}
	s.dropView()
	s.view = &view{conn: conn, place: at}
	return c, nil
}

// survey notes what there is to read. What it has looked at stays as it is
// until the view ends: TRUNCATE and ALTER TABLE wait for that.
func (s *Source) survey(ctx context.Context, conn *pgx.Conn, orders []order) (*snapshot.Cursor, error) {
	c := &snapshot.Cursor{Where: s.cfg.Snapshot.Where}
	if err := conn.QueryRow(ctx, "SELECT date_trunc('milliseconds', transaction_timestamp())").Scan(&c.At); err != nil {
		return nil, s.explain(fmt.Errorf("ask the time: %w", err))
	}
	c.At = c.At.UTC()
	for i, t := range s.tables {
		if err := s.holds(ctx, conn, t, orders[i]); err != nil {
			return nil, err
		}
		from, err := s.from(ctx, conn, t)
		if err != nil {
			return nil, err
		}
		query := fmt.Sprintf("SELECT %s FROM %s", list(orders[i].by), from)
		if c.Where != "" {
			query += " WHERE (" + c.Where + "\n)"
		}
		query += fmt.Sprintf(" ORDER BY %s DESC LIMIT 1", strings.Join(snapshot.Parenthesized(orders[i].by), " DESC, "))
		last, err := textRows(ctx, conn, query)
		if err != nil {
			return nil, s.explainSnapshot(conn, t, err)
		}
		if len(last) == 0 {
			continue
		}
		key := make([]string, len(last[0]))
		for j, v := range last[0] {
			key[j] = string(v)
		}
		c.Tables = append(c.Tables, snapshot.Table{Schema: t.Schema, Name: t.Name, Order: orders[i].by, Through: key})
	}
	if len(c.Tables) == 0 {
		return nil, nil
	}
	return c, nil
}

// dropView lets go of a view that is over, or that a standby must not hold: it keeps vacuum from its work.
func (s *Source) dropView() {
	if s.view != nil {
		closeConn(s.view.conn)
		s.view = nil
	}
}

// takeView gives the view of this snapshot that this process still has, or nil.
func (s *Source) takeView(ctx context.Context, at place) *view {
	if s.view == nil {
		return nil
	}
	usable := s.view.place == at.lsn && !s.view.conn.IsClosed()
	if usable {
		_, err := s.view.conn.Exec(ctx, "CLOSE ALL") // a failed transaction refuses, too
		usable = err == nil
	}
	if !usable {
		s.dropView()
	}
	return s.view
}

// resume finds a view to read the rest of a snapshot from. Without the slot's own, which ended
// with the process that made it, a later one serves:
//
//   - a row that was committed before the slot's place is in both, unless it
//     was deleted since;
//   - a row that was committed after it is in the log from that place on, so
//     it is left to the log. The log is read once for the keys of these rows.
//
// So nothing is missing, and nothing comes twice but what was delivered and not saved.
func (s *Source) resume(ctx context.Context, conn *pgx.Conn, at place) (*view, error) {
	for _, t := range at.snapshot.Tables {
		if !s.wanted()[tableOf(t)] {
			return nil, fault.Config(fault.CodeConfig, fmt.Sprintf("put %s back into OUTBOXD_TABLES until the snapshot is done", tableOf(t)), nil,
				"the first snapshot is under way and includes table %s, which OUTBOXD_TABLES does not name any more", tableOf(t))
		}
	}
	if at.snapshot.Where != s.cfg.Snapshot.Where {
		s.log.Warn("the snapshot goes on with the condition it began with", zap.String("where", at.snapshot.Where))
	}
	if v := s.takeView(ctx, at); v != nil {
		return v, nil
	}
	later, err := s.viewSession(ctx)
	if err != nil {
		return nil, err
	}
	// The first question fixes what is seen; the end of the log is asked for after it.
	if _, err = later.PgConn().Exec(ctx, beginView+"; SELECT 1").ReadAll(); err != nil {
		closeConn(later)
		return nil, s.explain(fmt.Errorf("begin a later snapshot: %w", err))
	}
	late, err := s.readLate(ctx, conn, at)
	if err != nil {
		closeConn(later)
		return nil, err
	}
	s.log.Warn("the slot's own snapshot is gone: going on with a later one",
		zap.Int64("rows_done", at.snapshot.Done), zap.Int("rows_left_to_the_log", len(late.rows)), zap.Bool("all_of_them_known", !late.overflow),
		zap.String("may_come_twice", late.repeats()))
	s.view = &view{conn: later, place: at.lsn, late: late}
	return s.view, nil
}

// estimate asks the planner how many rows are left.
func (s *Source) estimate(ctx context.Context, conn *pgx.Conn, c *snapshot.Cursor) int64 {
	var rows int64
	for _, t := range c.Tables {
		from, err := s.from(ctx, conn, tableOf(t))
		if err != nil {
			return 0
		}
		var text []byte
		if err := conn.QueryRow(ctx, fmt.Sprintf("EXPLAIN (FORMAT JSON) SELECT FROM %s WHERE %s", from, rowsLeft(t, c.Where)), pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
			return 0
		}
		var plan []struct {
			Plan struct {
				Rows int64 `json:"Plan Rows"`
			}
		}
		if json.Unmarshal(text, &plan) == nil && len(plan) == 1 {
			rows += plan[0].Plan.Rows
		}
	}
	return rows
}

// Snapshot implements source.Snapshotter.
func (s *Source) Snapshot() *source.Snapshot { return s.progress.Load() }

// textRows runs a query whose values are wanted as text. There is no parameter in it.
func textRows(ctx context.Context, conn *pgx.Conn, query string) ([][][]byte, error) {
	results, err := conn.PgConn().Exec(ctx, query).ReadAll()
	if err != nil {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}

// row is a row of expressions, as SQL compares it.
func row(expressions []string) string { return "(" + list(expressions) + ")" }

func list(expressions []string) string {
	return strings.Join(snapshot.Parenthesized(expressions), ", ")
}

// literals is a row of values whose types follow from what they are compared with.
func literals(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = quoteLiteral(v)
	}
	return "(" + strings.Join(out, ", ") + ")"
}

// snapshotLog is how often a running snapshot tells how far it is.
const snapshotLog = 10 * time.Second
