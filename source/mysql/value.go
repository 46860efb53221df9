package mysql

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/source"
)

// Column types of a table map event (include/field_types.h).
const (
	typeTiny              = 1
	typeShort             = 2
	typeLong              = 3
	typeFloat             = 4
	typeDouble            = 5
	typeNull              = 6
	typeTimestamp         = 7
	typeLongLong          = 8
	typeInt24             = 9
	typeDate              = 10
	typeTime              = 11
	typeDatetime          = 12
	typeYear              = 13
	typeNewDate           = 14
	typeVarchar           = 15
	typeBit               = 16
	typeTimestamp2        = 17
	typeDatetime2         = 18
	typeTime2             = 19
	typeBlobCompressed    = 140 // MariaDB
	typeVarcharCompressed = 141 // MariaDB
	typeVector            = 242
	typeJSON              = 245
	typeNewDecimal        = 246
	typeEnum              = 247
	typeSet               = 248
	typeTinyBlob          = 249
	typeMediumBlob        = 250
	typeLongBlob          = 251
	typeBlob              = 252
	typeVarString         = 253
	typeString            = 254
	typeGeometry          = 255
)

var errShort = errors.New("event is cut short")

// column is what is needed to print one column's value.
type column struct {
	kind     byte // ENUM and SET already told from STRING
	meta     int  // length, precision or fraction, as the type has it
	scale    int  // of a DECIMAL
	width    int  // characters the server gives a FLOAT or DOUBLE
	unsigned bool
	notNull  bool
	charset  *charset // of text; nil: not text
	labels   []string // of ENUM and SET
	unsure   bool     // a '?' in a label may stand for another character
	form     form     // of a number
	as       string   // MariaDB: uuid, inet6 or inet4, which the log shows as BINARY
}

// sourceKind is what the column's bytes will be.
func (c *column) sourceKind() source.Kind {
	switch c.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeFloat, typeDouble, typeNewDecimal, typeYear:
		return source.Number
	case typeJSON:
		return source.JSON
	case typeDate, typeNewDate, typeTime2, typeDatetime2, typeTimestamp2, typeTime, typeDatetime, typeTimestamp:
		return source.Time
	case typeBit, typeGeometry, typeVector:
		return source.Bytes
	}
	if c.charset != nil && c.charset.binary {
		return source.Bytes
	}
	return source.Text
}

// take prints the value at b's start onto dst and returns how long it was.
func (c *column) take(dst, b []byte) (out []byte, n int, err error) {
	n, data, err := c.cut(b)
	if err != nil {
		return dst, 0, err
	}
	out, err = c.print(dst, data)
	return out, n, err
}

// cut finds the value's bytes without its length prefix.
func (c *column) cut(b []byte) (n int, data []byte, err error) {
	prefix, size := 0, 0
	switch c.kind {
	case typeTiny, typeYear:
		size = 1
	case typeShort:
		size = 2
	case typeInt24, typeDate, typeNewDate:
		size = 3
	case typeLong, typeFloat:
		size = 4
	case typeLongLong, typeDouble:
		size = 8
	case typeNewDecimal:
		size = decimalSize(c.meta, c.scale)
	case typeBit, typeEnum, typeSet:
		size = c.meta
	case typeTime, typeDatetime, typeTimestamp:
		size = oldSizes[c.kind][c.meta]
	case typeTimestamp2:
		size = 4 + (c.meta+1)/2
	case typeDatetime2:
		size = 5 + (c.meta+1)/2
	case typeTime2:
		size = 3 + (c.meta+1)/2
	case typeVarchar, typeVarString, typeString, typeVarcharCompressed:
		prefix = 1
		if c.meta > 255 {
			prefix = 2
		}
	case typeBlob, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlobCompressed, typeJSON, typeGeometry, typeVector:
		prefix = c.meta
	default:
		return 0, nil, fmt.Errorf("column type %d is not supported", c.kind)
	}
	if prefix > 0 {
		if prefix > 4 || len(b) < prefix {
			return 0, nil, errShort
		}
		for i := range prefix {
			size |= int(b[i]) << (8 * i)
		}
	}
	if len(b) < prefix+size {
		return 0, nil, errShort
	}
	return prefix + size, b[prefix : prefix+size], nil
}

