package transform

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/outboxd/outboxd/source"
)

// Format says how a value, a key or a header is written.
type Format string

// The formats. Keys know raw and the two of JsonConverter, headers connect too.
const (
	FormatRaw               Format = "raw"                 // the column's bytes
	FormatEnvelope          Format = "envelope"            // a JSON object with id, types, time and payload
	FormatCloudEvents       Format = "cloudevents"         // CloudEvents 1.0, binary mode
	FormatCloudEventsJSON   Format = "cloudevents-json"    // the same, structured mode
	FormatConnect           Format = "connect"             // as SimpleHeaderConverter writes it; headers only
	FormatConnectJSON       Format = "connect-json"        // as JsonConverter writes it without schemas
	FormatConnectJSONSchema Format = "connect-json-schema" // as JsonConverter writes it with schemas
)

func (f Format) hasEnvelope() bool {
	switch f {
	case FormatEnvelope, FormatCloudEventsJSON, FormatConnectJSON, FormatConnectJSONSchema:
		return true
	}
	return false
}

func (f Format) isRaw() bool { return f == "" || f == FormatRaw }

const timeLayout = "2006-01-02T15:04:05.000000Z"

// member is one member of a value that is a JSON object.
type member struct {
	name   string
	lead   string // what stands before its value
	column int    // or one of the below
	typ    connectType
}

// What a member can hold beside a column.
const (
	theTime    = -1 - iota // when the event occurred
	theKey                 // the key as text
	theType                // the CloudEvents type
	thePayload             // the payload, by its kind
)

// object makes the members of a value, each with its lead; a name twice is a problem.
func (p *plan) object(list []member, bad *problems) {
	seen := map[string]bool{}
	for i := range list {
		m := &list[i]
		if seen[m.name] {
			bad.add(fmt.Sprintf("the value of table %s would have two members %q", p.name, m.name),
				fmt.Sprintf("Give the placed column another alias in %s.", p.rules.variable("COLUMN_PLACEMENT")))
		}
		seen[m.name] = true
		m.lead = quoted(m.name) + ":"
		if i > 0 {
			m.lead = "," + m.lead
		}
	}
	p.members = list
}

// bindFormat prepares the value; envelope are the columns placed into it.
func (r *rules) bindFormat(p *plan, envelope []member, bad *problems) {
	p.format = r.cfg.PayloadFormat
	switch p.format {
	case FormatEnvelope:
		list := []member{{name: "id", column: p.id}}
		for _, m := range []member{{name: "aggregateType", column: p.aggregateType}, {name: "aggregateId", column: p.aggregateColumn()}, {name: "type", column: p.eventType}} {
			if m.column != none {
				list = append(list, m)
			}
		}
		list = append(list, member{name: "occurredAt", column: theTime}, member{name: "payload", column: thePayload})
		p.object(append(list, envelope...), bad)
	case FormatCloudEventsJSON:
		p.object(append([]member{{name: "id", column: p.id}, {name: "type", column: theType}, {name: "time", column: theTime}}, envelope...), bad)
		for i := range p.members {
			p.members[i].lead = "," + strings.TrimPrefix(p.members[i].lead, ",")
		}
		p.head = `{"specversion":"1.0","source":` + quoted(r.ceSource(p))
		for _, m := range envelope {
			switch m.name {
			case "specversion", "source", "subject", "datacontenttype", "partitionkey", "data", "dataschema":
				bad.add(fmt.Sprintf("%q is an attribute of CloudEvents already", m.name),
					fmt.Sprintf("Give the placed column another alias in %s.", r.variable("COLUMN_PLACEMENT")))
			}
		}
	case FormatConnectJSON, FormatConnectJSONSchema:
		r.bindConnect(p, envelope, bad)
	}
}

// bindConnect prepares a value as Debezium hands it to JsonConverter: the payload
// alone, or a struct of it and of what is placed beside it.
func (r *rules) bindConnect(p *plan, envelope []member, bad *problems) {
	schemas := p.format == FormatConnectJSONSchema
	payload := member{name: "payload", column: p.payload, typ: r.connect(p, p.payload, schemas, bad)}
	for i := range envelope {
		envelope[i].typ = r.connect(p, envelope[i].column, schemas, bad)
	}
	if len(envelope) == 0 {
		p.members = []member{payload}
		if schemas {
			p.head = `{"schema":` + payload.typ.schema(!p.table.Columns[p.payload].NotNull, "") + `,"payload":`
		}
		return
	}
	p.object(append([]member{payload}, envelope...), bad)
	p.braces = true
	if !schemas {
		return
	}
	fields := make([]string, len(p.members))
	for i, m := range p.members {
		fields[i] = m.typ.schema(!p.table.Columns[m.column].NotNull, m.name)
	}
	prefix := strings.Join([]string{r.topicPrefix(), p.table.Schema, p.table.Name, ""}, ".")
	p.head = `{"schema":{"type":"struct","fields":[` + strings.Join(fields, ",") + `],"optional":false,"name":` + strings.TrimSuffix(quoted(prefix), `"`)
	p.named = true
}

