package mysqlsource

import (
	"fmt"
	"testing"

	"github.com/outboxd/outboxd/source"
)

// A transaction that is larger than memory should hold comes in pieces once it is known to be committed; no piece
// of one that is rolled back is ever seen.
func TestTransactionsLargerThanMemory(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		for _, packed := range []int{0, 1} {
			d := newDatabase(t, server, small)
			c := d.config()
			c.Hold = 256 << 10
			s := newSource(t, c)
			first := begin(t, s)
			st := stream(t, s, first)
			w := d.session(t, "CREATE TABLE notes (id INT) ENGINE = MyISAM")
			compress(t, w, server, packed)
			t.Cleanup(func() {
				if flavor(server) == "mariadb" {
					_, _ = d.db.Exec("SET GLOBAL log_bin_compress = OFF")
				}
			})
			n := 0
			insert := func(rows int) {
				for range rows / 500 {
					text := "INSERT INTO outbox VALUES "
					for i := range 500 {
						if i > 0 {
							text += ", "
						}
						text += fmt.Sprintf(`(%d, 'a', '{"fill": "0123456789012345678901234567890123456789"}')`, n)
						n++
					}
					w.exec(t, text)
				}
			}
			d.write(t, true, "-1")
			if server != "mysql" { // with GTIDs it refuses such a transaction
				for _, statement := range []string{"BEGIN", "INSERT INTO notes VALUES (1)"} {
					w.exec(t, statement)
				}
				insert(5000)
				w.exec(t, "ROLLBACK")
				n = 0
			}
			w.exec(t, "BEGIN")
			insert(3000)
			w.exec(t, "SAVEPOINT a")
			if server != "mysql" {
				w.exec(t, "INSERT INTO notes VALUES (2)") // so that what is taken back is in the log
			}
			insert(2000)
			w.exec(t, "ROLLBACK TO a")
			n -= 2000
			insert(3000)
			w.exec(t, "COMMIT")
			d.write(t, true, "-2")
			whole := func(st source.Stream) source.Position {
				got, at := rows(t, st, n+2)
				for i, r := range got[1 : n+1] {
					if string(r.Values[0].Data) != fmt.Sprint(i) || r.Index != uint32(i) {
						t.Fatalf("row %d is %s with ordinal %d", i, r.Values[0].Data, r.Index)
					}
				}
				equal(t, ids(append(got[:1:1], got[n+1:]...)), "-1", "-2")
				return at
			}
			at := whole(st)
			whole(stream(t, s, first)) // by another reader
			d.write(t, true, "-3")
			got, _ := rows(t, stream(t, s, at), 1)
			equal(t, ids(got), "-3")
		}
	})
}
