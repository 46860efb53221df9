package pgsource

import (
	"testing"

	"github.com/outboxd/outboxd/source"
)

// Formats that write types down need them whole: precision, scale, and whether a
// column can be NULL, of which the log itself says only the first two.
func TestColumnsOfTheLog(t *testing.T) {
	for _, server := range oldestAndNewest {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server)
			d.Exec(t, `DROP TABLE outbox`)
			d.Exec(t, `CREATE TABLE outbox (id bigint PRIMARY KEY, aggregate_id varchar(10) NOT NULL, payload jsonb, n numeric(10,2), m numeric NOT NULL, neg numeric(3,0),
				ts timestamp(3) NOT NULL DEFAULT now(), tz timestamptz, plain timestamp)`)
			d.Exec(t, `ALTER TABLE outbox OWNER TO cdc`)
			var described *source.Table
			c := d.config()
			c.Validate = func(table *source.Table) error { described = table; return nil }
			s := newSource(t, c)
			at := mustFirst(t, s)
			d.Exec(t, `INSERT INTO outbox (id, aggregate_id, m) VALUES (1, 'a', 1)`)
			r := read(t, s, at).until(1)
			r.close()
			want := []source.Column{
				{Name: "id", Type: "int8", Kind: source.Number, NotNull: true}, {Name: "aggregate_id", Type: "varchar", NotNull: true}, {Name: "payload", Type: "jsonb", Kind: source.JSON},
				{Name: "n", Type: "numeric(10,2)", Kind: source.Number}, {Name: "m", Type: "numeric", Kind: source.Number, NotNull: true}, {Name: "neg", Type: "numeric(3,0)", Kind: source.Number},
				{Name: "ts", Type: "timestamp(3)", Kind: source.Time, NotNull: true}, {Name: "tz", Type: "timestamptz", Kind: source.Time}, {Name: "plain", Type: "timestamp", Kind: source.Time},
			}
			for i, w := range want {
				if got := r.rows[0].Table.Columns[i]; got != w {
					t.Errorf("in the log %+v, want %+v", got, w)
				}
				if got := described.Columns[i]; got.Name != w.Name || got.NotNull != w.NotNull || got.Kind != w.Kind {
					t.Errorf("described %+v, want %+v", got, w)
				}
			}
		})
	}
}
