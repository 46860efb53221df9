package postgres

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jackc/pglogrepl"

	"github.com/outboxd/outboxd/source"
)

var commitTime = time.Date(2026, 11, 30, 12, 34, 56, 123456000, time.UTC)

func testDecoder(messages ...wire) (*decoder, error) {
	d := newDecoder(place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: 1},
		map[TableName]bool{{"public", "outbox"}: true}, zap.NewNop())
	for _, m := range messages {
		if err := d.message(m); err != nil {
			return d, err
		}
	}
	return d, nil
}

func TestDecodeTransaction(t *testing.T) {
	t.Parallel()
	d, err := testDecoder(
		beginMessage(0x100, commitTime),
		relationMessage(1, "public", "outbox", outboxColumns...),
		relationMessage(2, "public", "orders", col{"id", 20}),
		insertMessage(1, "1", "k", `{"a": 1}`, `\x00ff`),
		insertMessage(2, "77"),
		insertMessage(1, "2", nil, "", unchanged),
		commitMessage(0x100, 0x130, commitTime),
	)
	if err != nil {
		t.Fatal(err)
	}
	b, lsn, ok := d.batch()
	if !ok || lsn != 0x130 || len(b.Rows) != 2 {
		t.Fatalf("batch %+v, lsn %s, %t", b, lsn, ok)
	}
	if p, err := parsePlace(b.Position); err != nil || p.lsn != 0x130 {
		t.Errorf("position %q: the commit's end is the resume point", b.Position)
	}
	first, second := b.Rows[0], b.Rows[1]
	if !first.Tx.CommitAt.Equal(commitTime) || first.Tx != second.Tx || first.Index != 0 || second.Index != 1 {
		t.Errorf("rows %+v, %+v", first, second)
	}
	for i, want := range []source.Value{
		{Data: []byte("1"), State: source.Present}, {Data: []byte("k"), State: source.Present},
		{Data: []byte(`{"a": 1}`), State: source.Present}, {Data: []byte{0, 0xff}, State: source.Present},
	} {
		if got := first.Values[i]; string(got.Data) != string(want.Data) || got.State != want.State {
			t.Errorf("column %d is %q (%d), want %q (%d)", i, got.Data, got.State, want.Data, want.State)
		}
	}
	if second.Values[1].State != source.Null || second.Values[2].State != source.Present || second.Values[3].State != source.Absent {
		t.Errorf("NULL, empty and unchanged are not told apart: %+v", second.Values)
	}
	if _, _, ok := d.batch(); ok || !d.idle() {
		t.Error("something is left")
	}
}

// A row is read with the description before it, also in the middle of a transaction.
func TestDecodeSchemaChange(t *testing.T) {
	t.Parallel()
	d, err := testDecoder(
		beginMessage(0x100, commitTime),
		relationMessage(1, "public", "outbox", col{"id", 20}, col{"b", 25}),
		insertMessage(1, "1", "x"),
		relationMessage(1, "public", "outbox", col{"b", 25}, col{"id", 20}, col{"c", 25}),
		insertMessage(1, "y", "2", "z"),
		commitMessage(0x100, 0x130, commitTime),
	)
	if err != nil {
		t.Fatal(err)
	}
	b, _, _ := d.batch()
	for i, want := range []string{"1", "2"} {
		r := b.Rows[i]
		if got := string(r.Values[r.Table.Column("id")].Data); got != want {
			t.Errorf("row %d has id %q, want %q", i, got, want)
		}
	}
}

func TestDecodeTypeNames(t *testing.T) {
	t.Parallel()
	d, err := testDecoder(
		wire{'Y'}.u32(70001).str("shop").str("mood"),
		relationMessage(1, "public", "outbox", col{"m", 70001}, col{"j", 114}),
	)
	if err != nil {
		t.Fatal(err)
	}
	columns := d.relations[1].table.Columns
	if columns[0].Type != "shop.mood" || columns[0].Kind != source.Text || columns[1].Kind != source.JSON {
		t.Errorf("columns %+v", columns)
	}
}

