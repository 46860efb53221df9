package mysqlsource

import (
	"context"
	"database/sql/driver"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// An outbox row of an XA transaction is an event when it is committed, however it gets there and whoever reads the log by
// then: a reader that starts at a place from before the decision reads the prepare again, and repeats nothing else.
func TestXA(t *testing.T) {
	for _, c := range []struct {
		server string
		place  mysql.PlaceMode
	}{
		{"mysql", mysql.PlaceAuto}, {"mysql", mysql.PlaceFile}, {"mysql-nogtid", mysql.PlaceAuto},
		{"mariadb1011", mysql.PlaceAuto}, {"mariadb118", mysql.PlaceAuto}, {"mariadb118", mysql.PlaceFile},
	} {
		t.Run(c.server+"/"+string(c.place), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.server, small)
			d.exec(t, "CREATE TABLE orders (id INT)")
			config := d.config()
			config.Place = c.place
			s := newSource(t, config)
			st := stream(t, s, begin(t, s))
			w := d.session(t)
			xid := func(id string) string { return "'" + d.name + "-" + id + "', 'it''s', 7" }
			write := func(id, table, row string) {
				w.exec(t, "XA START "+xid(id))
				w.exec(t, "INSERT INTO "+table+" (id) VALUES ("+row+")")
				w.exec(t, "XA END "+xid(id))
			}
			end := func(id, verb string) {
				if verb, phase, found := strings.Cut(verb, " "); found {
					w.exec(t, "XA "+verb+" "+xid(id)+" "+phase)
					return
				}
				w.exec(t, "XA "+verb+" "+xid(id))
			}
			prepare := func(id, table, row string) {
				write(id, table, row)
				end(id, "PREPARE")
			}
			prepare("a", "orders", "1")
			end("a", "COMMIT")
			prepare("b", "orders", "1")
			end("b", "ROLLBACK")
			prepare("c", "outbox", "3")
			end("c", "ROLLBACK")
			prepare("d", "outbox", "4")
			end("d", "COMMIT")
			write("e", "outbox", "5")
			end("e", "ROLLBACK")
			write("f", "outbox", "6")
			end("f", "COMMIT ONE PHASE")
			got, _ := rows(t, st, 2)
			equal(t, ids(got), "4", "6")

			leave := func() { // what is prepared is left to others
				_ = w.Raw(func(any) error { return driver.ErrBadConn })
				w = d.session(t)
			}
			prepare("g", "outbox", "7")
			leave()
			d.write(t, true, "8")
			prepare("h", "outbox", "9")
			leave()
			d.write(t, true, "10")
			got, at := rows(t, st, 2)
			equal(t, ids(got), "8", "10")
			reader := func(at source.Position) source.Stream { // another one: MariaDB lets one of each id read
				config.Name = harness.Unique("reader-")
				return stream(t, newSource(t, config), at)
			}
			again := reader(at)
			d.write(t, true, "11")
			d.commit(t, xid("h"))
			d.write(t, true, "12")
			got, at = rows(t, again, 3)
			equal(t, ids(got), "11", "9", "12")
			d.commit(t, xid("g"))
			d.write(t, true, "13")
			got, _ = rows(t, again, 2)
			equal(t, ids(got), "7", "13")
			got, at = rows(t, reader(at), 2)
			equal(t, ids(got), "7", "13")
			got, _ = rows(t, st, 5)
			equal(t, ids(got), "11", "9", "12", "7", "13")
			d.write(t, true, "14")
			got, _ = rows(t, reader(at), 1)
			equal(t, ids(got), "14")
		})
	}
}

// commit decides an XA transaction that another session has prepared, once that one has let go of it.
func (d database) commit(t *testing.T, xid string) {
	t.Helper()
	w := d.session(t)
	harness.Eventually(t, "XA COMMIT "+xid, func() bool {
		_, err := w.ExecContext(t.Context(), "XA COMMIT "+xid)
		return err == nil
	})
}

// Rows that were logged as a statement can be passed over by the command that the refusal prints, and nothing else is.
func TestStatementIsPassedOver(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		w := d.session(t, "SET SESSION binlog_format = 'STATEMENT'")
		d.write(t, true, "1")
		w.exec(t, "INSERT INTO outbox VALUES (2, 'a', '{}')")
		d.write(t, true, "3")
		read, err := fails(t, st)
		f := fault.As(err)
		if f == nil || f.Code != fault.CodeStatementLogged {
			t.Fatalf("ended with %v", err)
		}
		equal(t, ids(read), "1")
		way := regexp.MustCompile("`outboxd checkpoint set --to '([^`]+)'`").FindStringSubmatch(f.Fix)
		if way == nil {
			t.Fatalf("no way out in %s", f.Fix)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		at, err := s.Locate(ctx, way[1], "")
		if err != nil {
			t.Fatal(err)
		}
		got, _ := rows(t, stream(t, s, at), 1)
		equal(t, ids(got), "3")
	})
}
