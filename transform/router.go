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
	"errors"
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
	// one must have its column. None alone is an empty list.
	Headers      []Header
	HeaderFormat Format // of columns as headers: raw, connect, connect-json, connect-json-schema
	Placement    []Placement
	// IgnoreMissing leaves out what is placed and is no column of the table.
	IgnoreMissing bool
	// Topic is a template with the placeholders {aggregate_type}, {event_type},
	// {schema}, {table} and {column:NAME}. "" and outbox.event.{aggregate_type}
	// stand for outbox.event.{table} where the table has no aggregate type.
	Topic string
	// Route is Debezium's way instead, unless it is zero.
	Route         Route
	PayloadFormat Format
	KeyFormat     Format // raw, connect-json, connect-json-schema
	// ExpandJSON takes text that is a JSON object or array as JSON where the format
	// distinguishes it from a string.
	ExpandJSON bool
	// TombstoneOnEmpty makes a tombstone of a payload that is NULL or blank text.
	// Without it NULL is refused and '' is a value of no bytes.
	TombstoneOnEmpty bool
	NullKey          NullKey

	Name        string // the connector's, for the source of CloudEvents and headers
	Connector   string // postgres, mysql or mariadb: whose type names the tables have
	TopicPrefix string // Debezium's topic.prefix, for names it makes; "": Name
	Alias       string // of the table, for Message.Table; "": schema.table
	Variables   string // what the names of this Config's variables begin with, in messages; "": OUTBOXD_
}

// Table is a Config for one table.
type Table struct {
	Schema string // "": any
	Name   string
	Config
}

func (c *Config) mysql() bool { return c.Connector == "mysql" || c.Connector == "mariadb" }

// Reasons of a refusal, stable.
const (
	ReasonNullKey       = "null_key"       // no aggregate id (NULL, or no such member of the payload), or no event id where that is the key
	ReasonNullPayload   = "null_payload"   // payload is NULL
	ReasonUnroutable    = "unroutable"     // a column of the topic template is NULL or empty
	ReasonAbsentValue   = "absent_value"   // the log does not carry a column that is needed
	ReasonMissingColumn = "missing_column" // the table does not fit the mapping any more
	ReasonShapeMismatch = "shape_mismatch" // the row does not have its table's columns
	ReasonBadTimestamp  = "bad_timestamp"  // the timestamp's column holds no point in time
	ReasonBadPartition  = "bad_partition"  // the partition's column holds none
	ReasonBadHeaders    = "bad_headers"    // the headers' column holds no JSON object
	ReasonBadValue      = "bad_value"      // a value has no form in the format asked for
)

const (
	maxPlans  = 64   // table versions kept; a reconnect brings new ones
	maxTopics = 4096 // topic names kept
	// A longer name is no Kafka topic; it is not kept, so that the names kept stay small.
	maxTopicBytes = 249
)

// rules are a Config, checked.
type rules struct {
	cfg     Config
	topic   template  // nil: the default for the table at hand
	rewrite *rewriter // nil: a template
	headers []Header  // nil: the default list
	member  *path     // of the payload, for the key; nil: the key is a column
}

// variable gives a variable's whole name.
func (r *rules) variable(name string) string {
	if r.cfg.Variables != "" {
		return r.cfg.Variables + name
	}
	return "OUTBOXD_" + name
}

// topicPrefix is what Debezium's topic.prefix is taken to be.
func (r *rules) topicPrefix() string {
	if r.cfg.TopicPrefix != "" {
		return r.cfg.TopicPrefix
	}
	return r.cfg.Name
}

// Router makes one message of each row. It is used by one goroutine.
type Router struct {
	general *rules
	own     []ownRules // of single tables

	table   *source.Table // the last one seen, and its plan
	plan    *plan
	plans   map[*source.Table]*plan
	topics  map[string]string
	routes  map[routed]string
	names   map[string]string // of headers
	name    []byte            // scratch for a topic name
	headers []sink.Header     // of the row at hand
	arena   arena
}

type ownRules struct {
	schema, name string
	*rules
}

// routed is a value that a rewriter was given.
type routed struct {
	by    *rewriter
	value string
}

// New checks cfg, and that of single tables, as far as no table is needed for
// it. Its error is a *fault.Error that names each variable at fault.
func New(cfg Config, tables ...Table) (*Router, error) {
	r := &Router{plans: map[*source.Table]*plan{}, topics: map[string]string{}, routes: map[routed]string{}, names: map[string]string{}}
	var bad problems
	r.general = newRules(cfg, &bad)
	for _, t := range tables {
		r.own = append(r.own, ownRules{t.Schema, t.Name, newRules(t.Config, &bad)})
	}
	if err := bad.fault(fault.CodeConfig); err != nil {
		return nil, err
	}
	return r, nil
}

