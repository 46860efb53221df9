package mysqlsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// opened is a database with a stream at its log's end.
func opened(t *testing.T, server, table string) (database, source.Stream) {
	t.Helper()
	d := newDatabase(t, server, table)
	s := newSource(t, d.config())
	return d, stream(t, s, begin(t, s))
}

// Transactions of others are counted: one interval for each server's, and the place behind them is one to go on from,
// also when the log has gone to another file.
func TestForeignTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		first := begin(t, s)
		st := stream(t, s, first)
		d.exec(t, "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
		w := d.session(t)
		const foreign = 1000
		for range foreign {
			w.exec(t, "INSERT INTO orders (v) VALUES (1)")
		}
		d.write(t, true, "1")
		w.exec(t, "FLUSH BINARY LOGS")
		d.write(t, true, "2")
		got, at := rows(t, st, 2)
		equal(t, ids(got), "1", "2")
		for set := range strings.SplitSeq(field(t, at, "gtids"), ",") {
			intervals := 0
			for _, part := range strings.Split(set, ":")[1:] {
				if intervals++; part[0] > '9' { // a tag, with intervals of its own
					intervals = 0
				}
				if intervals > 1 {
					t.Errorf("more than one interval: %s", set)
				}
			}
		}
		d.write(t, true, "3")
		got, _ = rows(t, stream(t, s, at), 1)
		equal(t, ids(got), "3")
		got, _ = rows(t, stream(t, s, first), 3)
		equal(t, ids(got), "1", "2", "3")
	})
}

// A place that only foreign transactions moved is saved in time, and good.
func TestIdleProgress(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		first := begin(t, s)
		st := stream(t, s, first)
		w := d.session(t)
		w.exec(t, "CREATE TABLE bulk (b LONGBLOB)")
		w.exec(t, "INSERT INTO bulk VALUES (REPEAT('x', 17000000))") // more than 16 MiB of log
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			b, err := st.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Rows) > 0 {
				t.Fatalf("rows %v", ids(b.Rows))
			}
			if b.Position == "" {
				continue
			}
			d.write(t, true, "1")
			got, _ := rows(t, stream(t, s, b.Position), 1)
			equal(t, ids(got), "1")
			return
		}
	})
}

// MySQL since 8.3: a transaction's GTID may have a tag.
func TestTaggedGTIDs(t *testing.T) {
	d := newDatabase(t, "mysql", small)
	s := newSource(t, d.config())
	st := stream(t, s, begin(t, s))
	w := d.session(t)
	insert := func(id int, tag string) {
		w.exec(t, "SET gtid_next = 'AUTOMATIC"+tag+"'")
		w.exec(t, "INSERT INTO outbox VALUES (?, 'a', '{}')", id)
	}
	tag := harness.Unique("t")
	insert(1, ":"+tag)
	insert(2, "")
	insert(3, ":"+tag)
	got, at := rows(t, st, 3)
	equal(t, ids(got), "1", "2", "3")
	if set := field(t, at, "gtids"); !strings.Contains(set, ":"+tag+":1-2") {
		t.Errorf("GTIDs %s", set)
	}
	if id := got[2].Tx.ID; !strings.HasSuffix(id, ":"+tag+":2") {
		t.Errorf("transaction %s", id)
	}
	insert(4, ":"+tag)
	got, _ = rows(t, stream(t, s, at), 1)
	equal(t, ids(got), "4")
}

// compress turns the servers' compression of the log on and off.
func compress(t *testing.T, w session, server string, on int) {
	t.Helper()
	if flavor(server) == "mysql" {
		w.exec(t, "SET SESSION binlog_transaction_compression = ?", on)
		return
	}
	w.exec(t, "SET GLOBAL log_bin_compress = ?", on)
}

