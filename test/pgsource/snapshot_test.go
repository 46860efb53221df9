package pgsource

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/test/harness"
)

var oldestAndNewest = []string{"postgres15", "postgres18"}

// table is newDatabase with a table of the test's own.
func table(t *testing.T, server, definition string) database {
	t.Helper()
	d := newDatabase(t, server)
	d.Exec(t, `DROP TABLE outbox`)
	d.Exec(t, `CREATE TABLE outbox `+definition)
	d.Exec(t, `ALTER TABLE outbox OWNER TO cdc`)
	return d
}

// keyed is the usual table.
func keyed(t *testing.T, server string) database {
	return table(t, server, `(id bigserial PRIMARY KEY, aggregate_id text NOT NULL, payload jsonb, published_at timestamptz)`)
}

// first makes a first place with a snapshot, under the lease for the rest of the test.
func first(t *testing.T, s *postgres.Source) (source.Position, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return s.Begin(ctx, source.First{Mode: source.StartSnapshot})
}

func mustFirst(t *testing.T, s *postgres.Source) source.Position {
	t.Helper()
	at, err := first(t, s)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// another is what a new process would be: it knows nothing but the configuration.
func another(t *testing.T, c postgres.Config) *postgres.Source {
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

func read(t *testing.T, s *postgres.Source, at source.Position) *follower {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := s.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	return &follower{t: t, ctx: ctx, at: at, open: stream}
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

// ids is the first column of each row.
func ids(rows []source.Row) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = string(r.Values[0].Data)
	}
	return out
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

// The rows as they were when the slot was made, and then the log: what is committed,
// changed and deleted meanwhile makes neither a gap nor a repeat at the seam.
func TestSnapshotThenLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := keyed(t, server)
		d.Exec(t, `INSERT INTO outbox (aggregate_id, payload) SELECT i % 7, jsonb_build_object('n', i) FROM generate_series(1, 2500) i`)
		open, err := d.SQL().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := newSource(t, d.config())
		at := mustFirst(t, s)
		// 2501 is numbered before what follows and committed after it.
		if _, err := open.ExecContext(t.Context(), `INSERT INTO outbox (aggregate_id) VALUES ('late')`); err != nil {
			t.Fatal(err)
		}
		d.Exec(t, `INSERT INTO outbox (aggregate_id) SELECT 'x' FROM generate_series(1, 10)`)
		d.Exec(t, `UPDATE outbox SET published_at = now(), payload = '{"n": 0}' WHERE id <= 2000`)
		d.Exec(t, `DELETE FROM outbox WHERE id BETWEEN 1000 AND 1999`)
		if err := open.Commit(); err != nil {
			t.Fatal(err)
		}
		r := read(t, s, at).until(2500)
		if p := string(r.rows[0].Values[2].Data); p != `{"n": 1}` {
			t.Errorf("the first row's payload is %s, not what it was when the slot was made", p)
		}
		r.until(2511).caughtUp()
		want := append(numbers(1, 2500), numbers(2502, 2511)...)
		same(t, "snapshot and log", ids(r.rows), append(want, "2501"))
		if s.Snapshot() != nil {
			t.Error("the snapshot is over and still told of")
		}
		at = r.close()
		if strings.Contains(string(at), "snapshot=") {
			t.Errorf("the place behind the snapshot still holds a cursor: %s", at)
		}
		d.Exec(t, `INSERT INTO outbox (aggregate_id) VALUES ('y')`)
		same(t, "the stream after that", ids(read(t, another(t, d.config()), at).until(1).rows), []string{"2512"})
	})
}