func newRules(cfg Config, bad *problems) *rules {
	r := &rules{cfg: cfg}
	refuse := func(variable, value string, err error, fix string) {
		if value != "" {
			value = fmt.Sprintf(" %q", value)
		}
		bad.add(fmt.Sprintf("%s%s: %v", r.variable(variable), value, err), fmt.Sprintf(fix, r.variable(variable)))
	}
	if cfg.Topic != "" && cfg.Topic != defaultTopic {
		t, err := parseTemplate(cfg.Topic)
		if err != nil {
			refuse("TOPIC", cfg.Topic, err, "Use letters, digits, '.', '_', '-' and {aggregate_type}, {event_type}, {schema}, {table}, {column:NAME} in %s.")
		}
		r.topic = t
	}
	if cfg.Route != (Route{}) {
		w, err := compileRoute(cfg.Route)
		if err != nil {
			refuse("TOPIC_ROUTE_REGEX", "", err, "Write %s without it, or the topic as a template in "+r.variable("TOPIC")+".")
		}
		r.rewrite = w
	}
	if !isDefault(cfg.Headers) {
		if err := checkHeaders(cfg.Headers); err != nil {
			refuse("HEADERS", "", err, "List id, eventType, aggregateType, position, source, traceparent, debezium-context in %s, each as NAME or NAME:ALIAS.")
		}
		if r.headers = cfg.Headers; cfg.Headers[0].Name == None {
			r.headers = []Header{}
		}
	}
	if err := checkPlacement(cfg.Placement, cfg.PayloadFormat); err != nil {
		refuse("COLUMN_PLACEMENT", "", err, "Write COLUMN:header, COLUMN:envelope or COLUMN:partition, each with an optional :ALIAS, in %s; for an envelope set "+r.variable("PAYLOAD_FORMAT")+" to one that is an object.")
	}
	switch cfg.NullKey {
	case "", NullKeyReject, NullKeyID, NullKeyNull:
	default:
		bad.add(fmt.Sprintf("%s %q is not known", r.variable("ON_NULL_KEY"), cfg.NullKey), fmt.Sprintf("Set %s to reject, id or null.", r.variable("ON_NULL_KEY")))
	}
	if cfg.ExpandJSON && cfg.PayloadFormat == FormatConnectJSONSchema {
		refuse("EXPAND_JSON", "", errors.New("has no meaning with schemas, which outboxd does not infer from a payload"), "Leave %s unset, or set "+r.variable("PAYLOAD_FORMAT")+" to connect-json or raw.")
	}
	if text, ok := strings.CutPrefix(cfg.Columns.AggregateID, payloadMember); ok {
		m, err := parsePath(text)
		if err != nil {
			refuse("COLUMN_AGGREGATE_ID", cfg.Columns.AggregateID, fmt.Errorf("the path %w", err),
				"Name a member as payload:$.name, payload:$.outer.inner or payload:$['a name'] in %s, or a column.")
		}
		r.member = m
	}
	return r
}

// rulesOf gives the rules of a table.
func (r *Router) rulesOf(t *source.Table) *rules {
	for i := range r.own {
		if o := &r.own[i]; o.name == t.Name && (o.schema == "" || o.schema == t.Schema) {
			return o.rules
		}
	}
	return r.general
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
	r.arena = arena{} // messages outlive the batch, so each batch has its own
	for i := range rows {
		row := &rows[i]
		if row.Table != r.table {
			if err := r.turn(row.Table); err != nil {
				return dst, refusal(row, "", ReasonMissingColumn, err.Found, err.Fix)
			}
		}
		if r.plan.derives {
			r.arena.room(r.plan.derived(row), len(rows)-i)
		}
		if cap(slab)-len(slab) < r.plan.most {
			slab = make([]sink.Header, 0, r.plan.most*(len(rows)-i))
		}
		r.headers = slab[len(slab):]
		dst = dst[:len(dst)+1]
		m := &dst[len(dst)-1]
		if err := r.fill(m, row); err != nil {
			return dst[:len(dst)-1], err
		}
		n := len(r.headers)
		m.Headers = r.headers[:n:n]
		r.plan.most = max(r.plan.most, n)
		if n <= cap(slab)-len(slab) { // else they have memory of their own
			slab = slab[:len(slab)+n]
		}
	}
	return dst, nil
}

// Describe tells how rows of table will be read. Its error is a *fault.Error
// that names the columns there are and the variables to set.
func (r *Router) Describe(table *source.Table) (Mapping, error) {
	p, err := r.rulesOf(table).compile(table)
	if err != nil {
		return Mapping{}, err
	}
	return p.mapping(), nil
}

