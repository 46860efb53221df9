package pgsource

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
)

// values are SQL literals for each type that can stand in a column.
var values = []struct {
	typ  string
	list []string
}{
	{"smallint", []string{"-32768", "32767"}},
	{"integer", []string{"-2147483648", "2147483647"}},
	{"bigint", []string{"-9223372036854775808", "9223372036854775807"}},
	{"oid", []string{"4294967295"}},
	{"numeric", []string{"'NaN'", "'Infinity'", "'-Infinity'", "123456789012345678901234567890123456789012345678901234567890", "0.00", "-0.000000000000000000000000000001", "1e100"}},
	{"numeric(12,4)", []string{"1.1", "-12345678.9"}},
	{"real", []string{"'NaN'", "'Infinity'", "'-Infinity'", "1.17549435e-38", "3.4028235e38", "0.1", "-0.0", "16777217"}},
	{"double precision", []string{"'NaN'", "'Infinity'", "'-Infinity'", "2.2250738585072014e-308", "1.7976931348623157e308", "0.1", "1e15", "1e16", "-0.0", "0.30000000000000004"}},
	{"money", []string{"'-12.34'"}},
	{"boolean", []string{"true", "false"}},
	{"text", []string{"''", "'plain'", `E'tab\t line\n quote" \\ back'`, "'Zürich 日本 🎉'", "'NULL'", `'\x41'`, "repeat('é', 3000)"}},
	{"varchar(10)", []string{"'ab  '"}},
	{"char(5)", []string{"'ab'", "''"}},
	{`"char"`, []string{"'x'"}},
	{"name", []string{"'a name'"}},
	{"citext", []string{"'MiXeD'"}},
	{"bytea", []string{`''`, `'\x00'`, `'\xdeadbeef00ff'`, `decode(repeat('00ff7f80', 2000), 'hex')`}},
	{"date", []string{"'2026-02-28'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'5874897-12-31'"}},
	{"time", []string{"'23:59:59.123456'", "'24:00'"}},
	{"timetz", []string{"'12:34:56.7+05:30'"}},
	{"timestamp", []string{"'2026-02-28 12:34:56.123456'", "'infinity'", "'-infinity'", "'0044-03-15 12:00 BC'", "'294276-12-31'"}},
	{"timestamptz", []string{"'2026-02-28 12:34:56.123456+05:30'", "'infinity'", "'-infinity'", "'0044-03-15 12:00+00 BC'"}},
	{"interval", []string{"'1 year 2 months -3 days 04:05:06.789'", "'-1 mon'"}},
	{"uuid", []string{"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"}},
	{"json", []string{`'{"b":1,  "a":2, "a":3, "n":12345678901234567890.10, "u":"\u00e9\ud83d\ude00"}'`, `' [1,2 ]'`, `'null'`, `'"x"'`}},
	{"jsonb", []string{`'{"b":1,  "a":2, "a":3, "n":12345678901234567890.10, "u":"\u00e9\ud83d\ude00", "e":1e30, "d":0.1000000000000000055511151231257827}'`, `'null'`, `'"x"'`}},
	{"jsonpath", []string{`'$.a[*] ? (@ > 1)'`}},
	{"inet", []string{"'10.0.0.1/8'", "'::1'"}},
	{"cidr", []string{"'10.0.0.0/8'"}},
	{"macaddr", []string{"'08:00:2b:01:02:03'"}},
	{"macaddr8", []string{"'08:00:2b:01:02:03:04:05'"}},
	{"bit(5)", []string{"B'10101'"}},
	{"bit varying", []string{"B''", "B'1'"}},
	{"point", []string{"'(0.1,1e-300)'"}},
	{"box", []string{"'((1,2),(3,4.5))'"}},
	{"path", []string{"'[(1,2),(3,4)]'"}},
	{"polygon", []string{"'((1,2),(3,4),(5,6))'"}},
	{"circle", []string{"'<(1,2),3>'"}},
	{"tsvector", []string{"'a:1 b:2A'"}},
	{"tsquery", []string{"'a & !b'"}},
	{"int4range", []string{"'[1,5)'", "'empty'", "'(,)'"}},
	{"tstzrange", []string{`'["2026-01-01 00:00+05:30",infinity)'`}},
	{"daterange", []string{"'[2026-01-01,2026-02-01]'"}},
	{"int4multirange", []string{"'{[1,3),[5,7)}'"}},
	{"pg_lsn", []string{"'16/B374D848'"}},
	{"xml", []string{"'<a b=\"c\">d</a>'"}},
	{"integer[]", []string{"'{1,NULL,3}'", "'{}'", "'[2:3]={1,2}'"}},
	{"text[]", []string{`ARRAY['a,b', 'c"d', 'e\f', NULL, 'NULL', '', '{}', ' ']`}},
	{"text[][]", []string{`'{{a,b},{c,d}}'`}},
	{"bytea[]", []string{`ARRAY['\x00ff'::bytea]`}},
	{"timestamptz[]", []string{`ARRAY['2026-02-28 12:00+05:30'::timestamptz, 'infinity']`}},
	{"jsonb[]", []string{`ARRAY['{"a": "b"}'::jsonb]`}},
	{"float8[]", []string{`ARRAY[0.1, 'NaN']::float8[]`}},
	{"app.mood", []string{"'glad'", `'it''s "sad"'`}},
	{"app.mood[]", []string{`ARRAY['glad']::app.mood[]`}},
	{"app.email", []string{"'a@b'"}},
	{"app.count", []string{"42"}},
	{"app.doc", []string{`'{"a":  1}'`}},
	{"app.raw", []string{`'\x00ff'`, `''`}},
	{"app.nested", []string{`'\xff00'`}},
	{"app.pair", []string{`ROW(1, 'a,"b"', '\x00')::app.pair`, `ROW(NULL, '', NULL)::app.pair`}},
	{"app.floats", []string{`'[0.1,0.3)'`}},
}