// Compressed transactions are read like others, many tables in one and of any size (A27).
func TestCompressedTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		first := begin(t, s)
		st := stream(t, s, first)
		w := d.session(t)
		t.Cleanup(func() {
			if flavor(server) == "mariadb" {
				_, _ = d.db.Exec("SET GLOBAL log_bin_compress = OFF")
			}
		})
		w.exec(t, "CREATE TABLE orders (id INT, v TEXT)")
		var want []string
		for n := range 20 {
			compress(t, w, server, n%2)
			w.exec(t, "BEGIN")
			for i := range 5 {
				id := fmt.Sprint(n*10 + i)
				want = append(want, id)
				w.exec(t, "INSERT INTO orders VALUES (?, REPEAT('x', 1000))", id)
				w.exec(t, "INSERT INTO outbox VALUES (?, 'a', JSON_OBJECT('fill', REPEAT('y', ?)))", id, 300*i)
			}
			w.exec(t, "COMMIT")
			if n%5 == 4 {
				w.exec(t, "CREATE TABLE t"+fmt.Sprint(n)+" (i INT COMMENT '"+strings.Repeat("long ", 60)+"')")
			}
		}
		got, at := rows(t, st, len(want))
		equal(t, ids(got), want...)
		for i, r := range got {
			if r.Index != uint32(i%5) || len(r.Values[2].Data) != 300*(i%5)+len(`{"fill": ""}`) {
				t.Fatalf("row %d: index %d, %d bytes", i, r.Index, len(r.Values[2].Data))
			}
		}
		d.write(t, true, "999")
		got, _ = rows(t, stream(t, s, at), 1)
		equal(t, ids(got), "999")
	})
}

// What was rolled back is never published, though a table without transactions makes the server log it.
func TestRollbackOfMixedEngines(t *testing.T) {
	for _, server := range []string{"mysql-nogtid", "mariadb1011", "mariadb118"} { // MySQL with GTIDs refuses such a transaction
		d, st := opened(t, server, small)
		w := d.session(t, "CREATE TABLE notes (id INT) ENGINE = MyISAM")
		for _, statement := range []string{
			"BEGIN", "INSERT INTO outbox VALUES (1, 'a', '{}')", "INSERT INTO notes VALUES (1)", "ROLLBACK",
			"BEGIN", "INSERT INTO notes VALUES (2)", "INSERT INTO outbox VALUES (2, 'a', '{}')", "INSERT INTO notes VALUES (2)", "ROLLBACK",
			// An unsafe statement is logged as rows, and a temporary table takes them to MariaDB's log, with their ROLLBACK.
			"SET SESSION binlog_format = 'MIXED'", "BEGIN", "INSERT INTO outbox VALUES (UUID_SHORT() % 1000, UUID(), '{}')", "CREATE TEMPORARY TABLE tmp (id INT)", "ROLLBACK",
			"DROP TEMPORARY TABLE tmp", "SET SESSION binlog_format = 'ROW'",
			"BEGIN", "INSERT INTO outbox VALUES (3, 'a', '{}')", "SAVEPOINT `a b`", "INSERT INTO outbox VALUES (4, 'a', '{}')", "INSERT INTO notes VALUES (3)",
			"SAVEPOINT other", "INSERT INTO outbox VALUES (5, 'a', '{}')", "rollback work to savepoint `a b`", "INSERT INTO outbox VALUES (6, 'a', '{}')", "COMMIT",
		} {
			w.exec(t, statement)
		}
		got, _ := rows(t, st, 2)
		equal(t, ids(got), "3", "6")
	}
}

