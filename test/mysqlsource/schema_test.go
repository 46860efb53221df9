package mysqlsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// hidden are columns that a client does not name, before and between those it does. On MySQL a
// generated invisible key stands before all of them.
var hidden = map[string]string{
	"mysql": `CREATE TABLE outbox (hidden TIMESTAMP(3) NULL DEFAULT '2026-01-02 03:04:05.678' INVISIBLE,
		kept VARCHAR(40) GENERATED ALWAYS AS (CONCAT('s-', id)) STORED, made INT GENERATED ALWAYS AS (id * 2) VIRTUAL,
		made2 VARCHAR(300) GENERATED ALWAYS AS (UPPER(payload->>'$.k')) VIRTUAL INVISIBLE, id INT, late BINARY(4) DEFAULT (x'0100') INVISIBLE, payload JSON)`,
	"mariadb": `CREATE TABLE outbox (hidden TIMESTAMP(3) NULL DEFAULT '2026-01-02 03:04:05.678' INVISIBLE,
		kept VARCHAR(40) GENERATED ALWAYS AS (CONCAT('s-', id)) STORED, made INT GENERATED ALWAYS AS (id * 2) VIRTUAL,
		made2 VARCHAR(300) GENERATED ALWAYS AS (UPPER(JSON_VALUE(payload, '$.k'))) VIRTUAL INVISIBLE, id INT, late BINARY(4) INVISIBLE DEFAULT x'0100', payload JSON)`,
}

// Columns that are invisible or generated shift nothing (A20).
func TestHiddenColumns(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE unused (id INT)")
		create := d.session(t, "SET SESSION time_zone = '+00:00'")
		if flavor(server) == "mysql" {
			create.exec(t, "SET SESSION sql_generate_invisible_primary_key = ON")
		}
		create.exec(t, hidden[flavor(server)])
		if flavor(server) == "mysql" { // hidden columns of their own kind
			create.exec(t, "ALTER TABLE outbox ADD INDEX ((id + 1)), ADD INDEX ((CAST(payload->'$.list' AS UNSIGNED ARRAY)))")
		}
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		create.exec(t, `INSERT INTO outbox (id, payload) VALUES (1, '{"k": "v"}'), (2, NULL)`)
		got, _ := rows(t, st, 2)
		names := []string{"hidden", "kept", "made", "made2", "id", "payload"}
		if flavor(server) == "mysql" {
			names = append(names, "my_row_id")
		}
		var hex []string
		for _, n := range names {
			hex = append(hex, fmt.Sprintf("HEX(CAST(%s AS CHAR))", n))
		}
		names, hex = append(names, "late"), append(hex, "HEX(late)")
		for row, printed := range create.table(t, "SELECT "+strings.Join(hex, ", ")+" FROM outbox ORDER BY id") {
			for i, n := range names {
				check(t, fmt.Sprintf("%s of row %d", n, row), got[row].Values[got[row].Table.Column(n)], printed[i])
			}
		}
	})
}

// A label that information_schema can't show is refused where it alone tells
// the labels; where the log has them it is printed.
func TestLabelBeyondTheBMP(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE outbox (id INT, e ENUM('plain', '😀'))")
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		d.exec(t, "INSERT INTO outbox VALUES (1, 1)")
		if got, _ := rows(t, st, 1); string(got[0].Values[1].Data) != "plain" {
			t.Errorf("label %q", got[0].Values[1].Data)
		}
		d.exec(t, "INSERT INTO outbox VALUES (2, 2)")
		if server == "mysql" || server == "mariadb118" {
			if got, _ := rows(t, st, 1); string(got[0].Values[1].Data) != "😀" {
				t.Errorf("label %q", got[0].Values[1].Data)
			}
			return
		}
		read, err := fails(t, st)
		if f := fault.As(err); len(read) > 0 || f == nil || f.Code != fault.CodeSchemaUnknown || !strings.Contains(f.Found, `"e"`) {
			t.Errorf("%d rows, %v", len(read), err)
		}
	})
}

// named reports whether the server's log names the columns.
func named(server string) bool { return server == "mysql" || server == "mariadb118" }

