package mysqlsource

import (
	"testing"

	"github.com/outboxd/outboxd/source"
)

// Formats that write types down need them whole: signs, precision, scale, and
// whether a column can be NULL.
func TestColumnsOfTheLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server, `CREATE TABLE outbox (id BIGINT UNSIGNED PRIMARY KEY, aggregate_id VARCHAR(10) NOT NULL, payload TEXT, n DECIMAL(10,2), i INT NOT NULL,
			u SMALLINT UNSIGNED, d3 DATETIME(3) NOT NULL, ts TIMESTAMP(6) NULL, dt DATETIME, c CHAR(3) NOT NULL, b BINARY(2))`)
		var described *source.Table
		c := d.config()
		c.Validate = func(table *source.Table) error { described = table; return nil }
		s := newSource(t, c)
		at := begin(t, s)
		d.exec(t, `INSERT INTO outbox (id, aggregate_id, i, d3, c) VALUES (1, 'a', 1, '2026-01-01', 'x')`)
		got, _ := rows(t, stream(t, s, at), 1)
		want := []source.Column{
			{Name: "id", Type: "bigint unsigned", Kind: source.Number, NotNull: true}, {Name: "aggregate_id", Type: "varchar", NotNull: true}, {Name: "payload", Type: "blob"},
			{Name: "n", Type: "decimal(10,2)", Kind: source.Number}, {Name: "i", Type: "int", Kind: source.Number, NotNull: true}, {Name: "u", Type: "smallint unsigned", Kind: source.Number},
			{Name: "d3", Type: "datetime(3)", Kind: source.Time, NotNull: true}, {Name: "ts", Type: "timestamp(6)", Kind: source.Time}, {Name: "dt", Type: "datetime", Kind: source.Time},
			{Name: "c", Type: "char", NotNull: true}, {Name: "b", Type: "char", Kind: source.Bytes},
		}
		for i, w := range want {
			if got := got[0].Table.Columns[i]; got != w {
				t.Errorf("in the log %+v, want %+v", got, w)
			}
			if got := described.Columns[i]; got.Name != w.Name || got.NotNull != w.NotNull || got.Kind != w.Kind {
				t.Errorf("described %+v, want %+v", got, w)
			}
		}
	})
}
