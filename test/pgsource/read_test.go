package pgsource

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
)

// reader is an open stream whose rows a test takes in order.
type reader struct {
	source.Stream
	rows []source.Row // read and not taken
	last source.Position
}

// open takes the lease, begins, and opens the first stream.
func open(t *testing.T, c postgres.Config) *reader {
	t.Helper()
	s := newSource(t, c)
	at := begin(t, s)
	stream, err := s.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close(context.Background()) })
	return &reader{Stream: stream, last: at}
}

// take waits for the next n rows.
func (r *reader) take(t *testing.T, n int) []source.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(r.rows) < n {
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d rows: %v", len(r.rows), n, err)
		}
		r.rows = append(r.rows, b.Rows...)
		if b.Position != "" {
			r.last = b.Position
		}
	}
	taken := r.rows[:n:n]
	r.rows = r.rows[n:]
	return taken
}

// expect wants the next rows to have these ids, and no others to be among them.
func (r *reader) expect(t *testing.T, ids ...string) []source.Row {
	t.Helper()
	rows := r.take(t, len(ids))
	got := make([]string, len(rows))
	for i, row := range rows {
		got[i] = text(row, "id")
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("rows %.300v, want %.300v", got, ids)
	}
	return rows
}

// text is a column as text; NULL and absent say so.
func text(row source.Row, column string) string {
	i := row.Table.Column(column)
	if i < 0 {
		return "(no column " + column + ")"
	}
	switch v := row.Values[i]; v.State {
	case source.Null:
		return "(null)"
	case source.Absent:
		return "(absent)"
	default:
		return string(v.Data)
	}
}

// session is one connection, for what belongs to one transaction.
func (d database) session(t *testing.T) *sql.Conn {
	t.Helper()
	conn, err := d.SQL().Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func exec(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%.100s: %v", s, err)
		}
	}
}

func asFault(t *testing.T, err error) *fault.Error {
	t.Helper()
	f := fault.As(err)
	if f == nil {
		t.Fatalf("no fault: %v", err)
	}
	return f
}