// The table changes while it is read: each row has the names it was written with (A31, A38).
func TestSchemaChangesWhileRead(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, "CREATE TABLE outbox (id INT, a VARCHAR(20), b VARCHAR(20))")
		next := func(want map[string]string) {
			t.Helper()
			got, _ := rows(t, st, 1)
			r := got[0]
			if len(r.Table.Columns) != len(want)+1 {
				t.Errorf("columns %+v", r.Table.Columns)
			}
			for name, value := range want {
				if i := r.Table.Column(name); i < 0 || string(r.Values[i].Data) != value {
					t.Errorf("row %s: column %s is %q, want %q", ids(got)[0], name, r.Values[max(i, 0)].Data, value)
				}
			}
		}
		d.exec(t, "INSERT INTO outbox (id, a, b) VALUES (1, 'a1', 'b1')")
		next(map[string]string{"a": "a1", "b": "b1"})
		d.exec(t, "ALTER TABLE outbox RENAME COLUMN a TO c, RENAME COLUMN b TO a") // the log's types stay the same
		d.exec(t, "INSERT INTO outbox (id, a, c) VALUES (2, 'a2', 'c2')")
		next(map[string]string{"a": "a2", "c": "c2"})
		d.exec(t, "ALTER TABLE outbox MODIFY c VARCHAR(20) AFTER a")
		d.exec(t, "INSERT INTO outbox (id, a, c) VALUES (3, 'a3', 'c3')")
		next(map[string]string{"a": "a3", "c": "c3"})
		d.exec(t, "ALTER TABLE outbox ADD COLUMN first INT FIRST")
		d.exec(t, "INSERT INTO outbox (id, a, c, first) VALUES (4, 'a4', 'c4', 44)")
		next(map[string]string{"a": "a4", "c": "c4", "first": "44"})
		d.exec(t, "ALTER TABLE outbox DROP COLUMN first, ADD d DECIMAL(10,2)")
		d.exec(t, "INSERT INTO outbox (id, a, c, d) VALUES (5, 'a5', 'c5', 5.5)")
		next(map[string]string{"a": "a5", "c": "c5", "d": "5.50"})
		d.exec(t, "CREATE TABLE ghost LIKE outbox")
		d.exec(t, "ALTER TABLE ghost RENAME COLUMN a TO x, RENAME COLUMN c TO a")
		d.exec(t, "RENAME TABLE outbox TO old, ghost TO outbox") // as gh-ost and pt-osc end
		d.exec(t, "INSERT INTO outbox (id, a, x, d) VALUES (6, 'a6', 'x6', 6)")
		next(map[string]string{"a": "a6", "x": "x6", "d": "6.00"})
	})
}

// A column is added at any place, in place or by a copy, between statements of thousands of rows (A38).
func TestColumnAddedBetweenLargeInserts(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, "CREATE TABLE outbox (id INT, a INT UNSIGNED, b VARCHAR(20))")
		n := harness.Times(500, 10000)
		insert := func(columns, values string) {
			t.Helper()
			d.exec(t, "INSERT INTO outbox ("+columns+") VALUES "+strings.TrimSuffix(strings.Repeat("("+values+"),", n), ","))
			got, _ := rows(t, st, n)
			want := strings.Split(strings.ReplaceAll(values, "'", ""), ", ")
			for i, name := range strings.Split(columns, ", ") {
				for _, r := range got {
					if v := r.Values[r.Table.Column(name)].Data; string(v) != want[i] {
						t.Fatalf("%s is %q, want %s", name, v, want[i])
					}
				}
			}
		}
		columns, values := "id, a, b", "1, 4294967295, 'bb'"
		insert(columns, values)
		for i, place := range []string{"FIRST", "AFTER a", ""} {
			for _, algorithm := range []string{"COPY", "INSTANT"} {
				name := fmt.Sprintf("added_%d_%s", i, algorithm)
				d.exec(t, fmt.Sprintf("ALTER TABLE outbox ADD %s INT UNSIGNED %s, ALGORITHM=%s", name, place, algorithm))
				columns, values = columns+", "+name, values+fmt.Sprintf(", %d", 4294967290+i)
				insert(columns, values)
			}
		}
	})
}