// A row of more than one packet (A29).
func TestLargeRows(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d, st := opened(t, server, "CREATE TABLE outbox (id INT, payload LONGBLOB)")
		const edge = 1<<24 - 1
		var sizes []int
		for n := edge - 100; n < edge; n += 7 {
			sizes = append(sizes, n)
		}
		sizes = append(sizes, 2*edge-60, 40<<20)
		if !harness.Long() {
			sizes = sizes[len(sizes)-4:]
		}
		w := d.session(t, "SET SESSION sql_log_bin = 1")
		for i, n := range sizes {
			w.exec(t, fmt.Sprintf("INSERT INTO outbox VALUES (%d, CONCAT('start', REPEAT('x', %d), 'end'))", i, n-8))
			got, _ := rows(t, st, 1)
			want := append(append([]byte("start"), bytes.Repeat([]byte{'x'}, n-8)...), "end"...)
			if sha256.Sum256(got[0].Values[1].Data) != sha256.Sum256(want) {
				t.Errorf("a row of %d bytes came as %d others", n, len(got[0].Values[1].Data))
			}
		}
	})
}

// A worker that marks rows as done makes neither events nor a flood in our log.
func TestStatusUpdates(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, `CREATE TABLE outbox(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, event_type VARCHAR(255) NOT NULL, payload JSON NOT NULL,
			status ENUM('pending','processing','processed','failed') DEFAULT 'pending' NOT NULL, attempts TINYINT UNSIGNED DEFAULT 0 NOT NULL,
			created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), processed_at DATETIME(3) NULL)`)
		core, logs := observer.New(zap.InfoLevel)
		s, err := mysql.New(d.config(), zap.New(core))
		if err != nil {
			t.Fatal(err)
		}
		st := stream(t, s, begin(t, s))
		logs.TakeAll()
		var w session
		if flavor(server) == "mysql" { // an update may be logged as a part of a document (A24)
			w = d.session(t, "SET SESSION binlog_row_value_options = PARTIAL_JSON")
		} else {
			w = d.session(t)
		}
		for i := range 200 {
			w.exec(t, "INSERT INTO outbox (event_type, payload) VALUES ('OrderCreated', ?)", fmt.Sprintf(`{"n": %d, "fill": "%s"}`, i, strings.Repeat("x", 200)))
			w.exec(t, "UPDATE outbox SET status = 'processed', attempts = attempts + 1, processed_at = NOW(3) WHERE id = LAST_INSERT_ID()")
			w.exec(t, "UPDATE outbox SET payload = JSON_SET(payload, '$.n', -1) WHERE id = LAST_INSERT_ID()")
			if i%10 == 0 {
				w.exec(t, "DELETE FROM outbox WHERE id = LAST_INSERT_ID()")
			}
		}
		got, _ := rows(t, st, 200)
		for i, r := range got {
			if id, status := string(r.Values[0].Data), string(r.Values[3].Data); id != fmt.Sprint(i+1) || status != "pending" {
				t.Fatalf("row %d: id %s, status %s", i, id, status)
			}
		}
		if len(got) != 200 || logs.Len() > 0 {
			t.Errorf("%d rows, logged %+v", len(got), logs.All())
		}
	})
}

// Updates of a table without marks are told once, not once each.
func TestUpdatesAreToldOnce(t *testing.T) {
	d := newDatabase(t, "mysql", small)
	core, logs := observer.New(zap.WarnLevel)
	s, err := mysql.New(d.config(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	st := stream(t, s, begin(t, s))
	w := d.session(t)
	for i := range 100 {
		w.exec(t, "INSERT INTO outbox VALUES (?, 'a', '{}')", i)
		w.exec(t, "UPDATE outbox SET aggregate_id = 'b'")
	}
	if got, _ := rows(t, st, 100); len(got) != 100 || logs.Len() != 1 {
		t.Errorf("%d rows, logged %+v", len(got), logs.All())
	}
}

// The commit's time is the server's: with microseconds where it logs them.
func TestCommitTime(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, small)
		w := d.session(t, "SET SESSION time_zone = '+09:00'")
		now := func() time.Time {
			at, err := time.Parse("2006-01-02 15:04:05.000000", w.value(t, "SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)"))
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		exact := 0
		for i := range 5 {
			w.exec(t, "BEGIN")
			w.exec(t, "INSERT INTO outbox VALUES (?, 'a', '{}')", i)
			before := now()
			w.exec(t, "COMMIT")
			after := now()
			got, _ := rows(t, st, 1)
			at := got[0].Tx.CommitAt
			if flavor(server) == "mariadb" { // seconds, and of the statement's start
				before = before.Add(-2 * time.Second)
			} else if at.Nanosecond() != 0 {
				exact++
			}
			if at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
				t.Errorf("committed at %v, between %v and %v", at, before, after)
			}
		}
		if flavor(server) == "mysql" && exact == 0 {
			t.Error("no commit time has microseconds")
		}
	})
}

