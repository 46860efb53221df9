package mysqlsource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// keyed is the usual table, with 1 to n in it.
func keyed(t *testing.T, server string, n int) database {
	t.Helper()
	d := newDatabase(t, server, `CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(40) NOT NULL, payload JSON, published_at DATETIME NULL)`)
	d.fill(t, `INSERT INTO outbox (id, aggregate_id, payload) VALUES `, n, func(i int) string { return fmt.Sprintf(`(%d, %d, '{"n": %d}')`, i, i%7, i) })
	return d
}

// fill inserts n rows, a thousand at a time.
func (d database) fill(t *testing.T, insert string, n int, row func(i int) string) {
	t.Helper()
	for from := 1; from <= n; from += 1000 {
		var values []string
		for i := from; i <= min(n, from+999); i++ {
			values = append(values, row(i))
		}
		d.exec(t, insert+strings.Join(values, ", "))
	}
}

// first makes a first place with a snapshot, under the lease for the rest of the test.
func first(t *testing.T, s *mysql.Source) (source.Position, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	letGo(t, s)
	return s.Begin(ctx, source.First{Mode: source.StartSnapshot})
}

// letGo ends what a source still sees of its tables when the test is over, so that they can be dropped.
func letGo(t *testing.T, s *mysql.Source) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := s.Begin(ctx, source.First{Mode: source.StartNow}); err != nil {
			t.Error(err)
		}
	})
}

func mustFirst(t *testing.T, s *mysql.Source) source.Position {
	t.Helper()
	at, err := first(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// another is what a new process would be: it knows nothing but the configuration.
func another(t *testing.T, c mysql.Config) *mysql.Source {
	t.Helper()
	c.Name = harness.Unique("another") // the first one's lease may still be held
	s := newSource(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	letGo(t, s)
	return s
}

// follower reads a stream and keeps the place behind what it read.
type follower struct {
	t    *testing.T
	ctx  context.Context
	at   source.Position
	rows []source.Row
	open source.Stream
	idle bool // the log's end is reached
}

func read(t *testing.T, s source.Source, at source.Position) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	open, err := s.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close(context.Background()) })
	return &follower{t: t, ctx: ctx, at: at, open: open}
}

func (r *follower) next() {
	r.t.Helper()
	b, err := r.open.Next(r.ctx)
	if err != nil {
		r.t.Fatalf("after %d rows: %v", len(r.rows), err)
	}
	r.rows, r.idle = append(r.rows, b.Rows...), b.CaughtUp
	if b.Position != "" {
		r.at = b.Position
	}
}

// until reads until n rows are there.
func (r *follower) until(n int) *follower {
	r.t.Helper()
	for len(r.rows) < n {
		r.next()
	}
	return r
}

// caughtUp reads to the log's end.
func (r *follower) caughtUp() *follower {
	r.t.Helper()
	for !r.idle {
		r.next()
	}
	return r
}

func (r *follower) close() source.Position {
	r.t.Helper()
	if err := r.open.Close(r.ctx); err != nil {
		r.t.Error(err)
	}
	return r.at
}

// numbers gives "from" to "to".
func numbers(from, to int) []string {
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	t.Errorf("%s: %d rows, want %d", what, len(got), len(want))
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("first difference at %d: got %.200q, want %.200q", i, got[min(i, len(got)):], want[min(i, len(want)):])
			return
		}
	}
}

