package mysql

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// JSON's binary form is that of sql-common/json_binary.h; the text is what the
// server prints for CAST(column AS CHAR) (Json_wrapper::to_string): keys in
// stored order, ", " and ": " between tokens, numbers exact.

const (
	jsonSmallObject = 0x00
	jsonLargeObject = 0x01
	jsonSmallArray  = 0x02
	jsonLargeArray  = 0x03
	jsonLiteral     = 0x04
	jsonInt16       = 0x05
	jsonUint16      = 0x06
	jsonInt32       = 0x07
	jsonUint32      = 0x08
	jsonInt64       = 0x09
	jsonUint64      = 0x0a
	jsonDouble      = 0x0b
	jsonString      = 0x0c
	jsonOpaque      = 0x0f

	jsonMaxDepth = 100 // the server's own limit
)

var errJSON = errors.New("decode JSON: the document is damaged")

// appendJSON prints a JSON column's value.
func appendJSON(dst, doc []byte) ([]byte, error) {
	if len(doc) == 0 { // an empty value is what the server stores for a NULL forced into NOT NULL
		return append(dst, "null"...), nil
	}
	return jsonPrinter{len(dst) + 8*len(doc) + 64}.value(dst, doc[0], doc[1:], 0)
}

// jsonPrinter prints one document. Offsets of a damaged one may lead to the same bytes over and over, so
// the length of the text is limited by the document's: no byte of it becomes more than six.
type jsonPrinter struct{ limit int }

func (p jsonPrinter) value(dst []byte, kind byte, b []byte, depth int) ([]byte, error) {
	if depth > jsonMaxDepth {
		return dst, errJSON
	}
	switch kind {
	case jsonSmallObject, jsonSmallArray:
		return p.container(dst, kind == jsonSmallObject, b, 2, depth)
	case jsonLargeObject, jsonLargeArray:
		return p.container(dst, kind == jsonLargeObject, b, 4, depth)
	case jsonString:
		text, err := jsonBytes(b)
		if err != nil {
			return dst, err
		}
		return appendJSONString(dst, text), nil
	case jsonOpaque:
		return appendJSONOpaque(dst, b)
	}
	return appendJSONScalar(dst, kind, b)
}

func appendJSONScalar(dst []byte, kind byte, b []byte) ([]byte, error) {
	size := jsonSizes[kind&0x0f]
	if kind > 0x0f || size == 0 || len(b) < size {
		return dst, errJSON
	}
	switch kind {
	case jsonLiteral:
		if int(b[0]) >= len(jsonLiterals) {
			return dst, errJSON
		}
		return append(dst, jsonLiterals[b[0]]...), nil
	case jsonInt16:
		return strconv.AppendInt(dst, int64(int16(le.Uint16(b))), 10), nil
	case jsonUint16:
		return strconv.AppendUint(dst, uint64(le.Uint16(b)), 10), nil
	case jsonInt32:
		return strconv.AppendInt(dst, int64(int32(le.Uint32(b))), 10), nil
	case jsonUint32:
		return strconv.AppendUint(dst, uint64(le.Uint32(b)), 10), nil
	case jsonInt64:
		return strconv.AppendInt(dst, int64(le.Uint64(b)), 10), nil
	case jsonUint64:
		return strconv.AppendUint(dst, le.Uint64(b), 10), nil
	}
	return appendJSONDouble(dst, math.Float64frombits(le.Uint64(b))), nil
}

// jsonSizes is the size of each scalar; 0: not a scalar.
var jsonSizes = [16]int{jsonLiteral: 1, jsonInt16: 2, jsonUint16: 2, jsonInt32: 4, jsonUint32: 4, jsonInt64: 8, jsonUint64: 8, jsonDouble: 8}

var jsonLiterals = [...]string{"null", "true", "false"}

// appendJSONDouble marks a whole number as a double, as the server does.
func appendJSONDouble(dst []byte, f float64) []byte {
	start := len(dst)
	dst = appendDouble(dst, f, wideWidth)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// container prints an object or array. Offsets count from b's start
// and are wide bytes long (2 or 4).
func (p jsonPrinter) container(dst []byte, object bool, b []byte, wide, depth int) ([]byte, error) {
	if len(b) < 2*wide {
		return dst, errJSON
	}
	n, size := jsonUint(b, wide), jsonUint(b[wide:], wide)
	keys, values := 2*wide, 2*wide
	if object {
		values += n * (wide + 2)
	}
	if n < 0 || size > len(b) || values+n*(1+wide) > size {
		return dst, errJSON
	}
	b = b[:size]
	open, shut := byte('['), byte(']')
	if object {
		open, shut = '{', '}'
	}
	dst = append(dst, open)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		if len(dst) > p.limit {
			return dst, errJSON
		}
		var err error
		if object {
			if dst, err = appendJSONKey(dst, b, b[keys+i*(wide+2):], wide); err != nil {
				return dst, err
			}
		}
		if dst, err = p.entry(dst, b, b[values+i*(1+wide):], wide, depth); err != nil {
			return dst, err
		}
	}
	return append(dst, shut), nil
}

