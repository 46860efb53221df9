package mysql

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

var (
	inFile  = place{uuid: serverA.String(), file: "binlog.000001", pos: 4}
	byGTID  = place{byGTID: true, gtids: serverA.String() + ":1-10", file: "binlog.000001", pos: 4}
	mariadb = place{mariadb: true, byGTID: true, gtids: "0-1-10", file: "binlog.000001", pos: 4}
)

// plainStart asks for what stands behind at, and no more.
func plainStart(at place) start {
	return start{at: at, byGTID: at.byGTID, gtids: at.gtids, file: at.file, pos: at.pos}
}

func testDecoder(at place) *decoder {
	s := &Source{
		cfg:    Config{Tables: []TableName{{"shop", "outbox"}}, Hold: 1 << 30},
		server: server{mariadb: at.mariadb, collations: map[uint64]string{utf8Collation: "utf8mb4", binaryCollation: "binary", latin1Collation: "latin1"}},
	}
	d, err := newDecoder(s, plainStart(at), zap.NewNop())
	if err != nil {
		panic(err)
	}
	d.describe = func(TableName, time.Time) ([]describedColumn, error) { return outboxDescribed(), nil }
	d.unchanged = func(_ TableName, from logPlace) (logPlace, error) { return from, nil }
	return d
}

// outboxDescribed is what information_schema has of outboxCols.
func outboxDescribed() []describedColumn {
	return []describedColumn{
		{name: "id", dataType: "bigint", columnType: "bigint unsigned", charset: "binary"},
		{name: "k", dataType: "varchar", columnType: "varchar(255)", charset: "utf8mb4", octets: 1020},
		{name: "payload", dataType: "json", columnType: "json", charset: "binary"},
		{name: "raw", dataType: "binary", columnType: "binary(4)", charset: "binary", octets: 4},
	}
}

func feed(d *decoder, events ...wire) error {
	for _, e := range events {
		if err := d.packet(e); err != nil {
			return err
		}
	}
	return nil
}

func mustFeed(t *testing.T, d *decoder, events ...wire) {
	t.Helper()
	if err := feed(d, events...); err != nil {
		t.Fatal(err)
	}
}

