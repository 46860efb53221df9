package pgsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
)

// Rows of partitions are the root's, also of those that are attached later or
// written directly; moving partitions about makes no events.
func TestPartitions(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `DROP TABLE outbox`)
		d.Exec(t, `CREATE TABLE outbox (id bigint, aggregate_id text, payload jsonb) PARTITION BY RANGE (id)`)
		d.Exec(t, `ALTER TABLE outbox OWNER TO cdc`)
		d.Exec(t, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (1) TO (10)`)
		// Its columns are in another order.
		d.Exec(t, `CREATE TABLE outbox_2 (payload jsonb, gone int, id bigint, aggregate_id text)`)
		d.Exec(t, `ALTER TABLE outbox_2 DROP COLUMN gone`)
		d.Exec(t, `ALTER TABLE outbox ATTACH PARTITION outbox_2 FOR VALUES FROM (10) TO (20)`)
		r := open(t, d.config())
		a := d.session(t)
		exec(t, a,
			`INSERT INTO outbox SELECT i, 'a', '{}' FROM generate_series(8, 12) i`, // over the border
			`INSERT INTO outbox_1 VALUES (5, 'direct', '{}')`,
			`CREATE TABLE outbox_3 PARTITION OF outbox FOR VALUES FROM (20) TO (30)`, insert(25),
			`CREATE TABLE outbox_4 (id bigint, aggregate_id text, payload jsonb) PARTITION BY LIST (id)`,
			`CREATE TABLE outbox_4_default PARTITION OF outbox_4 DEFAULT`,
			`ALTER TABLE outbox ATTACH PARTITION outbox_4 FOR VALUES FROM (30) TO (40)`, insert(35), // two levels down
			`UPDATE outbox SET id = 26 WHERE id = 11`, // to another partition: a delete and an insert, which the log doesn't tell from a new row's
			`ALTER TABLE outbox DETACH PARTITION outbox_1`, `INSERT INTO outbox_1 VALUES (6, 'detached', '{}')`,
			`DROP TABLE outbox_2`, insert(27))
		var got []string
		for _, row := range r.take(t, 9) {
			if row.Table.Name != "outbox" || row.Table.Schema != "public" {
				t.Errorf("a row of %s", row.Table)
			}
			got = append(got, text(row, "id"))
		}
		if fmt.Sprint(got) != fmt.Sprint([]string{"8", "9", "10", "11", "12", "5", "25", "35", "26"}) {
			t.Errorf("rows %v", got)
		}
		r.expect(t, "27")
	})
}

// A publication that tells rows as their partitions' would be read past: it is refused.
func TestPublicationWithoutTheRoot(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `DROP TABLE outbox`)
		d.Exec(t, `CREATE TABLE outbox (id bigint, aggregate_id text, payload jsonb) PARTITION BY RANGE (id)`)
		d.Exec(t, `CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES FROM (1) TO (10)`)
		d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR TABLE outbox WITH (publish = 'insert')`)
		s := newSource(t, d.config())
		lease, err := s.Acquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(t.Context()) }()
		_, err = s.Begin(t.Context(), source.First{Mode: source.StartNow})
		f := asFault(t, err)
		_, repair, ok := strings.Cut(f.Fix, "ALTER PUBLICATION")
		if f.Code != fault.CodeNameTaken || !ok {
			t.Fatalf("begin: %v, way out: %s", err, f.Fix)
		}
		d.Exec(t, "ALTER PUBLICATION"+repair)
		d.Exec(t, `GRANT SELECT ON outbox TO cdc`)
		at, err := s.Begin(t.Context(), source.First{Mode: source.StartNow})
		if err != nil {
			t.Fatalf("begin after %s: %v", repair, err)
		}
		stream, err := s.Open(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{Stream: stream}
		d.Exec(t, insert(3))
		if row := r.expect(t, "3")[0]; row.Table.Name != "outbox" {
			t.Errorf("a row of %s", row.Table)
		}
	})
}

// Names are taken literally, whatever is in them.
func TestNames(t *testing.T) {
	long := strings.Repeat("ä", 31) + "x" // 63 bytes, the most there is
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		var all []postgres.TableName
		for i, name := range []postgres.TableName{
			{Schema: "My Shop", Name: "Outbox"}, {Schema: "My Shop", Name: "outbox.events"}, {Schema: "a.b", Name: `say "hi"`}, {Schema: "a.b", Name: `it's`},
			{Schema: "日本", Name: "発信箱"}, {Schema: "public", Name: long}, {Schema: "public", Name: "select"}, {Schema: "public", Name: `back\slash`}, {Schema: "public", Name: " "},
		} {
			all = append(all, name)
			d.Exec(t, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{name.Schema}.Sanitize())
			d.Exec(t, "GRANT USAGE ON SCHEMA "+pgx.Identifier{name.Schema}.Sanitize()+" TO cdc")
			d.Exec(t, fmt.Sprintf(`CREATE TABLE %s (id bigint, "Aggregate ""Id""" text, "наклад.ка" jsonb, extra%d text)`, name, i))
			d.Exec(t, fmt.Sprintf("ALTER TABLE %s OWNER TO cdc", name))
		}
		c := d.config()
		c.Tables = all
		r := open(t, c)
		var ids []string
		for i, name := range all {
			d.Exec(t, fmt.Sprintf(`INSERT INTO %s VALUES (%d, 'k', '{}', 'e')`, name, i))
			ids = append(ids, fmt.Sprint(i))
		}
		d.Exec(t, insert(99)) // of none of ours
		for i, row := range r.expect(t, ids...) {
			if row.Table.Schema != all[i].Schema || row.Table.Name != all[i].Name {
				t.Errorf("a row of %s, want %s", row.Table, all[i])
			}
			if text(row, `Aggregate "Id"`) != "k" || text(row, "наклад.ка") != "{}" || text(row, fmt.Sprintf("extra%d", i)) != "e" {
				t.Errorf("row of %s: %+v", row.Table, row.Values)
			}
		}
	})
}

func TestUnloggedTableIsRefused(t *testing.T) {
	d := newDatabase(t, "postgres18")
	d.Exec(t, `ALTER TABLE outbox SET UNLOGGED`)
	_, err := newSource(t, d.config()).Acquire(t.Context(), nil)
	f := asFault(t, err)
	if f.Code != fault.CodeTableUnusable {
		t.Fatalf("acquire: %v", err)
	}
	d.Exec(t, f.Fix)
	r := open(t, d.config())
	d.Exec(t, insert(1))
	r.expect(t, "1")
}