// The process dies in the middle of the snapshot, and with it the slot's own view. What was
// committed since comes from the log alone, whatever its key; what was changed since
// comes from the table; nothing comes twice.
func TestSnapshotGoesOnInAnotherProcess(t *testing.T) {
	for _, server := range oldestAndNewest {
		t.Run(server, func(t *testing.T) {
			d := keyed(t, server)
			d.Exec(t, `INSERT INTO outbox (id, aggregate_id) SELECT i * 2, i % 7 FROM generate_series(1, 4000) i`)
			one := newSource(t, d.config())
			at := mustFirst(t, one)
			r := read(t, one, at).until(1500)
			at = r.close()
			if n := one.Snapshot(); n == nil || n.Rows < 1500 || n.Estimate < 2000 || n.Table == "" {
				t.Errorf("progress: %+v", n)
			}
			done := len(r.rows)
			// Odd keys: numbered before the slot was made, committed after it, on both sides of the cursor.
			d.Exec(t, `INSERT INTO outbox (id, aggregate_id) VALUES (11, 'late'), (7001, 'late'), (7003, 'late'), (9001, 'new')`)
			d.Exec(t, `UPDATE outbox SET published_at = now() WHERE id % 2 = 0`)
			d.Exec(t, `DELETE FROM outbox WHERE id = 7002`)
			r = read(t, another(t, d.config()), at).until(4000 - done - 1 + 4).caughtUp()
			var want []string
			for i := done + 1; i <= 4000; i++ {
				if i != 3501 {
					want = append(want, fmt.Sprint(i*2))
				}
			}
			same(t, "the rest", ids(r.rows), append(want, "11", "7001", "7003", "9001"))
			r.close()
		})
	}
}

// A stream that ends with the process alive, as when Kafka is gone for a while,
// is followed by one that reads on in the slot's own view: even deleted rows are there.
func TestSnapshotGoesOnInItsOwnView(t *testing.T) {
	d := keyed(t, "postgres17")
	d.Exec(t, `INSERT INTO outbox (aggregate_id, payload) SELECT i % 7, jsonb_build_object('fill', repeat(i::text, 500)) FROM generate_series(1, 4000) i`)
	s := newSource(t, d.config())
	at := mustFirst(t, s)
	var all []string
	for len(all) < 3000 {
		r := read(t, s, at).until(1)
		at = r.close()
		all = append(all, ids(r.rows)...)
		d.Exec(t, `DELETE FROM outbox WHERE id % 3 = 0`)
	}
	r := read(t, s, at).until(4000 - len(all)).caughtUp()
	same(t, "all", append(all, ids(r.rows)...), numbers(1, 4000))
	r.close()
}