// take gives all committed rows as "id@transaction" and the place behind them.
func take(t *testing.T, d *decoder) (rows []string, at place) {
	t.Helper()
	for {
		b, ok := d.batch()
		if !ok {
			return rows, at
		}
		for _, r := range b.Rows {
			rows = append(rows, string(r.Values[0].Data)+"@"+r.Tx.ID)
		}
		if b.Position != "" {
			var err error
			if at, err = parsePlace(b.Position); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func equal(t *testing.T, what string, got any, want ...string) {
	t.Helper()
	list, ok := got.([]string)
	if !ok {
		list = []string{got.(string)}
	}
	if strings.Join(list, " ") != strings.Join(want, " ") {
		t.Errorf("%s: %q, want %q", what, list, want)
	}
}

func (l *binlog) outbox() wire { return l.tableMap(77, "shop", "outbox", true, outboxCols...) }
func (l *binlog) row(id uint64) wire {
	return l.insert(77, len(outboxCols), outboxRow(id, "k", smallJSON(1), "ab"))
}

func TestDecodeTransaction(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4, checksum: true, seconds: 1_796_042_000}
	d := testDecoder(byGTID)
	mustFeed(t, d, l.describe(true), l.event(eventPreviousGTIDs, nil),
		l.gtid(serverB, 7), l.query("BEGIN"),
		l.tableMap(5, "shop", "orders", true, col{name: "x", kind: 99}), l.outbox(), // a foreign type
		l.insert(5, 1, wire{0xff}), l.insert(77, 4,
			outboxRow(1<<64-1, "kéy", smallJSON(-5), "ab"),
			wire{0xfe}.le(8, 2)))
	if b, ok := d.batch(); ok {
		t.Fatalf("rows %+v before the commit", b)
	}
	if d.position() != byGTID.position() {
		t.Errorf("place %s inside a transaction", d.position())
	}
	mustFeed(t, d, l.xid())
	b, ok := d.batch()
	if !ok || len(b.Rows) != 2 {
		t.Fatalf("batch %+v", b)
	}
	at, err := parsePlace(b.Position)
	if err != nil || at.gtids != serverA.String()+":1-10,"+serverB.String()+":7" || at.pos != l.pos {
		t.Errorf("position %q, %v", b.Position, err)
	}
	first, second := b.Rows[0], b.Rows[1]
	if !first.Tx.CommitAt.Equal(time.UnixMicro(commitMicros)) || first.Tx.ID != serverB.String()+":7" || first.Index != 0 || second.Index != 1 || first.Tx != second.Tx {
		t.Errorf("rows %+v, %+v", first, second)
	}
	for i, want := range []string{"18446744073709551615", "kéy", `{"a": -5}`, "ab\x00\x00"} {
		if v := first.Values[i]; string(v.Data) != want || v.State != source.Present {
			t.Errorf("column %d is %q (%d), want %q", i, v.Data, v.State, want)
		}
	}
	for i := 1; i < 4; i++ {
		if second.Values[i].State != source.Null {
			t.Errorf("column %d of the second row: %+v", i, second.Values[i])
		}
	}
	if _, ok := d.batch(); ok || !d.idle() {
		t.Error("something is left")
	}
}

func TestDecodeCountsGTIDs(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4}
	d := testDecoder(byGTID)
	mustFeed(t, d,
		l.gtid(serverA, 11), l.query("BEGIN"), l.xid(), // of other tables
		l.taggedGTID(serverA, "Trade_1", 1), l.query("BEGIN"), l.outbox(), l.row(1), l.xid(),
		l.gtid(serverA, 13), l.query("CREATE TABLE x (i INT)"), // DDL is a transaction of its own
		l.gtid(serverB, 1<<40), l.query("BEGIN"), l.outbox(), l.row(2), l.query("COMMIT"),
		l.gtid(serverB, 2), l.query("BEGIN"), l.outbox(), l.row(3), l.query("ROLLBACK"),
		l.gtid(serverB, 3), l.query("BEGIN"), l.outbox(), l.row(4)) // goes on
	rows, at := take(t, d)
	equal(t, "rows", rows, "1@"+serverA.String()+":trade_1:1", "2@"+serverB.String()+":1099511627776")
	equal(t, "GTIDs", at.gtids, serverA.String()+":1-11:13:trade_1:1,"+serverB.String()+":2:1099511627776")
}

func TestDecodeSavepoints(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4}
	d := testDecoder(inFile)
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.outbox(), l.row(1), l.query("SAVEPOINT `a`"), l.row(2), l.query("SAVEPOINT `b c`"), l.row(3),
		l.query("ROLLBACK TO `b c`"), l.row(4), l.query("rollback work to savepoint A"), l.row(5), l.query("ROLLBACK TO `a`"), l.row(6), l.xid())
	b, _ := d.batch()
	var ids []string
	for i, r := range b.Rows {
		ids = append(ids, string(r.Values[0].Data))
		if r.Index != uint32(i) {
			t.Errorf("row %d has index %d", i, r.Index)
		}
	}
	equal(t, "rows", ids, "1", "6")
	if err := feed(d, l.anonymous(), l.query("BEGIN"), l.row(7), l.query("ROLLBACK TO `nowhere`")); err == nil {
		t.Error("a rollback to somewhere that is not in the log, with rows at stake")
	}
}

func TestDecodeMariaDB(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4, server: 1, seconds: 1_796_042_000}
	d := testDecoder(mariadb)
	mustFeed(t, d, l.mariaGTID(0, 11, mariaStandalone), l.query("CREATE TABLE x (i INT)"),
		l.mariaGTID(5, 1, 2|4), l.outbox())
	l.blind = true // inside a transaction no place is told
	mustFeed(t, d, l.row(1), l.event(eventWriteRowsCompressed, compressedRows(outboxRow(2, "k", smallJSON(1), "ab"))))
	l.blind = false
	mustFeed(t, d, l.xid(), l.mariaGTID(0, 12, 0), l.query("UPDATE mytable SET x = 1"), l.query("COMMIT"),
		l.mariaGTID(0, 13, mariaStandalone), l.event(eventQueryCompressed, compressedQuery("DROP TABLE x")))
	rows, at := take(t, d)
	equal(t, "rows", rows, "1@5-1-1", "2@5-1-1")
	equal(t, "GTIDs", at.gtids, "0-1-13,5-1-1")
	if at.pos != l.pos || !at.at.Equal(time.Unix(1_796_042_000, 0)) {
		t.Errorf("place %+v, the log ends at %d", at, l.pos)
	}
}

