package mysqlsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// Columns of one type are renamed, exchanged, moved, added, dropped, and the table is exchanged for another, at random,
// while rows are written and read; at times the writer waits for the reader. Each value tells its column's name: it never comes under
// another one. Where the log has the names nothing stops; where it has not, a stop says why.
func TestReshapedAtRandom(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		r := &reshaper{Rand: rand.New(rand.NewPCG(seed, 0)), columns: []string{"a", "b", "c"}}
		d := newDatabase(t, server, r.create("outbox"))
		s := newSource(t, d.config())
		at := begin(t, s)
		w := d.session(t)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for range harness.Times(60, 2000) {
				for _, statement := range append(r.change(), r.insert(), r.insert()) {
					if _, err := w.ExecContext(t.Context(), statement); err != nil {
						t.Errorf("%s: %v", statement, err)
						return
					}
				}
				if r.IntN(2) == 0 {
					r.await(t)
				}
			}
		}()
		read, stops := 0, 0
		for done := false; !done; {
			n, err := reshaped(t, s, at, r, w, written)
			read += n
			done = err == nil
			if f := fault.As(err); err != nil && (named(server) || f == nil || f.Code != fault.CodeSchemaUnknown) {
				t.Fatalf("after %d rows: %v", read, err)
			}
			if !done {
				if at, err = s.Begin(t.Context(), source.First{Mode: source.StartNow}); err != nil {
					t.Fatal(err)
				}
				stops++
				r.stops.Add(1)
			}
		}
		t.Logf("%d rows, %d stops", read, stops)
		if named(server) && read != r.id {
			t.Errorf("%d rows of %d", read, r.id)
		}
	})
}

// reshaped reads until all is written and a row behind it has come.
func reshaped(t *testing.T, s *mysql.Source, at source.Position, r *reshaper, w session, written <-chan struct{}) (read int, err error) {
	t.Helper()
	st, err := s.Open(t.Context(), at)
	if err != nil {
		return 0, err
	}
	defer func() { _ = st.Close(context.Background()) }()
	last := ""
	for {
		select {
		case <-written:
			if last == "" {
				w.exec(t, r.insert())
				last = strconv.Itoa(r.id)
			}
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		b, err := st.Next(ctx)
		late := ctx.Err() != nil
		cancel()
		if late && errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err != nil {
			return read, err
		}
		for _, row := range b.Rows {
			read++
			id := string(row.Values[row.Table.Column("id")].Data)
			n, _ := strconv.Atoi(id)
			r.seen.Store(int64(n))
			for i, c := range row.Table.Columns {
				if v := row.Values[i]; c.Name != "id" && v.State == source.Present && !strings.HasPrefix(string(v.Data), c.Name) {
					t.Fatalf("%q in column %q of row %s", v.Data, c.Name, id)
				}
			}
			if id == last {
				return read, nil
			}
		}
	}
}

// reshaper knows the table's columns as they are.
type reshaper struct {
	*rand.Rand
	columns []string
	id      int          // of the last row
	seen    atomic.Int64 // the last row that was read
	stops   atomic.Int64 // of the reader
}

// await waits until the last row is read, or the reader stopped.
func (r *reshaper) await(t *testing.T) {
	before := r.stops.Load()
	for r.seen.Load() < int64(r.id) && r.stops.Load() == before && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

func (r *reshaper) create(name string) string {
	return "CREATE TABLE " + name + " (id INT, " + strings.Join(r.columns, " VARCHAR(20), ") + " VARCHAR(20))"
}

func (r *reshaper) insert() string {
	r.id++
	values := make([]string, len(r.columns))
	for i, c := range r.columns {
		values[i] = fmt.Sprintf("'%s%d'", c, r.id)
	}
	return fmt.Sprintf("INSERT INTO outbox (id, %s) VALUES (%d, %s)", strings.Join(r.columns, ", "), r.id, strings.Join(values, ", "))
}

// change makes statements that change the table.
func (r *reshaper) change() []string {
	n := r.IntN(len(r.columns))
	other := (n + 1) % len(r.columns)
	unused := func() string {
		for {
			if c := string(rune('a' + r.IntN(26))); !slices.Contains(r.columns, c) {
				return c
			}
		}
	}
	switch r.IntN(8) {
	case 0:
		old := r.columns[n]
		r.columns[n] = unused()
		return []string{"ALTER TABLE outbox RENAME COLUMN " + old + " TO " + r.columns[n]}
	case 1:
		x, y := r.columns[n], r.columns[other]
		r.columns[n], r.columns[other] = y, x
		return []string{fmt.Sprintf("ALTER TABLE outbox RENAME COLUMN %s TO %s, RENAME COLUMN %[2]s TO %[1]s", x, y)}
	case 2:
		c := r.columns[n]
		r.columns = append([]string{c}, slices.Delete(r.columns, n, n+1)...)
		return []string{"ALTER TABLE outbox MODIFY " + c + " VARCHAR(20) AFTER id"}
	case 3:
		if len(r.columns) > 5 {
			return nil
		}
		c := unused()
		r.columns = append(r.columns, c)
		return []string{"ALTER TABLE outbox ADD " + c + " VARCHAR(20)"}
	case 4:
		if len(r.columns) < 3 {
			return nil
		}
		c := r.columns[n]
		r.columns = slices.Delete(r.columns, n, n+1)
		return []string{"ALTER TABLE outbox DROP " + c}
	case 5, 6: // as gh-ost and pt-osc do it; rows are written between making the other table and exchanging it
		before := r.insert()
		r.Shuffle(len(r.columns), func(i, j int) { r.columns[i], r.columns[j] = r.columns[j], r.columns[i] })
		return []string{r.create("_outbox_gho"), before, "RENAME TABLE outbox TO _outbox_del, _outbox_gho TO outbox", "DROP TABLE _outbox_del"}
	}
	return []string{"TRUNCATE outbox"}
}
