package mysql

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// With MINIMAL metadata the names come from the table as it is now: laid over
// the log's columns where both agree, refused where they don't (A31).
func TestDescribedTable(t *testing.T) {
	t.Parallel()
	varied := func(change func(c []describedColumn) []describedColumn) []describedColumn {
		return change(outboxDescribed())
	}
	for name, c := range map[string]struct {
		columns []describedColumn
		refused string
	}{
		"as it was":          {outboxDescribed(), ""},
		"renamed":            {varied(func(c []describedColumn) []describedColumn { c[1].name = "aggregate_id"; return c }), ""},
		"a column more":      {varied(func(c []describedColumn) []describedColumn { return append(c, c[0]) }), "4 columns"},
		"a column less":      {varied(func(c []describedColumn) []describedColumn { return c[:3] }), "now has 3"},
		"reordered":          {varied(func(c []describedColumn) []describedColumn { c[1], c[2] = c[2], c[1]; return c }), "column 2 is varchar"},
		"a longer string":    {varied(func(c []describedColumn) []describedColumn { c[1].octets = 1024; return c }), "column 2"},
		"another sign":       {varied(func(c []describedColumn) []describedColumn { c[0].columnType = "bigint"; return c }), "another sign"},
		"a longer binary":    {varied(func(c []describedColumn) []describedColumn { c[3].octets = 16; return c }), "column 4"},
		"another type":       {varied(func(c []describedColumn) []describedColumn { c[2].dataType = "longtext"; return c }), "column 3"},
		"an unknown charset": {varied(func(c []describedColumn) []describedColumn { c[1].charset = "klingon"; return c }), "klingon"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := &binlog{pos: 4}, testDecoder(inFile)
			d.describe = func(TableName, time.Time) ([]describedColumn, error) { return c.columns, nil }
			err := feed(d, l.anonymous(), l.query("BEGIN"), l.tableMap(77, "shop", "outbox", false, outboxCols...), l.row(1), l.xid())
			if c.refused == "" {
				b, ok := d.batch()
				if err != nil || !ok || b.Rows[0].Table.Columns[1].Name != c.columns[1].name || string(b.Rows[0].Values[3].Data) != "ab\x00\x00" {
					t.Errorf("batch %+v, %v", b, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("got %v, want %q", err, c.refused)
			}
			if f := fault.As(err); (f == nil || f.Code != fault.CodeSchemaUnknown) != (name == "an unknown charset") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestDescribedFits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		column column
		d      describedColumn
		fits   bool
	}{
		"decimal":             {column{kind: typeNewDecimal, meta: 10, scale: 2}, describedColumn{dataType: "decimal", precision: 10, scale: 2}, true},
		"decimal, other":      {column{kind: typeNewDecimal, meta: 10, scale: 2}, describedColumn{dataType: "decimal", precision: 12, scale: 2}, false},
		"datetime":            {column{kind: typeDatetime2, meta: 3}, describedColumn{dataType: "datetime", fraction: 3}, true},
		"datetime, other":     {column{kind: typeDatetime2, meta: 3}, describedColumn{dataType: "datetime", fraction: 6}, false},
		"time as timestamp":   {column{kind: typeTime2}, describedColumn{dataType: "timestamp"}, false},
		"text":                {column{kind: typeBlob, meta: 2}, describedColumn{dataType: "text"}, true},
		"text as longtext":    {column{kind: typeBlob, meta: 2}, describedColumn{dataType: "longtext"}, false},
		"mediumblob":          {column{kind: typeBlob, meta: 3}, describedColumn{dataType: "mediumblob"}, true},
		"tinytext":            {column{kind: typeBlob, meta: 1}, describedColumn{dataType: "tinytext"}, true},
		"varchar as char":     {column{kind: typeVarchar, meta: 80}, describedColumn{dataType: "char", octets: 80}, false},
		"point":               {column{kind: typeGeometry, meta: 4}, describedColumn{dataType: "point"}, true},
		"small enum":          {column{kind: typeEnum, meta: 1, labels: []string{"a"}}, describedColumn{dataType: "enum"}, true},
		"large enum as small": {column{kind: typeEnum, meta: 2, labels: []string{"a"}}, describedColumn{dataType: "enum"}, false},
		"set":                 {column{kind: typeSet, meta: 1, labels: make([]string, 8)}, describedColumn{dataType: "set"}, true},
		"set, more":           {column{kind: typeSet, meta: 1, labels: make([]string, 9)}, describedColumn{dataType: "set"}, false},
		"uuid":                {column{kind: typeString, meta: 16}, describedColumn{dataType: "uuid"}, true},
		"compressed":          {column{kind: typeVarcharCompressed, meta: 81}, describedColumn{dataType: "varchar", columnType: "varchar(20) /*M!100301 COMPRESSED*/"}, true},
		"compressed, not":     {column{kind: typeVarchar, meta: 80}, describedColumn{dataType: "varchar", columnType: "varchar(20) /*M!100301 COMPRESSED*/"}, false},
	} {
		if got := c.column.fits(c.d); got != c.fits {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What was learned is dropped at a statement that may change the table, though the log's description stays the same.
func TestDescribedAnewAfterDDL(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	asked, name := 0, "k"
	d.describe = func(TableName, time.Time) ([]describedColumn, error) {
		asked++
		c := outboxDescribed()
		c[1].name = name
		return c, nil
	}
	row := func(id uint64) []wire {
		return []wire{l.anonymous(), l.query("BEGIN"), l.tableMap(id, "shop", "outbox", false, outboxCols...), l.insert(id, 4, outboxRow(id, "k", smallJSON(1), "ab")), l.xid()}
	}
	mustFeed(t, d, row(1)...)
	mustFeed(t, d, row(2)...) // another id, the same table
	mustFeed(t, d, l.anonymous(), l.query("ALTER TABLE orders ADD x INT"))
	mustFeed(t, d, row(3)...)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	name = "renamed"
	mustFeed(t, d, l.anonymous(), l.query("alter table `OutBox` rename column k to renamed"))
	mustFeed(t, d, row(4)...)
	b, _ := d.batch()
	if asked != 2 || b.Rows[3].Table.Columns[1].Name != name || b.Rows[2].Table.Columns[1].Name != "k" {
		t.Errorf("asked %d times, %+v", asked, b.Rows)
	}
}

// binlog_row_metadata is changed while the log is read: the table is asked only where the log has no names.
func TestDescribedWhereNotNamed(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	asked := 0
	d.describe = func(TableName, time.Time) ([]describedColumn, error) {
		asked++
		c := outboxDescribed()
		c[1].name = "described"
		return c, nil
	}
	named := func(full bool) wire { // without a sign that is shown with zeros, which the table would be asked for
		columns := slices.Clone(outboxCols)
		columns[0].unsigned = !full
		return l.tableMap(77, "shop", "outbox", full, columns...)
	}
	var names []string
	for i, full := range []bool{true, false, false, true, false} {
		mustFeed(t, d, l.anonymous(), l.query("BEGIN"), named(full), l.row(uint64(i)), l.xid())
		b, _ := d.batch()
		names = append(names, b.Rows[0].Table.Columns[1].Name)
	}
	equal(t, "names", names, "k", "described", "described", "k", "described")
	if asked != 2 {
		t.Errorf("the table was asked %d times", asked)
	}
}

// No answer is no answer: the place stays, and the next try asks again (A34).
func TestDescribedLater(t *testing.T) {
	t.Parallel()
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	lost := errors.New("connection lost")
	d.describe = func(TableName, time.Time) ([]describedColumn, error) { return nil, lost }
	err := feed(d, l.anonymous(), l.query("BEGIN"), l.tableMap(77, "shop", "outbox", false, outboxCols...))
	if !errors.Is(err, lost) || fault.As(err) != nil || d.at.pos != 4 {
		t.Errorf("%v at %d", err, d.at.pos)
	}
}

func TestUncoverTypes(t *testing.T) {
	t.Parallel()
	columns := []col{{name: "u", kind: typeString, meta: wire{typeString, 16}, collation: binaryCollation}, {name: "b", kind: typeString, meta: wire{typeString, 16}, collation: binaryCollation}}
	row := append(append(wire{0xfc}.u8(16), serverA[:]...).u8(16), serverA[:]...)
	l, d := &binlog{pos: 4}, testDecoder(mariadb)
	d.describe = func(_ TableName, written time.Time) ([]describedColumn, error) {
		if !written.IsZero() {
			t.Error("the log has told the names: the table's age does not matter")
		}
		return []describedColumn{{name: "b", dataType: "binary"}, {name: "u", dataType: "uuid"}}, nil
	}
	mustFeed(t, d, l.mariaGTID(0, 11, 0), l.tableMap(77, "shop", "outbox", true, columns...), l.insert(77, 2, row), l.xid())
	b, _ := d.batch()
	if u, raw := b.Rows[0].Values[0], b.Rows[0].Values[1]; string(u.Data) != serverA.String() || string(raw.Data) != string(serverA[:]) || b.Rows[0].Table.Columns[0].Type != "uuid" {
		t.Errorf("uuid %q, binary %q", u.Data, raw.Data)
	}
	d.describe = func(TableName, time.Time) ([]describedColumn, error) { return nil, nil }
	d.forget("ALTER TABLE outbox")
	if f := fault.As(feed(d, l.mariaGTID(0, 12, 0), l.tableMap(78, "shop", "outbox", true, columns...))); f == nil || f.Code != fault.CodeSchemaUnknown {
		t.Errorf("a column that is gone: %v", f)
	}
}

func TestLabelsOf(t *testing.T) {
	t.Parallel()
	got := labelsOf(`enum('a','it''s','','b,c','x\\y','\n\r\0','"','日')`)
	equal(t, "labels", strings.Join(got, "|"), "a|it's||b,c|x\\y|\n\r\x00|\"|日")
}