func compressedRows(rows wire) wire {
	return append(wire{}.le(6, 77).le(2, 1).lenenc(4).u8(0xff), deflated(rows)...)
}

func compressedQuery(text string) wire {
	body := queryBody("shop", "")
	return append(body, deflated([]byte(text))...)
}

func TestDecodeCompressedTransaction(t *testing.T) {
	t.Parallel()
	for name, compression := range map[string]int{"zstd": 0, "none": 255} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, inner := &binlog{pos: 4, checksum: true}, &binlog{}
			d := testDecoder(byGTID)
			d.checksummed = true
			packed := l.payload // the events inside have no checksum whatever the file says
			mustFeed(t, d, l.gtid(serverA, 11), packed(compression, inner.query("BEGIN"), inner.tableMap(5, "shop", "orders", true, col{name: "x", kind: 99}),
				inner.insert(5, 1, wire{0xff}), inner.outbox(), inner.row(1), inner.row(2), inner.xid()),
				l.gtid(serverA, 12), l.query("BEGIN"), l.outbox(), l.row(3), l.xid())
			rows, at := take(t, d)
			id := "@" + serverA.String()
			equal(t, "rows", rows, "1"+id+":11", "2"+id+":11", "3"+id+":12")
			equal(t, "GTIDs", at.gtids, serverA.String()+":1-12")
			if at.pos != l.pos {
				t.Errorf("place %d, the log ends at %d", at.pos, l.pos)
			}
		})
	}
	l := &binlog{pos: 4}
	for name, e := range map[string]wire{
		"a payload in a payload": l.payload(255, (&binlog{}).payload(255)),
		"events cut short":       l.payload(255, (&binlog{}).query("BEGIN")[:25]),
		"a header cut short":     l.payload(255, (&binlog{}).query("BEGIN")[:7]),
		"a size of nothing":      l.payload(255, make(wire, 40)),
		"an unknown compression": l.payload(7),
		"no zstd":                append(l.payload(0, l.xid())[:len(l.payload(0, l.xid()))-9], "123456789"...),
	} {
		if err := feed(testDecoder(inFile), l.anonymous(), e); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

func TestDecodeChecksums(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4, checksum: true}
	wrong := func(e wire) wire { e[len(e)-1] ^= 1; return e }
	d := testDecoder(inFile)
	d.checksummed = true
	mustFeed(t, d, l.artificialRotate("binlog.000001", 4), l.describe(true), l.anonymous(), l.query("BEGIN"), l.xid())
	if err := feed(d, wrong(l.anonymous())); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a wrong checksum: %v", err)
	}
	// Switched off in mid stream: the next file says so.
	mustFeed(t, d, l.rotate("binlog.000002", 4))
	l.pos = 4
	mustFeed(t, d, l.describe(false))
	l.checksum = false
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.xid(), l.rotate("binlog.000003", 4))
	if d.at.file != "binlog.000003" || d.at.pos != 4 {
		t.Errorf("place %+v", d.at)
	}
	mustFeed(t, d, l.artificialRotate("binlog.000003", 4), l.describe(true))
	if !d.checksummed {
		t.Error("on again is not seen")
	}
}

