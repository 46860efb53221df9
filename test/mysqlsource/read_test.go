package mysqlsource

import (
	"context"
	"database/sql"
	"testing"

	"github.com/outboxd/outboxd/source"
)

// stream opens at a place; the test's end closes it.
func stream(t *testing.T, s source.Source, at source.Position) source.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st, err := s.Open(ctx, at)
	if err != nil {
		t.Fatalf("open at %s: %v", at, err)
	}
	t.Cleanup(func() { _ = st.Close(context.Background()) })
	return st
}

// rows reads n rows and the place behind them.
func rows(t *testing.T, s source.Stream, n int) ([]source.Row, source.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []source.Row
	for {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("next after %d of %d rows: %v", len(got), n, err)
		}
		got = append(got, b.Rows...)
		if len(got) >= n && b.Position != "" {
			return got, b.Position
		}
	}
}

// fails reads until the stream ends and gives its error.
func fails(t *testing.T, s source.Stream) (read []source.Row, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b, err := s.Next(ctx)
		if ctx.Err() != nil {
			t.Fatalf("the stream goes on after %d rows", len(read))
		}
		if err != nil {
			return read, err
		}
		read = append(read, b.Rows...)
	}
}

// ids gives the column id of each row.
func ids(all []source.Row) []string {
	got := make([]string, len(all))
	for i, r := range all {
		got[i] = string(r.Values[r.Table.Column("id")].Data)
	}
	return got
}

// session is a connection of the test's own, for settings of one session.
type session struct{ *sql.Conn }

func (d database) session(t testing.TB, settings ...string) session {
	t.Helper()
	c, err := d.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := session{c}
	t.Cleanup(func() { _ = c.Close() })
	s.exec(t, "SET NAMES utf8mb4")
	for _, statement := range settings {
		s.exec(t, statement)
	}
	return s
}

func (s session) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := s.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%.300s: %v", statement, err)
	}
}

// value is the text of a query's one field.
func (s session) value(t *testing.T, query string, args ...any) string {
	t.Helper()
	var v sql.NullString
	if err := s.QueryRowContext(t.Context(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%.300s: %v", query, err)
	}
	return v.String
}

// table reads all rows of a query as text; NULL is nil.
func (s session) table(t *testing.T, query string, args ...any) [][]*string {
	t.Helper()
	r, err := s.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatalf("%.300s: %v", query, err)
	}
	defer r.Close()
	names, err := r.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all [][]*string
	for r.Next() {
		row, into := make([]*string, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := r.Scan(into...); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
