package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// maxShownID is how much of an event id a message shows, in bytes.
const maxShownID = 64

// refuse says why row can't become a message; its id is told when there is one.
func (p *plan) refuse(row *source.Row, reason, detail, fix string) error {
	where := ""
	if id := bytesOf(&row.Values[p.id]); id != nil {
		where = fmt.Sprintf(", event %q", id[:min(len(id), maxShownID)])
	}
	err := refusal(row, where, reason, detail, fix)
	var refused *sink.Refusal
	if errors.As(err, &refused) {
		refused.ID = bytesOf(&row.Values[p.id])
	}
	return err
}

func refusal(row *source.Row, event, reason, detail, fix string) error {
	return fmt.Errorf("route row: %w", &sink.Refusal{
		Reason: reason,
		Detail: fmt.Sprintf("table %s%s (row %d of transaction %s): %s", row.Table, event, row.Index, row.Tx.ID, detail),
		Fix:    fix,
	})
}

func (p *plan) absent(row *source.Row, column int) error {
	return p.refuse(row, ReasonAbsentValue,
		fmt.Sprintf("the log does not carry column %q", p.column(column)),
		"A generated column, or one that is not published, is not in the log: publish it, or map its role to another column with OUTBOXD_COLUMN_….")
}

// nullKey says what was found instead of a key.
func (p *plan) nullKey(row *source.Row, instead string) error {
	fix := fmt.Sprintf("Set %s to null to send it without a key.", p.rules.variable("ON_NULL_KEY"))
	if p.key != p.id {
		fix = fmt.Sprintf("Set %s to id to key it by its event id, or to null to send it without a key.", p.rules.variable("ON_NULL_KEY"))
	}
	what := fmt.Sprintf("column %q, the key,", p.column(p.key))
	if p.member != nil {
		what = fmt.Sprintf("the key, %s of column %q,", p.member.text, p.column(p.key))
	}
	return p.refuse(row, ReasonNullKey, what+" is "+instead, fix)
}

func (p *plan) nullPayload(row *source.Row) error {
	return p.refuse(row, ReasonNullPayload, fmt.Sprintf("column %q, the payload, is NULL", p.column(p.payload)),
		fmt.Sprintf("Set %s to true to send a tombstone for it.", p.rules.variable("TOMBSTONE_ON_EMPTY")))
}

func (p *plan) unroutable(row *source.Row, column int) error {
	found := "is empty"
	if row.Values[column].State == source.Null {
		found = "is NULL"
	}
	return p.refuse(row, ReasonUnroutable, fmt.Sprintf("column %q, of topic %s, %s", p.column(column), p.template, found),
		fmt.Sprintf("Set %s to a template without that column.", p.rules.variable("TOPIC")))
}

func (p *plan) badTimestamp(row *source.Row) error {
	return p.refuse(row, ReasonBadTimestamp, fmt.Sprintf("column %q, the timestamp, holds %.40q, which is no point in time", p.column(p.timestamp), row.Values[p.timestamp].Data),
		fmt.Sprintf("Correct the row, or take the commit time instead: leave %s unset.", p.rules.variable("COLUMN_TIMESTAMP")))
}

// badValue says that a column's value has no form in the format that variable asks for.
func (p *plan) badValue(row *source.Row, column int, variable string) error {
	return p.refuse(row, ReasonBadValue, fmt.Sprintf("column %q, of type %s, holds a value that Kafka Connect has no form of", p.column(column), p.table.Columns[column].Type),
		fmt.Sprintf("Set %s to another format.", p.rules.variable(variable)))
}

// problems collects what is wrong with a mapping, so that all of it is told at once.
type problems []problem

type problem struct{ found, fix string }

func (b *problems) add(found, fix string) { *b = append(*b, problem{found, fix}) }

// fault makes one error of all problems, nil if there are none.
func (b problems) fault(code string) *fault.Error {
	if len(b) == 0 {
		return nil
	}
	var found, fix []string
	for _, p := range b {
		found = append(found, p.found)
		if !slices.Contains(fix, p.fix) {
			fix = append(fix, p.fix)
		}
	}
	return fault.Config(code, strings.Join(fix, " "), nil, "%s", strings.Join(found, "; "))
}