func TestDecodeRotation(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]place{"file": inFile, "gtid": byGTID, "mariadb": mariadb} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at.pos = 5000
			l := &binlog{pos: 5000, server: 1}
			d := testDecoder(at)
			begin := func(n uint64) wire {
				switch {
				case at.mariadb:
					return l.mariaGTID(0, n, 0)
				case at.byGTID:
					return l.gtid(serverA, n)
				}
				return l.anonymous()
			}
			start := uint64(5000)
			if at.byGTID && !at.mariadb {
				start = 4 // the server looks for the place itself
			}
			mustFeed(t, d, l.artificialRotate("binlog.000001", start), l.framed(eventFormatDescription, 0, 126, l.describe(false)[headerBytes:]))
			l.pos = 5000
			if d.at.pos != 5000 || d.moved {
				t.Errorf("the start of a dump moved the place to %+v", d.at)
			}
			mustFeed(t, d, begin(11), l.query("BEGIN"), l.xid())
			if d.at.pos != l.pos || d.at.file != "binlog.000001" {
				t.Errorf("place %+v, the log ends at %d", d.at, l.pos)
			}
			mustFeed(t, d, l.rotate("binlog.000002", 4), l.artificialRotate("binlog.000002", 4))
			if d.at.file != "binlog.000002" || d.at.pos != 4 || !d.moved {
				t.Errorf("place %+v after a rotation", d.at)
			}
			// A crashed server's file has no rotation at its end: the place stays good until something follows.
			mustFeed(t, d, l.artificialRotate("binlog.000003", 4))
			if d.at.file != "binlog.000002" {
				t.Errorf("place %+v moved without a transaction", d.at)
			}
			l.pos = 4
			mustFeed(t, d, l.describe(false), begin(12), l.query("BEGIN"), l.outbox(), l.row(1), l.xid())
			if d.at.file != "binlog.000003" || d.at.pos != l.pos {
				t.Errorf("place %+v, the log ends at %d", d.at, l.pos)
			}
		})
	}
}

// Another server's file of the same name, at an earlier place, is no wrap.
func TestDecodeOtherServersFile(t *testing.T) {
	t.Parallel()
	at := byGTID
	at.pos = 1 << 20
	d, l := testDecoder(at), &binlog{pos: 4}
	mustFeed(t, d, l.artificialRotate("binlog.000001", 4), l.gtid(serverB, 1), l.query("BEGIN"), l.xid())
	if d.at.pos != l.pos {
		t.Errorf("place %d, the log ends at %d", d.at.pos, l.pos)
	}
}

func TestDecodeBeyond4GiB(t *testing.T) {
	t.Parallel()
	for _, blind := range []bool{false, true} {
		l := &binlog{pos: 1<<32 - 300, server: 1}
		at := mariadb
		at.pos = l.pos
		d := testDecoder(at)
		mustFeed(t, d, l.mariaGTID(0, 11, 0), l.outbox())
		l.blind = blind
		for range 10 {
			mustFeed(t, d, l.row(1))
		}
		l.blind = false
		mustFeed(t, d, l.xid())
		if d.at.pos != l.pos || l.pos < 1<<32 {
			t.Errorf("place %d, the log ends at %d", d.at.pos, l.pos)
		}
	}
}

// The start of a dump gives no place beyond 4 GiB; more than that may stand between two places that are told.
func TestDecodeFarPlaces(t *testing.T) {
	t.Parallel()
	at, l := mariadb, &binlog{pos: 1<<32 + 5000, server: 1}
	at.pos = l.pos
	d := testDecoder(at)
	mustFeed(t, d, l.artificialRotate("binlog.000001", 4), l.mariaGTID(0, 11, 0), l.outbox(), l.row(1))
	for range 5 {
		d.advance(event{kind: eventWriteRows, size: 1 << 31})
	}
	l.pos += 5 << 31
	mustFeed(t, d, l.xid())
	if d.at.pos != l.pos {
		t.Errorf("place %d, the log ends at %d", d.at.pos, l.pos)
	}
}

// In file mode the first event must begin at the place; nothing else would tell, without checksums.
func TestDecodeProvesThePlace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pos    uint64
		events func(l *binlog) []wire
		right  bool
	}{
		"at the place":      {5000, func(l *binlog) []wire { return []wire{l.anonymous()} }, true},
		"inside an event":   {4980, func(l *binlog) []wire { return []wire{l.anonymous()} }, false},
		"at a file's end":   {5000, func(l *binlog) []wire { return []wire{l.artificialRotate("binlog.000002", 4), l.anonymous()} }, true},
		"at a file's start": {4, func(l *binlog) []wire { return []wire{l.describe(false), l.anonymous()} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, l := inFile, &binlog{pos: 5000}
			at.pos = c.pos
			d := testDecoder(at)
			err := feed(d, append([]wire{l.artificialRotate("binlog.000001", at.pos), l.framed(eventFormatDescription, 0, 0, l.describe(false)[headerBytes:])}, c.events(&binlog{pos: 5000})...)...)
			if (err == nil) != c.right {
				t.Errorf("got %v", err)
			}
			if f := fault.As(d.unproved(errShort)); (f == nil) != c.right || f != nil && f.Code != fault.CodeDiverged {
				t.Errorf("a later error is %v", f)
			}
		})
	}
}

