package pipeline

import (
	"fmt"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// rest drops the rows at the head of the stream that are delivered. They must be
// what the checkpoint says they were.
func (r *run) rest(batch source.Batch) (source.Batch, error) {
	if r.skip == (checkpoint.Done{}) {
		return batch, nil
	}
	if len(batch.Rows) == 0 { // a place before that transaction would bury what is known of it
		batch.Position = ""
		return batch, nil
	}
	n := 0
	for n < len(batch.Rows) && r.skip != (checkpoint.Done{}) {
		row := batch.Rows[n]
		if row.Tx.ID != r.skip.Tx || row.Index >= r.skip.Rows {
			return batch, r.strange(fmt.Sprintf("row %d of transaction %s comes first", row.Index, row.Tx.ID))
		}
		n++
		if row.Index+1 < r.skip.Rows {
			continue
		}
		if r.skip.ID != "" { // else it was one without a message
			messages, err := r.Route([]source.Row{row}, nil)
			if err != nil || idText(messages[0].ID) != r.skip.ID {
				return batch, r.strange("the last of these rows is another event")
			}
		}
		r.skip = checkpoint.Done{}
	}
	return behind(batch, n), nil
}

func (r *run) strange(found string) error {
	return fault.Position(fault.CodeDiverged,
		"undo what changed what the log gives (OUTBOXD_TABLES, the publication), or let a first start decide: outboxd checkpoint delete, and OUTBOXD_START", nil,
		"%d rows of transaction %s are delivered, but at that place %s", r.skip.Rows, r.skip.Tx, found)
}

// takeSent gives what was acknowledged since the last commit.
func (r *run) takeSent() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}
