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

func (c Columns) id() role {
	return role{"event id", "OUTBOXD_COLUMN_ID", c.ID, []string{"id", "event_id"}, true}
}

func (c Columns) aggregateID() role {
	return role{"aggregate id", "OUTBOXD_COLUMN_AGGREGATE_ID", c.AggregateID, []string{"aggregate_id", "aggregateid"}, false}
}

func (c Columns) aggregateType() role {
	return role{"aggregate type", "OUTBOXD_COLUMN_AGGREGATE_TYPE", c.AggregateType, []string{"aggregate_type", "aggregatetype"}, false}
}

func (c Columns) eventType() role {
	return role{"event type", "OUTBOXD_COLUMN_EVENT_TYPE", c.EventType, []string{"event_type", "type"}, false}
}

func (c Columns) payload() role {
	return role{"payload", "OUTBOXD_COLUMN_PAYLOAD", c.Payload, []string{"payload"}, true}
}

// plan is a Config bound to one version of a table. Columns are indexes, -1 where there is none.
type plan struct {
	table         *source.Table
	name          string // schema.table
	id            int
	key           int   // the id's where there is no aggregate id
	member        *path // the key within the column key; nil: all of it is the key
	aggregateID   int
	aggregateType int
	eventType     int
	payload       int
	textual       bool // the payload is text, so blank means something
	used          []int
	topic         []piece
	fixed         string // the topic where no column is in it
	template      string
	headers       []bound
	warning       string
}

// compile binds the configuration to table.
func (r *Router) compile(table *source.Table) (*plan, *fault.Error) {
	var bad problems
	c := r.cfg.Columns
	p := &plan{table: table, name: table.String(), aggregateID: -1}
	p.id = find(table, c.id(), &bad)
	p.aggregateType = find(table, c.aggregateType(), &bad)
	p.eventType = find(table, c.eventType(), &bad)
	p.payload = find(table, c.payload(), &bad)
	switch {
	case r.member != nil:
		p.member = r.member
		mustHoldJSON(p, &bad)
	case c.AggregateID != None:
		p.aggregateID = find(table, c.aggregateID(), &bad)
	}
	if len(bad) == 0 { // else the same column would be missed twice
		r.bindTopic(p, &bad)
		r.bindHeaders(p, &bad)
	}
	if err := bad.fault(fault.CodeTableUnusable); err != nil {
		return nil, err
	}
	p.textual = table.Columns[p.payload].Kind != source.Bytes
	switch {
	case p.member != nil:
		p.key = p.payload
	case p.aggregateID >= 0:
		p.key = p.aggregateID
	default:
		p.key = p.id
		if c.AggregateID == "" {
			p.warning = noAggregateID(p)
		}
	}
	p.use()
	return p, nil
}

func noAggregateID(p *plan) string {
	of := Columns{}.aggregateID()
	ways := fmt.Sprintf("one of its columns (%s)", columns(p.table))
	if holdsJSON(p) {
		ways += ", to a member of the payload (payload:$.order_id)"
	}
	return fmt.Sprintf("table %s has no %s column (%s): the event id is the key, so events of one aggregate may overtake each other; "+
		"set %s to %s, or to none if this is meant", p.name, of.what, strings.Join(of.usual, ", "), of.variable, ways)
}

func mustHoldJSON(p *plan, bad *problems) {
	if p.payload < 0 || holdsJSON(p) {
		return
	}
	c := &p.table.Columns[p.payload]
	bad.add(fmt.Sprintf("the key is the member %s of column %q of table %s, which is neither JSON nor text but %s", p.member.text, c.Name, p.name, c.Type),
		"Set OUTBOXD_COLUMN_AGGREGATE_ID to a column, or to none.")
}

func holdsJSON(p *plan) bool {
	kind := p.table.Columns[p.payload].Kind
	return kind == source.JSON || kind == source.Text
}

// use collects the columns a row must have a value or a NULL for.
func (p *plan) use() {
	p.used = []int{p.id, p.key, p.payload}
	for _, t := range p.topic {
		if t.column >= 0 {
			p.used = append(p.used, t.column)
		}
	}
	for _, h := range p.headers {
		p.used = append(p.used, h.column)
	}
	slices.Sort(p.used)
	p.used = slices.Compact(p.used)
}

func (p *plan) mapping() Mapping {
	m := Mapping{
		Table: p.name, ID: p.column(p.id), AggregateID: p.column(p.aggregateID), AggregateType: p.column(p.aggregateType),
		EventType: p.column(p.eventType), Payload: p.column(p.payload), Topic: p.template, Warning: p.warning,
	}
	if p.member != nil {
		m.AggregateID = payloadMember + p.member.text
	}
	for _, h := range p.headers {
		m.Headers = append(m.Headers, h.name)
	}
	return m
}

// column gives the name of a column, "" for -1.
func (p *plan) column(i int) string {
	if i < 0 {
		return ""
	}
	return p.table.Columns[i].Name
}

// find gives the column of a role, -1 when there is none. A column that was
// asked for or is required and isn't there is a problem, and so are two that
// could be meant.
func find(table *source.Table, r role, bad *problems) int {
	if r.setting != "" {
		i := table.Column(r.setting)
		if i < 0 {
			bad.add(fmt.Sprintf("table %s has no column %q for the %s; its columns are %s", table, r.setting, r.what, columns(table)),
				fmt.Sprintf("Set %s to one of them.", r.variable))
		}
		return i
	}
	found := -1
	for i := range table.Columns {
		if !usual(r, table.Columns[i].Name) {
			continue
		}
		if found >= 0 {
			bad.add(fmt.Sprintf("table %s has two columns for the %s: %s and %s", table, r.what, table.Columns[found].Name, table.Columns[i].Name),
				fmt.Sprintf("Set %s to the one that is meant.", r.variable))
			return -1
		}
		found = i
	}
	if found < 0 && r.required {
		bad.add(fmt.Sprintf("table %s has no column for the %s (%s); its columns are %s", table, r.what, strings.Join(r.usual, ", "), columns(table)),
			fmt.Sprintf("Set %s to one of them.", r.variable))
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