// Where a row behind the cursor can't be published, what was read before it is saved.
func TestSnapshotBordersInABatch(t *testing.T) {
	d := keyed(t, "postgres16")
	d.Exec(t, `INSERT INTO outbox (aggregate_id) SELECT 'a' FROM generate_series(1, 20)`)
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

// Values are byte for byte what the log gives for the same row.
func TestSnapshotPrintsAsTheLog(t *testing.T) {
	for _, server := range oldestAndNewest {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server)
			d.Exec(t, `DROP TABLE outbox`)
			d.Exec(t, `CREATE TYPE mood AS ENUM ('so-so', 'gut ß')`)
			d.Exec(t, `CREATE DOMAIN code AS varchar(8) CHECK (value <> '')`)
			d.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_id text, gone int, payload jsonb, j json, b bytea, u uuid, t text, v varchar(20), c char(8),
				i2 int2, i4 int4, n numeric, f4 float4, f8 float8, o bool, d date, tm time, tz timetz, ts timestamp, tstz timestamptz, iv interval,
				a text[], ai int[], e mood, dom code, net inet, x xml, r int4range, m money, bits varbit, p point, g int GENERATED ALWAYS AS (i4 / 2) STORED)`)
			d.Exec(t, `ALTER TABLE outbox DROP COLUMN gone`)
			d.Exec(t, `ALTER TABLE outbox OWNER TO cdc`)
			// The role's own settings must not show.
			d.Exec(t, `ALTER DATABASE `+d.Name+` SET datestyle = 'German, DMY'`)
			d.Exec(t, `ALTER DATABASE `+d.Name+` SET timezone = 'Asia/Kathmandu'`)
			d.Exec(t, `ALTER DATABASE `+d.Name+` SET bytea_output = 'escape'`)
			d.Exec(t, `ALTER DATABASE `+d.Name+` SET extra_float_digits = 0`)
			d.Exec(t, `ALTER DATABASE `+d.Name+` SET intervalstyle = 'iso_8601'`)
			const values = `'{"b": 1.10, "a": [1e20, "ä\u0001"]}', '{"z":1, "z":2 }', '\x00ff5c', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', E'tab\t''quote" \\ 日本', 'v', 'c',
				-32768, 2147483647, 'NaN', '1e-30', 0.1::float8 + 0.2, true, '0044-03-15 BC', '24:00', '01:02:03.4+05:45', 'infinity', '2026-11-30 12:34:56.789012+01', '1 year -2 days 03:04:05.6',
				'{"a,b","c\"d",NULL,""}', '{1,NULL,3}', 'gut ß', 'x', '10.0.0.0/8', '<a>&amp;</a>', '[1,5)', '12.34', B'0101', '(1.5,-2)'`
			insert := func(id int) {
				d.Exec(t, fmt.Sprintf(`INSERT INTO outbox (id, aggregate_id, payload, j, b, u, t, v, c, i2, i4, n, f4, f8, o, d, tm, tz, ts, tstz, iv, a, ai, e, dom, net, x, r, m, bits, p) VALUES (%d, 'a', %s)`, id, values))
				d.Exec(t, fmt.Sprintf(`INSERT INTO outbox (id, t, b, v) VALUES (%d, '', '', repeat('ß', 20))`, id+1))
			}
			insert(1)
			s := newSource(t, d.config())
			at := mustFirst(t, s)
			insert(3)
			r := read(t, s, at).until(4)
			r.close()
			for i := range 2 {
				there, log := r.rows[i], r.rows[i+2]
				if len(there.Values) != len(log.Values) || len(there.Values) != 31 {
					t.Fatalf("row %d: %d values, in the log %d", i, len(there.Values), len(log.Values))
				}
				for c := range there.Values {
					a, b := there.Table.Columns[c], log.Table.Columns[c]
					if a.Name != b.Name || a.Kind != b.Kind {
						t.Errorf("column %d is %+v, in the log %+v", c, a, b)
					}
					if v, w := there.Values[c], log.Values[c]; c > 0 && (v.State != w.State || string(v.Data) != string(w.Data) || (v.Data == nil) != (w.Data == nil)) {
						t.Errorf("%s: %q (%d), in the log %q (%d)", a.Name, v.Data, v.State, w.Data, w.State)
					}
				}
			}
		})
	}
}

// Several tables are read one after the other, the one a crash fell in is taken up, and a partitioned
// one is read whole. Heirs of a table are not in its log, so they are not in its snapshot.
func TestSnapshotOfSeveralTables(t *testing.T) {
	for _, server := range oldestAndNewest {
		t.Run(server, func(t *testing.T) {
			d := keyed(t, server)
			d.Exec(t, `CREATE TABLE heir () INHERITS (outbox)`)
			d.Exec(t, `INSERT INTO heir (id, aggregate_id) VALUES (77, 'heir')`)
			d.Exec(t, `CREATE TABLE "Parted.Box" (id bigint, at timestamptz, aggregate_id text, payload jsonb, PRIMARY KEY (at, id)) PARTITION BY RANGE (at)`)
			d.Exec(t, `CREATE TABLE p1 PARTITION OF "Parted.Box" FOR VALUES FROM (minvalue) TO ('2026-01-01')`)
			d.Exec(t, `CREATE TABLE p2 PARTITION OF "Parted.Box" DEFAULT`)
			d.Exec(t, `CREATE TABLE empty (id int PRIMARY KEY, aggregate_id text, payload jsonb)`)
			for _, name := range []string{`heir`, `"Parted.Box"`, `p1`, `p2`, `empty`} {
				d.Exec(t, `ALTER TABLE `+name+` OWNER TO cdc`)
			}
			d.Exec(t, `INSERT INTO outbox (aggregate_id) SELECT 'a' FROM generate_series(1, 1500)`)
			d.Exec(t, `INSERT INTO "Parted.Box" SELECT i, '2026-01-01'::timestamptz + (i - 750) * interval '1 hour', 'p' FROM generate_series(1, 1500) i`)
			c := d.config()
			c.Tables = append(c.Tables, postgres.TableName{Name: "empty"}, postgres.TableName{Name: "Parted.Box"})
			s := newSource(t, c)
			at := mustFirst(t, s)
			var all []string
			for len(all) < 3000 {
				r := read(t, another(t, c), at).until(1) // each in a process of its own
				for _, row := range r.rows {
					all = append(all, row.Table.Name+" "+string(row.Values[0].Data))
				}
				at = r.close()
			}
			var want []string
			for _, name := range []string{"outbox", "Parted.Box"} {
				for _, n := range numbers(1, 1500) {
					want = append(want, name+" "+n)
				}
			}
			same(t, "both tables", all, want)
			d.Exec(t, `INSERT INTO empty VALUES (1, 'e')`)
			r := read(t, another(t, c), at).until(1)
			same(t, "the log", ids(r.rows), []string{"1"})
			r.close()
		})
	}
}

// The order is that of the commits as far as it can be told, and refused where it can't.
func TestSnapshotOrder(t *testing.T) {
	aggregate := func(*source.Table) ([]string, bool) { return []string{"aggregate_id"}, true }
	alone := func(*source.Table) ([]string, bool) { return nil, true }
	unknown := func(*source.Table) ([]string, bool) { return nil, false }
	const rows = `INSERT INTO outbox SELECT (array['d0000000-0000-0000-0000-000000000000', 'a0000000-0000-0000-0000-000000000000', 'b0000000-0000-0000-0000-000000000000'])[i]::uuid, `
	inTime := []string{"d", "a", "b"}
	inKey := []string{"a", "b", "d"}
	for name, c := range map[string]struct {
		table    string
		insert   string
		snapshot postgres.Snapshot
		want     []string // nil: refused
		code     string
	}{
		"uuid and a time":                                   {`(id uuid PRIMARY KEY, aggregate_id text, created_at timestamptz NOT NULL)`, rows + `'x', now() + i * interval '1 s' FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, inTime, ""},
		"a time that may be NULL":                           {`(id uuid PRIMARY KEY, aggregate_id text, "createdAt" timestamp)`, rows + `'x', CASE WHEN i > 1 THEN now() + i * interval '1 s' END FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, inTime, ""},
		"two events of an aggregate at one time":            {`(id uuid PRIMARY KEY, aggregate_id text, created_at timestamptz NOT NULL)`, rows + `'x', now() FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"events of other aggregates at one time":            {`(id uuid PRIMARY KEY, aggregate_id text, created_at timestamptz NOT NULL)`, rows + `i, now() FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, inKey, ""},
		"uuid alone":                                        {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `'x' FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"uuid alone, no aggregate with two":                 {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, inKey, ""},
		"uuid alone, no aggregate with two where it counts": {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `'x' FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, Where: "id > 'c0000000-0000-0000-0000-000000000000' -- one"}, []string{"d"}, ""},
		"each event alone":                                  {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `'x' FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: alone}, inKey, ""},
		"aggregates in the payload":                         {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: unknown}, nil, fault.CodeSnapshotOrder},
		"no key":                                            {`(id uuid, aggregate_id text)`, rows + `i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate}, nil, fault.CodeSnapshotOrder},
		"no key, an order given":                            {`(id uuid, aggregate_id text)`, rows + `4 - i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, OrderBy: "aggregate_id::int ASC"}, []string{"b", "a", "d"}, ""},
		"an expression given":                               {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `'x' FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, OrderBy: `(CASE WHEN left(id::text, 1) IN ('d', ',') THEN 0 ELSE 1 END), id`}, inTime, ""},
		"NULL in the order given":                           {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `nullif(i, 2) FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, OrderBy: "aggregate_id"}, nil, fault.CodeSnapshotOrder},
		"descending":                                        {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, OrderBy: "aggregate_id DESC"}, nil, fault.CodeConfig},
		"no such column in the order":                       {`(id uuid PRIMARY KEY, aggregate_id text)`, rows + `i FROM generate_series(1, 3) i`, postgres.Snapshot{Aggregate: aggregate, OrderBy: "nothing"}, nil, fault.CodeConfig},
		"a condition that is no SQL":                        {`(id bigint PRIMARY KEY, aggregate_id text)`, `INSERT INTO outbox SELECT i, 'x' FROM generate_series(1, 3) i`, postgres.Snapshot{Where: "id >"}, nil, fault.CodeConfig},
		"a unique key is as good":                           {`(id bigint NOT NULL UNIQUE, aggregate_id text)`, `INSERT INTO outbox SELECT i, 'x' FROM generate_series(3, 1, -1) i`, postgres.Snapshot{Aggregate: aggregate}, numbers(1, 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := table(t, "postgres18", c.table)
			d.Exec(t, c.insert)
			cfg := d.config()
			cfg.Snapshot = c.snapshot
			s := newSource(t, cfg)
			at, err := first(t, s)
			if c.want == nil {
				if f := fault.As(err); f == nil || f.Code != c.code || f.Exit != fault.ExitConfig || f.Fix == "" {
					t.Errorf("want %s: %v", c.code, err)
				}
				if n := d.Int(t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, d.slot); n > 0 {
					t.Error("a slot was made, and stays")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			r := read(t, s, at).until(len(c.want))
			got := ids(r.rows)
			for i := range got {
				got[i] = got[i][:1]
			}
			same(t, "order", got, c.want)
			r.close()
		})
	}
}

