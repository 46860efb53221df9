package mysql

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// Types and flags of a result's column that the log does not have, or has otherwise (include/field_types.h, include/mysql_com.h).
const (
	resultTimestamp = 7
	resultTime      = 11
	resultDatetime  = 12
	flagEnum        = 256
	flagSet         = 2048
	binaryCharset   = 63
)

// resultColumn is what a result says of a column.
type resultColumn struct {
	charset uint16
	kind    byte
	flags   uint16
}

// textRows runs a query and gives each row as it comes, in the text protocol:
// nil is NULL. The library makes numbers of what is text, which loses digits. A row's bytes are
// good until take returns. When take fails, the rest is read and thrown away, so
// that the session stays usable; the error is take's.
func (q *session) textRows(ctx context.Context, query string, take func(columns []resultColumn, row [][]byte) error) error {
	stop := context.AfterFunc(ctx, func() { _ = q.SetDeadline(time.Unix(1, 0)) })
	err := q.readTextRows(query, take)
	if !stop() && err != nil {
		return context.Cause(ctx)
	}
	_ = q.SetDeadline(time.Time{})
	return err
}

func (q *session) readTextRows(query string, take func([]resultColumn, [][]byte) error) error {
	b := make([]byte, 4, len(query)+8)
	b = append(b, mysql.COM_QUERY)
	if strings.Contains(q.CapabilityString(), "CLIENT_QUERY_ATTRIBUTES") {
		b = append(b, 0, 1) // none, in one set
	}
	q.ResetSequence()
	if err := q.WritePacket(append(b, query...)); err != nil {
		return fmt.Errorf("send a query: %w", err)
	}
	columns, buf, err := q.readHead()
	if err != nil {
		return err
	}
	row := make([][]byte, len(columns))
	var failed error
	for {
		if buf, err = q.ReadPacketReuseMem(buf[:0]); err != nil {
			return fmt.Errorf("read a row: %w", err)
		}
		switch {
		case len(buf) == 0:
			return errShort
		case buf[0] == 0xff:
			return q.HandleErrorPacket(buf)
		case buf[0] == 0xfe && len(buf) < maxPacket:
			return failed
		case failed != nil:
			continue
		}
		c := cutter{b: buf}
		for i := range row {
			row[i] = c.text()
		}
		if c.short || len(c.b) > 0 {
			return errShort
		}
		failed = take(columns, row)
	}
}

// readHead reads what comes before the rows. buf may be used again.
func (q *session) readHead() (columns []resultColumn, buf []byte, err error) {
	if buf, err = q.ReadPacket(); err != nil {
		return nil, nil, fmt.Errorf("read the head of a result: %w", err)
	}
	switch {
	case len(buf) == 0:
		return nil, nil, errShort
	case buf[0] == 0xff:
		return nil, nil, q.HandleErrorPacket(buf)
	case buf[0] == 0:
		return nil, nil, errors.New("read the head of a result: there is none")
	}
	c := cutter{b: buf}
	columns = make([]resultColumn, c.lenenc())
	for i := range columns {
		if buf, err = q.ReadPacketReuseMem(buf[:0]); err != nil {
			return nil, nil, fmt.Errorf("read the head of a result: %w", err)
		}
		c := cutter{b: buf}
		for range 6 { // catalog, schema, table and column, with their aliases
			c.text()
		}
		c.lenenc() // how much follows
		columns[i].charset = uint16(c.fixed(2))
		c.skip(4)
		columns[i].kind, columns[i].flags = byte(c.fixed(1)), uint16(c.fixed(2))
		if c.short {
			return nil, nil, errShort
		}
	}
	if !strings.Contains(q.CapabilityString(), "CLIENT_DEPRECATE_EOF") {
		buf, err = q.ReadPacketReuseMem(buf[:0])
	}
	return columns, buf, err
}

// text reads a length-encoded string; nil is NULL.
func (c *cutter) text() []byte {
	if len(c.b) > 0 && c.b[0] == 0xfb {
		c.skip(1)
		return nil
	}
	b := c.bytes(int(c.lenenc()))
	if b == nil && !c.short {
		b = []byte{}
	}
	return b
}

// literal writes a value of a result for a comparison with the expression it came from, so
// that nothing is rounded on the way: a number compared with a string is taken as a double.
func (c resultColumn) literal(v []byte) (string, error) {
	switch c.kind {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeYear, typeNewDecimal, 0, typeDouble:
		return string(v), nil
	case typeJSON:
		return "CAST(" + quoteText(v) + " AS JSON)", nil
	case typeDate, resultDatetime, resultTimestamp, resultTime:
		return quoteText(v), nil
	case typeVarchar, typeVarString, typeString, typeTinyBlob, typeMediumBlob, typeLongBlob, typeBlob:
		switch {
		case c.flags&(flagEnum|flagSet) != 0:
			return "", errors.New("it is an ENUM or SET, which is ordered by its number and compared by its label: add 0 to it")
		case len(v) > sortedBytes:
			return "", fmt.Errorf("a value is longer than the %d bytes that the server surely sorts by", sortedBytes)
		case c.charset == binaryCharset:
			return fmt.Sprintf("x'%x'", v), nil
		}
		return quoteText(v), nil
	case typeFloat:
		return "", errors.New("it is a FLOAT, whose text is not its value: cast it to DECIMAL")
	}
	return "", fmt.Errorf("values of its type (%d) can't be written for a comparison", c.kind)
}

// sortLength is max_sort_length of a snapshot's session: a sort looks at no more bytes of a
// string's weights, which are at most eight times the string.
const (
	sortLength  = 8 << 10
	sortedBytes = sortLength / 8
)

// quoteText writes text as the server reads it in a session without NO_BACKSLASH_ESCAPES.
func quoteText(v []byte) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, c := range v {
		switch c {
		case 0:
			b.WriteString(`\0`)
		case '\'', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
