package mysql

import (
	"bytes"
	"fmt"

	"github.com/outboxd/outboxd/source"
)

// tableMap is a TABLE_MAP event ("Rows_log_event / Table_map_log_event" in
// libs/mysql/binlog/event/rows_event.h), with the optional metadata the server was told to write.
type tableMap struct {
	id            uint64
	schema, table string
	types         []byte
	meta          []byte
	signedness    []byte // bit per numeric column, first column first; nil: not told
	charsets      collations
	enumCharsets  collations
	nullable      []byte // bits of the columns that may be NULL
	names         []string
	enums, sets   [][][]byte
	mariadb       bool
}

// collations are those of the columns with text, in either of the two forms.
type collations struct {
	told  bool
	first uint64         // default
	other map[int]uint64 // by ordinal among the columns with text
	all   []uint64       // one each
}

func (c collations) at(ordinal int) (uint64, bool) {
	switch {
	case !c.told:
		return 0, false
	case c.all != nil:
		if ordinal >= len(c.all) {
			return 0, false
		}
		return c.all[ordinal], true
	}
	if id, ok := c.other[ordinal]; ok {
		return id, true
	}
	return c.first, true
}

// tableName reads only what tells one table from another.
func tableName(b []byte) (id uint64, schema, table []byte, rest cutter, err error) {
	c := cutter{b: b}
	id = c.fixed(6)
	c.skip(2)
	schema = c.bytes(int(c.fixed(1)))
	c.skip(1)
	table = c.bytes(int(c.fixed(1)))
	c.skip(1)
	return id, schema, table, c, c.err()
}

func parseTableMap(b []byte) (*tableMap, error) {
	id, schema, table, c, err := tableName(b)
	if err != nil {
		return nil, err
	}
	m := &tableMap{id: id, schema: string(schema), table: string(table)}
	n := int(c.lenenc())
	m.types = bytes.Clone(c.bytes(n))
	m.meta = bytes.Clone(c.bytes(int(c.lenenc())))
	m.nullable = bytes.Clone(c.bytes((n + 7) / 8))
	for len(c.b) > 0 && !c.short {
		kind := c.fixed(1)
		field := cutter{b: c.bytes(int(c.lenenc()))}
		m.optional(byte(kind), &field)
		if field.short {
			return nil, errShort
		}
	}
	return m, c.err()
}

// optional takes one field of the optional metadata; unknown ones are passed over.
func (m *tableMap) optional(kind byte, f *cutter) {
	switch kind {
	case 1:
		m.signedness = bytes.Clone(f.b)
	case 2:
		m.charsets = f.defaultCollations()
	case 3:
		m.charsets = f.collationList()
	case 4:
		for len(f.b) > 0 && !f.short {
			m.names = append(m.names, string(f.bytes(int(f.lenenc()))))
		}
	case 5:
		m.sets = f.labelLists()
	case 6:
		m.enums = f.labelLists()
	case 10:
		m.enumCharsets = f.defaultCollations()
	case 11:
		m.enumCharsets = f.collationList()
	}
}

func (c *cutter) defaultCollations() collations {
	l := collations{told: true, first: c.lenenc(), other: map[int]uint64{}}
	for len(c.b) > 0 && !c.short {
		i := int(c.lenenc())
		l.other[i] = c.lenenc()
	}
	return l
}

func (c *cutter) collationList() collations {
	l := collations{told: true, all: []uint64{}}
	for len(c.b) > 0 && !c.short {
		l.all = append(l.all, c.lenenc())
	}
	return l
}

func (c *cutter) labelLists() [][][]byte {
	var lists [][][]byte
	for len(c.b) > 0 && !c.short {
		n := int(c.lenenc())
		var labels [][]byte
		for range n {
			if c.short {
				break
			}
			labels = append(labels, bytes.Clone(c.bytes(int(c.lenenc()))))
		}
		lists = append(lists, labels)
	}
	return lists
}

// columns reads types and their metadata; signs, character sets and labels follow.
func (m *tableMap) columns() ([]column, error) {
	c := cutter{b: m.meta}
	columns := make([]column, len(m.types))
	for i, t := range m.types {
		col := &columns[i]
		col.kind = t
		col.notNull = i/8 < len(m.nullable) && m.nullable[i/8]&(1<<(i%8)) == 0
		switch t {
		case typeFloat, typeDouble:
			c.skip(1) // its size
			col.width = floatingWidth(t, m.mariadb)
		case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeJSON, typeGeometry, typeVector,
			typeTimestamp2, typeDatetime2, typeTime2, typeBlobCompressed:
			col.meta = int(c.fixed(1))
		case typeVarchar, typeVarString, typeVarcharCompressed:
			col.meta = int(c.fixed(2))
		case typeBit:
			bits := c.fixed(1)
			col.meta = int(c.fixed(1))
			if bits > 0 {
				col.meta++
			}
		case typeNewDecimal:
			col.meta, col.scale = int(c.fixed(1)), int(c.fixed(1))
		case typeString, typeEnum, typeSet:
			col.kind, col.meta = stringType(byte(c.fixed(1)), int(c.fixed(1)))
		}
		if !c.short && !col.known() {
			return nil, fmt.Errorf("column %d is of type %d with %d as its length or precision, which is not known", i+1, col.kind, col.meta)
		}
	}
	return columns, c.err()
}

// known reports whether the metadata is one that its type can have.
func (c *column) known() bool {
	switch c.kind {
	case typeTimestamp2, typeDatetime2, typeTime2:
		return c.meta <= 6
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobCompressed, typeJSON, typeGeometry, typeVector:
		return 1 <= c.meta && c.meta <= 4
	case typeBit, typeSet:
		return 1 <= c.meta && c.meta <= 8
	case typeEnum:
		return 1 <= c.meta && c.meta <= 2
	case typeNewDecimal:
		return 1 <= c.meta && c.meta <= 65 && c.scale <= c.meta
	}
	return true
}

