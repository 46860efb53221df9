package transform

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/source"
)

// encoding is how a value is written: one of these for each type that Debezium
// and Kafka Connect have a form of their own for.
type encoding uint8

const (
	asText    encoding = iota // a JSON string
	asJSON                    // JSON as it stands
	asNumber                  // a number as it stands; NaN and infinities are strings
	asFlag                    // true or false
	asBase64                  // a string
	asFloat                   // a number as Java prints a double
	asFloat32                 // the same of a float
	asDecimal                 // base64 of the unscaled number's bytes
	asDays                    // days since 1970
	asMillis                  // milliseconds since 1970, or since midnight
	asMicros                  // microseconds, likewise
	asZoned                   // ISO 8601
)

// connectType is what Debezium makes of a column: the type of Kafka Connect, the
// logical type, and how the value is written.
type connectType struct {
	typ    string // int64, string, …
	name   string // of the logical type; "": none
	extra  string // more members of the schema
	as     encoding
	scale  int  // of a decimal
	digits int  // of a zoned time's seconds
	clock  bool // a time of day
	pairs  bool // text: see appendString
}

// schema appends the schema as JsonConverter writes it. field is the column's name
// in a struct, "" outside of one.
func (t connectType) schema(optional bool, field string) string {
	s := fmt.Sprintf(`{"type":%q,"optional":%t`, t.typ, optional)
	if t.name != "" {
		s += fmt.Sprintf(`,"name":%q,"version":1%s`, t.name, t.extra)
	}
	if field != "" {
		s += `,"field":` + string(appendString(nil, []byte(field), true))
	}
	return s + "}"
}

// connectTypeOf tells what Debezium makes of a column with its default settings;
// false when outboxd has no form of it. mysql: the names are those of MySQL.
func connectTypeOf(c *source.Column, mysql bool) (connectType, bool) {
	base, args := typeOf(c.Type)
	unsigned := strings.Contains(c.Type, "unsigned")
	simple := func(typ string, as encoding) (connectType, bool) { return connectType{typ: typ, as: as}, true }
	logical := func(typ, name string, as encoding) (connectType, bool) {
		return connectType{typ: typ, name: name, as: as}, true
	}
	precision := func(otherwise int) int {
		if len(args) > 0 {
			return args[0]
		}
		return otherwise
	}
	switch c.Kind {
	case source.Bytes:
		return simple("bytes", asBase64)
	case source.JSON:
		return connectType{typ: "string", name: "io.debezium.data.Json", as: asText, pairs: true}, true
	case source.Boolean:
		return simple("boolean", asFlag)
	}
	switch base {
	case "int2", "smallint", "tinyint":
		if unsigned && base == "smallint" {
			return simple("int32", asNumber)
		}
		return simple("int16", asNumber)
	case "int4", "integer", "int", "mediumint":
		if unsigned && base != "mediumint" {
			return simple("int64", asNumber)
		}
		return simple("int32", asNumber)
	case "int8", "bigint", "oid":
		return simple("int64", asNumber)
	case "float4", "real", "float":
		return simple("float", asFloat32)
	case "float8", "double precision", "double":
		return simple("double", asFloat)
	case "numeric", "decimal":
		if len(args) == 0 {
			return connectType{}, false
		}
		t := connectType{typ: "bytes", name: "org.apache.kafka.connect.data.Decimal", as: asDecimal}
		if len(args) > 1 {
			t.scale = args[1]
		}
		t.extra = fmt.Sprintf(`,"parameters":{"scale":"%d","connect.decimal.precision":"%d"}`, t.scale, args[0])
		return t, true
	case "year":
		return logical("int32", "io.debezium.time.Year", asNumber)
	case "date":
		return logical("int32", "io.debezium.time.Date", asDays)
	case "time", "time without time zone":
		t := connectType{typ: "int64", name: "io.debezium.time.MicroTime", as: asMicros, clock: true}
		if !mysql && precision(6) <= 3 {
			t = connectType{typ: "int32", name: "io.debezium.time.Time", as: asMillis, clock: true}
		}
		return t, true
	case "timestamptz", "timestamp with time zone":
		return connectType{typ: "string", name: "io.debezium.time.ZonedTimestamp", as: asZoned, digits: 6}, true
	case "timestamp", "timestamp without time zone", "datetime":
		if mysql && base == "timestamp" {
			return connectType{typ: "string", name: "io.debezium.time.ZonedTimestamp", as: asZoned, digits: precision(0)}, true
		}
		otherwise := 6
		if mysql {
			otherwise = 0
		}
		if precision(otherwise) <= 3 {
			return logical("int64", "io.debezium.time.Timestamp", asMillis)
		}
		return logical("int64", "io.debezium.time.MicroTimestamp", asMicros)
	case "uuid":
		if mysql { // MariaDB's is a string to Debezium
			break
		}
		return connectType{typ: "string", name: "io.debezium.data.Uuid", as: asText, pairs: true}, true
	case "text", "varchar", "character varying", "bpchar", "character", "char", "name", "citext", "blob",
		"tinytext", "mediumtext", "longtext", "tinyblob", "mediumblob", "longblob", "inet", "cidr", "macaddr", "macaddr8", "inet4", "inet6":
	default:
		return connectType{typ: "string", as: asText, pairs: true}, false
	}
	return connectType{typ: "string", as: asText, pairs: true}, true
}

