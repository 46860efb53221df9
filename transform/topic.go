package transform

import (
	"errors"
	"fmt"
	"strings"
)

const defaultTopic = "outbox.event.{aggregate_type}"

// template is a parsed topic template.
type template []part

// part is a literal, or a placeholder such as aggregate_type or column:tenant.
type part struct {
	literal     string
	placeholder string
}

func (t template) String() string {
	var b strings.Builder
	for _, p := range t {
		if p.placeholder != "" {
			b.WriteString("{" + p.placeholder + "}")
		} else {
			b.WriteString(p.literal)
		}
	}
	return b.String()
}

// parseTemplate reads a topic template. Literals hold only what a Kafka topic
// name may hold.
func parseTemplate(s string) (template, error) {
	if s == "" {
		return nil, errors.New("is empty")
	}
	var t template
	for s != "" {
		if s[0] != '{' {
			n := strings.IndexByte(s, '{')
			if n < 0 {
				n = len(s)
			}
			if i := strings.IndexFunc(s[:n], notInTopic); i >= 0 {
				return nil, fmt.Errorf("%q cannot be part of a topic name", firstRune(s[i:]))
			}
			t, s = append(t, part{literal: s[:n]}), s[n:]
			continue
		}
		name, rest, closed := strings.Cut(s[1:], "}")
		if !closed {
			return nil, errors.New("a { is not closed")
		}
		if !known(name) {
			return nil, fmt.Errorf("unknown placeholder {%s}", name)
		}
		t, s = append(t, part{placeholder: name}), rest
	}
	return t, nil
}

func known(placeholder string) bool {
	switch placeholder {
	case "aggregate_type", "event_type", "schema", "table":
		return true
	}
	name, ok := strings.CutPrefix(placeholder, "column:")
	return ok && name != ""
}

func notInTopic(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return false
	}
	return true
}

func firstRune(s string) string {
	for i := range s {
		if i > 0 {
			return s[:i]
		}
	}
	return s
}

// piece is a part bound to a table: text, or the index of a column.
type piece struct {
	text   string
	column int
}

// bindTopic binds the template to the plan's table, or the column that is rewritten.
func (r *rules) bindTopic(p *plan, bad *problems) {
	if r.rewrite != nil {
		r.bindRoute(p, bad)
		return
	}
	t := r.topic
	if t == nil {
		t = template{{literal: "outbox.event."}, {placeholder: "aggregate_type"}}
		if p.aggregateType < 0 {
			t[1].placeholder = "table"
		}
	}
	p.template = t.String()
	for _, part := range t {
		b := r.bind(p, part, bad)
		if last := len(p.topic) - 1; b.column < 0 && last >= 0 && p.topic[last].column < 0 {
			p.topic[last].text += b.text
		} else {
			p.topic = append(p.topic, b)
		}
	}
	if len(p.topic) == 1 && p.topic[0].column < 0 {
		p.fixed = p.topic[0].text
	}
}

func (r *rules) bindRoute(p *plan, bad *problems) {
	p.template = r.rewrite.text
	if p.routeBy = p.aggregateType; r.rewrite.by != "" {
		p.routeBy = find(p.table, r.named("route", "TOPIC_ROUTE_BY", r.rewrite.by), bad)
		return
	}
	if p.routeBy < 0 {
		bad.add(fmt.Sprintf("table %s has no aggregate type column that could be rewritten into the topic; its columns are %s", p.name, columns(p.table)),
			fmt.Sprintf("Set %s to one of them.", r.variable("TOPIC_ROUTE_BY")))
	}
}

// bind binds one part. A part without a column or a text here is a problem.
func (r *rules) bind(p *plan, part part, bad *problems) piece {
	b := piece{text: part.literal, column: none}
	topic := r.variable("TOPIC")
	fix := "Use another placeholder in " + topic + "."
	role := func(column int, variable string) {
		b.column = column
		fix = fmt.Sprintf("Set %s to one of them, or use another placeholder in %s.", r.variable(variable), topic)
	}
	switch name := part.placeholder; name {
	case "":
		return b
	case "schema":
		b.text = p.table.Schema
	case "table":
		b.text = p.table.Name
	case "aggregate_type":
		role(p.aggregateType, "COLUMN_AGGREGATE_TYPE")
	case "event_type":
		role(p.eventType, "COLUMN_EVENT_TYPE")
	default:
		b.column = p.table.Column(strings.TrimPrefix(name, "column:"))
	}
	if b.column < 0 && b.text == "" {
		bad.add(fmt.Sprintf("table %s has nothing for {%s} of the topic %s; its columns are %s", p.name, part.placeholder, p.template, columns(p.table)), fix)
	}
	return b
}
