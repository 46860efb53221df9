package transform

import (
	"encoding/base64"
	"net/url"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// ceSource is the CloudEvents source: a URI reference of connector and table.
func (r *rules) ceSource(p *plan) string {
	return "/" + url.PathEscape(r.cfg.Name) + "/" + url.PathEscape(p.name)
}

// ceType is the event type, else the aggregate type, else the table's name: CloudEvents demands one.
func (p *plan) ceType(row *source.Row) []byte {
	for _, c := range []int{p.eventType, p.aggregateType} {
		if c >= 0 && len(row.Values[c].Data) > 0 {
			return row.Values[c].Data
		}
	}
	return p.tableName
}

// contentType tells what the payload is.
func (p *plan) contentType(payload []byte) string {
	switch {
	case p.isJSON(payload):
		return "application/json"
	case p.table.Columns[p.payload].Kind == source.Bytes:
		return "application/octet-stream"
	}
	return "text/plain"
}

// The fixed values of CloudEvents headers.
var (
	ceVersion     = []byte("1.0")
	ceStructured  = []byte("application/cloudevents+json; charset=UTF-8")
	contentJSON   = []byte("application/json")
	contentText   = []byte("text/plain")
	contentBinary = []byte("application/octet-stream")
)

// cloudEvent appends the headers of CloudEvents' binary mode, or the one of its structured mode.
func (r *Router) cloudEvent(e *event) {
	p := r.plan
	add := func(name string, value []byte) { r.headers = append(r.headers, sink.Header{Name: name, Value: value}) }
	if p.format == FormatCloudEventsJSON {
		add("content-type", ceStructured)
		return
	}
	add("ce_specversion", ceVersion)
	add("ce_id", r.printable(p.id, e.row.Values[p.id].Data))
	add("ce_source", p.ceSource)
	add("ce_type", p.ceType(e.row))
	if c := p.aggregateID; c >= 0 && e.row.Values[c].State == source.Present {
		add("ce_subject", r.printable(c, e.row.Values[c].Data))
	} else if p.member != nil && e.key != nil {
		add("ce_subject", e.key)
	}
	from := len(r.arena.b)
	r.arena.b = e.at.UTC().AppendFormat(r.arena.b, timeLayout)
	add("ce_time", r.arena.since(from))
	if e.key != nil {
		add("ce_partitionkey", r.printable(p.key, e.key))
	}
	if e.payload == nil {
		return
	}
	content := contentText
	switch p.contentType(e.payload) {
	case "application/json":
		content = contentJSON
	case "application/octet-stream":
		content = contentBinary
	}
	add("content-type", content)
}

// printable gives a column's value as text: bytes in base64.
func (r *Router) printable(column int, value []byte) []byte {
	if r.plan.table.Columns[column].Kind != source.Bytes {
		return value
	}
	from := len(r.arena.b)
	r.arena.b = base64.StdEncoding.AppendEncode(r.arena.b, value)
	return r.arena.since(from)
}

// data appends subject, key, type and data of the structured mode.
func (r *Router) data(b []byte, e *event) []byte {
	p := r.plan
	text := func(lead string, column int, value []byte) {
		b = append(b, lead...)
		if p.table.Columns[column].Kind == source.Bytes {
			b = appendBase64(b, value)
		} else {
			b = appendString(b, value, false)
		}
	}
	if c := p.aggregateID; c >= 0 && e.row.Values[c].State == source.Present {
		text(`,"subject":`, c, e.row.Values[c].Data)
	} else if p.member != nil && e.key != nil {
		text(`,"subject":`, p.key, e.key)
	}
	if e.key != nil {
		text(`,"partitionkey":`, p.key, e.key)
	}
	b = append(append(append(b, `,"datacontenttype":"`...), p.contentType(e.payload)...), '"')
	switch {
	case p.isJSON(e.payload):
		return append(append(b, `,"data":`...), e.payload...)
	case p.table.Columns[p.payload].Kind == source.Bytes:
		return appendBase64(append(b, `,"data_base64":`...), e.payload)
	}
	return appendString(append(b, `,"data":`...), e.payload, false)
}
