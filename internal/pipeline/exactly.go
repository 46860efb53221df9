package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// errRefused ends a session whose transaction is void because of one event. The
// next one delivers what stands before it, and stops there.
var errRefused = errors.New("the transaction is void: one event of it was refused")

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
		messages, err := r.Route([]source.Row{row}, nil)
		if err != nil || idText(messages[0].ID) != r.skip.ID {
			return batch, r.strange("the last of these rows is another event")
		}
		r.skip = checkpoint.Done{}
	}
	batch.Rows = batch.Rows[n:]
	if at := batch.At; at != nil {
		batch.At = func(i int) source.Position { return at(n + i) }
	}
	return batch, nil
}

// idText is an event id as text, which a checkpoint can hold.
func idText(id []byte) string {
	if utf8.Valid(id) {
		return string(id)
	}
	return fmt.Sprintf("0x%x", id)
}

func (r *run) strange(found string) error {
	return fault.Position(fault.CodeDiverged,
		"undo what changed what the log gives (OUTBOXD_TABLES, the publication), or let a first start decide: outboxd checkpoint delete, and OUTBOXD_START", nil,
		"%d rows of transaction %s are delivered, but at that place %s", r.skip.Rows, r.skip.Tx, found)
}

// refusedBefore gives the index of the row that was refused in a transaction
// that is void now, or -1.
func (r *run) refusedBefore(rows []source.Row) int {
	if r.refused == nil {
		return -1
	}
	return slices.IndexFunc(rows, func(row source.Row) bool {
		return row.Index == r.refused.index && row.Tx.ID == r.refused.tx
	})
}

// mark remembers which row a transaction failed for, and makes the failure one
// that is tried again without it. The sink answers all it has with the same
// error, so the row is known for certain only when the sink is closed.
func (r *run) mark(rows []source.Row, messages []sink.Message, err error) error {
	var refusal *sink.Refusal
	if r.committer == nil || !errors.As(err, &refusal) || refusal.Message == nil {
		return err
	}
	for i := range messages {
		if &messages[i] == refusal.Message {
			r.mu.Lock()
			r.void = &refusedRow{rows[i].Tx.ID, rows[i].Index, err}
			r.mu.Unlock()
		}
	}
	return fmt.Errorf("%w: %s", errRefused, err.Error()) // the refusal itself would stop the run
}

// takeSent gives what was acknowledged since the last commit.
func (r *run) takeSent() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}