// connect gives the type Debezium makes of a column; none is a problem where it is told.
func (r *rules) connect(p *plan, column int, schemas bool, bad *problems) connectType {
	if column < 0 {
		return connectType{typ: "string", as: asText, pairs: true}
	}
	c := &p.table.Columns[column]
	t, ok := connectTypeOf(c, r.cfg.mysql())
	if !ok && (schemas || t.typ == "") {
		bad.add(fmt.Sprintf("column %q of table %s is %s, of which outboxd knows no schema of Kafka Connect", c.Name, p.name, c.Type),
			fmt.Sprintf("Set %s, %s or %s to a format without schemas, or place another column.", r.variable("PAYLOAD_FORMAT"), r.variable("KEY_FORMAT"), r.variable("HEADER_FORMAT")))
	}
	return t
}

// event is what the value of a row is made of.
type event struct {
	row     *source.Row
	payload []byte
	key     []byte // as text; nil: none
	at      time.Time
}

// value appends the record's value. On false bad is the column that has no form in this format.
func (r *Router) value(b []byte, e *event) (out []byte, bad int) {
	p := r.plan
	b = append(b, p.head...)
	switch p.format {
	case FormatEnvelope:
		b = append(b, '{')
	case FormatConnectJSON, FormatConnectJSONSchema:
		return r.connectValue(b, e)
	}
	for i := range p.members {
		m := &p.members[i]
		b = r.plain(append(b, m.lead...), e, m.column)
	}
	if p.format == FormatCloudEventsJSON {
		b = r.data(b, e)
	}
	return append(b, '}'), -1
}

// connectValue appends what stands behind the head of a value in JsonConverter's form.
func (r *Router) connectValue(b []byte, e *event) (out []byte, bad int) {
	p := r.plan
	if p.named {
		if c := p.namedBy(); c >= 0 {
			name := appendString(nil, e.row.Values[c].Data, true)
			b = append(b, name[1:len(name)-1]...)
		}
		b = append(b, `.Value"`...)
		if v := p.versionOf(e.row); len(v) > 0 {
			b = append(append(b, `,"version":`...), v...)
		}
		b = append(b, `},"payload":`...)
	}
	if p.braces {
		b = append(b, '{')
	}
	for i := range p.members {
		m := &p.members[i]
		b = append(b, m.lead...)
		if m.column == p.payload && i == 0 && p.expands(e.payload) {
			b = append(b, e.payload...)
			continue
		}
		var ok bool
		if b, ok = m.typ.appendJSON(b, &e.row.Values[m.column]); !ok {
			return b, m.column
		}
	}
	if p.braces {
		b = append(b, '}')
	}
	if p.format == FormatConnectJSONSchema {
		b = append(b, '}')
	}
	return b, -1
}

// plain appends a value in the form of our own JSON.
func (r *Router) plain(b []byte, e *event, column int) []byte {
	p := r.plan
	switch column {
	case theTime:
		return e.at.UTC().AppendFormat(b, `"`+timeLayout+`"`)
	case theKey:
		if e.key == nil {
			return append(b, "null"...)
		}
		return appendString(b, e.key, false)
	case theType:
		return appendString(b, p.ceType(e.row), false)
	case thePayload:
		switch {
		case p.isJSON(e.payload):
			return append(b, e.payload...)
		case p.table.Columns[p.payload].Kind == source.Bytes:
			return append(appendBase64(b, e.payload), `,"payloadEncoding":"base64"`...)
		}
		return appendString(b, e.payload, false)
	}
	v := &e.row.Values[column]
	kind := p.table.Columns[column].Kind
	switch {
	case v.State != source.Present:
		return append(b, "null"...)
	case kind == source.Bytes:
		return appendBase64(b, v.Data)
	case p.isRole(column):
	case kind == source.JSON, kind == source.Number && sound(v.Data):
		return append(b, v.Data...)
	case kind == source.Boolean:
		b, _ = connectType{as: asFlag}.appendPlain(b, v.Data)
		return b
	}
	return appendString(b, v.Data, false)
}

// isJSON reports whether the payload is taken as JSON: by its column, or
// because text is to be expanded and is whole JSON.
func (p *plan) isJSON(payload []byte) bool {
	switch p.table.Columns[p.payload].Kind {
	case source.JSON:
		return true
	case source.Text:
		return p.expands(payload)
	}
	return false
}

// expands reports whether the option asks for it and the payload is an object
// or an array, the two that Debezium expands.
func (p *plan) expands(payload []byte) bool {
	if !p.rules.cfg.ExpandJSON || !p.textual {
		return false
	}
	trimmed := bytes.TrimLeft(payload, " \t\r\n")
	return len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') && sound(payload)
}

// isRole reports whether a column holds one of the names, which are strings whatever their type.
func (p *plan) isRole(column int) bool {
	return column == p.id || column == p.aggregateID || column == p.aggregateType || column == p.eventType
}