// typeOf takes a type's name apart: numeric(10,2), timestamp(3) without time zone, int unsigned.
func typeOf(typ string) (base string, args []int) {
	base = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(typ), " zerofill"), " unsigned")
	open := strings.IndexByte(base, '(')
	if open < 0 {
		return base, nil
	}
	end := strings.IndexByte(base[open:], ')')
	if end < 0 {
		return base, nil
	}
	for a := range strings.SplitSeq(base[open+1:open+end], ",") {
		n, err := strconv.Atoi(strings.TrimSpace(a))
		if err != nil {
			return base[:open], nil
		}
		args = append(args, n)
	}
	return base[:open] + base[open+end+1:], args
}

// appendJSON appends a value as JsonConverter writes it. It is false when the
// value has no such form: infinity where a number is due.
func (t connectType) appendJSON(b []byte, v *source.Value) ([]byte, bool) {
	if v.State != source.Present {
		return append(b, "null"...), true
	}
	switch t.as {
	case asText:
		return appendString(b, v.Data, t.pairs), true
	case asBase64:
		return appendBase64(b, v.Data), true
	case asDecimal:
		raw, ok := unscaled(v.Data, t.scale)
		if !ok {
			return b, false
		}
		return appendBase64(b, raw), true
	case asZoned:
		b, ok := t.appendPlain(append(b, '"'), v.Data)
		return append(b, '"'), ok
	case asFloat, asFloat32:
		if _, special := javaSpecial(v.Data); special {
			b, ok := t.appendPlain(append(b, '"'), v.Data)
			return append(b, '"'), ok
		}
	}
	return t.appendPlain(b, v.Data)
}

// appendPlain appends a value as SimpleHeaderConverter writes it: without quotes.
func (t connectType) appendPlain(b, data []byte) ([]byte, bool) {
	switch t.as {
	case asBase64:
		return base64.StdEncoding.AppendEncode(b, data), true
	case asFlag:
		if len(data) > 0 && (data[0] == 't' || data[0] == '1') {
			return append(b, "true"...), true
		}
		return append(b, "false"...), true
	case asFloat:
		return appendJavaFloat(b, data, 64)
	case asFloat32:
		return appendJavaFloat(b, data, 32)
	case asDays, asMillis, asMicros, asZoned:
		return t.appendTime(b, data)
	}
	return append(b, data...), true
}

func (t connectType) appendTime(b, data []byte) ([]byte, bool) {
	if t.clock {
		n, ok := sinceMidnight(data)
		if t.as == asMillis {
			n /= 1000
		}
		return strconv.AppendInt(b, n, 10), ok
	}
	at, ok := parseTime(data)
	if !ok {
		return b, false
	}
	switch t.as {
	case asDays:
		return strconv.AppendInt(b, floorDiv(at.Unix(), 86400), 10), true
	case asMillis:
		return strconv.AppendInt(b, at.UnixMilli(), 10), true
	case asMicros:
		return strconv.AppendInt(b, at.UnixMicro(), 10), true
	}
	b = at.AppendFormat(b, "2006-01-02T15:04:05")
	if t.digits > 0 {
		b = append(b, '.')
		for n, i := at.Nanosecond(), 0; i < t.digits; i++ {
			b = append(b, '0'+byte(n/100000000))
			n = n % 100000000 * 10
		}
	}
	return append(b, 'Z'), true
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// sinceMidnight reads [-]HH:MM:SS[.ffffff], in microseconds; MySQL's hours may be many.
func sinceMidnight(text []byte) (int64, bool) {
	s := digits{text: text}
	sign := int64(1)
	if s.take('-') {
		sign = -1
	}
	n := int64(s.number(2, 3)) * 3600
	n += int64(s.two(':')) * 60
	n += int64(s.two(':'))
	n = n*1e6 + int64(s.fraction()/1000)
	return sign * n, !s.bad && len(s.text) == 0
}

// javaSpecial gives Java's word for what is no number.
func javaSpecial(text []byte) (string, bool) {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return string(text), true
	}
	return "", false
}

// appendJavaFloat prints as Java's Double.toString does (since JDK 19): the
// fewest digits that tell the number, with a point in any case.
func appendJavaFloat(b, text []byte, bits int) ([]byte, bool) {
	if word, special := javaSpecial(text); special {
		return append(b, word...), true
	}
	f, err := strconv.ParseFloat(string(text), bits)
	if err != nil {
		return b, false
	}
	if abs := math.Abs(f); abs == 0 || abs >= 1e-3 && abs < 1e7 {
		from := len(b)
		b = strconv.AppendFloat(b, f, 'f', -1, bits)
		if bytes.IndexByte(b[from:], '.') < 0 {
			b = append(b, ".0"...)
		}
		return b, true
	}
	var scratch [32]byte
	digits, exponent, _ := bytes.Cut(strconv.AppendFloat(scratch[:0], f, 'e', -1, bits), []byte("e"))
	b = append(b, digits...)
	if bytes.IndexByte(digits, '.') < 0 {
		b = append(b, ".0"...)
	}
	n, _ := strconv.Atoi(string(exponent))
	return strconv.AppendInt(append(b, 'E'), int64(n), 10), true
}

// unscaled gives a decimal's digits as the big-endian two's complement that
// Connect's Decimal is; false when it is no decimal of that scale.
func unscaled(text []byte, scale int) ([]byte, bool) {
	whole, fraction, _ := strings.Cut(string(text), ".")
	if len(fraction) > scale {
		return nil, false
	}
	n, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", scale-len(fraction)), 10)
	if !ok {
		return nil, false
	}
	if n.Sign() >= 0 {
		raw := n.Bytes()
		if len(raw) == 0 || raw[0] >= 0x80 {
			raw = append([]byte{0}, raw...)
		}
		return raw, true
	}
	// As many bytes as hold -n-1 and a sign.
	size := new(big.Int).Not(n).BitLen()/8 + 1
	n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size)))
	return n.FillBytes(make([]byte, size)), true
}
