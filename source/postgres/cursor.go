package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// cursor is where a first snapshot stands, as a place holds it: what is left
// to be read before the log is followed from the place's LSN. It is written with each
// saved place, so that another process can go on; the settings the snapshot began
// with are in it, so that a change of the environment can't move the border
// between what was read and what was not.
type cursor struct {
	At     time.Time     `json:"at"` // when it was taken; stands for the commit time of its rows
	Where  string        `json:"where,omitempty"`
	Done   int64         `json:"done"`   // rows that were read
	Tables []tableCursor `json:"tables"` // that are not read to their end, in order; the first is under way
}

// tableCursor is what is left of one table: the rows behind After, up to Through.
type tableCursor struct {
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	Order   []string `json:"order"`           // SQL expressions, ascending, never NULL
	After   []string `json:"after,omitempty"` // their values in the last row that was read
	Through []string `json:"through"`         // their values in the last row there was when the slot was made
}

func (c tableCursor) table() TableName { return TableName{c.Schema, c.Name} }

// behind is the cursor with n more rows of the first table read, up to key.
func (c *cursor) behind(key []string, n int64) *cursor {
	next := *c
	next.Done += n
	next.Tables = slices.Clone(c.Tables)
	next.Tables[0].After = key
	return &next
}

// next is the cursor with n more rows read and the first table done; nil when nothing is left.
func (c *cursor) next(n int64) *cursor {
	if len(c.Tables) == 1 {
		return nil
	}
	next := *c
	next.Done += n
	next.Tables = c.Tables[1:]
	return &next
}

func (c *cursor) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("print cursor: %v", err)) // strings, numbers and a time: cannot be
	}
	return string(b)
}

func parseCursor(text string) (*cursor, error) {
	var c cursor
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if len(c.Tables) == 0 || c.At.IsZero() {
		return nil, fmt.Errorf("snapshot: a field is missing")
	}
	for _, t := range c.Tables {
		if t.Name == "" || len(t.Order) == 0 || len(t.Through) != len(t.Order) || (t.After != nil && len(t.After) != len(t.Order)) {
			return nil, fmt.Errorf("snapshot: the cursor of table %q does not fit its order", t.Name)
		}
	}
	return &c, nil
}

// rows is a condition on the table's rows: those that are left.
func (c tableCursor) rows(where string) string {
	condition := fmt.Sprintf("%s <= %s", row(c.Order), literals(c.Through))
	if c.After != nil {
		condition += fmt.Sprintf(" AND %s > %s", row(c.Order), literals(c.After))
	}
	if where != "" {
		condition += " AND (" + where + "\n)" // it may end in a comment
	}
	return condition
}
