package transform

import (
	"fmt"
	"slices"
	"strings"
)

// Header is one entry of the header list.
type Header struct {
	Name  string // what it carries: id, eventType or aggregateType
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
	seen := map[string]bool{}
	for _, h := range list {
		switch h.Name {
		case "id", "eventType", "aggregateType":
		case "position", "source", "debezium-context":
			return fmt.Errorf("header %q is not there yet", h.Name)
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
	name   string
	column int
}

// bindHeaders binds the list to the plan's table. A role without a column is
// left out of the default list, and a problem when it was asked for.
func (r *Router) bindHeaders(p *plan, bad *problems) {
	list := r.headers
	if list == nil {
		list = defaultHeaders()
	}
	for _, h := range list {
		column, of := p.id, r.cfg.Columns.id()
		switch h.Name {
		case "eventType":
			column, of = p.eventType, r.cfg.Columns.eventType()
		case "aggregateType":
			column, of = p.aggregateType, r.cfg.Columns.aggregateType()
		}
		switch {
		case column >= 0:
			p.headers = append(p.headers, bound{h.sentAs(), column})
		case r.headers != nil:
			bad.add(fmt.Sprintf("table %s has no column for the header %s (%s); its columns are %s",
				p.name, h.Name, strings.Join(of.usual, ", "), columns(p.table)),
				fmt.Sprintf("Set %s to one of them, or leave %s out of OUTBOXD_HEADERS.", of.variable, h.Name))
		}
	}
}