// The rows as they were when the snapshot was taken, and then the log: what is committed,
// changed and deleted meanwhile makes neither a gap nor a repeat at the seam.
func TestSnapshotThenLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := keyed(t, server, 12_000)
		open, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// 12001 is numbered before what follows and committed after it.
		if _, err := open.ExecContext(t.Context(), `INSERT INTO outbox (aggregate_id) VALUES ('late')`); err != nil {
			t.Fatal(err)
		}
		s := newSource(t, d.config())
		at := mustFirst(t, s)
		d.fill(t, `INSERT INTO outbox (aggregate_id) VALUES `, 10, func(int) string { return "('x')" })
		d.exec(t, `UPDATE outbox SET published_at = NOW(), payload = '{"n": 0}' WHERE id <= 2000`)
		d.exec(t, `DELETE FROM outbox WHERE id BETWEEN 1000 AND 1999`)
		if err := open.Commit(); err != nil {
			t.Fatal(err)
		}
		r := read(t, s, at).until(12_000)
		if p := string(r.rows[0].Values[2].Data); p != `{"n": 1}` {
			t.Errorf("the first row's payload is %s, not what it was when the snapshot was taken", p)
		}
		r.until(12_011).caughtUp()
		want := append(numbers(1, 12_000), numbers(12_002, 12_011)...)
		same(t, "snapshot and log", ids(r.rows), append(want, "12001"))
		if s.Snapshot() != nil {
			t.Error("the snapshot is over and still told of")
		}
		at = r.close()
		if strings.Contains(string(at), "snapshot=") {
			t.Errorf("the place behind the snapshot still holds a cursor: %s", at)
		}
		d.exec(t, `INSERT INTO outbox (aggregate_id) VALUES ('y')`)
		same(t, "the stream after that", ids(read(t, another(t, d.config()), at).until(1).rows), []string{"12012"})
	})
}

// The process dies in the middle of the snapshot, and with it its view. What was
// committed since comes from the log alone, whatever its key; what was changed since
// comes from the table; nothing comes twice.
func TestSnapshotGoesOnInAnotherProcess(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, `CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id VARCHAR(40), published_at DATETIME NULL)`)
		d.fill(t, `INSERT INTO outbox (id, aggregate_id) VALUES `, 8000, func(i int) string { return fmt.Sprintf("(%d, 'a')", 2*i) })
		c := d.config()
		c.Hold = 20 // the transaction of the late rows is larger than that
		one := newSource(t, c)
		at := mustFirst(t, one)
		r := read(t, one, at).until(1500)
		at = r.close()
		if n := one.Snapshot(); n == nil || n.Rows < 1500 || n.Estimate < 4000 || n.Table == "" {
			t.Errorf("progress: %+v", n)
		}
		done := len(r.rows)
		// Odd keys: numbered before the snapshot was taken, committed after it, on both sides of the cursor.
		d.exec(t, `INSERT INTO outbox (id, aggregate_id) VALUES (11, 'late'), (15001, 'late'), (15003, 'late'), (17001, 'new')`)
		d.exec(t, `UPDATE outbox SET published_at = NOW() WHERE id % 2 = 0`)
		d.exec(t, `DELETE FROM outbox WHERE id = 15002`)
		r = read(t, another(t, c), at).until(8000 - done - 1 + 4).caughtUp()
		var want []string
		for i := done + 1; i <= 8000; i++ {
			if i != 7501 {
				want = append(want, fmt.Sprint(i*2))
			}
		}
		same(t, "the rest", ids(r.rows), append(want, "11", "15001", "15003", "17001"))
		r.close()
	})
}

// A stream that ends with the process alive, as when Kafka is gone for a while,
// is followed by one that reads on in the same view: even deleted rows are there.
// One statement sorts all rows where no index has them in order, and is told to end.
func TestSnapshotGoesOnInItsOwnView(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		for name, order := range map[string]string{"chunks": "", "one statement": "id + 0"} {
			t.Run(server+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, server, `CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id VARCHAR(40), payload JSON)`)
				const n = 8000
				d.fill(t, `INSERT INTO outbox VALUES `, n, func(i int) string { return fmt.Sprintf(`(%d, 'a', '{"fill": "%s"}')`, i, strings.Repeat("x", 2000)) })
				c := d.config()
				c.Snapshot.OrderBy = order
				s := newSource(t, c)
				at := mustFirst(t, s)
				var all []string
				for len(all) < 5500 {
					r := read(t, s, at).until(1000)
					at = r.close()
					all = append(all, ids(r.rows)...)
					d.exec(t, `DELETE FROM outbox WHERE id % 3 = 0`)
				}
				r := read(t, s, at).until(n - len(all)).caughtUp()
				same(t, "all", append(all, ids(r.rows)...), numbers(1, n))
				r.close()
			})
		}
	}
}