// print gives the server's own text, or raw bytes for what is no text.
func (c *column) print(dst, b []byte) (out []byte, err error) {
	switch c.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeFloat, typeDouble, typeNewDecimal:
		start := len(dst)
		out, err = c.printNumber(dst, b)
		return c.form.filled(out, start), err
	case typeYear:
		if b[0] == 0 {
			return append(dst, "0000"...), nil
		}
		return strconv.AppendInt(dst, 1900+int64(b[0]), 10), nil
	case typeDate, typeNewDate:
		return appendDate3(dst, b), nil
	case typeTime2:
		return appendTime2(dst, b, c.meta), nil
	case typeDatetime2:
		return appendDatetime2(dst, b, c.meta), nil
	case typeTime, typeDatetime, typeTimestamp:
		return c.printOld(dst, b), nil
	case typeTimestamp2:
		return appendTimestamp2(dst, b, c.meta), nil
	case typeJSON:
		return appendJSON(dst, b)
	case typeEnum:
		return c.printEnum(dst, b)
	case typeSet:
		return c.printSet(dst, b)
	case typeString:
		return c.printFixed(dst, b)
	case typeBlobCompressed, typeVarcharCompressed:
		if b, err = uncompressed(b); err != nil {
			return dst, err
		}
	}
	if c.charset == nil {
		return append(dst, b...), nil
	}
	return c.charset.append(dst, b)
}

func (c *column) printNumber(dst, b []byte) ([]byte, error) {
	switch c.kind {
	case typeFloat:
		f := math.Float32frombits(le.Uint32(b))
		if c.form.fixed {
			return appendFixed(dst, float64(f), c.form.digits), nil
		}
		return appendFloat(dst, f, c.width), nil
	case typeDouble:
		f := math.Float64frombits(le.Uint64(b))
		if c.form.fixed {
			return appendFixed(dst, f, c.form.digits), nil
		}
		return appendDouble(dst, f, c.width), nil
	case typeNewDecimal:
		return appendDecimal(dst, b, c.meta, c.scale)
	}
	return c.printInteger(dst, b), nil
}

func (c *column) printInteger(dst, b []byte) []byte {
	var v uint64
	for i, x := range b {
		v |= uint64(x) << (8 * i)
	}
	if c.unsigned {
		return strconv.AppendUint(dst, v, 10)
	}
	shift := 64 - 8*len(b)
	return strconv.AppendInt(dst, int64(v<<shift)>>shift, 10)
}

// printFixed prints CHAR and BINARY. The log drops trailing zero bytes of a
// BINARY column; they are part of the value.
func (c *column) printFixed(dst, b []byte) ([]byte, error) {
	if !c.charset.binary {
		return c.charset.append(dst, b)
	}
	if c.as != "" {
		var whole [16]byte
		copy(whole[:], b)
		return appendAs(dst, whole[:min(c.meta, len(whole))], c.as), nil
	}
	dst = append(dst, b...)
	for range c.meta - len(b) {
		dst = append(dst, 0)
	}
	return dst, nil
}

func (c *column) printEnum(dst, b []byte) ([]byte, error) {
	i := int(b[0])
	if len(b) > 1 {
		i = int(le.Uint16(b))
	}
	if i == 0 { // the error value: an empty string
		return dst, nil
	}
	return c.printLabel(dst, i)
}

var errLabel = errors.New("a label may hold characters that information_schema shows as '?'")

// printLabel prints the i-th label, from 1.
func (c *column) printLabel(dst []byte, i int) ([]byte, error) {
	if i > len(c.labels) {
		return dst, fmt.Errorf("label %d of %d", i, len(c.labels))
	}
	label := c.labels[i-1]
	if c.unsure && strings.IndexByte(label, '?') >= 0 {
		return dst, errLabel
	}
	return append(dst, label...), nil
}

func (c *column) printSet(dst, b []byte) ([]byte, error) {
	var set uint64
	for i, x := range b {
		set |= uint64(x) << (8 * i)
	}
	start := len(dst)
	for ; set != 0; set &= set - 1 {
		if len(dst) > start { // so an empty first label has no comma, as on the server
			dst = append(dst, ',')
		}
		var err error
		if dst, err = c.printLabel(dst, bits.TrailingZeros64(set)+1); err != nil {
			return dst, err
		}
	}
	return dst, nil
}
