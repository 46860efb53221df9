package transform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// None as Columns.AggregateID keys every event by its id, without a warning.
const None = "none"

// Columns names the column of each role, exactly as the server spells it. ""
// means: found by its usual names, in any case.
type Columns struct {
	ID string // id or event_id; required
	// AggregateID is aggregate_id or aggregateid; absent: the event id is the
	// key. It may also be payload: and a JSONPath of member names ($.order.id).
	AggregateID   string
	AggregateType string // aggregate_type or aggregatetype; optional
	EventType     string // event_type or type; optional
	Payload       string // payload; required
	Timestamp     string // of the record; "": the commit time
	Headers       string // a JSON object, each member a header; "": none
	Trace         string // traceparent or tracingspancontext; only with the header traceparent
	SchemaVersion string // an integer, of the value's schema; "": none
}

// Mapping is how a table will be read: the column of each role ("" where there
// is none), the topic template and the headers.
type Mapping struct {
	Table         string
	ID            string
	AggregateID   string // "": the event id is the key; or payload:PATH
	AggregateType string
	EventType     string
	Payload       string
	Timestamp     string `json:",omitempty"` // "": the commit time
	Topic         string
	Headers       []string // names as they are sent
	Warning       string   // what the operator should know; "" if nothing
}

// role is one thing a column is needed for.
type role struct {
	what     string // in messages
	variable string
	setting  string   // column asked for, or ""
	usual    []string // names it is found by
	required bool
}

func (r *rules) id() role {
	return role{"event id", r.variable("COLUMN_ID"), r.cfg.Columns.ID, []string{"id", "event_id"}, true}
}

func (r *rules) aggregateID() role {
	return role{"aggregate id", r.variable("COLUMN_AGGREGATE_ID"), r.cfg.Columns.AggregateID, []string{"aggregate_id", "aggregateid"}, false}
}

func (r *rules) aggregateType() role {
	return role{"aggregate type", r.variable("COLUMN_AGGREGATE_TYPE"), r.cfg.Columns.AggregateType, []string{"aggregate_type", "aggregatetype"}, false}
}

func (r *rules) eventType() role {
	return role{"event type", r.variable("COLUMN_EVENT_TYPE"), r.cfg.Columns.EventType, []string{"event_type", "type"}, false}
}

func (r *rules) payload() role {
	return role{"payload", r.variable("COLUMN_PAYLOAD"), r.cfg.Columns.Payload, []string{"payload"}, true}
}

func (r *rules) trace() role {
	return role{"trace", r.variable("COLUMN_TRACE"), r.cfg.Columns.Trace, []string{"traceparent", "tracingspancontext"}, true}
}

// named is the role of a column that has no usual name; it is not looked for unless it is set.
func (r *rules) named(what, variable, setting string) role {
	return role{what: what, variable: r.variable(variable), setting: setting}
}

// none as a column's index says that there is no such column.
const none = -100

// plan is a Config bound to one version of a table. Columns are indexes, or none.
type plan struct {
	rules         *rules
	table         *source.Table
	name          string // schema.table
	label         string // the same, or the alias
	tableName     []byte
	id            int
	key           int   // the id's where there is no aggregate id
	member        *path // the key within the column key; nil: all of it is the key
	aggregateID   int
	aggregateType int
	eventType     int
	payload       int
	timestamp     int
	version       int  // of the value's schema
	textual       bool // the payload is text, so blank means something
	used          []int

	topic    []piece
	fixed    string // the topic where no column is in it
	template string
	routeBy  int // the column that is rewritten into the topic; none: a template

	headers   []bound
	most      int // headers there is room for, per row: as many as a row had
	spread    int // the column whose members are headers
	trace     int
	partition int
	ceSource  []byte

	format  Format
	head    string // what a value begins with
	members []member
	braces  bool // around the members
	named   bool // the schema's name has the aggregate type in it

	derives  bool           // something is not the row's own bytes
	keyTypes [2]connectType // of the key, and of the event id where it stands in for it
	keyHeads [2]string
	warning  string
}

