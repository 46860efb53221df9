// Package transform turns outbox rows into messages. It is pure: no I/O, no
// clock, no logging.
//
// What a row means is settled once per version of its table: columns are found
// for the roles (columns.go), the topic template is bound to column indexes
// (topic.go), the header list likewise (header.go). The result, a plan, is
// kept under the *source.Table it was made for. Per row only the plan is walked:
// keys, values and headers are the row's own bytes, topics are interned, and the
// headers of a batch share one slab.
package transform

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// NullKey says what happens to a row whose aggregate id is NULL.
type NullKey string

// The values of OUTBOXD_ON_NULL_KEY. The zero value is NullKeyReject.
const (
	NullKeyReject NullKey = "reject" // the row is refused
	NullKeyID     NullKey = "id"     // its key is the event id
	NullKeyNull   NullKey = "null"   // it has no key, so it may go to any partition
)

// Config says how rows become messages. The zero value is the default of every option.
type Config struct {
	Columns Columns
	// Headers lists the headers. Empty, or exactly id, eventType, aggregateType,
	// stands for these three as far as the table has them; in any other list each
	// one must have its column.
	Headers []Header
	// Topic is a template with the placeholders {aggregate_type}, {event_type},
	// {schema}, {table} and {column:NAME}. "" and outbox.event.{aggregate_type}
	// stand for outbox.event.{table} where the table has no aggregate type.
	Topic string
	// TombstoneOnEmpty makes a tombstone of a payload that is NULL or blank text.
	// Without it NULL is refused and '' is a value of no bytes.
	TombstoneOnEmpty bool
	NullKey          NullKey
}

// Reasons of a refusal, stable.
const (
	ReasonNullKey       = "null_key"       // no aggregate id (NULL, or no such member of the payload), or no event id where that is the key
	ReasonNullPayload   = "null_payload"   // payload is NULL
	ReasonUnroutable    = "unroutable"     // a column of the topic template is NULL or empty
	ReasonAbsentValue   = "absent_value"   // the log does not carry a column that is needed
	ReasonMissingColumn = "missing_column" // the table does not fit the mapping any more
	ReasonShapeMismatch = "shape_mismatch" // the row does not have its table's columns
)

const (
	maxPlans  = 64   // table versions kept; a reconnect brings new ones
	maxTopics = 4096 // topic names kept
	// A longer name is no Kafka topic; it is not kept, so that the names kept stay small.
	maxTopicBytes = 249
)

// Router makes one message of each row. It is used by one goroutine.
type Router struct {
	cfg     Config
	topic   template // nil: the default for the table at hand
	headers []Header // nil: the default list
	member  *path    // of the payload, for the key; nil: the key is a column

	table  *source.Table // the last one seen, and its plan
	plan   *plan
	plans  map[*source.Table]*plan
	topics map[string]string
	name   []byte // scratch for a topic name
}

// New checks cfg as far as no table is needed for it. Its error is a *fault.Error
// that names each variable at fault.
func New(cfg Config) (*Router, error) {
	r := &Router{cfg: cfg, plans: map[*source.Table]*plan{}, topics: map[string]string{}}
	var bad problems
	if cfg.Topic != "" && cfg.Topic != defaultTopic {
		t, err := parseTemplate(cfg.Topic)
		if err != nil {
			bad.add(fmt.Sprintf("OUTBOXD_TOPIC %q: %v", cfg.Topic, err),
				"Use letters, digits, '.', '_', '-' and {aggregate_type}, {event_type}, {schema}, {table}, {column:NAME} in OUTBOXD_TOPIC.")
		}
		r.topic = t
	}
	if !isDefault(cfg.Headers) {
		if err := checkHeaders(cfg.Headers); err != nil {
			bad.add("OUTBOXD_HEADERS: "+err.Error(),
				"List id, eventType, aggregateType in OUTBOXD_HEADERS, each as NAME or NAME:ALIAS.")
		}
		r.headers = cfg.Headers
	}
	switch cfg.NullKey {
	case "", NullKeyReject, NullKeyID, NullKeyNull:
	default:
		bad.add(fmt.Sprintf("OUTBOXD_ON_NULL_KEY %q is not known", cfg.NullKey), "Set OUTBOXD_ON_NULL_KEY to reject, id or null.")
	}
	if text, ok := strings.CutPrefix(cfg.Columns.AggregateID, payloadMember); ok {
		m, err := parsePath(text)
		if err != nil {
			bad.add(fmt.Sprintf("OUTBOXD_COLUMN_AGGREGATE_ID %q: the path %v", cfg.Columns.AggregateID, err),
				"Name a member as payload:$.name, payload:$.outer.inner or payload:$['a name'] in OUTBOXD_COLUMN_AGGREGATE_ID, or a column.")
		}
		r.member = m
	}
	if err := bad.fault(fault.CodeConfig); err != nil {
		return nil, err
	}
	return r, nil
}

