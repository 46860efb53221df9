package postgres

import (
	"fmt"

	"github.com/outboxd/outboxd/internal/snapshot"
)

func tableOf(c snapshot.Table) TableName { return TableName{c.Schema, c.Name} }

// rowsLeft is a condition on the table's rows: those that are left.
func rowsLeft(c snapshot.Table, where string) string {
	condition := fmt.Sprintf("%s <= %s", row(c.Order), literals(c.Through))
	if c.After != nil {
		condition += fmt.Sprintf(" AND %s > %s", row(c.Order), literals(c.After))
	}
	if where != "" {
		condition += " AND (" + where + "\n)" // it may end in a comment
	}
	return condition
}