// compile binds the rules to table.
func (r *rules) compile(table *source.Table) (*plan, *fault.Error) {
	var bad problems
	c := &r.cfg.Columns
	p := &plan{rules: r, table: table, name: table.String(), label: r.cfg.Alias, tableName: []byte(table.Name), aggregateID: none, routeBy: none, trace: none, partition: none}
	if p.label == "" {
		p.label = p.name
	}
	p.id = find(table, r.id(), &bad)
	p.aggregateType = find(table, r.aggregateType(), &bad)
	p.eventType = find(table, r.eventType(), &bad)
	p.payload = find(table, r.payload(), &bad)
	p.timestamp = find(table, r.named("timestamp", "COLUMN_TIMESTAMP", c.Timestamp), &bad)
	p.spread = find(table, r.named("headers", "COLUMN_HEADERS", c.Headers), &bad)
	p.version = find(table, r.named("schema version", "COLUMN_SCHEMA_VERSION", c.SchemaVersion), &bad)
	switch {
	case r.member != nil:
		p.member = r.member
		r.mustHoldJSON(p, &bad)
	case c.AggregateID != None:
		p.aggregateID = find(table, r.aggregateID(), &bad)
	}
	r.mustFit(p, &bad)
	if len(bad) == 0 { // else the same column would be missed twice
		p.textual = table.Columns[p.payload].Kind != source.Bytes
		p.ceSource = []byte(r.ceSource(p))
		p.bindKey(&bad)
		r.bindTopic(p, &bad)
		r.bindHeaders(p, &bad)
		r.bindFormat(p, r.bindPlacement(p, &bad), &bad)
	}
	if err := bad.fault(fault.CodeTableUnusable); err != nil {
		return nil, err
	}
	p.use()
	p.most = len(p.headers)
	if p.format == FormatCloudEvents {
		p.most += 8
	} else if p.format == FormatCloudEventsJSON {
		p.most++
	}
	p.derives = len(p.members) > 0 || p.format == FormatCloudEvents || !r.cfg.KeyFormat.isRaw() || !r.cfg.HeaderFormat.isRaw() ||
		slices.ContainsFunc(p.headers, func(h bound) bool { return h.column == itsPosition })
	return p, nil
}

// mustFit judges the kinds of the columns that hold more than text.
func (r *rules) mustFit(p *plan, bad *problems) {
	judge := func(column int, what, variable, want string, kinds ...source.Kind) {
		if column < 0 {
			return
		}
		if c := &p.table.Columns[column]; !slices.Contains(kinds, c.Kind) {
			bad.add(fmt.Sprintf("column %q of table %s, the %s, is %s", c.Name, p.name, what, c.Type), fmt.Sprintf("Set %s to a column of %s.", r.variable(variable), want))
		}
	}
	judge(p.timestamp, "timestamp", "COLUMN_TIMESTAMP", "dates, times or numbers", source.Time, source.Number, source.Text)
	judge(p.spread, "headers", "COLUMN_HEADERS", "JSON or text", source.JSON, source.Text)
	judge(p.version, "schema version", "COLUMN_SCHEMA_VERSION", "whole numbers", source.Number)
}

// bindKey settles what the key is made of, and how it is written.
func (p *plan) bindKey(bad *problems) {
	switch {
	case p.member != nil:
		p.key = p.payload
	case p.aggregateID >= 0:
		p.key = p.aggregateID
	default:
		p.key = p.id
		if p.rules.cfg.Columns.AggregateID == "" {
			p.warning = noAggregateID(p)
		}
	}
	f := p.rules.cfg.KeyFormat
	if f.isRaw() {
		return
	}
	for i, column := range []int{p.key, p.id} {
		optional := false
		if i == 0 && p.member != nil {
			p.keyTypes[i] = connectType{typ: "string", as: asText, pairs: true}
		} else {
			p.keyTypes[i] = p.rules.connect(p, column, f == FormatConnectJSONSchema, bad)
			optional = !p.table.Columns[column].NotNull
		}
		if f == FormatConnectJSONSchema {
			p.keyHeads[i] = `{"schema":` + p.keyTypes[i].schema(optional, "") + `,"payload":`
		}
	}
}

func noAggregateID(p *plan) string {
	of := p.rules.aggregateID()
	ways := fmt.Sprintf("one of its columns (%s)", columns(p.table))
	if holdsJSON(p) {
		ways += ", to a member of the payload (payload:$.order_id)"
	}
	return fmt.Sprintf("table %s has no %s column (%s): the event id is the key, so events of one aggregate may overtake each other; "+
		"set %s to %s, or to none if this is meant", p.name, of.what, strings.Join(of.usual, ", "), of.variable, ways)
}