// An id stands for what the last description says, and a description for itself alone.
func TestDecodeTableIDs(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	other := append([]col{}, outboxCols...)
	other[1].name = "other"
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.outbox(), l.row(1), l.tableMap(77, "shop", "orders", true, outboxCols...), l.row(2),
		l.tableMap(77, "shop", "outbox", true, other...), l.row(3), l.xid())
	b, _ := d.batch()
	if len(b.Rows) != 2 || b.Rows[0].Table.Columns[1].Name != "k" || b.Rows[1].Table.Columns[1].Name != "other" {
		t.Errorf("rows %+v", b.Rows)
	}
	mustFeed(t, d, l.describe(false), l.anonymous(), l.query("BEGIN"), l.row(4), l.xid()) // another run of the server
	if rows, _ := take(t, d); len(rows) > 0 {
		t.Errorf("rows %v of an id that was of another run", rows)
	}
}

func TestDecodeUnknownEvents(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4}
	if err := feed(testDecoder(inFile), l.event(99, wire{1, 2})); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("an unknown event: %v", err)
	}
	if err := feed(testDecoder(inFile), l.framed(99, flagIgnorable, 100, wire{1, 2})); err != nil {
		t.Errorf("an ignorable one: %v", err)
	}
	d := testDecoder(inFile)
	for _, kind := range []byte{
		eventDeleteRows, eventDeleteRowsV1, eventHeartbeat, eventHeartbeatV2, eventPreviousGTIDs, eventMariaGTIDList, eventBinlogCheckpoint,
		eventAnnotateRows, eventRowsQuery, eventIntvar, eventRand, eventUserVar, eventStop, eventTransactionContext, eventViewChange, eventBeginLoadQuery,
	} {
		if err := feed(d, l.event(kind, nil)); err != nil {
			t.Errorf("event %d: %v", kind, err)
		}
	}
	if f := fault.As(feed(d, l.event(eventIncident, wire{}.le(2, 1)))); f == nil || f.Code != fault.CodePositionLost {
		t.Errorf("an incident: %v", f)
	}
}

func TestDecodeNoGTIDAnyMore(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4}
	if f := fault.As(feed(testDecoder(byGTID), l.anonymous())); f == nil || f.Code != fault.CodeServerSetting || f.Fix == "" {
		t.Errorf("gtid_mode was turned off: %v", f)
	}
}

func TestDecodeXAOfOthers(t *testing.T) {
	t.Parallel()
	prepare := func(l *binlog, onePhase int) wire {
		return l.event(eventXAPrepare, wire{}.u8(onePhase).le(4, 1).le(4, 1).le(4, 0).str("x"))
	}
	l := &binlog{pos: 4}
	d := testDecoder(byGTID)
	mustFeed(t, d, l.gtid(serverA, 11), l.query("XA START X'78',X'',1"), l.tableMap(5, "shop", "orders", true), l.query("XA END X'78',X'',1"), prepare(l, 0),
		l.gtid(serverA, 12), l.query("XA COMMIT X'78',X'',1"), l.gtid(serverA, 13), l.query("XA ROLLBACK X'79',X'',1"),
		l.gtid(serverA, 14), l.query("XA START X'78',X'',1"), l.outbox(), l.row(1), l.query("XA END X'78',X'',1"), prepare(l, 1))
	rows, at := take(t, d)
	equal(t, "rows", rows, "1@"+serverA.String()+":14")
	equal(t, "GTIDs", at.gtids, serverA.String()+":1-14")
}