// Where a row behind the cursor can't be published, what was read before it is saved.
func TestSnapshotBordersInABatch(t *testing.T) {
	d := keyed(t, "mariadb1011", 20)
	s := newSource(t, d.config())
	r := read(t, s, mustFirst(t, s))
	b, err := r.open.Next(r.ctx)
	if err != nil || b.At == nil {
		t.Fatal(err)
	}
	r.close()
	at := b.At(7)
	r = read(t, another(t, d.config()), at).until(13)
	same(t, "behind the seventh row", ids(r.rows), numbers(8, 20))
	r.close()
}

// Values are byte for byte what the log gives for the same row: each type the
// servers have, with each of the values that TestValues compares with what they print.
func TestSnapshotPrintsAsTheLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		for i, group := range inTables(specimens(), server) {
			t.Run(fmt.Sprint("table ", i), func(t *testing.T) { bothWays(t, server, group) })
		}
	})
}

// bothWays writes each specimen's values, one to a row, before the snapshot and again
// behind it, under other keys.
func bothWays(t *testing.T, server string, group []specimen) {
	var columns []string
	most := 0
	for i, s := range group {
		columns = append(columns, fmt.Sprintf("c%d %s", i, s.column))
		most = max(most, len(s.values))
	}
	d := newDatabase(t, server, "CREATE TABLE outbox (id INT PRIMARY KEY, "+strings.Join(columns, ", ")+")")
	w := d.session(t, "SET SESSION sql_mode = '', time_zone = '+03:00'")
	insert := func(from int) {
		for row := range most + 1 { // the last one is NULL everywhere
			names, values := []string{"id"}, []string{fmt.Sprint(from + row)}
			for i, s := range group {
				if row < len(s.values) {
					names, values = append(names, fmt.Sprintf("c%d", i)), append(values, s.values[row])
				}
			}
			w.exec(t, fmt.Sprintf("INSERT INTO outbox (%s) VALUES (%s)", strings.Join(names, ", "), strings.Join(values, ", ")))
		}
	}
	insert(0)
	s := newSource(t, d.config())
	at := mustFirst(t, s)
	insert(most + 1)
	r := read(t, s, at).until(2 * (most + 1))
	r.close()
	compareRows(t, r.rows, func(c int) string {
		if c == 0 {
			return "id"
		}
		return group[c-1].column
	})
}

// compareRows compares the first half of the rows, of the snapshot, with the second, of the log.
func compareRows(t *testing.T, rows []source.Row, definition func(column int) string) {
	t.Helper()
	half := len(rows) / 2
	there, log := rows[0].Table, rows[half].Table
	if fmt.Sprint(there) != fmt.Sprint(log) || len(there.Columns) != len(log.Columns) {
		t.Fatalf("table %s with %d columns, in the log %s with %d", there, len(there.Columns), log, len(log.Columns))
	}
	for c := range there.Columns {
		if a, b := there.Columns[c], log.Columns[c]; a != b {
			t.Errorf("%.80s: column %+v, in the log %+v", definition(c), a, b)
		}
		for i := range half {
			v, w := rows[i].Values[c], rows[i+half].Values[c]
			if c > 0 && (v.State != w.State || string(v.Data) != string(w.Data)) {
				t.Errorf("%.80s, row %d: %.100q (%d), in the log %.100q (%d)", definition(c), i, v.Data, v.State, w.Data, w.State)
			}
		}
	}
}

