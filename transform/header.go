package transform

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// Header is one entry of the header list.
type Header struct {
	// Name is what it carries: id, eventType, aggregateType; position, the place
	// in the log; source, the connector and the table; traceparent, the trace a row
	// was written in; debezium-context, the three Debezium adds to every record.
	Name  string
	Alias string // the name it is sent under; "": Name
}

func (h Header) sentAs() string {
	if h.Alias != "" {
		return h.Alias
	}
	return h.Name
}

func defaultHeaders() []Header {
	return []Header{{Name: "id"}, {Name: "eventType"}, {Name: "aggregateType"}}
}

// isDefault reports whether list leaves everything as it is by itself.
func isDefault(list []Header) bool {
	return len(list) == 0 || slices.EqualFunc(list, defaultHeaders(), func(a, b Header) bool {
		return a.Name == b.Name && a.sentAs() == b.sentAs()
	})
}

func checkHeaders(list []Header) error {
	if len(list) == 1 && list[0].Name == None {
		return nil
	}
	seen := map[string]bool{}
	for _, h := range list {
		switch h.Name {
		case "id", "eventType", "aggregateType", "position", "source":
		case "debezium-context", "traceparent":
			if h.sentAs() != h.Name {
				return fmt.Errorf("header %q stands for several, which can't be renamed", h.Name)
			}
		default:
			return fmt.Errorf("header %q is not known", h.Name)
		}
		if seen[h.sentAs()] {
			return fmt.Errorf("two headers are called %q", h.sentAs())
		}
		seen[h.sentAs()] = true
	}
	return nil
}

// bound is a header bound to a table.
type bound struct {
	name     string
	column   int // or one of the below
	fixed    []byte
	typ      connectType
	envelope string // of JsonConverter with schemas: what stands before the value
}

// What a header can carry beside a column.
const (
	itsFixed    = -1 - iota
	itsPosition // of the row in the log
	itsTrace    // the entries of a trace's context
)

// bindHeaders binds the list to the plan's table. A role without a column is
// left out of the default list, and a problem when it was asked for.
func (r *rules) bindHeaders(p *plan, bad *problems) {
	list := r.headers
	if list == nil {
		list = defaultHeaders()
	}
	for _, h := range list {
		var of role
		var column int
		switch h.Name {
		case "id":
			column, of = p.id, r.id()
		case "eventType":
			column, of = p.eventType, r.eventType()
		case "aggregateType":
			column, of = p.aggregateType, r.aggregateType()
		case "traceparent":
			if column = find(p.table, r.trace(), bad); column < 0 {
				continue // told already
			}
			p.trace = column
			p.headers = append(p.headers, bound{name: h.Name, column: itsTrace})
			continue
		default:
			r.addOwn(p, h, bad)
			continue
		}
		switch {
		case column >= 0:
			r.addHeader(p, bound{name: h.sentAs(), column: column}, "HEADERS", bad)
		case r.headers != nil:
			bad.add(fmt.Sprintf("table %s has no column for the header %s (%s); its columns are %s",
				p.name, h.Name, strings.Join(of.usual, ", "), columns(p.table)),
				fmt.Sprintf("Set %s to one of them, or leave %s out of %s.", of.variable, h.Name, r.variable("HEADERS")))
		}
	}
}

// addOwn adds what is no column.
func (r *rules) addOwn(p *plan, h Header, bad *problems) {
	switch h.Name {
	case "position":
		r.addHeader(p, bound{name: h.sentAs(), column: itsPosition}, "HEADERS", bad)
	case "source":
		r.addHeader(p, bound{name: h.sentAs(), column: itsFixed, fixed: []byte(r.ceSource(p))}, "HEADERS", bad)
	case "debezium-context":
		connector := map[string]string{"postgres": "postgresql"}[r.cfg.Connector]
		if connector == "" {
			connector = r.cfg.Connector
		}
		for _, c := range [][2]string{{"connectorLogicalName", r.topicPrefix()}, {"taskId", "0"}, {"connectorName", connector}} {
			r.addHeader(p, bound{name: "__debezium.context." + c[0], column: itsFixed, fixed: []byte(c[1])}, "HEADERS", bad)
		}
	}
}

