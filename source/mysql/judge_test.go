package mysql

import (
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
)

func decoderFrom(t *testing.T, from start) *decoder {
	t.Helper()
	s := &Source{cfg: Config{Tables: []TableName{{"shop", "outbox"}}, Hold: 1 << 30}, server: *testDecoder(from.at).server}
	d, err := newDecoder(s, from, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	d.describe = func(TableName, time.Time) ([]describedColumn, error) { return outboxDescribed(), nil }
	return d
}

// The log is read from one transaction before the place, which must be the one that was saved, and is not handed on again.
func TestDecodeWitness(t *testing.T) {
	t.Parallel()
	committed := time.UnixMicro(1).UTC() // as gtidBody has it: where it was committed first
	first := func(l *binlog, begin wire) []wire {
		return []wire{begin, l.query("BEGIN"), l.outbox(), l.row(1), l.xid()}
	}
	next := func(l *binlog, begin wire) []wire {
		return []wire{begin, l.query("BEGIN"), l.outbox(), l.row(2), l.xid()}
	}
	for _, c := range []struct {
		name  string
		place place // of the server; the test fills in the rest
		begin func(l *binlog, n uint64) wire
		at    time.Time
	}{
		{"GTIDs", byGTID, func(l *binlog, n uint64) wire { return l.gtid(serverA, n) }, committed},
		{"file", inFile, func(l *binlog, _ uint64) wire { return l.anonymous() }, committed},
		{"file with GTIDs", inFile, func(l *binlog, n uint64) wire { return l.gtid(serverA, n) }, committed},
		{"MariaDB", mariadb, func(l *binlog, n uint64) wire { return l.mariaGTID(0, n, 0) }, time.Unix(1_796_042_000, 0).UTC()},
	} {
		for name, off := range map[string]time.Duration{"": 0, ", of another time": time.Second} {
			t.Run(c.name+name, func(t *testing.T) {
				t.Parallel()
				l := &binlog{pos: 1000, checksum: true, seconds: 1_796_042_000}
				at := c.place
				at.from, at.at = l.pos, c.at.Add(off)
				events := first(l, c.begin(l, 10))
				at.pos = l.pos
				from := fromFile(at)
				if at.byGTID && !at.mariadb {
					at.last = serverA.String() + ":10"
					from = fromGTIDs(at)
					from.witness = true
				}
				d := decoderFrom(t, from)
				err := feed(d, append([]wire{l.artificialRotate(at.file, from.pos), (&binlog{}).describe(true)}, events...)...)
				if off != 0 {
					if !fault.Is(err, fault.CodeDiverged) {
						t.Errorf("passes with %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := d.position(); got != at.position() {
					t.Errorf("place %s, want %s", got, at.position())
				}
				mustFeed(t, d, next(l, c.begin(l, 11))...)
				b, _ := d.batch()
				if len(b.Rows) != 1 || string(b.Rows[0].Values[0].Data) != "2" {
					t.Errorf("rows %+v", b.Rows)
				}
				place, err := parsePlace(b.Position)
				if err != nil || !place.at.Equal(c.at) || place.from != at.pos {
					t.Errorf("place %+v, %v", place, err)
				}
			})
		}
	}
}

// A server can't be asked for a place beyond 4 GiB: what stands before it in the file is passed over.
func TestDecodePlaceBeyond4GiB(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4, checksum: true, seconds: 1_796_042_000}
	begin := []wire{l.artificialRotate(inFile.file, 4), l.describe(true)}
	transaction := func(id uint64) {
		begin = append(begin, l.anonymous(), l.query("BEGIN"), l.outbox(), l.row(id), l.xid())
	}
	transaction(1)
	l.pos = 1<<32 - 100
	transaction(2)
	at := inFile
	at.pos = l.pos
	transaction(3)
	if at.pos < 1<<32 {
		t.Fatalf("the place is at %d", at.pos)
	}
	for name, c := range map[string]struct {
		pos  uint64
		want []string
		code string
	}{
		"a border":             {at.pos, []string{"3"}, ""},
		"inside a transaction": {at.pos - 40, nil, fault.CodeDiverged},
	} {
		t.Run(name, func(t *testing.T) {
			at.pos = c.pos
			d := decoderFrom(t, fromFile(at))
			if err := feed(d, begin...); (err != nil || c.code != "") && !fault.Is(err, c.code) {
				t.Fatal(err)
			}
			var got []string
			for {
				b, ok := d.batch()
				if !ok {
					break
				}
				for _, r := range b.Rows {
					got = append(got, string(r.Values[0].Data))
				}
			}
			equal(t, "rows", got, c.want...)
		})
	}
}

func TestParseGTIDText(t *testing.T) {
	t.Parallel()
	for _, text := range []string{serverA.String() + ":7", serverB.String() + ":tag:1000000"} {
		if g, err := parseGTIDText(text); err != nil || g.String() != text {
			t.Errorf("%q became %s, %v", text, g, err)
		}
	}
	for _, text := range []string{"", "x", serverA.String(), serverA.String() + ":x", "x:1", serverA.String() + ":t:1:2"} {
		if _, err := parseGTIDText(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

// A GTID event grew with the versions: 5.6 told the number alone, 5.7 a logical clock, 8.0 the times of its commit here and,
// if that is another, where it was committed first.
func TestParseGTIDOfOlderServers(t *testing.T) {
	t.Parallel()
	bare := append(wire{1}, serverA[:]...).le(8, 7)
	clock := append(wire{}, bare...).u8(2).le(8, 3).le(8, 4)
	for name, c := range map[string]struct {
		body                wire
		committed, original uint64
	}{
		"5.6":              {bare.u8(0), 0, 0},
		"5.7":              {clock, 0, 0},
		"8.0":              {append(wire{}, clock...).le(7, commitMicros).lenenc(300).le(4, 80036), commitMicros, commitMicros},
		"8.0, a replica's": {append(wire{}, clock...).le(7, commitMicros|1<<55).le(7, commitMicros-5).lenenc(300).le(4, 80036|1<<31).le(4, 80036), commitMicros, commitMicros - 5},
	} {
		g, err := parseGTID(c.body)
		if err != nil || g.number != 7 || g.uuid != serverA || g.committed != c.committed || g.original != c.original {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}
