package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// errRefused ends a session in which the sink refused an event that was sent. The
// next one sends what stands before it and is not settled, and decides about it;
// nothing behind it is sent before that.
var errRefused = errors.New("an event was refused after it was sent")

// refusedRow is an event that was refused after it was sent: by the sink, and why,
// or, with err nil, when an earlier process stopped at it.
type refusedRow struct {
	checkpoint.Refused
	err error
}

// verdict lets a row that an earlier process stopped at be tried again, alone:
// the cause may be gone.
func (w *refusedRow) verdict() *verdict {
	return &verdict{refused: w.err, skip: w.Skip, why: w.Why}
}

// remember keeps w until the process ends, for the place may be passed more than once.
func (e *Engine) remember(w *refusedRow) {
	if e.refused == nil || len(e.refused) >= maxRefused { // one that is forgotten is refused once more
		e.refused = map[string]map[uint32]*refusedRow{}
	}
	if e.refused[w.Tx] == nil {
		e.refused[w.Tx] = map[uint32]*refusedRow{}
	}
	e.refused[w.Tx][w.Row] = w
}

const maxRefused = 10000 // transactions with such rows

// mark remembers which row was refused, and makes the failure one that is tried
// again with that row decided about. The sink answers all it has with the same error,
// so the row is known for certain only when the sink is closed.
func (r *run) mark(rows []source.Row, messages []sink.Message, err error) error {
	refusal := refusalOf(err)
	if refusal == nil || refusal.Message == nil {
		return err
	}
	for i := range messages {
		if &messages[i] == refusal.Message {
			r.mu.Lock()
			r.void = &refusedRow{refusedAt(rows[i], refusal.Message, refusal), err}
			r.mu.Unlock()
		}
	}
	return fmt.Errorf("%w: %s", errRefused, err.Error()) // the refusal itself would stop the run
}

// refusedAt names a row as the checkpoint does. m is nil when it has no message.
func refusedAt(row source.Row, m *sink.Message, refusal *sink.Refusal) checkpoint.Refused {
	w := checkpoint.Refused{Tx: strings.ToValidUTF8(row.Tx.ID, "?"), Row: row.Index, Table: strings.ToValidUTF8(row.Table.String(), "?")}
	if m != nil {
		w.ID = idText(m.ID)
	}
	if refusal != nil {
		w.Reason = refusal.Reason
		if w.ID == "" {
			w.ID = idText(refusal.ID)
		}
	}
	return w
}

func fieldsOf(w checkpoint.Refused) []zap.Field {
	return []zap.Field{zap.String("table", w.Table), zap.String("id", w.ID), zap.String("transaction", w.Tx), zap.Uint32("row", w.Row), zap.String("reason", w.Reason)}
}

// idText is an event id as text, which a checkpoint can hold.
func idText(id []byte) string {
	if utf8.Valid(id) {
		return string(id)
	}
	return fmt.Sprintf("0x%x", id)
}

// refuse turns a refusal into the fault that stops the run; other errors pass.
func (r *run) refuse(err error) error {
	refusal := refusalOf(err)
	if refusal == nil {
		return err
	}
	if r.Hooks.Rejected != nil {
		r.Hooks.Rejected(refusal.Reason)
	}
	return fault.Refused(refusal.Fix, err, "an event can't be published and OUTBOXD_ON_REJECT is stop")
}

// saveRefused stores the place that the run stops at, with the rows before it that are
// delivered: a start against it sends none of them again.
func (e *Engine) saveRefused(ctx context.Context, place *checkpoint.Refused) {
	c := checkpoint.Checkpoint{Name: e.Name, Position: e.from, Done: e.done, Refused: place, SavedAt: time.Now().UTC()}
	if !e.lease.Valid() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveLimit)
	defer cancel()
	if err := e.keep(ctx, c); err != nil {
		e.Log.Warn("the refused place was not saved: the next start may repeat what stands before it in its transaction", zap.Error(err))
		return
	}
	e.note(c)
}

// keep makes c durable, in a transaction of its own where they are used.
func (e *Engine) keep(ctx context.Context, c checkpoint.Checkpoint) error {
	if e.Transactions == nil {
		return e.store(ctx, c)
	}
	if e.sink == nil {
		return errors.New("the sink is closed")
	}
	return e.sink.(sink.Committer).Commit(ctx, func() sink.Message { return e.Transactions.Record(c) })
}