// The end of each transaction of a batch can be asked for, and nothing between.
func TestDecodeBorders(t *testing.T) {
	t.Parallel()
	d, _ := testDecoder(
		relationMessage(1, "public", "outbox", col{"id", 20}),
		beginMessage(0x100, commitTime), insertMessage(1, "1"), insertMessage(1, "2"), commitMessage(0x100, 0x130, commitTime),
		beginMessage(0x180, commitTime), commitMessage(0x180, 0x190, commitTime),
		beginMessage(0x200, commitTime), insertMessage(1, "3"), commitMessage(0x200, 0x230, commitTime),
	)
	b, _, _ := d.batch()
	for n, want := range []uint64{0, 0, 0x190, 0x230, 0} {
		var got uint64
		if p := b.At(n); p != "" {
			at, err := parsePlace(p)
			if err != nil {
				t.Fatal(err)
			}
			got = uint64(at.lsn)
		}
		if got != want {
			t.Errorf("behind %d rows: %#x, want %#x", n, got, want)
		}
	}
}

// What stands in the committed part of a batch is never mixed with a piece of the next transaction.
func TestDecodeHandsOverCommittedPartOnly(t *testing.T) {
	t.Parallel()
	d, _ := testDecoder(
		relationMessage(1, "public", "outbox", col{"id", 20}),
		beginMessage(0x100, commitTime), insertMessage(1, "1"), commitMessage(0x100, 0x130, commitTime),
		beginMessage(0x200, commitTime), insertMessage(1, "2"),
	)
	b, lsn, ok := d.batch()
	if !ok || lsn != 0x130 || len(b.Rows) != 1 {
		t.Fatalf("batch of %d rows, lsn %s", len(b.Rows), lsn)
	}
	if _, _, ok := d.batch(); ok {
		t.Fatal("a piece of a small transaction was handed over")
	}
	for range batchRows {
		if err := d.message(insertMessage(1, "3")); err != nil {
			t.Fatal(err)
		}
	}
	b, _, ok = d.batch()
	if !ok || b.Position != "" || len(b.Rows) != batchRows+1 {
		t.Errorf("piece of %d rows with position %q", len(b.Rows), b.Position)
	}
	if err := d.message(commitMessage(0x200, 0x230, commitTime)); err != nil {
		t.Fatal(err)
	}
	if b, lsn, ok = d.batch(); !ok || lsn != 0x230 || len(b.Rows) != 0 {
		t.Errorf("the end of a transaction in pieces: %+v", b)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	rel := relationMessage(1, "public", "outbox", outboxColumns...)
	begin := beginMessage(1, commitTime)
	for name, c := range map[string]struct {
		messages []wire
		want     string
	}{
		"an unknown message":          {[]wire{{'?', 1}}, "not known"},
		"an empty message":            {[]wire{{}}, "cut short"},
		"a row without a description": {[]wire{begin, insertMessage(9, "1")}, "not described"},
		"a row outside":               {[]wire{rel, insertMessage(1, "1", "k", "{}", `\x`)}, "outside of a transaction"},
		"a begin inside":              {[]wire{begin, begin}, "inside another"},
		"a commit outside":            {[]wire{commitMessage(1, 2, commitTime)}, "outside of a transaction"},
		"another number of columns":   {[]wire{rel, begin, insertMessage(1, "1")}, "4 columns"},
		"bytea that is not hex":       {[]wire{rel, begin, insertMessage(1, "1", "k", "{}", `\001`)}, "hex form"},
		"a binary value":              {[]wire{rel, begin, wire{'I'}.u32(1).u8('N').u16(4).u8('b')}, "format"},
		"a value cut short":           {[]wire{rel, begin, wire{'I'}.u32(1).u8('N').u16(4).u8('t').u32(100)}, "cut short"},
		"a description cut short":     {[]wire{rel[:len(rel)-3]}, "cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := testDecoder(c.messages...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A publication that is not ours may carry more than inserts.
func TestDecodePassesOverWhatIsNoInsert(t *testing.T) {
	t.Parallel()
	d, err := testDecoder(wire{'U', 1}, wire{'D', 1}, truncateMessage(0, 3), wire{'O', 1}, wire{'M', 1})
	if err != nil || d.ignored != 5 {
		t.Errorf("ignored %d, %v", d.ignored, err)
	}
}

// TRUNCATE of an outbox table is no event, but ids may come again; of another table it is nothing to us.
func TestDecodeWarnsOfTruncate(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	d, err := testDecoder(
		relationMessage(1, "public", "outbox", outboxColumns...), relationMessage(2, "public", "orders", col{"id", 20}),
		beginMessage(0x100, commitTime),
	)
	if err != nil {
		t.Fatal(err)
	}
	d.log = zap.New(core)
	if err := d.message(truncateMessage(restartIdentity, 2)); err != nil || logs.Len() != 0 {
		t.Fatalf("of another table: %v, logged %+v", err, logs.All())
	}
	if err := d.message(truncateMessage(restartIdentity, 2, 1)); err != nil {
		t.Fatal(err)
	}
	if err := d.message(commitMessage(0x100, 0x130, commitTime)); err != nil {
		t.Fatal(err)
	}
	if logs.Len() != 1 {
		t.Fatalf("logged %+v", logs.All())
	}
	if f := logs.All()[0].ContextMap(); f["table"] != "public.outbox" || f["restart_identity"] != true || f["transaction"] != "0/100" || f["fix"] == "" {
		t.Errorf("logged %v", f)
	}
	if b, _, ok := d.batch(); !ok || len(b.Rows) != 0 {
		t.Errorf("batch %+v, %t", b, ok)
	}
	if err := d.message(truncateMessage(0, 1)); err == nil {
		t.Error("outside of a transaction: no error")
	}
	if err := d.message(truncateMessage(0, 1)[:7]); err == nil {
		t.Error("cut short: no error")
	}
}

// The budget of the hot path: no allocation per row, a few per batch and transaction.
func TestDecodeAllocations(t *testing.T) {
	rel := relationMessage(1, "public", "outbox", outboxColumns...)
	begin, commit := beginMessage(1, commitTime), commitMessage(1, 2, commitTime)
	row := insertMessage(1, "12345", "customer-77", `{"order": 12345, "amount": 10.50}`, `\x00ff`)
	d, err := testDecoder(rel)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 500
	allocs := testing.AllocsPerRun(100, func() {
		_ = d.message(begin)
		for range rows {
			_ = d.message(row)
		}
		_ = d.message(commit)
		if b, _, ok := d.batch(); !ok || len(b.Rows) != rows {
			t.Fatal("no batch")
		}
	})
	if allocs/rows > 0.05 {
		t.Errorf("%.0f allocations for %d rows", allocs, rows)
	}
}

func BenchmarkDecode(b *testing.B) {
	begin, commit := beginMessage(1, commitTime), commitMessage(1, 2, commitTime)
	row := insertMessage(1, "12345", "customer-77", `{"order": 12345, "amount": 10.50, "note": "`+strings.Repeat("x", 250)+`"}`, `\x00ff`)
	d, _ := testDecoder(relationMessage(1, "public", "outbox", outboxColumns...))
	b.ReportAllocs()
	b.SetBytes(int64(len(row)))
	for i := 0; b.Loop(); i++ {
		if i%10 == 0 {
			_ = d.message(begin)
		}
		_ = d.message(row)
		if i%10 == 9 {
			_ = d.message(commit)
		}
		if d.full() {
			d.batch()
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []wire{
		beginMessage(1, commitTime), commitMessage(1, 2, commitTime), relationMessage(1, "public", "outbox", outboxColumns...),
		insertMessage(1, "1", nil, unchanged, `\x00`), {'Y', 0, 0, 0, 1, 'a', 0, 'b', 0}, truncateMessage(0, 1),
	} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		d, _ := testDecoder(relationMessage(1, "public", "outbox", outboxColumns...), beginMessage(1, commitTime))
		_ = d.message(m) // must not panic
		d.batch()
	})
}

func TestLSNText(t *testing.T) {
	t.Parallel()
	for _, lsn := range []uint64{0, 1, 0xf, 0x10, 0xABCDEF, 1 << 32, 0x16B374D848, 1<<64 - 1} {
		if got, want := lsnText(lsn), pglogrepl.LSN(lsn).String(); got != want {
			t.Errorf("%#x is %q, want %q", lsn, got, want)
		}
	}
}
