package mysqlsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// Several tables are read one after the other, the one a crash fell in is taken up, and an empty one is
// followed from the start. At the seam the rows of each are where they belong.
func TestSnapshotOfSeveralTables(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := keyed(t, server, 1500)
		d.exec(t, "CREATE TABLE `Parted.Box` (id BIGINT, at DATETIME NOT NULL, aggregate_id VARCHAR(40), payload JSON, PRIMARY KEY (at, id)) "+
			"PARTITION BY RANGE COLUMNS (at) (PARTITION p1 VALUES LESS THAN ('2026-01-01'), PARTITION p2 VALUES LESS THAN (MAXVALUE))")
		d.exec(t, `CREATE TABLE blank (id INT PRIMARY KEY, aggregate_id VARCHAR(40), payload JSON)`)
		d.fill(t, "INSERT INTO `Parted.Box` VALUES ", 1500, func(i int) string {
			return fmt.Sprintf("(%d, TIMESTAMP '2026-01-01 00:00:00' + INTERVAL %d HOUR, 'p', NULL)", i, i-750)
		})
		c := d.config()
		c.Tables = append(c.Tables, mysql.TableName{Name: "blank"}, mysql.TableName{Name: "Parted.Box"})
		s := newSource(t, c)
		at := mustFirst(t, s)
		d.exec(t, `INSERT INTO outbox (id, aggregate_id) VALUES (-1, 'late')`)
		d.exec(t, "INSERT INTO `Parted.Box` VALUES (-1, '2025-12-01', 'late', NULL)")
		name := func(r source.Row) string { return r.Table.Name + " " + string(r.Values[0].Data) }
		var all []string
		for len(all) < 3000 {
			r := read(t, another(t, c), at).until(1) // each in a process of its own
			for _, row := range r.rows {
				all = append(all, name(row))
			}
			at = r.close()
		}
		var want []string
		for _, table := range []string{"outbox", "Parted.Box"} {
			for _, n := range numbers(1, 1500) {
				want = append(want, table+" "+n)
			}
		}
		d.exec(t, `INSERT INTO blank VALUES (1, 'e', NULL)`)
		r := read(t, another(t, c), at).until(3003 - len(all))
		for _, row := range r.rows {
			all = append(all, name(row))
		}
		same(t, "all tables", all, append(want, "outbox -1", "Parted.Box -1", "blank 1"))
		r.close()
	})
}

// A Kafka that stands still for longer than the server lets sessions idle costs the snapshot nothing.
func TestSnapshotOutlastsWaitTimeout(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		t.Run(server, func(t *testing.T) {
			d := keyed(t, server, 12_000)
			usual := d.session(t).value(t, "SELECT @@global.wait_timeout")
			t.Cleanup(func() {
				if _, err := d.db.Exec("SET GLOBAL wait_timeout = " + usual); err != nil {
					t.Error(err)
				}
			})
			s := newSource(t, d.config())
			d.exec(t, "SET GLOBAL wait_timeout = 1")
			at := mustFirst(t, s)
			r := read(t, s, at).until(3000) // the rest of the chunk is on its way, so the session has nothing to do
			idle := d.session(t, "SET SESSION wait_timeout = 1").value(t, "SELECT CONNECTION_ID()")
			root := d.session(t, "SET SESSION wait_timeout = 600")
			harness.Eventually(t, "another session is ended for idling", func() bool {
				return root.count(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE id = "+idle) == 0
			})
			r.until(12_000).caughtUp()
			same(t, "all", ids(r.rows), numbers(1, 12_000))
			r.close()
		})
	}
}

// An account with the least rights. The snapshot's session is ended in the middle: the stream ends, and the next one goes on behind
// what was read with a later view, in the same process. What was deleted meanwhile is gone, nothing comes twice.
func TestSnapshotSessionKilled(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := keyed(t, server, 12_000)
		w := d.session(t)
		for _, statement := range []string{"CREATE USER %[1]s IDENTIFIED BY 'its-own'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO %[1]s", "GRANT SELECT ON %[1]s.outbox TO %[1]s"} {
			w.exec(t, fmt.Sprintf(statement, d.name))
		}
		t.Cleanup(func() { _, _ = d.db.Exec("DROP USER " + d.name) })
		c := d.config()
		c.User, c.Password = d.name, func() (string, error) { return "its-own", nil }
		s := newSource(t, c)
		r := read(t, s, mustFirst(t, s)).until(1000)
		d.exec(t, `INSERT INTO outbox (id, aggregate_id) VALUES (-1, 'late')`)
		d.exec(t, `DELETE FROM outbox WHERE id = 11900`)
		open := w.table(t, "SELECT p.id FROM information_schema.innodb_trx t JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.user = ?", d.name)
		if len(open) != 1 {
			t.Fatalf("%d transactions are open, want the snapshot's", len(open))
		}
		w.exec(t, "KILL "+*open[0][0])
		var err error
		for err == nil {
			var b source.Batch
			if b, err = r.open.Next(r.ctx); err == nil {
				r.rows = append(r.rows, b.Rows...)
				r.at = b.Position
			}
		}
		if len(r.rows) > 11_000 || strings.Contains(err.Error(), "context") {
			t.Errorf("after %d rows: %v", len(r.rows), err)
		}
		at := r.close()
		rest := read(t, s, at).until(12_000 - len(r.rows)).caughtUp()
		got := append(ids(r.rows), ids(rest.rows)...)
		want := append(numbers(1, 11_899), numbers(11_901, 12_000)...)
		same(t, "all", got, append(want, "-1"))
		rest.close()
	})
}