func TestDecodeUpdates(t *testing.T) {
	t.Parallel()
	marked := append([]col{{name: "status", kind: typeTiny}}, outboxCols...)
	for name, c := range map[string]struct {
		policy  OnUpdate
		columns []col
		end     string
		code    string
	}{
		"of a table with marks":      {"", marked, "COMMIT", ""},
		"of a plain table":           {"", outboxCols, "COMMIT", ""},
		"when they stop":             {UpdateStop, marked, "COMMIT", fault.CodeEventRefused},
		"when they stop, taken back": {UpdateStop, marked, "ROLLBACK", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := &binlog{pos: 4}, testDecoder(inFile)
			d.onUpdate = c.policy
			err := feed(d, l.anonymous(), l.query("BEGIN"), l.tableMap(9, "shop", "outbox", true, c.columns...), l.event(eventUpdateRows, insertBody(9, len(c.columns))),
				l.event(eventPartialUpdateRows, insertBody(9, len(c.columns))), l.query(c.end))
			if f := fault.As(err); (f == nil) != (c.code == "") || f != nil && f.Code != c.code || f == nil && err != nil {
				t.Errorf("updates %s: %v", name, err)
			}
			if rows, _ := take(t, d); len(rows) > 0 {
				t.Errorf("rows %v", rows)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	l := &binlog{pos: 4}
	begin, outbox := []wire{l.anonymous(), l.query("BEGIN")}, l.outbox()
	for name, c := range map[string]struct {
		events []wire
		want   string
	}{
		"a row outside":             {[]wire{outbox, l.row(1)}, "outside of a transaction"},
		"a begin inside":            {append(begin, l.anonymous()), "inside another"},
		"a commit outside":          {[]wire{l.xid()}, "did not begin"},
		"a rollback outside":        {[]wire{l.query("ROLLBACK")}, "did not begin"},
		"another number of columns": {append(begin, outbox, l.insert(77, 3, wire{0})), "4 columns"},
		"a size that is not true":   {[]wire{append(l.xid(), 1)}, "its header says"},
		"a row cut short":           {append(begin, outbox, l.insert(77, 4, outboxRow(1, "k", smallJSON(1), "ab")[:14])), "cut short"},
		"damaged JSON":              {append(begin, outbox, l.insert(77, 4, outboxRow(1, "k", wire{0, 1}, "ab"))), "damaged"},
		"an unknown collation":      {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeVarchar, meta: wire{1, 0}, collation: 240})), "collation 240"},
		"an unknown type":           {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: 99}), l.insert(77, 1, wire{0xfe, 1})), "type 99"},
		"a label that is not there": {append(begin, l.tableMap(77, "shop", "outbox", true, enumCol), l.insert(77, 1, wire{0xfe, 3})), "label 3 of 2"},
		"seven digits of seconds":   {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeTime2, meta: wire{7}})), "not known"},
		"five bytes of length":      {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeJSON, meta: wire{5}})), "not known"},
		"nine bytes of bits":        {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeBit, meta: wire{1, 8}})), "not known"},
		"three bytes of label":      {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeString, meta: wire{typeEnum, 3}, labels: []string{"a"}})), "not known"},
		"a scale beyond precision":  {append(begin, l.tableMap(77, "shop", "outbox", true, col{name: "id", kind: typeNewDecimal, meta: wire{5, 6}})), "not known"},
		"fewer names than columns":  {append(begin, l.event(eventTableMap, append(wire{}.le(6, 77).le(2, 1).pstr("shop").pstr("outbox").lenenc(2).u8(typeLong).u8(typeLong).lenenc(0).u8(0).u8(4).lenenc(3).lenenc(2), "id"...))), "1 names"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := feed(testDecoder(inFile), c.events...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

var enumCol = col{name: "id", kind: typeString, meta: wire{typeEnum, 1}, collation: latin1Collation, labels: []string{"caf\xe9", "\x80"}}

func TestDecodeLabels(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.tableMap(77, "shop", "outbox", true, enumCol), l.insert(77, 1, wire{0xfe, 1}, wire{0xfe, 2}, wire{0xfe, 0}), l.xid())
	b, _ := d.batch()
	for i, want := range []string{"café", "€", ""} {
		if got := string(b.Rows[i].Values[0].Data); got != want {
			t.Errorf("label %q, want %q", got, want)
		}
	}
}

// A column the log does not carry is not NULL (binlog_row_image=MINIMAL).
// Events of a compressed transaction may be larger than what is unpacked at once, and are never cut short unnoticed.
func TestDecodeCompressedLargeRow(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, unpackedBytes - 100, unpackedBytes, 3 * unpackedBytes} {
		text := strings.Repeat("x", size)
		document := append(wire{jsonString, byte(size) | 0x80, byte(size>>7) | 0x80, byte(size >> 14)}, text...)
		l, inner, d := &binlog{pos: 4}, &binlog{}, testDecoder(inFile)
		events := []wire{inner.query("BEGIN"), inner.outbox(), inner.insert(77, 4, outboxRow(1, "k", document, "ab")), inner.row(2), inner.xid()}
		mustFeed(t, d, l.anonymous(), l.payload(0, events...))
		b, _ := d.batch()
		if len(b.Rows) != 2 || string(b.Rows[0].Values[2].Data) != `"`+text+`"` || string(b.Rows[1].Values[0].Data) != "2" {
			t.Errorf("%d bytes: %d rows", size, len(b.Rows))
		}
		for _, cut := range []int{1, 18, 19, 20, size} {
			d, whole := testDecoder(inFile), inner.insert(77, 4, outboxRow(1, "k", document, "ab"))
			if err := feed(d, l.anonymous(), l.payload(255, inner.query("BEGIN"), inner.outbox(), whole[:len(whole)-cut])); !errors.Is(err, errShort) {
				t.Errorf("%d bytes without the last %d: %v", size, cut, err)
			}
		}
	}
}

