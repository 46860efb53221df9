package mysqlsource

import (
	"io"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// An inserted row is an event, whatever statement inserts it; a row that is updated instead is none. A REPLACE over a row
// is what the server makes of it: an update where the row's last unique key is the one that stood in the way,
// else a delete and an insert.
func TestInsertsOfEveryKind(t *testing.T) {
	mysql.RegisterReaderHandler("some rows", func() io.Reader { return strings.NewReader("20\t20\tloaded\n21\t21\tloaded\n") })
	t.Cleanup(func() { mysql.DeregisterReaderHandler("some rows") })
	statements := []struct {
		text string
		want string // ids of the events
	}{
		{"INSERT INTO outbox VALUES (1, 1, 'one')", "1"},
		{"INSERT INTO outbox VALUES (2, 2, 'two'), (3, 3, 'three')", "2 3"},
		{"INSERT INTO outbox SET id = 4, u = 4", "4"},
		{"INSERT INTO outbox (id, u) SELECT id + 10, u + 10 FROM outbox WHERE id IN (1, 2) ORDER BY id", "11 12"},
		{"INSERT IGNORE INTO outbox VALUES (1, 1, 'there'), (5, 5, 'new')", "5"},
		{"INSERT INTO outbox VALUES (6, 6, 'new') ON DUPLICATE KEY UPDATE v = 'old'", "6"},
		{"INSERT INTO outbox VALUES (6, 6, 'new'), (7, 7, 'new') ON DUPLICATE KEY UPDATE v = 'old'", "7"},
		{"INSERT INTO outbox VALUES (6, 6, 'new') ON DUPLICATE KEY UPDATE v = v", ""},
		{"REPLACE INTO outbox VALUES (8, 8, 'new')", "8"},
		{"REPLACE INTO outbox VALUES (8, 9, 'by its id')", "8"},
		{"REPLACE INTO outbox VALUES (10, 1, 'by u')", ""},
		{"UPDATE outbox SET v = 'updated', id = id + 100 WHERE id = 3", ""},
		{"DELETE FROM outbox WHERE id = 2", ""},
		{"INSERT INTO outbox VALUES (2, 2, 'once more')", "2"},
		{"LOAD DATA LOCAL INFILE 'Reader::some rows' REPLACE INTO TABLE outbox", "20 21"},
		{"TRUNCATE outbox", ""},
		{"INSERT INTO outbox VALUES (1, 1, 'after it')", "1"},
	}
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, "CREATE TABLE outbox (id INT PRIMARY KEY, u INT UNIQUE, v VARCHAR(40))")
		d.exec(t, "SET GLOBAL local_infile = ON")
		w := d.session(t)
		var want []string
		for _, s := range statements {
			w.exec(t, s.text)
			want = append(want, strings.Fields(s.want)...)
		}
		got, _ := rows(t, st, len(want))
		equal(t, ids(got), want...)

		d, st = opened(t, server, "CREATE TABLE outbox (id INT PRIMARY KEY, v VARCHAR(40))")
		for _, statement := range []string{"INSERT INTO outbox VALUES (1, 'x')", "REPLACE INTO outbox VALUES (1, 'y')", "REPLACE INTO outbox VALUES (2, 'y')"} {
			d.exec(t, statement)
		}
		got, _ = rows(t, st, 2)
		equal(t, ids(got), "1", "2")
	})
}
