package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

var _ source.Lister = (*Source)(nil)

// listRows is how many rows are handed over at once.
const listRows = 1000

// List implements source.Lister. All tables are read in one view.
func (s *Source) List(ctx context.Context, what source.Listing, take func([]source.Listed) error) error {
	conn, err := s.viewSession(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	tables, err := s.resolve(ctx, conn)
	if err != nil {
		return err
	}
	if _, err := conn.PgConn().Exec(ctx, beginView).ReadAll(); err != nil {
		return s.explain(fmt.Errorf("begin to read: %w", err))
	}
	for _, t := range tables {
		if err := s.list(ctx, conn, t, what, take); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) list(ctx context.Context, conn *pgx.Conn, t TableName, what source.Listing, take func([]source.Listed) error) error {
	l := lister{take: take}
	var err error
	if l.table, _, err = s.describe(ctx, conn, t); err != nil {
		return err
	}
	id, made, err := what.Columns(l.table)
	if err != nil {
		return err
	}
	var tracked bool
	if err := conn.QueryRow(ctx, "SELECT current_setting('track_commit_timestamp')::bool").Scan(&tracked); err != nil {
		return s.explain(fmt.Errorf("ask the server's settings: %w", err))
	}
	at := "NULL::timestamptz"
	if made = madeColumn(l.table, made); made != "" {
		at = quote(made)
	}
	if tracked {
		at = "coalesce(pg_xact_commit_timestamp(xmin), " + at + ")"
	}
	where, err := s.listed(t, what, id, at, made == "" && !tracked)
	if err != nil {
		return err
	}
	from, err := s.from(ctx, conn, t)
	if err != nil {
		return err
	}
	exact := "false"
	if tracked {
		exact = "pg_xact_commit_timestamp(xmin) IS NOT NULL"
	}
	names := make([]string, len(l.table.Columns))
	for i, c := range l.table.Columns {
		names[i] = quote(c.Name)
	}
	// A publication's filter makes a subquery of the table, which has no system columns.
	xmin := "xmin"
	if strings.HasPrefix(from, "(") {
		from = strings.Replace(from, "SELECT *", "SELECT *, xmin", 1)
	}
	query := fmt.Sprintf("SELECT %s, %s, (extract(epoch FROM %s) * 1000000)::bigint, %s FROM %s%s",
		strings.Join(names, ", "), xmin, at, exact, from, where)
	results := conn.PgConn().Exec(ctx, query)
	for results.NextResult() {
		for rows := results.ResultReader(); rows.NextRow(); {
			if err := l.row(rows.Values()); err != nil {
				_ = results.Close()
				return err
			}
		}
	}
	if err := results.Close(); err != nil {
		return s.explainList(conn, t, err)
	}
	return l.flush()
}

func (s *Source) explainList(conn *pgx.Conn, t TableName, err error) error {
	if hasCode(err, "42501") {
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT SELECT ON %s TO %s", t, quote(conn.Config().User)), err,
			"role %q may not read %s", conn.Config().User, t)
	}
	return s.explain(fmt.Errorf("read the rows of %s: %w", t, err))
}

// listed is the condition on the rows.
func (s *Source) listed(t TableName, what source.Listing, id, at string, timeless bool) (string, error) {
	if timeless && (!what.Since.IsZero() || !what.Until.IsZero()) {
		return "", fault.Config(fault.CodeConfig, "bound the rows with --from-id and --to-id; or name the column in OUTBOXD_COLUMN_TIMESTAMP; or set track_commit_timestamp = on for rows to come", nil,
			"table %s has no column that tells when a row was made", t)
	}
	var all []string
	bound := func(expression, operator, value string) {
		if value != "" {
			all = append(all, expression+" "+operator+" "+quoteLiteral(value))
		}
	}
	text := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05.999999Z07:00")
	}
	bound(at, ">=", text(what.Since))
	bound(at, "<", text(what.Until))
	bound(quote(id), ">=", what.FromID)
	bound(quote(id), "<=", what.ToID)
	if len(all) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(all, " AND "), nil
}

// madeColumn is the column asked for, as far as it holds a time, or the one of the usual name; or "".
func madeColumn(t *source.Table, asked string) string {
	var times []string
	for _, c := range t.Columns {
		if strings.HasPrefix(c.Type, "timestamp") {
			times = append(times, c.Name)
			if c.Name == asked {
				return asked
			}
		}
	}
	if i := snapshot.Creation(times); i >= 0 {
		return times[i]
	}
	return ""
}

// lister makes rows of one table's result.
type lister struct {
	table *source.Table
	take  func([]source.Listed) error
	rows  []source.Listed
	bytes int
}

func (l *lister) row(columns [][]byte) error {
	n := len(l.table.Columns)
	values := make([]source.Value, n)
	for i, v := range columns[:n] {
		if v == nil {
			values[i].State = source.Null
			continue
		}
		l.bytes += len(v)
		data := append(make([]byte, 0, len(v)), v...)
		if l.table.Columns[i].Kind == source.Bytes {
			var err error
			if data, err = unhex(data); err != nil {
				return fmt.Errorf("table %s: column %q: %w", l.table, l.table.Columns[i].Name, err)
			}
		}
		values[i] = source.Value{Data: data, State: source.Present}
	}
	tx := &source.Tx{ID: string(columns[n])}
	if at := columns[n+1]; at != nil {
		us, err := strconv.ParseInt(string(at), 10, 64)
		if err != nil {
			return fmt.Errorf("table %s: read a row's time: %w", l.table, err)
		}
		tx.CommitAt = time.UnixMicro(us).UTC()
	}
	l.rows = append(l.rows, source.Listed{Row: source.Row{Table: l.table, Tx: tx, Values: values}, Exact: string(columns[n+2]) == "t"})
	if len(l.rows) < listRows && l.bytes < snapshotBytes {
		return nil
	}
	return l.flush()
}

// snapshotBytes bounds what is handed over at once.
const snapshotBytes = 1 << 20

func (l *lister) flush() error {
	rows := l.rows
	l.rows, l.bytes = nil, 0
	if len(rows) == 0 {
		return nil
	}
	return l.take(rows)
}

// Mark implements source.Lister.
func (s *Source) Mark(ctx context.Context) (string, error) {
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	var lsn string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return "", s.explain(fmt.Errorf("ask for the end of the log: %w", err))
	}
	return lsn, nil
}

// Passed implements source.Lister.
func (s *Source) Passed(at source.Position, mark string) (bool, error) {
	p, err := parsePlace(at)
	if err != nil {
		return false, err
	}
	lsn, err := pglogrepl.ParseLSN(mark)
	if err != nil {
		return false, fmt.Errorf("parse the mark: %w", err)
	}
	return p.snapshot == nil && p.lsn >= lsn, nil
}
