package mysql

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/internal/fault"
)

// script writes transactions of one kind of server, each from the offset it began at.
type script struct {
	*binlog
	kind   place
	number uint64
	groups []group
}

type group struct {
	number uint64
	from   uint64
	events []wire
}

func newScript(kind place) *script {
	return &script{binlog: &binlog{pos: 4, seconds: 1_796_042_000}, kind: kind, number: 10}
}

func (s *script) begin(flags int) {
	s.number++
	s.groups = append(s.groups, group{number: s.number, from: s.pos})
	switch {
	case s.kind.mariadb:
		s.add(s.mariaGTID(0, s.number, flags))
	case s.kind.byGTID:
		s.add(s.gtid(serverA, s.number))
	default:
		s.add(s.anonymous())
	}
}

func (s *script) add(events ...wire) {
	g := &s.groups[len(s.groups)-1]
	g.events = append(g.events, events...)
}

func (s *script) plain(id uint64) {
	s.begin(0)
	s.add(s.query("BEGIN"), s.outbox(), s.row(id), s.xid())
}

func (s *script) prepare(xid byte, ids ...uint64) {
	s.begin(mariaPrepared)
	name := string(hexDigits[xid>>4]) + string(hexDigits[xid&15])
	if !s.kind.mariadb { // which tells it by a flag
		s.add(s.query("XA START X'" + name + "',X'',1"))
	}
	s.add(s.outbox())
	for _, id := range ids {
		s.add(s.row(id))
	}
	s.add(s.query("XA END X'"+name+"',X'',1"), s.event(eventXAPrepare, wire{}.u8(0).le(4, 1).le(4, 1).le(4, 0).u8(int(xid))))
}

func (s *script) decide(xid byte, verb string) {
	s.begin(128)
	s.add(s.query("XA " + verb + " X'" + string(hexDigits[xid>>4]) + string(hexDigits[xid&15]) + "',X'',1"))
}

// from gives the events that a server sends from a place on, or from the log's beginning.
func (s *script) from(t *testing.T, at place) (events []wire) {
	t.Helper()
	st := fromFile(at)
	for _, g := range s.groups {
		set, err := at.set()
		if err != nil {
			t.Fatal(err)
		}
		sent := g.from >= st.pos
		if at.byGTID && !at.mariadb {
			one, _ := place{gtids: gtid{uuid: serverA, number: int64(g.number)}.String()}.set()
			sent = !set.Contain(one)
		}
		if sent {
			events = append(events, g.events...)
		}
	}
	return events
}

// Rows of a prepared XA transaction come when it is committed and as it is committed, whoever reads the log by then.
func TestDecodeXA(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]place{"GTIDs": byGTID, "file": inFile, "MariaDB": mariadb} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(kind)
			s.plain(1)
			s.prepare('a', 20, 21)
			s.plain(3)
			s.prepare('b', 4)
			s.decide('b', "ROLLBACK")
			s.prepare('c', 5)
			s.plain(6)
			whole := decoderFrom(t, plainStart(kind))
			mustFeed(t, whole, s.from(t, kind)...)
			got, at := ids(t, whole)
			equal(t, "rows before the decision", got, "1", "3", "6")
			s.decide('c', "COMMIT")
			s.plain(7)
			resumed := decoderFrom(t, resume(at))
			mustFeed(t, resumed, s.from(t, at)...)
			got, at = ids(t, resumed)
			equal(t, "rows of a second reader", got, "5", "7")
			s.plain(8)
			s.decide('a', "COMMIT")
			s.plain(9)
			before := at
			resumed = decoderFrom(t, resume(before))
			mustFeed(t, resumed, s.from(t, before)...)
			got, at = ids(t, resumed)
			equal(t, "rows of a third one", got, "8", "20", "21", "9")
			if at.heldFile != "" {
				t.Errorf("nothing is prepared any more, and the place is %+v", at)
			}
			if kind.byGTID && !kind.mariadb {
				equal(t, "GTIDs", at.gtids, serverA.String()+":1-22")
			}
			last := decoderFrom(t, resume(at))
			s.plain(99)
			mustFeed(t, last, s.from(t, at)...)
			got, _ = ids(t, last)
			equal(t, "rows behind the end", got, "99")
		})
	}
}

func resume(at place) start {
	if at.byGTID && !at.mariadb {
		return fromGTIDs(at)
	}
	st := fromFile(at)
	st.witness = at.from > 0
	return st
}

// ids gives the ids of the rows that are committed, and the place behind them.
func ids(t *testing.T, d *decoder) (got []string, at place) {
	t.Helper()
	for {
		b, ok := d.batch()
		if !ok {
			return got, at
		}
		for i, r := range b.Rows {
			got = append(got, string(r.Values[0].Data))
			if b.At == nil {
				continue
			}
			if p := b.At(i + 1); p != "" {
				if _, err := parsePlace(p); err != nil {
					t.Errorf("border %q: %v", p, err)
				}
			}
		}
		var err error
		if at, err = parsePlace(b.Position); err != nil {
			t.Fatal(err)
		}
	}
}

// A border inside a batch counts what a border at its end counts.
func TestDecodeXABorders(t *testing.T) {
	t.Parallel()
	s := newScript(byGTID)
	s.prepare('a', 1)
	s.plain(2)
	s.decide('a', "COMMIT")
	s.plain(3)
	d := testDecoder(byGTID)
	mustFeed(t, d, s.from(t, byGTID)...)
	b, _ := d.batch()
	for n, want := range map[int]string{1: ":1-10:12", 2: ":1-13", 3: ":1-14"} {
		at, err := parsePlace(b.At(n))
		if err != nil || at.gtids != serverA.String()+want {
			t.Errorf("behind %d rows: %s, %v", n, at.gtids, err)
		}
	}
}

// What is prepared and not decided is held within bounds, and told.
func TestDecodeXABounds(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]place{"GTIDs": byGTID, "file": inFile, "MariaDB": mariadb} {
		s := newScript(kind)
		s.prepare('a', 1)
		s.plain(2)
		d := testDecoder(kind)
		core, logs := observer.New(zap.WarnLevel)
		d.log, d.hold = zap.New(core), 1000
		mustFeed(t, d, s.from(t, kind)...)
		d.warnOfPrepared(time.Now())
		d.warnOfPrepared(time.Now().Add(2 * time.Minute))
		d.warnOfPrepared(time.Now().Add(2*time.Minute + time.Second))
		if logs.Len() != 1 {
			t.Errorf("%s: %d warnings", name, logs.Len())
		}
		at, _ := parsePlace(d.position())
		for i := range byte(10) {
			s.prepare('b'+i, uint64(i))
		}
		var err error
		for _, e := range s.from(t, at) {
			if err = d.packet(e); err != nil {
				break
			}
		}
		f := fault.As(err)
		if f == nil || f.Code != fault.CodeEventRefused {
			t.Fatalf("%s: goes on with %v", name, err)
		}
	}
}