// The lists of signs and of character sets have a place for some columns that need none.
func TestDecodeListsOfMetadata(t *testing.T) {
	t.Parallel()
	year := col{name: "y", kind: typeYear, unsigned: true}
	number, text := col{name: "n", kind: typeLong}, col{name: "t", kind: typeVarchar, meta: wire{}.le(2, 40), collation: latin1Collation}
	for _, c := range []struct {
		name    string
		at      place
		columns []col
		row     wire
		want    string
	}{
		{"a YEAR before a number", byGTID, []col{year, number}, wire{0}.u8(126).le(4, 0xffffffff), "2026 -1"},
		{"a VECTOR before text", byGTID, []col{{name: "v", kind: typeVector, meta: wire{4}, collation: binaryCollation}, text}, wire{0}.le(4, 1).str("v").u8(1).str("\xe9"), "v é"},
		{"a GEOMETRY before text", byGTID, []col{{name: "g", kind: typeGeometry, meta: wire{4}}, text}, wire{0}.le(4, 1).str("g").u8(1).str("\xe9"), "g é"},
		{"a GEOMETRY before text, MariaDB", mariadb, []col{{name: "g", kind: typeGeometry, meta: wire{4}, collation: binaryCollation}, text}, wire{0}.le(4, 1).str("g").u8(1).str("\xe9"), "g é"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, d := &binlog{pos: 4}, testDecoder(c.at)
			begin := []wire{l.gtid(serverA, 11), l.query("BEGIN")}
			if c.at.mariadb {
				begin = []wire{l.mariaGTID(0, 11, 0)}
			}
			mustFeed(t, d, append(begin, l.tableMap(77, "shop", "outbox", true, c.columns...), l.insert(77, len(c.columns), c.row), l.xid())...)
			b, ok := d.batch()
			if !ok {
				t.Fatal("no row")
			}
			if v := b.Rows[0].Values; string(v[0].Data)+" "+string(v[1].Data) != c.want {
				t.Errorf("%q %q, want %q", v[0].Data, v[1].Data, c.want)
			}
		})
	}
}

// What the log does not tell of a number comes from the table, while it is there and of that type.
func TestDecodeForms(t *testing.T) {
	t.Parallel()
	columns := []col{{name: "z", kind: typeLong, unsigned: true}, {name: "f", kind: typeFloat, meta: wire{4}}}
	row := wire{0}.le(4, 42).le(4, uint64(math.Float32bits(1.5)))
	formed := []describedColumn{{name: "f", dataType: "float", columnType: "float(7,3)", precision: 7, scale: 3}, {name: "z", dataType: "int", columnType: "int(6) unsigned zerofill", precision: 10}}
	for _, c := range []struct {
		name      string
		described []describedColumn
		err       error
		want      string
	}{
		{"told", formed, nil, "000042 1.500"},
		{"another type now", []describedColumn{{name: "z", dataType: "bigint", columnType: "bigint(20) unsigned zerofill"}, formed[0]}, nil, "42 1.500"},
		{"renamed", formed[:1], nil, "42 1.500"},
		{"gone", nil, schemaUnknown(TableName{"shop", "outbox"}, "it is gone"), "42 1.5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, d := &binlog{pos: 4}, testDecoder(byGTID)
			d.describe = func(TableName, time.Time) ([]describedColumn, error) { return c.described, c.err }
			mustFeed(t, d, l.gtid(serverA, 11), l.query("BEGIN"), l.tableMap(77, "shop", "outbox", true, columns...), l.insert(77, 2, row), l.xid())
			b, _ := d.batch()
			if v := b.Rows[0].Values; string(v[0].Data)+" "+string(v[1].Data) != c.want {
				t.Errorf("%q %q, want %q", v[0].Data, v[1].Data, c.want)
			}
		})
	}
	l, d, lost := &binlog{pos: 4}, testDecoder(byGTID), errors.New("connection lost")
	d.describe = func(TableName, time.Time) ([]describedColumn, error) { return nil, lost }
	if err := feed(d, l.gtid(serverA, 11), l.query("BEGIN"), l.tableMap(77, "shop", "outbox", true, columns...)); !errors.Is(err, lost) {
		t.Errorf("no answer: %v", err)
	}
}

