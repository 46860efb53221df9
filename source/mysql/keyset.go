package mysql

import (
	"strings"

	"github.com/outboxd/outboxd/internal/snapshot"
)

// rowsLeft is a condition on the table's rows: those that are left. The cursor's
// values are literals. Rows of expressions would say it shorter, but for them the server
// does not use an index.
func rowsLeft(c snapshot.Table, where string) string {
	by := snapshot.Parenthesized(c.Order)
	condition := bound(by, c.Through, " < ", " <= ")
	if c.After != nil {
		condition += " AND " + bound(by, c.After, " > ", " > ")
	}
	if where != "" {
		condition += " AND (" + where + "\n)" // it may end in a comment
	}
	return condition
}

// bound compares expressions with values, the first ones first. The last ones are compared by last.
func bound(by, values []string, before, last string) string {
	n := len(by) - 1
	text := by[n] + last + values[n]
	for i := n - 1; i >= 0; i-- {
		text = by[i] + before + values[i] + " OR (" + by[i] + " = " + values[i] + " AND (" + text + "))"
	}
	if n == 0 {
		return text
	}
	return by[0] + strings.TrimRight(before, " ") + "= " + values[0] + " AND (" + text + ")" // for the index
}