func (r *rules) mustHoldJSON(p *plan, bad *problems) {
	if p.payload < 0 || holdsJSON(p) {
		return
	}
	c := &p.table.Columns[p.payload]
	bad.add(fmt.Sprintf("the key is the member %s of column %q of table %s, which is neither JSON nor text but %s", p.member.text, c.Name, p.name, c.Type),
		fmt.Sprintf("Set %s to a column, or to none.", r.variable("COLUMN_AGGREGATE_ID")))
}

func holdsJSON(p *plan) bool {
	kind := p.table.Columns[p.payload].Kind
	return kind == source.JSON || kind == source.Text
}

// use collects the columns a row must have a value or a NULL for.
func (p *plan) use() {
	p.used = []int{p.id, p.key, p.payload}
	for _, t := range p.topic {
		p.used = append(p.used, t.column)
	}
	for _, h := range p.headers {
		p.used = append(p.used, h.column)
	}
	for _, m := range p.members {
		p.used = append(p.used, m.column)
	}
	p.used = append(p.used, p.routeBy, p.timestamp, p.spread, p.trace, p.partition, p.version)
	if p.format != FormatRaw && p.format != "" {
		p.used = append(p.used, p.aggregateID, p.aggregateType, p.eventType)
	}
	p.used = slices.DeleteFunc(p.used, func(c int) bool { return c < 0 })
	slices.Sort(p.used)
	p.used = slices.Compact(p.used)
}

// aggregateColumn is where the aggregate id stands, for values of ours.
func (p *plan) aggregateColumn() int {
	if p.member != nil {
		return theKey
	}
	return p.aggregateID
}

// namedBy is the column whose value is in the name of a value's schema.
func (p *plan) namedBy() int {
	if p.routeBy >= 0 {
		return p.routeBy
	}
	return p.aggregateType
}

// versionOf gives the version of a value's schema, nil if it has none.
func (p *plan) versionOf(row *source.Row) []byte {
	if p.version < 0 {
		return nil
	}
	return bytesOf(&row.Values[p.version])
}

func (p *plan) mapping() Mapping {
	m := Mapping{
		Table: p.name, ID: p.column(p.id), AggregateID: p.column(p.aggregateID), AggregateType: p.column(p.aggregateType),
		EventType: p.column(p.eventType), Payload: p.column(p.payload), Timestamp: p.column(p.timestamp), Topic: p.template, Warning: p.warning,
	}
	if p.member != nil {
		m.AggregateID = payloadMember + p.member.text
	}
	for _, h := range p.headers {
		m.Headers = append(m.Headers, h.name)
	}
	if p.spread >= 0 {
		m.Headers = append(m.Headers, "members of "+p.column(p.spread))
	}
	return m
}

// column gives the name of a column, "" for none.
func (p *plan) column(i int) string {
	if i < 0 {
		return ""
	}
	return p.table.Columns[i].Name
}

// find gives the column of a role, none when there is none. A column that was
// asked for or is required and isn't there is a problem, and so are two that
// could be meant.
func find(table *source.Table, of role, bad *problems) int {
	if of.setting != "" {
		i := table.Column(of.setting)
		if i < 0 {
			bad.add(fmt.Sprintf("table %s has no column %q for the %s; its columns are %s", table, of.setting, of.what, columns(table)),
				fmt.Sprintf("Set %s to one of them.", of.variable))
			return none
		}
		return i
	}
	found := none
	for i := range table.Columns {
		if !usual(of, table.Columns[i].Name) {
			continue
		}
		if found >= 0 {
			bad.add(fmt.Sprintf("table %s has two columns for the %s: %s and %s", table, of.what, table.Columns[found].Name, table.Columns[i].Name),
				fmt.Sprintf("Set %s to the one that is meant.", of.variable))
			return none
		}
		found = i
	}
	if found < 0 && of.required {
		bad.add(fmt.Sprintf("table %s has no column for the %s (%s); its columns are %s", table, of.what, strings.Join(of.usual, ", "), columns(table)),
			fmt.Sprintf("Set %s to one of them.", of.variable))
	}
	return found
}

func usual(r role, column string) bool {
	for _, name := range r.usual {
		if strings.EqualFold(name, column) {
			return true
		}
	}
	return false
}

func columns(table *source.Table) string {
	names := make([]string, len(table.Columns))
	for i := range table.Columns {
		names[i] = table.Columns[i].Name
	}
	return strings.Join(names, ", ")
}
