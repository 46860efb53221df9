package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// OnReject is what happens with an event that can't be published.
type OnReject string

// The values of OUTBOXD_ON_REJECT. The zero value is Stop.
const (
	Stop       OnReject = "stop"        // the run ends in front of it
	DeadLetter OnReject = "dead-letter" // it is parked, and later events of its key behind it
	Skip       OnReject = "skip"        // it is left out, counted and logged
)

// verdict is why a row can't just be sent with those around it.
type verdict struct {
	refused error // why it can't be published; nil: send it alone, and nothing behind it before its answer
	skip    bool  // somebody decided to leave it out
	why     string
}

// take hands one batch to the sink. A row that can't go as it is divides it: what
// stands before is sent first, and nothing behind it before it is decided about (I5).
func (r *run) take(read, publish context.Context, judge sink.Judge, batch source.Batch) error {
	all := batch
	for {
		messages, unroutable := r.Route(batch.Rows, make([]sink.Message, 0, len(batch.Rows)))
		from := 0
		for {
			n, v := r.look(judge, batch.Rows, messages, unroutable, from)
			if err := r.sendUntil(read, publish, batch, messages, from, n, v == nil); err != nil {
				return err
			}
			if v == nil {
				r.took(all)
				return nil
			}
			var m *sink.Message // of the row, unless it has none
			if n < len(messages) {
				m = &messages[n]
			}
			if err := r.decide(read, publish, v, batch, n, m); err != nil {
				return err
			}
			from = n + 1
			if n >= len(messages) { // what stands behind it was not routed yet
				break
			}
		}
		batch = behind(batch, from)
	}
}

// behind gives what is left of a batch behind its first n rows.
func behind(batch source.Batch, n int) source.Batch {
	batch.Rows = batch.Rows[n:]
	if at := batch.At; at != nil {
		batch.At = func(i int) source.Position { return at(n + i) }
	}
	return batch
}

// took notes in the status that a batch was read and handed over.
func (r *run) took(batch source.Batch) {
	r.update(func(s *Status) {
		s.LastRead = time.Now()
		if s.CaughtUp && !batch.CaughtUp {
			s.CaughtUpAt = s.LastRead
		}
		s.CaughtUp = batch.CaughtUp
		if batch.Position != "" {
			s.Read = batch.Position
		}
	})
}

// look finds the first row, beginning with from, that can't just be sent, and why;
// without one it gives the number of rows and nil.
func (r *run) look(judge sink.Judge, rows []source.Row, messages []sink.Message, unroutable error, from int) (int, *verdict) {
	var tx *source.Tx
	var known map[uint32]*refusedRow
	isolator, _ := judge.(sink.Isolator)
	for i := from; i < len(rows) && i <= len(messages); i++ {
		if rows[i].Tx != tx && len(r.refused) > 0 {
			tx = rows[i].Tx
			known = r.refused[tx.ID]
		}
		if before := known[rows[i].Index]; before != nil {
			if v := before.verdict(); i < len(messages) || v.skip {
				return i, v
			}
		}
		if i == len(messages) {
			return i, &verdict{refused: unroutable}
		}
		if judge != nil {
			if refusal := judge.Judge(&messages[i]); refusal != nil {
				m := &messages[i]
				return i, &verdict{refused: fmt.Errorf("event %q of %s, row %d of transaction %s: %w", m.ID, m.Table, rows[i].Index, rows[i].Tx.ID, refusal)}
			}
		}
		if isolator != nil && isolator.Isolate(&messages[i]) {
			return i, &verdict{}
		}
	}
	return len(rows), nil
}

// sendUntil sends the rows from one to before another. The last of a batch take its place with them.
func (r *run) sendUntil(read, publish context.Context, batch source.Batch, messages []sink.Message, from, n int, last bool) error {
	if last {
		return r.send(read, publish, batch.Rows[from:], messages[from:], batch.Position, batch.Urgent)
	}
	if n == from {
		return nil
	}
	// I3: the transaction of row n is not complete without it, but those before it
	// are, and must not come again at each start.
	whole, at := wholeTransactions(batch, from, n)
	if err := r.send(read, publish, batch.Rows[from:whole], messages[from:whole], at, false); err != nil {
		return err
	}
	return r.send(read, publish, batch.Rows[whole:n], messages[whole:n], "", false)
}

// wholeTransactions gives the end of the rows before the n-th that are of
// complete transactions, and the resume point there.
func wholeTransactions(batch source.Batch, from, n int) (int, source.Position) {
	cut := batch.Rows[n].Tx
	for n > from && batch.Rows[n-1].Tx == cut {
		n--
	}
	if at := placeBehind(batch, n); at != "" {
		return n, at
	}
	return from, ""
}

// placeBehind gives the resume point behind the first n rows, or "" when there is none.
func placeBehind(batch source.Batch, n int) source.Position {
	switch {
	case n == len(batch.Rows):
		return batch.Position
	case batch.At == nil || n == 0:
		return ""
	}
	return batch.At(n)
}

// decide acts on row n of a batch, which can't go as it is. What stands before it is
// with the sink.
func (r *run) decide(read, publish context.Context, v *verdict, batch source.Batch, n int, m *sink.Message) error {
	row, at := batch.Rows[n:n+1], placeBehind(batch, n+1)
	if v.refused == nil && !v.skip {
		return r.sendAlone(read, publish, row, m, at)
	}
	refusal := refusalOf(v.refused)
	if m == nil && refusal != nil {
		m = refusal.Message
	}
	place := refusedAt(row[0], m, refusal)
	switch {
	case v.skip:
		r.Log.Warn("an event is left out by decision", append(fieldsOf(place), zap.String("decision", v.why))...)
	case r.OnReject == Skip:
		r.Log.Warn("an event can't be published and is left out: OUTBOXD_ON_REJECT is skip", append(fieldsOf(place), zap.Error(v.refused))...)
	default:
		r.stopped = &place
		return r.refuse(v.refused)
	}
	if r.Hooks.Rejected != nil {
		r.Hooks.Rejected(place.Reason)
	}
	return r.pass(read, row[0], at)
}

// pass moves the place past a row that nothing is sent for.
func (r *run) pass(read context.Context, row source.Row, at source.Position) error {
	t := &ticket{pos: at, inside: insideOf(row, nil), rows: 1, oldest: row.Tx.CommitAt, newest: row.Tx.CommitAt}
	if err := r.tracker.add(read, t); err != nil {
		return err
	}
	r.tracker.settle(t, nil)
	return nil
}

// sendAlone sends a row when everything before it is settled, and returns when it
// is: should it be refused, nothing else was in doubt with it.
func (r *run) sendAlone(read, publish context.Context, row []source.Row, m *sink.Message, at source.Position) error {
	if err := r.tracker.idle(read); err != nil {
		return err
	}
	if err := r.send(read, publish, row, []sink.Message{*m}, at, false); err != nil {
		return err
	}
	return r.tracker.idle(read)
}

func refusalOf(err error) *sink.Refusal {
	var refusal *sink.Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return nil
}