const types = `
	CREATE EXTENSION IF NOT EXISTS citext;
	CREATE SCHEMA app;
	CREATE TYPE app.mood AS ENUM ('glad', 'it''s "sad"');
	CREATE DOMAIN app.email AS text CHECK (VALUE LIKE '%@%');
	CREATE DOMAIN app.count AS bigint;
	CREATE DOMAIN app.doc AS jsonb;
	CREATE DOMAIN app.raw AS bytea;
	CREATE DOMAIN app.nested AS app.raw NOT NULL;
	CREATE TYPE app.pair AS (n int, t text, b bytea);
	CREATE TYPE app.floats AS RANGE (subtype = float8);`

// rawTypes are the types whose values are bytes and not text.
var rawTypes = map[string]bool{"bytea": true, "app.raw": true, "app.nested": true}

// Every value is what the server's own output function writes under the
// settings that are fixed for the reader, whatever the writer's session had.
func TestValues(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, types)
		kept := values[:0:0]
		for _, v := range values { // a server may be built without XML
			var null sql.NullString
			if err := d.SQL().QueryRow(fmt.Sprintf("SELECT (%s)::%s::text", v.list[0], v.typ)).Scan(&null); err != nil && v.typ == "xml" {
				t.Logf("%s: %v", v.typ, err)
				continue
			}
			kept = append(kept, v)
		}
		var columns, prints []string
		for i, v := range kept {
			columns = append(columns, fmt.Sprintf("c%d %s", i, v.typ))
			print := fmt.Sprintf("CASE WHEN num_nulls(c%d) = 1 THEN '(null)' ELSE concat(c%d) END", i, i)
			prints = append(prints, print)
		}
		d.Exec(t, "DROP TABLE outbox")
		d.Exec(t, "CREATE TABLE outbox (id bigint, dropped int, "+strings.Join(columns, ", ")+")")
		d.Exec(t, "ALTER TABLE outbox DROP COLUMN dropped")
		d.Exec(t, "ALTER TABLE outbox OWNER TO cdc")
		for _, setting := range []string{"datestyle = 'SQL, DMY'", "timezone = 'America/New_York'", "bytea_output = 'escape'", "extra_float_digits = 0", "intervalstyle = 'iso_8601'"} {
			d.Exec(t, "ALTER DATABASE "+d.Name+" SET "+setting)
		}
		r := open(t, d.config())

		writer := d.session(t)
		exec(t, writer, "SET datestyle = 'German'", "SET timezone = 'Asia/Kolkata'", "SET bytea_output = 'escape'", "SET extra_float_digits = 0", "SET intervalstyle = 'iso_8601'", "SET standard_conforming_strings = on")
		rows := 0
		for n := range longest() {
			var names, literals []string
			for i, v := range kept {
				switch {
				case n < len(v.list):
					names, literals = append(names, fmt.Sprintf("c%d", i)), append(literals, fmt.Sprintf("(%s)::%s", v.list[n], v.typ))
				case v.typ == "app.nested":
					names, literals = append(names, fmt.Sprintf("c%d", i)), append(literals, `'\x01'`)
				}
			}
			exec(t, writer, fmt.Sprintf("INSERT INTO outbox (id, %s) VALUES (%d, %s)", strings.Join(names, ", "), n, strings.Join(literals, ", ")))
			rows++
		}
		got := r.take(t, rows)

		truth := d.session(t)
		exec(t, truth, "SET datestyle = 'ISO'", "SET intervalstyle = 'postgres'", "SET extra_float_digits = 3", "SET bytea_output = 'hex'", "SET timezone = 'UTC'")
		for n, row := range got {
			if len(row.Values) != len(kept)+1 {
				t.Fatalf("%d columns, want %d: a dropped one counts", len(row.Values), len(kept)+1)
			}
			for i, v := range kept {
				expression := prints[i]
				if rawTypes[v.typ] {
					expression = fmt.Sprintf("coalesce(c%d::bytea, '(null)')", i)
				}
				var want []byte
				if err := truth.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %s FROM outbox WHERE id = %d", expression, n)).Scan(&want); err != nil {
					t.Fatalf("%s: %v", v.typ, err)
				}
				if have := text(row, fmt.Sprintf("c%d", i)); !bytes.Equal([]byte(have), want) {
					t.Errorf("%s, row %d: %.200q, the server prints %.200q", v.typ, n, have, want)
				}
			}
		}
		for typ, kind := range map[string]source.Kind{
			"json": source.JSON, "jsonb": source.JSON, "app.doc": source.JSON, "bytea": source.Bytes, "app.nested": source.Bytes,
			"app.count": source.Number, "numeric": source.Number, "boolean": source.Boolean, "timestamptz": source.Time,
			"app.mood": source.Text, "app.email": source.Text, "jsonb[]": source.Text, "bytea[]": source.Text, "uuid": source.Text,
		} {
			for i, v := range kept {
				if c := got[0].Table.Columns[i+1]; v.typ == typ && c.Kind != kind {
					t.Errorf("%s is of kind %d, want %d", typ, c.Kind, kind)
				}
			}
		}
	})
}

