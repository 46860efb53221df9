package transform

import (
	"fmt"
	"strings"
)

// header is one header of the list: what it carries and the name it is sent under.
type header struct {
	field string // id, eventType or aggregateType
	name  string
}

// bound is a header bound to a table.
type bound struct {
	name   string
	column int
}

// parseHeaders reads NAME or NAME:ALIAS entries.
func parseHeaders(list []string) ([]header, error) {
	seen := map[string]bool{}
	headers := make([]header, 0, len(list))
	for _, entry := range list {
		field, name, renamed := strings.Cut(strings.TrimSpace(entry), ":")
		if !renamed {
			name = field
		}
		switch field {
		case "id", "eventType", "aggregateType":
		case "position", "source", "debezium-context":
			return nil, fmt.Errorf("header %q is not there yet", field)
		default:
			return nil, fmt.Errorf("header %q is not known", field)
		}
		if name == "" {
			return nil, fmt.Errorf("header %q is renamed to nothing", field)
		}
		if seen[name] {
			return nil, fmt.Errorf("two headers are called %q", name)
		}
		seen[name] = true
		headers = append(headers, header{field, name})
	}
	return headers, nil
}

// bindHeaders binds the list to the plan's table. A role without a column is
// left out of the default list, and a problem when it was asked for.
func (r *Router) bindHeaders(p *plan, bad *problems) {
	list := r.headers
	if list == nil {
		list = []header{{"id", "id"}, {"eventType", "eventType"}, {"aggregateType", "aggregateType"}}
	}
	for _, h := range list {
		column, of := p.id, r.cfg.Columns.id()
		switch h.field {
		case "eventType":
			column, of = p.eventType, r.cfg.Columns.eventType()
		case "aggregateType":
			column, of = p.aggregateType, r.cfg.Columns.aggregateType()
		}
		switch {
		case column >= 0:
			p.headers = append(p.headers, bound{h.name, column})
		case r.headers != nil:
			bad.add(fmt.Sprintf("table %s has no column for the header %s (%s); its columns are %s",
				p.name, h.field, strings.Join(of.usual, ", "), columns(p.table)),
				fmt.Sprintf("Set %s to one of them, or leave %s out of OUTBOXD_HEADERS.", of.variable, h.field))
		}
	}
}