// turn makes the plan of table the current one.
func (r *Router) turn(table *source.Table) *fault.Error {
	p := r.plans[table]
	if p == nil {
		made, err := r.rulesOf(table).compile(table)
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

// fill makes the message of one row, but for its headers, which it leaves in r.headers.
func (r *Router) fill(m *sink.Message, row *source.Row) error {
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
	cfg := &p.rules.cfg
	id := bytesOf(&row.Values[p.id])
	payload := bytesOf(&row.Values[p.payload])
	if cfg.TombstoneOnEmpty {
		if p.textual && len(bytes.TrimSpace(payload)) == 0 {
			payload = nil
		}
	} else if payload == nil {
		return p.nullPayload(row)
	}
	key, instead := p.keyOf(row)
	byID := key == nil && cfg.NullKey == NullKeyID
	if byID {
		key = id
	}
	if key == nil && cfg.NullKey != NullKeyNull {
		return p.nullKey(row, instead)
	}
	topic, bad := r.topicOf(row)
	if bad >= 0 {
		return p.unroutable(row, bad)
	}
	e := event{row: row, payload: payload, key: key, at: row.Tx.CommitAt}
	if p.timestamp >= 0 && row.Values[p.timestamp].State == source.Present {
		at, ok := parseTime(row.Values[p.timestamp].Data)
		if !ok {
			return p.badTimestamp(row)
		}
		e.at = at
	}
	if err := r.fillHeaders(&e); err != nil {
		return err
	}
	*m = sink.Message{Topic: topic, Key: key, Value: payload, Timestamp: e.at, Table: p.label, ID: id}
	if err := r.format(m, &e, byID); err != nil {
		return err
	}
	if p.partition >= 0 {
		return p.pin(m, row)
	}
	return nil
}

// format puts value and key into the forms asked for.
func (r *Router) format(m *sink.Message, e *event, byID bool) error {
	p := r.plan
	if m.Value != nil && len(p.members) > 0 {
		from := len(r.arena.b)
		b, bad := r.value(r.arena.b, e)
		if bad >= 0 {
			return p.badValue(e.row, bad, "PAYLOAD_FORMAT")
		}
		r.arena.b = b
		m.Value = r.arena.since(from)
	}
	if p.rules.cfg.KeyFormat.isRaw() || m.Key == nil {
		return nil
	}
	which, column := 0, p.key
	if byID {
		which, column = 1, p.id
	}
	var ok bool
	from := len(r.arena.b)
	r.arena.b = append(r.arena.b, p.keyHeads[which]...)
	r.arena.b, ok = p.keyTypes[which].appendJSON(r.arena.b, &source.Value{State: source.Present, Data: m.Key})
	if !ok {
		return p.badValue(e.row, column, "KEY_FORMAT")
	}
	if p.keyHeads[which] != "" {
		r.arena.b = append(r.arena.b, '}')
	}
	m.Key = r.arena.since(from)
	return nil
}

// derived is about how many bytes a row needs in the arena; too few costs a copy, nothing else.
func (p *plan) derived(row *source.Row) int {
	cfg, n := &p.rules.cfg, 0
	for _, c := range p.used {
		if c < len(row.Values) {
			n += len(row.Values[c].Data)
		}
	}
	all := n
	n = 0
	if len(p.members) > 0 {
		n += len(p.head) + 160 + all + all/4
		for i := range p.members {
			n += len(p.members[i].lead)
		}
	}
	if !cfg.KeyFormat.isRaw() {
		n += len(p.keyHeads[0]) + 64
	}
	if p.format == FormatCloudEvents {
		n += len(timeLayout) + 8 // which time takes for a moment
	}
	for i := range p.headers {
		h := &p.headers[i]
		if h.column == itsPosition {
			n += len(row.Tx.ID) + 11
		}
		if h.column != itsFixed && !cfg.HeaderFormat.isRaw() {
			n += len(h.envelope) + 48
		}
	}
	return n
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
	if p.routeBy >= 0 {
		return r.rewritten(row)
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

// rewritten gives the topic that the rewriter makes of the row's value. Each
// value is rewritten once.
func (r *Router) rewritten(row *source.Row) (string, int) {
	p := r.plan
	v := row.Values[p.routeBy].Data
	if row.Values[p.routeBy].State != source.Present || len(v) == 0 {
		return "", p.routeBy
	}
	if s, ok := r.routes[routed{p.rules.rewrite, string(v)}]; ok { // this conversion does not allocate
		return s, -1
	}
	s := p.rules.rewrite.topic(string(v))
	if s == "" {
		return "", p.routeBy
	}
	if len(v) <= maxTopicBytes {
		if len(r.routes) == maxTopics {
			clear(r.routes)
		}
		r.routes[routed{p.rules.rewrite, string(v)}] = s
	}
	return s, -1
}

// intern gives the one string of a header's name.
func (r *Router) intern(name []byte) string {
	if s, ok := r.names[string(name)]; ok { // this conversion does not allocate
		return s
	}
	if len(r.names) == maxTopics {
		clear(r.names)
	}
	s := string(name)
	if len(s) <= maxTopicBytes {
		r.names[s] = s
	}
	return s
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