func longest() (n int) {
	for _, v := range values {
		n = max(n, len(v.list))
	}
	return n + 1 // the last row is all NULL
}

// The shape changes while rows are written, between transactions and within
// one, with the reader running and with it stopped: each row is read with the shape it was written in.
func TestSchemaChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		for _, stopped := range []bool{false, true} {
			t.Run(map[bool]string{false: "running", true: "stopped"}[stopped], func(t *testing.T) {
				d := newDatabase(t, server)
				s := newSource(t, d.config())
				at := begin(t, s)
				var r *reader
				start := func() {
					stream, err := s.Open(t.Context(), at)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = stream.Close(context.Background()) })
					r = &reader{Stream: stream, last: at}
				}
				if !stopped {
					start()
				}
				a := d.session(t)
				exec(t, a,
					insert(1),
					"ALTER TABLE outbox ADD extra text DEFAULT 'x'", `INSERT INTO outbox VALUES (2, 'a', '{}', 'e2')`,
					"ALTER TABLE outbox DROP aggregate_id", `INSERT INTO outbox VALUES (3, '{}', 'e3')`,
					"ALTER TABLE outbox RENAME extra TO more", `INSERT INTO outbox VALUES (4, '{}', 'e4')`,
					"BEGIN", `INSERT INTO outbox VALUES (5, '{}', 'e5')`,
					"ALTER TABLE outbox ADD aggregate_id uuid", `INSERT INTO outbox VALUES (6, '{}', 'e6', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')`,
					"ALTER TABLE outbox ALTER payload TYPE text", "ALTER TABLE outbox RENAME aggregate_id TO b", "ALTER TABLE outbox RENAME more TO aggregate_id", "ALTER TABLE outbox RENAME b TO more",
					`INSERT INTO outbox VALUES (7, 'free text', 'e7', NULL)`,
					"COMMIT",
					"CREATE DOMAIN later AS bytea", "ALTER TABLE outbox ADD raw later", `INSERT INTO outbox VALUES (8, 't', 'e8', NULL, '\x00ff')`,
					"BEGIN", "ALTER TABLE outbox DROP raw", insertTail(9), "ROLLBACK",
					`INSERT INTO outbox VALUES (10, 't', 'e10', NULL, '\x01')`,
				)
				if stopped { // a stream would end: the new table is not in the publication
					exec(t, a,
						"ALTER TABLE outbox RENAME TO kept", "CREATE TABLE outbox (id bigint)", "INSERT INTO outbox VALUES (11)", "INSERT INTO kept VALUES (12, 't', 'no', NULL, NULL)",
						"DROP TABLE outbox", "ALTER TABLE kept RENAME TO outbox")
					start()
				}
				exec(t, a, `INSERT INTO outbox VALUES (13, 't', 'e13', NULL, '\x02')`)
				rows := r.expect(t, "1", "2", "3", "4", "5", "6", "7", "8", "10", "13")
				for i, want := range []map[string]string{
					{"aggregate_id": "a", "payload": "{}", "extra": "(no column extra)"},
					{"aggregate_id": "a", "extra": "e2"},
					{"aggregate_id": "(no column aggregate_id)", "extra": "e3", "payload": "{}"},
					{"more": "e4", "extra": "(no column extra)"},
					{"more": "e5", "aggregate_id": "(no column aggregate_id)"},
					{"more": "e6", "aggregate_id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
					{"aggregate_id": "e7", "payload": "free text", "more": "(null)"},
					{"raw": "\x00\xff"}, {"raw": "\x01"}, {"raw": "\x02"},
				} {
					for column, value := range want {
						if got := text(rows[i], column); got != value {
							t.Errorf("row %s: column %s is %q, want %q", text(rows[i], "id"), column, got, value)
						}
					}
				}
				if k := rows[6].Table.Columns[rows[6].Table.Column("payload")].Kind; k != source.Text {
					t.Errorf("payload is of kind %d after it became text", k)
				}
			})
		}
	})
}