// addHeader adds one header. The same column under the same name is sent once;
// another one under a name that is taken is a problem.
func (r *rules) addHeader(p *plan, h bound, variable string, bad *problems) {
	for _, other := range p.headers {
		if other.name != h.name {
			continue
		}
		if other.column != h.column || h.column < 0 {
			bad.add(fmt.Sprintf("table %s would have two headers %q", p.name, h.name), fmt.Sprintf("Give one of them another alias in %s.", r.variable(variable)))
		}
		return
	}
	if f := r.cfg.HeaderFormat; !f.isRaw() {
		h.typ = r.connect(p, h.column, f == FormatConnectJSONSchema, bad)
		if f == FormatConnectJSONSchema {
			optional := h.column >= 0 && !p.table.Columns[h.column].NotNull
			h.envelope = `{"schema":` + h.typ.schema(optional, "") + `,"payload":`
		}
		if h.column == itsFixed && f != FormatConnect {
			h.fixed = appendString([]byte(h.envelope), h.fixed, true)
			if h.envelope != "" {
				h.fixed = append(h.fixed, '}')
			}
		}
	}
	p.headers = append(p.headers, h)
}

// fillHeaders collects a row's headers in r.headers.
func (r *Router) fillHeaders(e *event) error {
	p := r.plan
	for i := range p.headers {
		h := &p.headers[i]
		switch h.column {
		case itsFixed:
			r.headers = append(r.headers, sink.Header{Name: h.name, Value: h.fixed})
		case itsTrace:
			r.traces(e.row)
		default:
			value, ok := r.headerValue(h, e.row)
			if !ok {
				return p.badValue(e.row, h.column, "HEADER_FORMAT")
			}
			r.headers = append(r.headers, sink.Header{Name: h.name, Value: value})
		}
	}
	if p.format == FormatCloudEvents || p.format == FormatCloudEventsJSON {
		r.cloudEvent(e)
	}
	if p.spread >= 0 {
		return r.spread(e.row)
	}
	return nil
}

// headerValue gives one header's bytes; false when they can't be written in the format.
func (r *Router) headerValue(h *bound, row *source.Row) ([]byte, bool) {
	format := r.plan.rules.cfg.HeaderFormat
	from := len(r.arena.b)
	v := source.Value{State: source.Present}
	if h.column == itsPosition {
		r.arena.b = append(append(r.arena.b, row.Tx.ID...), '#')
		r.arena.b = strconv.AppendUint(r.arena.b, uint64(row.Index), 10)
		v.Data = r.arena.since(from)
		from = len(r.arena.b)
	} else {
		v = row.Values[h.column]
	}
	var ok bool
	switch {
	case format.isRaw():
		return bytesOf(&v), true
	case format == FormatConnect:
		if v.State != source.Present || h.typ.as <= asNumber || h.typ.as == asDecimal {
			return bytesOf(&v), true
		}
		r.arena.b, ok = h.typ.appendPlain(r.arena.b, v.Data)
		return r.arena.since(from), ok
	}
	r.arena.b = append(r.arena.b, h.envelope...)
	r.arena.b, ok = h.typ.appendJSON(r.arena.b, &v)
	if h.envelope != "" {
		r.arena.b = append(r.arena.b, '}')
	}
	return r.arena.since(from), ok
}

// traces passes a trace's context on: one value is the traceparent, what
// java.util.Properties wrote (Debezium's tracingspancontext) has names of its own.
func (r *Router) traces(row *source.Row) {
	v := &row.Values[r.plan.trace]
	if v.State != source.Present || len(v.Data) == 0 {
		return
	}
	if !slices.Contains(v.Data, '=') {
		r.headers = append(r.headers, sink.Header{Name: "traceparent", Value: v.Data})
		return
	}
	properties(v.Data, func(name, value []byte) {
		r.headers = append(r.headers, sink.Header{Name: r.intern(name), Value: value})
	})
}