// stringType takes the real type and length of CHAR, BINARY, ENUM and SET
// apart (Field_string::do_save_field_metadata hides two bits of the length in the type).
func stringType(t byte, length int) (byte, int) {
	if t&0x30 != 0x30 {
		return t | 0x30, length | int(t&0x30^0x30)<<4
	}
	return t, length
}

func (c *column) numeric() bool {
	switch c.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeNewDecimal, typeFloat, typeDouble:
		return true
	}
	return false
}

// signed reports whether the column has a bit in the list of signs. A YEAR has one, and it means nothing.
func (c *column) signed() bool { return c.numeric() || c.kind == typeYear }

func (c *column) textual() bool {
	switch c.kind {
	case typeString, typeVarString, typeVarchar, typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobCompressed, typeVarcharCompressed:
		return true
	}
	return false
}

// shape makes the table from the event's own metadata (binlog_row_metadata=FULL).
func (m *tableMap) shape(collation func(uint64) (*charset, error)) (*source.Table, []column, error) {
	columns, err := m.columns()
	if err != nil {
		return nil, nil, err
	}
	if len(m.names) != len(columns) {
		return nil, nil, fmt.Errorf("table %s.%s: %d names for %d columns", m.schema, m.table, len(m.names), len(columns))
	}
	var numbers, texts, labelled, enums, sets int
	for i := range columns {
		c := &columns[i]
		switch {
		case c.signed():
			c.unsigned = c.numeric() && m.unsigned(numbers)
			numbers++
		case c.textual():
			id, ok := m.charsets.at(texts)
			if !ok {
				return nil, nil, fmt.Errorf("table %s.%s: no character set for column %q", m.schema, m.table, m.names[i])
			}
			if c.charset, err = collation(id); err != nil {
				return nil, nil, err
			}
			texts++
		case c.kind == typeVector, c.kind == typeGeometry && m.mariadb: // no text, and in the list of character sets all the same
			texts++
		case c.kind == typeEnum || c.kind == typeSet:
			lists, ordinal := m.enums, &enums
			if c.kind == typeSet {
				lists, ordinal = m.sets, &sets
			}
			id, ok := m.enumCharsets.at(labelled)
			if !ok || *ordinal >= len(lists) {
				return nil, nil, fmt.Errorf("table %s.%s: no labels for column %q", m.schema, m.table, m.names[i])
			}
			charset, err := collation(id)
			if err != nil {
				return nil, nil, err
			}
			if c.labels, err = texted(charset, lists[*ordinal]); err != nil {
				return nil, nil, err
			}
			*ordinal++
			labelled++
		}
	}
	return m.tableOf(m.names, columns), columns, nil
}

// unsigned reports it of the n-th numeric column.
func (m *tableMap) unsigned(n int) bool {
	return n/8 < len(m.signedness) && m.signedness[n/8]&(0x80>>(n%8)) != 0
}

func texted(c *charset, labels [][]byte) ([]string, error) {
	out := make([]string, len(labels))
	for i, l := range labels {
		b, err := c.append(nil, l)
		if err != nil {
			return nil, fmt.Errorf("label %d: %w", i+1, err)
		}
		out[i] = string(b)
	}
	return out, nil
}

func (m *tableMap) tableOf(names []string, columns []column) *source.Table {
	t := &source.Table{Schema: m.schema, Name: m.table}
	for i := range columns {
		t.Columns = append(t.Columns, columns[i].named(names[i]))
	}
	return t
}

func (c *column) named(name string) source.Column {
	if c.as != "" {
		return source.Column{Name: name, Type: c.as, Kind: source.Text, NotNull: c.notNull}
	}
	return source.Column{Name: name, Type: c.typeText(), Kind: c.sourceKind(), NotNull: c.notNull}
}

// typeText is the type as far as a value's form depends on it.
func (c *column) typeText() string {
	text := typeName(c.kind)
	switch {
	case c.kind == typeNewDecimal:
		text += fmt.Sprintf("(%d,%d)", c.meta, c.scale)
	case (c.kind == typeTime2 || c.kind == typeDatetime2 || c.kind == typeTimestamp2 || c.old()) && c.meta > 0:
		text += fmt.Sprintf("(%d)", c.meta)
	}
	if c.unsigned {
		text += " unsigned"
	}
	return text
}

func typeName(kind byte) string {
	if n, ok := typeNames[kind]; ok {
		return n
	}
	return fmt.Sprintf("type %d", kind)
}

var typeNames = map[byte]string{
	typeTiny: "tinyint", typeShort: "smallint", typeInt24: "mediumint", typeLong: "int", typeLongLong: "bigint", typeFloat: "float",
	typeDouble: "double", typeNewDecimal: "decimal", typeYear: "year", typeDate: "date", typeNewDate: "date", typeTime2: "time",
	typeDatetime2: "datetime", typeTimestamp2: "timestamp", typeBit: "bit", typeEnum: "enum", typeSet: "set", typeJSON: "json",
	typeTime: "time", typeDatetime: "datetime", typeTimestamp: "timestamp",
	typeString: "char", typeVarchar: "varchar", typeVarString: "varchar", typeBlob: "blob", typeTinyBlob: "blob", typeMediumBlob: "blob",
	typeLongBlob: "blob", typeBlobCompressed: "blob", typeVarcharCompressed: "varchar", typeGeometry: "geometry", typeVector: "vector",
}