// Rows of ours that one session logs as text are not in the log: the stream stops (A26).
func TestStatementLogged(t *testing.T) {
	driver.RegisterReaderHandler("rows", func() io.Reader { return strings.NewReader("7\ta\t{}\n") })
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		statements := map[string]string{
			"insert":  "INSERT INTO outbox VALUES (7, 'a', '{}')",
			"replace": "replace /* x */ into\n`outbox` SELECT 7, 'a', '{}'",
			"other":   "INSERT INTO archive VALUES (7, 'a', '{}')",
			"update":  "UPDATE outbox SET aggregate_id = REPLACE(aggregate_id, 'a', 'b')",
		}
		if server != "mysql" { // with GTIDs it refuses such a transaction
			statements["undone"] = "BEGIN; INSERT INTO outbox VALUES (7, 'a', '{}'); CREATE TEMPORARY TABLE tmp (id INT); ROLLBACK"
		}
		if flavor(server) == "mariadb" {
			statements["load"] = "LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE outbox"
			statements["load other"] = "LOAD DATA LOCAL INFILE 'Reader::rows' INTO TABLE archive"
			statements["for"] = "SET STATEMENT max_statement_time = 10 FOR INSERT INTO outbox VALUES (7, 'a', '{}')"
		}
		for name, statement := range statements {
			t.Run(name, func(t *testing.T) {
				d, st := opened(t, server, small)
				w := d.session(t, "CREATE TABLE archive LIKE outbox", "SET SESSION binlog_format = 'STATEMENT'")
				d.write(t, true, "1")
				for part := range strings.SplitSeq(statement, ";") {
					w.exec(t, part)
				}
				d.write(t, true, "2")
				if name == "other" || name == "update" || name == "load other" || name == "undone" {
					got, _ := rows(t, st, 2)
					equal(t, ids(got), "1", "2")
					return
				}
				read, err := fails(t, st)
				if f := fault.As(err); f == nil || f.Code != fault.CodeStatementLogged || f.Exit != fault.ExitRefused || f.Fix == "" {
					t.Errorf("ended with %v", err)
				}
				if len(read) > 1 {
					t.Errorf("rows %v behind the statement", ids(read))
				}
			})
		}
	})
}