// Rows alike in the order's key are never parted by a place.
func TestSnapshotTies(t *testing.T) {
	d := table(t, "postgres18", `(id bigint, aggregate_id text, n int)`)
	d.Exec(t, `INSERT INTO outbox SELECT i, 'a', CASE WHEN i <= 200 THEN 1 WHEN i <= 2900 THEN 2 ELSE 3 END FROM generate_series(1, 3000) i`)
	c := d.config()
	c.Snapshot.OrderBy = "n"
	at := mustFirst(t, newSource(t, c))
	seen := map[string]int{}
	for range 20 {
		r := read(t, another(t, c), at).until(1)
		for _, id := range ids(r.rows) {
			seen[id]++
		}
		if r.at == at { // the next run would read the same again
			r.until(2900)
			for _, id := range ids(r.rows) {
				seen[id]++
			}
		}
		at = r.close()
		if !strings.Contains(string(at), "snapshot=") {
			break
		}
	}
	if len(seen) != 3000 {
		t.Errorf("%d of 3000 rows were read", len(seen))
	}
}

// An empty table leaves nothing to read, and a slot made beforehand has no view of its own.
func TestSnapshotOfNothing(t *testing.T) {
	d := keyed(t, "postgres15")
	s := newSource(t, d.config())
	at := mustFirst(t, s)
	if strings.Contains(string(at), "snapshot=") {
		t.Errorf("nothing is there and yet to be read: %s", at)
	}
	d.Exec(t, `INSERT INTO outbox (aggregate_id) VALUES ('a')`)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// The place could not be saved: the same process makes it again.
	if again, err := s.Begin(ctx, source.First{Mode: source.StartSnapshot, Intended: true}); err != nil || again != at {
		t.Errorf("made again: %s, %v", again, err)
	}
	other := newSource(t, d.config())
	for _, intended := range []bool{false, true} {
		_, err := other.Begin(ctx, source.First{Mode: source.StartSnapshot, Intended: intended})
		if f := fault.As(err); f == nil || f.Code != fault.CodeStartChoice || !strings.Contains(f.Fix, "pg_drop_replication_slot") {
			t.Errorf("a slot made beforehand: %v", err)
		}
	}
	// The way out that is printed.
	d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
	if _, err := postgres.New(d.config(), zaptest.NewLogger(t)); err != nil {
		t.Fatal(err)
	}
}