func appendJSONKey(dst, b, entry []byte, wide int) ([]byte, error) {
	at, length := jsonUint(entry, wide), int(le.Uint16(entry[wide:]))
	if at < 0 || at+length > len(b) {
		return dst, errJSON
	}
	return append(appendJSONString(dst, b[at:at+length]), ':', ' '), nil
}

// entry prints a value from its entry, where small scalars stand themselves.
func (p jsonPrinter) entry(dst, b, entry []byte, wide, depth int) ([]byte, error) {
	kind := entry[0]
	if kind < 16 && jsonSizes[kind] > 0 && jsonSizes[kind] <= wide && kind != jsonDouble {
		return appendJSONScalar(dst, kind, entry[1:1+wide])
	}
	at := jsonUint(entry[1:], wide)
	if at <= 0 || at >= len(b) {
		return dst, errJSON
	}
	return p.value(dst, kind, b[at:], depth+1)
}

func jsonUint(b []byte, wide int) int {
	if wide == 2 {
		return int(le.Uint16(b))
	}
	return int(le.Uint32(b))
}

// jsonBytes cuts a string or opaque value: its length in groups of 7 bits, then the bytes.
func jsonBytes(b []byte) ([]byte, error) {
	length := 0
	for i := range min(5, len(b)) {
		length |= int(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			if length > len(b)-i-1 {
				return nil, errJSON
			}
			return b[i+1 : i+1+length], nil
		}
	}
	return nil, errJSON
}

// appendJSONString quotes text as the server does: it leaves all but quotes,
// backslashes and control characters as they are.
func appendJSONString(dst, text []byte) []byte {
	dst = append(dst, '"')
	for {
		n := plainBytes(text)
		dst = append(dst, text[:n]...)
		if n == len(text) {
			return append(dst, '"')
		}
		c := text[n]
		text = text[n+1:]
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
	}
}

// plainBytes is how many bytes at text's start need no escape. It looks at eight at once: the highest bit of
// each byte of a word is set where a borrow shows that the byte is less than one, or than 0x20 (H. S. Warren,
// "Hacker's Delight", 6-1). Above the first such byte it may err, so only that none is there is believed.
func plainBytes(text []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(text); i += 8 {
		w := le.Uint64(text[i:])
		quote, backslash := w^ones*'"', w^ones*'\\'
		if ((w-ones*0x20)&^w|(quote-ones)&^quote|(backslash-ones)&^backslash)&highs != 0 {
			break
		}
	}
	for ; i < len(text); i++ {
		if c := text[i]; c < 0x20 || c == '"' || c == '\\' {
			break
		}
	}
	return i
}

const hexDigits = "0123456789abcdef"

// appendJSONOpaque prints a value of an SQL type without a JSON counterpart.
func appendJSONOpaque(dst, b []byte) ([]byte, error) {
	if len(b) < 2 {
		return dst, errJSON
	}
	data, err := jsonBytes(b[1:])
	if err != nil {
		return dst, err
	}
	switch kind := b[0]; kind {
	case typeNewDecimal:
		if len(data) < 2 {
			return dst, errJSON
		}
		return appendDecimal(dst, data[2:], int(data[0]), int(data[1]))
	case typeDate, typeTime, typeDatetime, typeTimestamp:
		if len(data) != 8 {
			return dst, errJSON
		}
		return append(appendPackedTemporal(append(dst, '"'), kind, int64(le.Uint64(data))), '"'), nil
	default:
		dst = fmt.Appendf(dst, `"base64:type%d:`, kind)
		return append(base64.StdEncoding.AppendEncode(dst, data), '"'), nil
	}
}

func appendPackedTemporal(dst []byte, kind byte, v int64) []byte {
	switch kind {
	case typeTime:
		return appendPackedTime(dst, v)
	case typeDate:
		ymd := uint64(v) >> 24 >> 17
		return appendDate(dst, uint32(ymd>>5/13), uint32(ymd>>5%13), uint32(ymd&31))
	}
	return appendPackedDatetime(dst, uint64(v)>>24, uint32(v&(1<<24-1)), 6)
}