// Route appends exactly one message per row to dst. At a row that can't be
// routed it returns the messages made so far and an error that wraps a
// *sink.Refusal, which names table, event id and columns and holds no payload:
// what stands before may be sent, nothing behind it (I5).
//
// The messages share memory with rows.
func (r *Router) Route(rows []source.Row, dst []sink.Message) ([]sink.Message, error) {
	dst = slices.Grow(dst, len(rows))
	var slab []sink.Header
	for i := range rows {
		row := &rows[i]
		if row.Table != r.table {
			if err := r.turn(row.Table); err != nil {
				return dst, refusal(row, "", ReasonMissingColumn, err.Found, err.Fix)
			}
		}
		// Messages outlive the batch, so each batch has a slab of its own.
		n := len(r.plan.headers)
		if cap(slab)-len(slab) < n {
			slab = make([]sink.Header, 0, n*(len(rows)-i))
		}
		own := slab[len(slab) : len(slab)+n : len(slab)+n]
		slab = slab[:len(slab)+n]

		dst = dst[:len(dst)+1]
		if err := r.fill(&dst[len(dst)-1], row, own); err != nil {
			return dst[:len(dst)-1], err
		}
	}
	return dst, nil
}

// Describe tells how rows of table will be read. Its error is a *fault.Error
// that names the columns there are and the variables to set.
func (r *Router) Describe(table *source.Table) (Mapping, error) {
	p, err := r.compile(table)
	if err != nil {
		return Mapping{}, err
	}
	return p.mapping(), nil
}

// turn makes the plan of table the current one.
func (r *Router) turn(table *source.Table) *fault.Error {
	p := r.plans[table]
	if p == nil {
		made, err := r.compile(table)
		if err != nil {
			return err
		}
		if len(r.plans) == maxPlans {
			clear(r.plans)
		}
		p, r.plans[table] = made, made
	}
	r.table, r.plan = table, p
	return nil
}

// fill makes the message of one row; headers has room for exactly the plan's.
func (r *Router) fill(m *sink.Message, row *source.Row, headers []sink.Header) error {
	p := r.plan
	if len(row.Values) != len(p.table.Columns) {
		return refusal(row, "", ReasonShapeMismatch,
			fmt.Sprintf("the row has %d values, its table %d columns", len(row.Values), len(p.table.Columns)),
			"Report this as a fault of outboxd, with the table's definition.")
	}
	for _, c := range p.used {
		if row.Values[c].State == source.Absent {
			return p.absent(row, c)
		}
	}
	id := bytesOf(&row.Values[p.id])
	value := bytesOf(&row.Values[p.payload])
	if r.cfg.TombstoneOnEmpty {
		if p.textual && len(bytes.TrimSpace(value)) == 0 {
			value = nil
		}
	} else if value == nil {
		return p.nullPayload(row)
	}
	key, instead := p.keyOf(row)
	if key == nil && r.cfg.NullKey == NullKeyID {
		key = id
	}
	if key == nil && r.cfg.NullKey != NullKeyNull {
		return p.nullKey(row, instead)
	}
	topic, bad := r.topicOf(row)
	if bad >= 0 {
		return p.unroutable(row, bad)
	}
	for i := range p.headers {
		headers[i] = sink.Header{Name: p.headers[i].name, Value: bytesOf(&row.Values[p.headers[i].column])}
	}
	*m = sink.Message{Topic: topic, Key: key, Value: value, Headers: headers, Timestamp: row.Tx.CommitAt, Table: p.name, ID: id}
	return nil
}

// keyOf gives the key, or nil and what is there instead.
func (p *plan) keyOf(row *source.Row) (key []byte, instead string) {
	key = bytesOf(&row.Values[p.key])
	if p.member == nil || key == nil {
		return key, "NULL"
	}
	return p.member.find(key)
}

// topicOf joins the topic's pieces for row. When a column of it has no value,
// its index is returned, else -1.
func (r *Router) topicOf(row *source.Row) (string, int) {
	p := r.plan
	if p.fixed != "" {
		return p.fixed, -1
	}
	b := r.name[:0]
	for i := range p.topic {
		if c := p.topic[i].column; c >= 0 {
			v := row.Values[c].Data
			if row.Values[c].State != source.Present || len(v) == 0 {
				return "", c
			}
			b = append(b, v...)
		} else {
			b = append(b, p.topic[i].text...)
		}
	}
	if len(b) > maxTopicBytes {
		return string(b), -1
	}
	r.name = b
	if s, ok := r.topics[string(b)]; ok { // this conversion does not allocate
		return s, -1
	}
	if len(r.topics) == maxTopics {
		clear(r.topics)
	}
	s := string(b)
	r.topics[s] = s
	return s, -1
}

// bytesOf gives nil for NULL and a non-nil slice for every value, ” too.
func bytesOf(v *source.Value) []byte {
	switch {
	case v.State != source.Present:
		return nil
	case v.Data == nil:
		return []byte{}
	}
	return v.Data
}