// The table was changed while nobody read: the right names where the log has
// them, else a stop with the reason, never values under the wrong names.
func TestSchemaChangedWhileStopped(t *testing.T) {
	changes := map[string]string{
		"added":     "ALTER TABLE outbox ADD z INT FIRST",
		"dropped":   "ALTER TABLE outbox DROP b",
		"retyped":   "ALTER TABLE outbox MODIFY b VARCHAR(21)",
		"reordered": "ALTER TABLE outbox MODIFY b VARCHAR(20) AFTER id",
		"renamed":   "ALTER TABLE outbox RENAME COLUMN a TO c, RENAME COLUMN b TO a",
		"truncated": "TRUNCATE outbox",
		"analyzed":  "ANALYZE TABLE outbox",
		"swapped":   "RENAME TABLE outbox TO old, ghost TO outbox", // as gh-ost and pt-osc end
		"gone":      "DROP TABLE outbox",
	}
	type stopped struct {
		database
		source *mysql.Source
		at     source.Position
	}
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		all := map[string]stopped{}
		for name := range changes {
			d := newDatabase(t, server, "CREATE TABLE outbox (id INT, a VARCHAR(20), b VARCHAR(20))")
			d.exec(t, "CREATE TABLE ghost (id INT, b VARCHAR(20), a VARCHAR(20))") // older than the row
			s := newSource(t, d.config())
			all[name] = stopped{database: d, source: s, at: begin(t, s)}
		}
		all["gone"].exec(t, "DO SLEEP(1.1)") // a table's age is told in seconds
		for _, d := range all {
			d.exec(t, "INSERT INTO outbox (id, a, b) VALUES (1, 'a1', 'b1')")
		}
		for name, d := range all {
			t.Run(name, func(t *testing.T) {
				d.exec(t, changes[name])
				st := stream(t, d.source, d.at)
				if named(server) || name == "truncated" || name == "analyzed" { // these leave the table's age and columns as they were
					got, _ := rows(t, st, 1)
					if v := got[0].Values[got[0].Table.Column("a")].Data; string(v) != "a1" {
						t.Errorf("a is %q", v)
					}
					return
				}
				read, err := fails(t, st)
				if f := fault.As(err); len(read) > 0 || f == nil || f.Code != fault.CodeSchemaUnknown || f.Fix == "" {
					t.Errorf("%d rows, %v", len(read), err)
				}
			})
		}
	})
}

// The account loses its right while the columns are needed: it is no changed table, and nothing is left out (A34).
func TestColumnsNotShown(t *testing.T) {
	for _, server := range []string{"mysql-nogtid", "mariadb1011"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, server, small)
			l := d.login(t, "")
			s := newSource(t, l.config(d, true, "ssl-mode=DISABLED"))
			at := begin(t, s)
			st := stream(t, s, at)
			d.write(t, true, "1")
			_, behind := rows(t, st, 1)
			d.exec(t, "ALTER TABLE outbox ADD c INT")
			d.exec(t, "REVOKE SELECT ON "+d.name+".* FROM "+l.name)
			d.exec(t, "INSERT INTO outbox VALUES (2, 'a', '{}', 2)")
			read, err := fails(t, st)
			if f := fault.As(err); len(read) > 0 || f == nil || f.Code != fault.CodeGrantMissing {
				t.Errorf("%d rows, %v", len(read), err)
			}
			d.exec(t, "GRANT SELECT ON "+d.name+".* TO "+l.name)
			got, _ := rows(t, stream(t, s, behind), 1)
			equal(t, ids(got), "2")
		})
	}
}

// A server whose own character set is another one still tells names as they are.
func TestServerOfAnotherCharset(t *testing.T) {
	d := newDatabase(t, "mariadb1011", "CREATE TABLE outbox (id INT, `日本` INT, e ENUM('é日') CHARACTER SET utf8mb4, g VARCHAR(20) CHARACTER SET gbk)")
	set := func(charset string) {
		for _, name := range []string{"character_set_server", "character_set_client", "character_set_results"} {
			_, _ = d.db.Exec("SET GLOBAL " + name + " = " + charset)
		}
	}
	t.Cleanup(func() { set("utf8mb4") })
	set("latin1")
	s := newSource(t, d.config())
	st := stream(t, s, begin(t, s))
	d.session(t).exec(t, "INSERT INTO outbox VALUES (1, 2, 1, '中')")
	got, _ := rows(t, st, 1)
	if r := got[0]; r.Table.Columns[1].Name != "日本" || string(r.Values[2].Data) != "é日" || string(r.Values[3].Data) != "中" {
		t.Errorf("columns %+v, values %q %q", r.Table.Columns, r.Values[2].Data, r.Values[3].Data)
	}
}