// Setting the place to where it is, as a change of the publication asks for, leaves out nothing of the snapshot.
func TestSnapshotOutlivesASetPlace(t *testing.T) {
	d := keyed(t, "postgres17")
	d.Exec(t, `INSERT INTO outbox (aggregate_id) SELECT 'a' FROM generate_series(1, 3000)`)
	s := newSource(t, d.config())
	r := read(t, s, mustFirst(t, s)).until(1000)
	at, done := r.close(), len(r.rows)
	d.Exec(t, `ALTER PUBLICATION `+d.slot+` DROP TABLE outbox`)
	d.Exec(t, `ALTER PUBLICATION `+d.slot+` ADD TABLE outbox`)
	_, err := s.Open(r.ctx, at)
	f := fault.As(err)
	if f == nil || f.Code != fault.CodePublicationLost {
		t.Fatalf("open: %v", err)
	}
	set := regexp.MustCompile("checkpoint set --to ([0-9A-F/]+)").FindStringSubmatch(f.Fix)
	if set == nil {
		t.Fatalf("no way out: %s", f.Fix)
	}
	if _, err := s.Locate(r.ctx, "0/1", at); !fault.Is(err, fault.CodeStartChoice) {
		t.Errorf("another place in the middle of a snapshot: %v", err)
	}
	if at, err = s.Locate(r.ctx, set[1], at); err != nil {
		t.Fatal(err)
	}
	r = read(t, s, at).until(3000 - done)
	same(t, "the rest", ids(r.rows), numbers(done+1, 3000))
	r.close()
}
