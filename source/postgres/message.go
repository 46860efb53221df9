package postgres

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Events without a table are written with pg_logical_emit_message(true, prefix, content).
// The content is a JSON object, and becomes a row of a table that is called
// like the prefix: each member is a column of that name. A string's column is its text,
// null is NULL, all else is JSON as it was written. What a role needs and the
// object lacks is a column with NULL, so that one message is refused like one row.

// roles are the members every message is taken to have, each with its other name.
var roles = [...][2]string{
	{"id", "event_id"}, {"aggregate_id", "aggregateid"}, {"aggregate_type", "aggregatetype"}, {"event_type", "type"}, {"payload", ""},
}

// messages turns logical messages into rows. It belongs to the decoder.
type messages struct {
	prefix  string
	log     *zap.Logger
	shapes  map[string]*source.Table // by the names and kinds of the members
	key     []byte                   // scratch
	members []member
	warned  time.Time // when a message outside of a transaction was last told of
	outside uint64    // how many were passed over since
}

// maxShapes bounds the memory when each message has members of its own.
const maxShapes = 64

// outsideWarning is how often messages outside of a transaction are told of.
const outsideWarning = 10 * time.Second

// member is one member of the object.
type member struct {
	name  []byte
	value source.Value
	text  bool // its JSON was a string
}

// logicalMessage takes one message. Its format is flags, LSN, prefix, length, content.
func (d *decoder) logicalMessage(r *reader) error {
	if d.messages == nil {
		d.ignored++
		return nil
	}
	flags, lsn := r.byte(), pglogrepl.LSN(r.uint64())
	prefix := r.string()
	content := r.bytes(int(r.uint32()))
	switch {
	case r.short:
		return errShort
	case prefix != d.messages.prefix:
		d.ignored++
		return nil
	case flags&1 == 0:
		d.ignored++
		d.messages.passOver(lsn)
		return nil
	case d.tx == nil:
		return fmt.Errorf("a transactional message outside of a transaction")
	}
	d.bytes += len(content)
	row, err := d.messages.row(d.keep(content), d.take)
	if err != nil {
		return fault.Refused("correct what writes the message; to go past this one, see \"Skipping an event by hand\" in docs/operations.md", nil,
			"the message with prefix %q at %s, event %d of transaction %s, %v", prefix, lsn, d.index, d.tx.ID, err)
	}
	row.Tx, row.Index = d.tx, d.index
	d.rows = append(d.rows, row)
	d.index++
	return nil
}

// passOver warns of a message that does not belong to its transaction: it is
// in the log whether that is committed or not, so it is no event.
func (m *messages) passOver(lsn pglogrepl.LSN) {
	m.outside++
	if time.Since(m.warned) < outsideWarning {
		return
	}
	m.log.Warn("a message that is not transactional is no event: it would be there even if its transaction was rolled back",
		zap.String("prefix", m.prefix), zap.Stringer("lsn", lsn), zap.Uint64("passed_over", m.outside),
		zap.String("fix", "call pg_logical_emit_message with true as its first argument"))
	m.warned, m.outside = time.Now(), 0
}

// row reads one message. content is the row's own from then on.
func (m *messages) row(content []byte, take func(int) []source.Value) (source.Row, error) {
	if !utf8.Valid(content) {
		return source.Row{}, fmt.Errorf("is not UTF-8")
	}
	if !json.Valid(content) {
		return source.Row{}, fmt.Errorf("is not JSON")
	}
	if err := m.read(content); err != nil {
		return source.Row{}, err
	}
	for _, names := range roles {
		if m.find(names[0]) < 0 && (names[1] == "" || m.find(names[1]) < 0) {
			m.members = append(m.members, member{name: []byte(names[0]), value: source.Value{State: source.Null}, text: names[0] != "payload"})
		}
	}
	values := take(len(m.members))
	for i := range m.members {
		values[i] = m.members[i].value
	}
	return source.Row{Table: m.shape(), Values: values}, nil
}

func (m *messages) find(name string) int {
	return slices.IndexFunc(m.members, func(x member) bool { return bytes.EqualFold(x.name, []byte(name)) })
}

// shape gives the table that has the members as columns, one for all messages alike.
func (m *messages) shape() *source.Table {
	m.key = m.key[:0]
	for i := range m.members {
		x := &m.members[i]
		m.key = binary.AppendUvarint(m.key, uint64(len(x.name)))
		m.key = append(m.key, x.name...)
		if x.text {
			m.key = append(m.key, 1)
		} else {
			m.key = append(m.key, 0)
		}
	}
	if t := m.shapes[string(m.key)]; t != nil { // this conversion does not allocate
		return t
	}
	if len(m.shapes) >= maxShapes {
		clear(m.shapes)
	}
	t := &source.Table{Name: m.prefix}
	for i := range m.members {
		c := source.Column{Name: string(m.members[i].name), Type: "json", Kind: source.JSON}
		if m.members[i].text {
			c.Type, c.Kind = "text", source.Text
		}
		t.Columns = append(t.Columns, c)
	}
	m.shapes[string(m.key)] = t
	return t
}

// read cuts the members out of valid JSON.
func (m *messages) read(b []byte) error {
	m.members = m.members[:0]
	i := space(b, 0)
	if b[i] != '{' {
		return fmt.Errorf("is no JSON object")
	}
	for i = space(b, i+1); b[i] != '}'; i = space(b, i) {
		if b[i] == ',' {
			i = space(b, i+1)
		}
		end := skipValue(b, i)
		name, err := unquoteJSON(b[i:end])
		if err != nil {
			return err
		}
		i = space(b, space(b, end)+1) // the colon
		end = skipValue(b, i)
		x := member{name: name, value: source.Value{Data: b[i:end:end], State: source.Present}}
		switch b[i] {
		case '"':
			x.text = true
			if x.value.Data, err = unquoteJSON(b[i:end]); err != nil {
				return err
			}
		case 'n':
			x.value = source.Value{State: source.Null}
		}
		if slices.ContainsFunc(m.members, func(y member) bool { return bytes.Equal(x.name, y.name) }) {
			return fmt.Errorf("has a member twice")
		}
		m.members = append(m.members, x)
		i = end
	}
	return nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue gives the end of the value that begins at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of what a number or a word stands in
				return i
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return i
			}
		}
	}
	return i
}

// unquoteJSON gives a string's text. One without escapes is cut out, not copied.
func unquoteJSON(quoted []byte) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1 : len(quoted)-1], nil
	}
	var s string
	if err := json.Unmarshal(quoted, &s); err != nil {
		return nil, fmt.Errorf("has a string that can't be read")
	}
	return []byte(s), nil
}