// A foreign table of any type never stops the stream, nor any statement on it (A22, A40).
func TestForeignTables(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, small)
		w := d.session(t)
		statements := []string{
			"CREATE TABLE places (g GEOMETRY, p POINT, j JSON, b BIT(7), y YEAR, e ENUM('x') CHARACTER SET utf16)",
			"INSERT INTO places VALUES (ST_GeomFromText('POINT(1 1)'), POINT(1, 2), '{}', 1, 2026, 1)",
			"CREATE TABLE copied AS SELECT 1 AS id, 'x' AS v",
			"CREATE TABLE empty_copy AS SELECT * FROM copied WHERE FALSE",
			"TRUNCATE copied", "ALTER TABLE copied ADD outbox INT", "CREATE VIEW v AS SELECT * FROM copied", "DROP VIEW v",
			"CREATE TRIGGER tr AFTER INSERT ON copied FOR EACH ROW INSERT INTO outbox VALUES (NEW.id, 'trigger', '{}')",
			"INSERT INTO copied (id, v) VALUES (2, 'x')", // the trigger's row is one of ours
			"CREATE PROCEDURE pr() INSERT INTO outbox VALUES (3, 'procedure', '{}')", "CALL pr()",
			"CREATE TEMPORARY TABLE tmp (id INT)", "INSERT INTO tmp VALUES (1)", "DROP TEMPORARY TABLE tmp",
			"ANALYZE TABLE copied", "OPTIMIZE TABLE copied", "CREATE USER IF NOT EXISTS 'nobody'@'localhost'", "DROP USER 'nobody'@'localhost'",
		}
		if flavor(server) == "mysql" {
			statements = append(statements, "CREATE TABLE vectors (v VECTOR)", "INSERT INTO vectors VALUES (STRING_TO_VECTOR('[1.05,-17.8,32]'))")
		} else {
			statements = append(statements, "CREATE SEQUENCE sq", "SELECT NEXTVAL(sq)", "CREATE TABLE versions (id INT) WITH SYSTEM VERSIONING", "INSERT INTO versions VALUES (1)", "UPDATE versions SET id = 2",
				"CREATE TABLE packed (t TEXT COMPRESSED, u UUID, i INET6)", "INSERT INTO packed VALUES (REPEAT('x', 200), UUID(), '::')")
		}
		d.write(t, true, "1")
		for _, statement := range statements {
			w.exec(t, statement)
		}
		d.write(t, true, "4")
		got, at := rows(t, st, 4)
		equal(t, ids(got), "1", "2", "3", "4")
		if at == "" {
			t.Error("no place")
		}
	})
}

// Names are taken literally, whatever stands in them (A35).
func TestOddNames(t *testing.T) {
	for _, name := range []string{"out box", "some-table.qa", "order`s", "注文", "Outbox"} {
		t.Run(name, func(t *testing.T) {
			for _, server := range []string{"mysql", "mysql-nogtid", "mariadb1011"} {
				quoted := "`" + strings.ReplaceAll(name, "`", "``") + "`"
				d := newDatabase(t, server, "CREATE TABLE "+quoted+" (id INT, `order` INT, `a``b` VARCHAR(10))")
				c := d.config()
				c.Tables = []mysql.TableName{{Schema: d.name, Name: name}}
				s := newSource(t, c)
				st := stream(t, s, begin(t, s))
				d.exec(t, "INSERT INTO "+quoted+" VALUES (1, 2, 'x')")
				got, _ := rows(t, st, 1)
				equal(t, ids(got), "1")
				if i := got[0].Table.Column("a`b"); got[0].Table.Name != name || i != 2 {
					t.Errorf("table %q, columns %+v", got[0].Table.Name, got[0].Table.Columns)
				}
			}
		})
	}
}

// A view has no rows in the log.
func TestViewIsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE events (id INT)")
		d.exec(t, "CREATE VIEW outbox AS SELECT * FROM events")
		_, err := newSource(t, d.config()).Acquire(t.Context(), nil)
		if f := fault.As(err); f == nil || f.Code != fault.CodeTableUnusable || f.Exit != fault.ExitConfig {
			t.Errorf("got %v", err)
		}
	})
}

// Checksums that are switched off and on while the log is read, and while nobody reads it.
func TestChecksumsSwitched(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		w := d.session(t)
		before := w.value(t, "SELECT @@global.binlog_checksum")
		t.Cleanup(func() { _, _ = d.db.Exec("SET GLOBAL binlog_checksum = " + before) })
		for i, algorithm := range []string{"NONE", "CRC32", "NONE"} {
			w.exec(t, "SET GLOBAL binlog_checksum = "+algorithm)
			id := fmt.Sprint(i)
			d.write(t, true, id)
			got, at := rows(t, st, 1)
			equal(t, ids(got), id)
			if err := st.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			st = stream(t, s, at)
			d.write(t, true, "9"+id)
			got, _ = rows(t, st, 1)
			equal(t, ids(got), "9"+id)
		}
	})
}