func TestDecodeAbsentColumns(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	body := append(wire{}.le(6, 77).le(2, 1).le(2, 2).lenenc(4).u8(0x05), wire{0x02}.le(8, 9)...) // id and payload are there, payload is NULL
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.outbox(), l.event(eventWriteRows, body), l.xid())
	b, _ := d.batch()
	for i, want := range []source.State{source.Present, source.Absent, source.Null, source.Absent} {
		if got := b.Rows[0].Values[i].State; got != want {
			t.Errorf("column %d: state %d, want %d", i, got, want)
		}
	}
}

// Names in lower case are what such a server logs, however they are given.
func TestDecodeFoldsNames(t *testing.T) {
	t.Parallel()
	s := &Source{cfg: Config{Tables: []TableName{{"Shop", "OutBox"}}}, server: server{folds: true, collations: testDecoder(inFile).server.collations}}
	d, err := newDecoder(s, plainStart(inFile), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	d.describe = testDecoder(inFile).describe
	l := &binlog{pos: 4}
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.outbox(), l.row(1), l.xid())
	if rows, _ := take(t, d); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
}

// What stands before a large transaction has a position of its own: a piece
// holds rows of one transaction alone.
func TestDecodeSmallBeforeLarge(t *testing.T) {
	t.Parallel()
	for _, by := range []place{inFile, byGTID} {
		l, d := &binlog{pos: 4}, testDecoder(by)
		size := []int{3, 4, 2*batchRows + 7}
		for i, rows := range size {
			if by.byGTID {
				mustFeed(t, d, l.gtid(serverA, uint64(i+11)))
			} else {
				mustFeed(t, d, l.anonymous())
			}
			mustFeed(t, d, l.query("BEGIN"), l.outbox())
			for n := range rows {
				mustFeed(t, d, l.row(uint64(n)))
			}
			mustFeed(t, d, l.xid())
		}
		var rows []int
		var places []source.Position
		for {
			b, ok := d.batch()
			if !ok {
				break
			}
			rows, places = append(rows, len(b.Rows)), append(places, b.Position)
			if first, last := b.Rows[0].Tx, b.Rows[len(b.Rows)-1].Tx; b.Position == "" && first != last {
				t.Errorf("a piece holds rows of %s and %s", first.ID, last.ID)
			}
		}
		if want := []int{7, batchRows, batchRows + 7}; !slices.Equal(rows, want) {
			t.Fatalf("batches of %v, want %v", rows, want)
		}
		if places[0] == "" || places[1] != "" || places[2] == "" || places[0] == places[2] {
			t.Errorf("places %q", places)
		}
	}
}

// A transaction of more rows than a batch has its position at its end alone.
func TestDecodeLargeTransaction(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.outbox())
	const n = 5*batchRows + 7
	for i := range uint64(n) {
		mustFeed(t, d, l.row(i))
	}
	mustFeed(t, d, l.xid())
	next := uint32(0)
	for {
		b, ok := d.batch()
		if !ok {
			break
		}
		for _, r := range b.Rows {
			if r.Index != next {
				t.Fatalf("row %d has index %d", next, r.Index)
			}
			next++
		}
		if (b.Position != "") != (next == n) {
			t.Errorf("position %q after %d rows", b.Position, next)
		}
	}
	if next != n || !d.idle() {
		t.Errorf("%d rows", next)
	}
}
