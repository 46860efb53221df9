package mysql

import (
	"bytes"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/source"
)

// samples is a log with an event of every kind that is read.
func samples(l *binlog) []wire {
	inner := &binlog{}
	return []wire{
		l.describe(l.checksum), l.rotate("binlog.000002", 4), l.gtid(serverA, 11), l.query("BEGIN"), l.outbox(), l.row(1), l.xid(),
		l.taggedGTID(serverB, "tag", 1<<33), l.query("BEGIN"), l.event(eventUpdateRows, insertBody(77, 4)), l.query("ROLLBACK"),
		l.anonymous(), l.payload(0, inner.query("BEGIN"), inner.outbox(), inner.row(2), inner.xid()),
		l.anonymous(), l.payload(255, inner.query("BEGIN"), inner.outbox(), inner.row(3), inner.xid()),
		l.mariaGTID(1, 2, 0), l.outbox(), l.event(eventWriteRowsCompressed, compressedRows(outboxRow(2, "k", smallJSON(1), "ab"))), l.xid(),
		l.mariaGTID(1, 3, 1), l.event(eventQueryCompressed, compressedQuery("CREATE TABLE x SELECT 1")),
		l.gtid(serverA, 12), l.query("XA START X'78'"), l.event(eventXAPrepare, wire{0, 1}), l.event(eventIncident, nil),
		l.event(eventWriteRowsV1, append(wire{}.le(6, 77).le(2, 1).lenenc(4).u8(0xff), outboxRow(1, "k", smallJSON(1), "")...)),
		l.event(eventExecuteLoadQuery, queryBody("shop", "LOAD DATA INTO TABLE x and more")),
	}
}

// prepared is a decoder in front of an event: inside a transaction with the outbox described, or outside.
func preparedDecoder(at place, inside bool) *decoder {
	d, l := testDecoder(at), &binlog{pos: 4, server: 1}
	d.table = func(string) (runes, error) { return runes{}, nil }
	begin := l.anonymous
	if at.byGTID {
		begin = func() wire { return l.gtid(serverA, 100) }
	}
	if at.mariadb {
		begin = func() wire { return l.mariaGTID(0, 100, 0) }
	}
	events := []wire{begin(), l.query("BEGIN"), l.outbox()}
	if !inside {
		events = append(events, l.xid())
	}
	if err := feed(d, events...); err != nil {
		panic(err)
	}
	return d
}

var places = []place{inFile, byGTID, mariadb}

// Whatever is cut short is an error or means nothing: it never panics, and never gives a row that is not whole.
func TestDecodeCutShort(t *testing.T) {
	t.Parallel()
	for _, at := range places {
		for i, whole := range samples(&binlog{pos: 4, server: 1}) {
			for n := headerBytes; n < len(whole); n++ {
				e := bytes.Clone(whole[:n])
				le.PutUint32(e[9:], uint32(n)) // as if it were all
				for _, inside := range []bool{true, false} {
					d := preparedDecoder(at, inside)
					d.checksummed = false
					if err := d.packet(e); err != nil {
						continue
					}
					for _, r := range d.rows {
						if len(r.Values) != len(outboxCols) || r.Values[0].State != source.Present || len(r.Values[3].Data) != 4 {
							t.Errorf("event %d cut to %d bytes gives %+v", i, n, r.Values)
						}
					}
				}
			}
		}
	}
}

func FuzzEvent(f *testing.F) {
	for _, e := range samples(&binlog{pos: 4, server: 1}) {
		f.Add(uint8(0), []byte(e[headerBytes:]), e[4])
	}
	f.Fuzz(func(_ *testing.T, which uint8, body []byte, kind byte) {
		d := preparedDecoder(places[int(which)%len(places)], which&4 != 0)
		l := &binlog{pos: 1000, server: 1}
		_ = d.packet(l.event(kind, body)) // must not panic
		d.batch()
	})
}