// The order is that of the commits as far as it can be told, and refused where it can't.
func TestSnapshotOrder(t *testing.T) {
	aggregate := func(*source.Table) ([]string, bool) { return []string{"aggregate_id"}, true }
	alone := func(*source.Table) ([]string, bool) { return nil, true }
	unknown := func(*source.Table) ([]string, bool) { return nil, false }
	uuids := func(rest func(i int) string) string {
		var rows []string
		for i, c := range []string{"d", "a", "b"} {
			rows = append(rows, fmt.Sprintf("('%s0000000-0000-0000-0000-000000000000', %s)", c, rest(i+1)))
		}
		return "INSERT INTO outbox VALUES " + strings.Join(rows, ", ")
	}
	const uuid = `(id CHAR(36) PRIMARY KEY, aggregate_id VARCHAR(40)`
	each := func(i int) string { return fmt.Sprintf("'%d'", i) }
	one := func(int) string { return "'x'" }
	at := func(aggregate string) func(int) string {
		return func(i int) string { return fmt.Sprintf("'"+aggregate+"', '2026-11-30 12:00:0%d'", i) }
	}
	inTime, inKey := []string{"d", "a", "b"}, []string{"a", "b", "d"}
	for name, c := range map[string]struct {
		table    string
		insert   string
		snapshot mysql.Snapshot
		want     []string // nil: refused
		code     string
	}{
		"uuid and a time":    {uuid + `, created_at DATETIME NOT NULL)`, uuids(at("x")), mysql.Snapshot{Aggregate: aggregate}, inTime, ""},
		"and an index on it": {uuid + `, created_at TIMESTAMP NULL, KEY (created_at))`, uuids(at("x")), mysql.Snapshot{Aggregate: aggregate}, inTime, ""},
		"a time that may be NULL": {uuid + `, createdAt DATETIME(6))`, uuids(func(i int) string {
			return fmt.Sprintf("'x', NULLIF('2026-11-30 12:00:0%d', '2026-11-30 12:00:01')", i)
		}), mysql.Snapshot{Aggregate: aggregate}, inTime, ""},
		"two events of an aggregate at one time":            {uuid + `, created_at DATETIME NOT NULL)`, uuids(func(int) string { return "'x', '2026-11-30'" }), mysql.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"events of other aggregates at one time":            {uuid + `, created_at DATETIME NOT NULL)`, uuids(func(i int) string { return fmt.Sprintf("'%d', '2026-11-30'", i) }), mysql.Snapshot{Aggregate: aggregate}, inKey, ""},
		"uuid alone":                                        {uuid + `)`, uuids(one), mysql.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"uuid alone, no aggregate with two":                 {uuid + `)`, uuids(each), mysql.Snapshot{Aggregate: aggregate}, inKey, ""},
		"uuid alone, no aggregate with two where it counts": {uuid + `)`, uuids(one), mysql.Snapshot{Aggregate: aggregate, Where: "id > 'c' -- one"}, []string{"d"}, ""},
		"each event alone":                                  {uuid + `)`, uuids(one), mysql.Snapshot{Aggregate: alone}, inKey, ""},
		"aggregates in the payload":                         {uuid + `)`, uuids(each), mysql.Snapshot{Aggregate: unknown}, nil, fault.CodeSnapshotOrder},
		"no key":                                            {`(id CHAR(36), aggregate_id VARCHAR(40))`, uuids(each), mysql.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"no key, an order given":                            {`(id CHAR(36), aggregate_id VARCHAR(40))`, uuids(each), mysql.Snapshot{OrderBy: "aggregate_id"}, nil, fault.CodeSnapshotOrder},
		"a key that may be NULL":                            {`(id CHAR(36) UNIQUE, aggregate_id VARCHAR(40))`, uuids(each), mysql.Snapshot{OrderBy: "aggregate_id"}, nil, fault.CodeSnapshotOrder},
		"an expression given":                               {uuid + `)`, uuids(one), mysql.Snapshot{OrderBy: "CASE WHEN LEFT(id, 1) IN ('d', ',') THEN 0 ELSE 1 END, id ASC"}, inTime, ""},
		"text as numbers":                                   {uuid + `)`, uuids(func(i int) string { return fmt.Sprintf("'%d'", i*5) }), mysql.Snapshot{OrderBy: "CAST(aggregate_id AS UNSIGNED)"}, inTime, ""},
		"a member of the payload":                           {uuid + `, payload JSON)`, uuids(func(i int) string { return fmt.Sprintf(`'x', '{"n": %d}'`, i*5) }), mysql.Snapshot{OrderBy: "JSON_EXTRACT(payload, '$.n') + 0"}, inTime, ""},
		"an ENUM by its number":                             {uuid + `, e ENUM('z', 'y', 'x'))`, uuids(func(i int) string { return fmt.Sprintf("'x', %d", i) }), mysql.Snapshot{OrderBy: "e + 0"}, inTime, ""},
		"an ENUM by its label":                              {uuid + `, e ENUM('z', 'y', 'x'))`, uuids(func(i int) string { return fmt.Sprintf("'x', %d", i) }), mysql.Snapshot{OrderBy: "e"}, nil, fault.CodeSnapshotOrder},
		"NULL in the order given":                           {uuid + `)`, uuids(func(i int) string { return fmt.Sprintf("NULLIF(%d, 2)", i) }), mysql.Snapshot{OrderBy: "aggregate_id"}, nil, fault.CodeSnapshotOrder},
		"descending":                                        {uuid + `)`, uuids(each), mysql.Snapshot{OrderBy: "aggregate_id DESC"}, nil, fault.CodeConfig},
		"no such column in the order":                       {uuid + `)`, uuids(each), mysql.Snapshot{OrderBy: "nothing"}, nil, fault.CodeConfig},
		"a condition that is no SQL":                        {uuid + `)`, uuids(each), mysql.Snapshot{Aggregate: alone, Where: "id >"}, nil, fault.CodeConfig},
		"a condition with a value that is none":             {uuid + `, created_at DATETIME NOT NULL)`, uuids(at("x")), mysql.Snapshot{Aggregate: aggregate, Where: "created_at > TIMESTAMP 'yesterday'"}, nil, fault.CodeConfig},
		"a unique key is as good":                           {`(id BIGINT NOT NULL UNIQUE, aggregate_id VARCHAR(40))`, `INSERT INTO outbox VALUES (3, 'x'), (1, 'x'), (2, 'x')`, mysql.Snapshot{Aggregate: aggregate}, numbers(1, 3), ""},
		"an engine without snapshots":                       {`(id BIGINT PRIMARY KEY, aggregate_id VARCHAR(40)) ENGINE = MyISAM`, `INSERT INTO outbox VALUES (3, 'x')`, mysql.Snapshot{Aggregate: aggregate}, nil, fault.CodeTableUnusable},
	} {
		for _, server := range []string{"mysql", "mariadb118"} {
			t.Run(server+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, server, `CREATE TABLE outbox `+c.table)
				d.exec(t, c.insert)
				cfg := d.config()
				cfg.Snapshot = c.snapshot
				s := newSource(t, cfg)
				at, err := first(t, s)
				if c.want == nil {
					if f := fault.As(err); f == nil || f.Code != c.code || f.Exit != fault.ExitConfig || f.Fix == "" {
						t.Errorf("want %s: %v", c.code, err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				r := read(t, s, at).until(1)
				// Row by row, as if each were the end of a chunk.
				got := ids(r.rows)
				for i := range got {
					got[i] = got[i][:1]
				}
				same(t, "order", got, c.want)
				r.close()
				b, err := read(t, s, at).open.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for n := 1; n < len(c.want); n++ {
					rest := ids(read(t, another(t, cfg), b.At(n)).until(len(c.want) - n).rows)
					for i := range rest {
						rest[i] = rest[i][:1]
					}
					same(t, fmt.Sprintf("behind %d", n), rest, c.want[n:])
				}
			})
		}
	}
}

// An empty table leaves nothing to read.
func TestSnapshotOfNothing(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := keyed(t, server, 0)
		at := mustFirst(t, newSource(t, d.config()))
		if strings.Contains(string(at), "snapshot=") {
			t.Errorf("nothing is there and yet to be read: %s", at)
		}
		d.exec(t, `INSERT INTO outbox (aggregate_id) VALUES ('a')`)
		same(t, "the log", ids(read(t, another(t, d.config()), at).until(1).rows), []string{"1"})
	})
}
