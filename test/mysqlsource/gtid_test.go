package mysqlsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// Transactions of many servers, with gaps, in any order, and errant ones: each is an event once, whoever numbered it,
// and a gap that is filled later is read.
func TestGTIDsOfManyServers(t *testing.T) {
	d := newDatabase(t, "mysql", small)
	t.Cleanup(func() { _, _ = d.db.Exec("RESET BINARY LOGS AND GTIDS") }) // the gaps
	s := newSource(t, d.config())
	at := begin(t, s)
	st := stream(t, s, at)
	w := d.session(t)
	servers := make([]string, 20)
	for i := range servers {
		servers[i] = w.value(t, "SELECT UUID()")
	}
	n := 0
	insert := func(gtid string) {
		w.exec(t, "SET gtid_next = '"+gtid+"'")
		w.exec(t, "INSERT INTO outbox VALUES (?, 'a', '{}')", n)
		w.exec(t, "SET gtid_next = AUTOMATIC")
		n++
	}
	for _, number := range []int{5, 9, 7} {
		for _, server := range servers {
			insert(fmt.Sprintf("%s:%d", server, number))
		}
	}
	tag := harness.Unique("t")
	insert(servers[3] + ":" + tag + ":4")
	got, behind := rows(t, st, n)
	if len(got) != n {
		t.Errorf("%d rows of %d", len(got), n)
	}
	set := field(t, behind, "gtids")
	for i, server := range servers {
		want := server + ":5:7:9"
		if i == 3 {
			want += ":" + tag + ":4"
		}
		if !strings.Contains(set, want) {
			t.Errorf("no %s in %s", want, set)
		}
	}
	_ = st.Close(t.Context())
	n = 1000
	insert(servers[7] + ":6")
	insert(servers[3] + ":" + tag + ":3")
	got, last := rows(t, stream(t, s, behind), 2)
	equal(t, ids(got), "1000", "1001")
	n = 2000
	insert(servers[0] + ":1")
	got, _ = rows(t, stream(t, s, last), 1)
	equal(t, ids(got), "2000")
	got, _ = rows(t, stream(t, s, at), 64)
	if len(got) != 64 {
		t.Errorf("%d rows from the beginning", len(got))
	}
}

// gtid_mode goes from OFF to ON and back, step by step, under load, with a restart at each step. A place stays
// what it is: by file it goes on through all of it.
func TestGTIDModeSteps(t *testing.T) {
	d := newDatabase(t, "mysql-nogtid", small)
	w := d.session(t)
	up := []string{"OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"}
	down := []string{"ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"}
	t.Cleanup(func() {
		for _, mode := range down {
			_, _ = d.db.Exec("SET GLOBAL gtid_mode = " + mode)
		}
		_, _ = d.db.Exec("SET GLOBAL enforce_gtid_consistency = OFF")
		_, _ = d.db.Exec("RESET BINARY LOGS AND GTIDS") // a server without GTIDs can't send those that are in its log
	})
	w.exec(t, "SET GLOBAL enforce_gtid_consistency = ON")
	s := newSource(t, d.config())
	at := begin(t, s)
	n := 0
	for _, mode := range append(append([]string{"OFF"}, up...), down...) {
		w.exec(t, "SET GLOBAL gtid_mode = "+mode)
		st := stream(t, s, at)
		var want []string
		for range 5 {
			n++
			want = append(want, fmt.Sprint(n))
			d.write(t, true, fmt.Sprint(n))
		}
		var got []source.Row
		got, at = rows(t, st, 5)
		equal(t, ids(got), want...)
		if err := st.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if mode == "ON" { // a connector that begins now takes GTIDs
			fresh := d.config()
			fresh.Name = harness.Unique("fresh-")
			fresh.Place = mysql.PlaceGTID
			other := newSource(t, fresh)
			take(t, other)
			first, err := other.Begin(t.Context(), source.First{Mode: source.StartNow})
			if err != nil || field(t, first, "by") != "gtid" {
				t.Errorf("first place %s, %v", first, err)
			}
		}
	}
}

// What one session leaves out of the log is absent, never NULL; what it wrote is there.
func TestRowImages(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d, st := opened(t, server, `CREATE TABLE outbox (id INT PRIMARY KEY, kind VARCHAR(20) DEFAULT 'made', payload TEXT, more BLOB)`)
		for i, image := range []string{"MINIMAL", "NOBLOB", "FULL"} {
			w := d.session(t, "SET SESSION binlog_row_image = "+image)
			w.exec(t, fmt.Sprintf("INSERT INTO outbox VALUES (%d, 'a', 'text', NULL)", 10*i))
			w.exec(t, fmt.Sprintf("INSERT INTO outbox (id, payload) VALUES (%d, NULL)", 10*i+1))
			w.exec(t, fmt.Sprintf("INSERT INTO outbox (id) VALUES (%d)", 10*i+2))
			got, _ := rows(t, st, 3)
			all, some, least := got[0].Values, got[1].Values, got[2].Values
			if string(all[1].Data) != "a" || string(all[2].Data) != "text" || all[3].State != source.Null {
				t.Errorf("%s: all columns were written: %+v", image, all)
			}
			if some[2].State != source.Null {
				t.Errorf("%s: NULL was written: %+v", image, some)
			}
			for _, v := range [][]source.Value{some, least} {
				switch v[1].State {
				case source.Null:
					t.Errorf("%s: a default that is not in the log is NULL", image)
				case source.Present:
					if string(v[1].Data) != "made" {
						t.Errorf("%s: the default came as %q", image, v[1].Data)
					}
				}
			}
			if image == "FULL" && (least[1].State != source.Present || least[2].State != source.Null) {
				t.Errorf("%s: %+v", image, least)
			}
		}
	})
}