// FuzzTableMap describes a table and reads a row of it, whatever it is.
func FuzzTableMap(f *testing.F) {
	f.Add([]byte(tableMapBody(77, "shop", "outbox", true, outboxCols...)), []byte(outboxRow(1, "k", smallJSON(1), "ab")))
	f.Add([]byte(tableMapBody(77, "shop", "outbox", true, enumCol)), []byte{0xfe, 1})
	f.Add([]byte(tableMapBody(77, "shop", "outbox", false, outboxCols...)), []byte(outboxRow(1, "k", smallJSON(1), "ab")))
	var every []col
	for _, kind := range []byte{typeFloat, typeDouble, typeYear, typeDate, typeTiny, typeShort, typeInt24} {
		every = append(every, col{name: "c", kind: kind, meta: map[byte]wire{typeFloat: {4}, typeDouble: {8}}[kind]})
	}
	every = append(every, col{name: "c", kind: typeNewDecimal, meta: wire{30, 10}}, col{name: "c", kind: typeBit, meta: wire{1, 2}}, col{name: "c", kind: typeTime2, meta: wire{6}},
		col{name: "c", kind: typeDatetime2, meta: wire{3}}, col{name: "c", kind: typeTimestamp2, meta: wire{1}}, col{name: "c", kind: typeBlobCompressed, meta: wire{2}, collation: latin1Collation})
	f.Add([]byte(tableMapBody(77, "shop", "outbox", true, every...)), bytes.Repeat([]byte{0}, 200))
	f.Fuzz(func(_ *testing.T, description, row []byte) {
		for _, at := range places {
			d := preparedDecoder(at, true)
			l := &binlog{pos: 1000, server: 1}
			if err := d.packet(l.event(eventTableMap, description)); err == nil { // must not panic
				if t := d.tables[77]; t != nil {
					_ = d.packet(l.insert(77, len(t.columns), row))
				}
			}
			d.batch()
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(smallJSON(1)))
	f.Add([]byte{jsonLargeArray, 1, 0, 0, 0, 13, 0, 0, 0, jsonString, 13, 0, 0, 0})
	f.Add([]byte{jsonOpaque, typeNewDecimal, 4, 2, 1, 0x81, 0x0a})
	f.Add([]byte{jsonOpaque, typeTime, 8, 0, 0, 0, 0, 0, 0, 0, 0x80})
	// Each of two entries leads to the array they stand in.
	f.Add([]byte{jsonSmallArray, 2, 0, 10, 0, jsonSmallArray, 4, 0, jsonSmallArray, 4, 0})
	f.Fuzz(func(t *testing.T, doc []byte) {
		out, err := appendJSON(nil, doc)
		if err == nil && len(out) > 20*len(doc)+1000 {
			t.Errorf("%d bytes became %d", len(doc), len(out))
		}
	})
}

func FuzzPosition(f *testing.F) {
	for _, p := range places {
		f.Add(string(p.position()))
	}
	f.Add("my1?by=gtid&file=&pos=4&gtids=x:1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(source.Position(text))
		if err != nil {
			return
		}
		again, err := parsePlace(p.position())
		if err != nil || again != p {
			t.Errorf("%q became %+v (%v)", text, again, err)
		}
	})
}

// The budget of the hot path: no allocation per row, a few per batch and per transaction with rows of ours.
func TestDecodeAllocations(t *testing.T) {
	l, d := &binlog{pos: 4}, testDecoder(byGTID)
	payload := wire{jsonSmallObject}.le(2, 2).le(2, 25+9+9).le(2, 18).le(2, 1).le(2, 19).le(2, 6).u8(jsonDouble).le(2, 25).u8(jsonString).le(2, 33).str("aamount").le(8, 0x4025000000000000).u8(9).str("two words")
	row := l.insert(77, 4, outboxRow(12345, "customer-77", payload, "ab"), outboxRow(12346, "customer-78", payload, "ab"))
	begin, outbox, query, commit := l.gtid(serverA, 11), l.outbox(), l.query("BEGIN"), l.xid()
	const rows = 500
	allocs := testing.AllocsPerRun(100, func() {
		_ = feed(d, begin, query)
		for range rows / 2 {
			_ = feed(d, outbox, row)
		}
		_ = d.packet(commit)
		if b, ok := d.batch(); !ok || len(b.Rows) != rows {
			t.Fatal("no batch")
		}
	})
	if allocs/rows > 0.1 {
		t.Errorf("%.0f allocations for %d rows", allocs, rows)
	}
}

// What the servers compress is unpacked with the means that are there from the
// event or transaction before: without them it is 13 and 27 allocations. The race
// detector has pools drop some of what they are given.
func TestUnpackAllocations(t *testing.T) {
	l, inner := &binlog{pos: 4}, &binlog{}
	packed := []wire{l.mariaGTID(0, 11, 0), l.outbox(), l.event(eventWriteRowsCompressed, compressedRows(outboxRow(2, "k", smallJSON(1), "ab"))), l.xid()}
	transaction := []wire{l.gtid(serverA, 11), l.payload(0, inner.query("BEGIN"), inner.outbox(), inner.row(1), inner.row(2), inner.outbox(), inner.row(3), inner.xid())}
	for name, c := range map[string]struct {
		at   place
		log  []wire
		most float64
	}{
		"log_bin_compress":               {mariadb, packed, 10},
		"binlog_transaction_compression": {byGTID, transaction, 20},
	} {
		d := testDecoder(c.at)
		mustFeed(t, d, c.log...)
		d.batch()
		if allocs := testing.AllocsPerRun(100, func() {
			_ = feed(d, c.log...)
			if len(d.rows) >= 100 {
				d.batch()
			}
		}); allocs > c.most {
			t.Errorf("%s: %.1f allocations for a transaction", name, allocs)
		}
	}
}

// Transactions of other tables cost no allocation, however many events they have; a tag costs its text.
func TestSkipAllocations(t *testing.T) {
	l := &binlog{pos: 4}
	foreign := []wire{l.tableMap(5, "shop", "orders", true, outboxCols...), l.insert(5, 4, outboxRow(1, "k", smallJSON(1), "ab")),
		l.event(eventUpdateRows, insertBody(5, 4)), l.event(eventDeleteRows, insertBody(5, 4)), l.xid()}
	for _, c := range []struct {
		name  string
		at    place
		most  float64
		begin func(n uint64) []wire
	}{
		{"GTIDs", byGTID, 0, func(n uint64) []wire { return []wire{l.gtid(serverA, n), l.query("BEGIN")} }},
		{"tagged GTIDs", byGTID, 1 /* the tag */, func(n uint64) []wire { return []wire{l.taggedGTID(serverA, "mytag", n), l.query("BEGIN")} }},
		{"file and position", inFile, 0, func(uint64) []wire { return []wire{l.anonymous(), l.query("BEGIN")} }},
		{"MariaDB", mariadb, 0, func(n uint64) []wire { return []wire{l.mariaGTID(0, n, 0)} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := testDecoder(c.at)
			const transactions = 100
			var log [2 * transactions][]wire
			for i := range log {
				log[i] = append(c.begin(uint64(11+i)), foreign...)
			}
			mustFeed(t, d, log[0]...) // the first one of its server and tag is a new entry
			next := 1
			if allocs := testing.AllocsPerRun(transactions, func() {
				_ = feed(d, log[next]...)
				next++
			}); allocs > c.most {
				t.Errorf("%.2f allocations for a transaction of %d events", allocs, len(log[0]))
			}
			if text := d.gtids(); c.at.byGTID && !c.at.mariadb && !strings.HasSuffix(text, "112") {
				t.Errorf("GTIDs %s", text) // 11 to 112
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	l, d := &binlog{pos: 4}, testDecoder(byGTID)
	text := strings.Repeat("x", 250)
	payload := wire{jsonSmallObject}.le(2, 1).le(2, uint64(14+len(text))).le(2, 11).le(2, 1).u8(jsonString).le(2, 12).str("a").u8(len(text)&0x7f | 0x80).u8(len(text) >> 7).str(text)
	begin, query, outbox, commit := l.gtid(serverA, 11), l.query("BEGIN"), l.outbox(), l.xid()
	row := l.insert(77, 4, outboxRow(12345, "customer-77", payload, "ab"))
	b.ReportAllocs()
	b.SetBytes(int64(len(row)))
	for i := 0; b.Loop(); i++ {
		if i%10 == 0 {
			_ = feed(d, begin, query)
		}
		_ = feed(d, outbox, row)
		if i%10 == 9 {
			_ = d.packet(commit)
		}
		if d.full() {
			d.batch()
		}
	}
}

// BenchmarkSkip reads rows of another table.
func BenchmarkSkip(b *testing.B) {
	l, d := &binlog{pos: 4}, testDecoder(byGTID)
	if err := feed(d, l.gtid(serverA, 11), l.query("BEGIN")); err != nil {
		b.Fatal(err)
	}
	orders, row := l.tableMap(5, "shop", "orders", true, outboxCols...), l.insert(5, 4, outboxRow(1, "k", smallJSON(1), "ab"))
	b.ReportAllocs()
	for b.Loop() {
		_ = feed(d, orders, row)
	}
}