func insertTail(id int) string {
	return fmt.Sprintf(`INSERT INTO outbox VALUES (%d, 't', 'e', NULL)`, id)
}

// Generated columns are in the log of 18 alone, and only when the publication
// says so: what is needed and not sent is refused at the start, with a way out.
func TestGeneratedColumns(t *testing.T) {
	needed := func(table *source.Table) error {
		if table.Column("key") < 0 {
			return fmt.Errorf("table %s has no column key", table)
		}
		return nil
	}
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `ALTER TABLE outbox ADD key text GENERATED ALWAYS AS (payload->>'id') STORED`)
		c := d.config()
		t.Run("not needed", func(t *testing.T) {
			r := open(t, c)
			d.Exec(t, `INSERT INTO outbox (id, payload) VALUES (1, '{"id": "k"}')`)
			rows := r.expect(t, "1")
			if got := text(rows[0], "key"); got != "(no column key)" || text(rows[0], "payload") != `{"id": "k"}` {
				t.Errorf("row %+v", rows[0])
			}
		})
		c.Validate = needed
		c.Name += "-needed"
		refusedWith := func(t *testing.T, c postgres.Config, fix string) {
			t.Helper()
			_, err := newSource(t, c).Acquire(t.Context(), nil)
			if err == nil || !strings.Contains(fmt.Sprint(err), `column "key" (generated)`) {
				t.Fatalf("acquire: %v", err)
			}
			if f := asFault(t, err); !strings.Contains(f.Fix, fix) {
				t.Errorf("way out: %s", f.Fix)
			}
		}
		t.Run("needed", func(t *testing.T) {
			if server != "postgres18" {
				refusedWith(t, c, "ordinary column")
				return
			}
			statement := "ALTER PUBLICATION " + `"` + d.slot + `"` + " SET (publish_generated_columns = stored)"
			refusedWith(t, c, statement)
			d.Exec(t, "ALTER PUBLICATION "+d.slot+" OWNER TO cdc")
			d.Exec(t, statement)
			d.Exec(t, "TRUNCATE outbox")
			d.Exec(t, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+d.slot+"' AND NOT active")
			r := open(t, c)
			d.Exec(t, `INSERT INTO outbox (id, payload) VALUES (2, '{"id": "k"}')`)
			if got := text(r.expect(t, "2")[0], "key"); got != "k" {
				t.Errorf("key is %q", got)
			}
		})
	})
}
