package mysql

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/source"
)

// describedColumn is a column as information_schema has it, for servers that
// do not write names into the log (binlog_row_metadata=MINIMAL).
type describedColumn struct {
	name, dataType, columnType, charset string
	notNull                             bool
	octets                              int // longest value of a string
	precision, scale                    int // of a DECIMAL
	fraction                            int // digits of a time's seconds
}

// mismatch says why a described table is not the one that the log has rows of.
type mismatch string

func (m mismatch) Error() string { return string(m) }

// shapeFrom lays the described columns over the event's types. It refuses
// wherever both don't agree: a guess would put values under wrong names.
func (m *tableMap) shapeFrom(described []describedColumn, charset func(string) (*charset, error)) (*source.Table, []column, error) {
	columns, err := m.columns()
	if err != nil {
		return nil, nil, err
	}
	if len(described) != len(columns) {
		return nil, nil, mismatch(fmt.Sprintf("the log has %d columns, the table now has %d", len(columns), len(described)))
	}
	names := make([]string, len(columns))
	for i := range columns {
		c, d := &columns[i], described[i]
		names[i] = d.name
		c.unsigned = strings.Contains(d.columnType, "unsigned")
		if c.kind == typeEnum || c.kind == typeSet {
			c.labels, c.unsure = labelsOf(d.columnType), beyondBMP(d.charset)
		}
		if !c.fits(d) {
			return nil, nil, mismatch(fmt.Sprintf("column %d is %s in the log, and %q of type %s now", i+1, typeName(c.kind), d.name, d.columnType))
		}
		c.uncover(d.dataType)
		c.form = d.form()
		if c.textual() {
			if c.charset, err = charset(d.charset); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := m.agrees(columns, described); err != nil {
		return nil, nil, err
	}
	return m.tableOf(names, columns), columns, nil
}

// fits reports whether a column the log shows can be the described one.
func (c *column) fits(d describedColumn) bool {
	if strings.HasSuffix(d.columnType, " COMPRESSED*/") { // MariaDB
		return c.kind == typeBlobCompressed || c.kind == typeVarcharCompressed
	}
	switch d.dataType {
	case "char", "binary":
		return c.kind == typeString && c.meta == d.octets
	case "uuid", "inet6", "inet4": // MariaDB
		return c.kind == typeString
	case "varchar", "varbinary":
		return (c.kind == typeVarchar || c.kind == typeVarString) && c.meta == d.octets
	case "tinytext", "tinyblob":
		return c.blob() && c.meta == 1
	case "text", "blob":
		return c.blob() && c.meta == 2
	case "mediumtext", "mediumblob":
		return c.blob() && c.meta == 3
	case "longtext", "longblob":
		return c.blob() && c.meta == 4
	case "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection", "geometrycollection":
		return c.kind == typeGeometry
	case "decimal":
		return c.kind == typeNewDecimal && c.meta == d.precision && c.scale == d.scale
	case "time", "datetime", "timestamp":
		if c.old() {
			return c.oldAs(d)
		}
		return typeName(c.kind) == d.dataType && c.meta == d.fraction
	case "enum":
		return c.kind == typeEnum && (len(c.labels) > 255) == (c.meta > 1)
	case "set":
		return c.kind == typeSet && len(c.labels) <= 8*c.meta
	}
	return typeName(c.kind) == d.dataType
}

// form is how a number is shown, of which the log tells nothing. All of it is deprecated.
type form struct {
	fixed  bool // FLOAT(M,D), DOUBLE(M,D): so many digits behind the point
	digits int
	width  int // ZEROFILL: so many characters, zeros in front
}

func (d describedColumn) form() form {
	var f form
	declared, _, _ := strings.Cut(d.columnType, " ")
	switch d.dataType {
	case "float", "double":
		if strings.Contains(declared, ",") {
			f.fixed, f.digits = true, d.scale
		}
	}
	if !strings.HasSuffix(d.columnType, " zerofill") {
		return f
	}
	f.width = d.precision
	switch d.dataType {
	case "decimal":
		if d.scale > 0 {
			f.width++ // the point
		}
	case "float", "double":
	default: // int(6)
		_, width, _ := strings.Cut(strings.TrimSuffix(declared, ")"), "(")
		f.width, _ = strconv.Atoi(width)
	}
	return f
}

// filled puts the zeros in front of the number at dst[start:].
func (f form) filled(dst []byte, start int) []byte {
	if n := f.width - (len(dst) - start); n > 0 {
		dst = slices.Insert(dst, start, bytes.Repeat([]byte{'0'}, n)...)
	}
	return dst
}

// formed reports whether the number's form may be one that the log does not tell: ZEROFILL makes it unsigned.
func (c *column) formed() bool {
	return c.kind == typeFloat || c.kind == typeDouble || c.unsigned && c.numeric()
}

func (c *column) blob() bool {
	switch c.kind {
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob:
		return true
	}
	return false
}

// agrees compares the signs, which MINIMAL metadata tell too (MariaDB's default is to tell nothing).
func (m *tableMap) agrees(columns []column, described []describedColumn) error {
	numbers := 0
	for i := range columns {
		if m.signedness == nil || !columns[i].signed() {
			continue
		}
		if columns[i].numeric() && m.unsigned(numbers) != columns[i].unsigned {
			return mismatch(fmt.Sprintf("column %d has another sign in the log than %q has now", i+1, described[i].name))
		}
		numbers++
	}
	return nil
}

// beyondBMP reports whether a label of that character set can hold characters
// that information_schema, which speaks utf8mb3, shows as '?'.
func beyondBMP(charset string) bool {
	switch charset {
	case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
		return true
	}
	return false
}

// labelsOf parses enum('a','b”c') as information_schema prints it, in UTF-8
// (append_unescaped in sql/sql_show.cc: quotes are doubled, four other bytes have a backslash).
func labelsOf(columnType string) []string {
	var labels []string
	var label []byte
	quoted := false
	for i := 0; i < len(columnType); i++ {
		c := columnType[i]
		switch {
		case !quoted && c == '\'':
			quoted, label = true, nil
		case !quoted:
		case c == '\\' && i+1 < len(columnType):
			i++
			label = append(label, unescaped(columnType[i]))
		case c == '\'' && i+1 < len(columnType) && columnType[i+1] == '\'':
			label = append(label, c)
			i++
		case c == '\'':
			quoted = false
			labels = append(labels, string(label))
		default:
			label = append(label, c)
		}
	}
	return labels
}

// unescaped is the byte that a backslash and c stand for.
func unescaped(c byte) byte {
	switch c {
	case '0':
		return 0
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	}
	return c
}
