package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

var (
	errLeaseLost = errors.New("the lease is lost or in doubt")
	// errOver is the cause that ends goroutine A when the session ends for
	// another reason; it is never that reason itself.
	errOver = errors.New("session over")
)

const (
	// leaveTime is how long goroutine A may take to leave the sink after that
	// failed or the lease is lost; it may wait there for a topic.
	leaveTime = 2 * time.Second
	// closeLimit bounds the end of a stream and of a failed sink.
	closeLimit = 3 * time.Second
)

// session is one life of a stream. reading ends when a stop is asked for, ctx
// when the drain is cut. moved reports whether anything was settled, which
// resets the back-off.
func (e *Engine) session(ctx, reading context.Context) (moved bool, err error) {
	if e.Status().State != Standby {
		e.enter(Starting, e.Status().Err)
	}
	if err := e.prepare(reading); err != nil {
		return false, err
	}
	if e.from != e.last.Position { // I2, I4: what is settled is saved before the server is told by Open
		if err := e.save(reading, e.from); err != nil {
			return false, inPart("checkpoint", err)
		}
	}
	stream, err := e.Source.Open(reading, e.from)
	if err != nil {
		return false, inPart("source", fmt.Errorf("open stream: %w", err))
	}
	r := e.newRun(stream)
	e.activate(r)
	began, done := e.from, e.done
	err = r.run(ctx, reading)
	p := r.tracker.progress()
	e.from, e.done = p.pos, p.inside
	if e.Transactions != nil { // what is acknowledged and not committed is void, or soon will be
		e.from, e.done = e.last.Position, e.last.Done
	}
	if r.void != nil { // no lock: the sink is closed
		e.remember(r.void)
	}
	if r.stopped != nil && fault.Is(err, fault.CodeEventRefused) {
		e.saveRefused(ctx, r.stopped)
	}
	return e.from != began || e.done != done, err
}

func (e *Engine) newRun(stream source.Stream) *run {
	r := &run{Engine: e, stream: stream, sink: e.sink}
	l := limits{events: e.BufferEvents, bytes: e.BufferBytes, unsaved: e.CheckpointMaxEvents}
	if e.Transactions != nil {
		r.committer = e.sink.(sink.Committer) // openSink has looked
		l.inside, l.unsaved = true, math.MaxInt
	}
	r.skip = e.done
	r.tracker = newTracker(l, e.from, r.skip)
	return r
}

func (e *Engine) activate(r *run) {
	e.mu.Lock()
	e.tracker, e.stream = r.tracker, r.stream
	e.waiter, _ = r.sink.(sink.Waiter)
	e.status.Sessions++
	e.status.CaughtUp = false
	e.status.LastRead = time.Now()
	e.mu.Unlock()
	e.enter(Active, nil)
	e.started = true
	e.Log.Info("active", zap.String("position", string(e.from)))
}

// run is the state of one session while its stream is open.
type run struct {
	*Engine
	stream    source.Stream
	sink      sink.Sink
	tracker   *tracker
	committer sink.Committer  // exactly-once only
	skip      checkpoint.Done // rows that come first and are delivered

	mu   sync.Mutex
	sent []delivery  // exactly-once: acknowledged and not committed
	void *refusedRow // what the sink refused after it was sent

	stopped *checkpoint.Refused // what goroutine A stopped at
}

// delivery is what one acknowledged batch adds to the counters. It keeps no
// message: their memory is given back already.
type delivery struct {
	runs   []stretch
	oldest time.Time // commit time of its first row
}

// stretch is a number of messages in a row with one table and topic.
type stretch struct {
	table, topic string
	n            int
}

// run moves batches until the stream ends, something fails, or a stop is asked
// for; then it settles, saves, confirms and closes, in that order (I4, I7).
func (r *run) run(ctx, reading context.Context) error {
	readCtx, stopReading := context.WithCancelCause(reading)
	defer stopReading(nil)
	// Publishing goes on while a stop drains; it ends with the session only.
	pubCtx, stopPublishing := context.WithCancelCause(ctx)
	defer stopPublishing(nil)

	forward := make(chan error, 1)
	go func() { forward <- r.forward(readCtx, pubCtx) }()

	b := backward{run: r, saver: saver{run: r}, forward: forward, stopReading: stopReading, stopPublishing: stopPublishing}
	end := b.loop(ctx, reading)

	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := r.stream.Close(closing); err != nil {
		r.Log.Debug("close stream", zap.Error(err))
	}
	return end
}

// forward is goroutine A: Next, Route, add, Publish.
func (r *run) forward(read, publish context.Context) error {
	judge, _ := r.sink.(sink.Judge)
	for {
		batch, err := r.stream.Next(read)
		if err != nil {
			if read.Err() != nil {
				return context.Cause(read)
			}
			return inPart("source", fmt.Errorf("read: %w", err))
		}
		if batch, err = r.rest(batch); err != nil {
			return err
		}
		if err := r.take(read, publish, judge, batch); err != nil {
			return err
		}
	}
}

// send hands messages, one per row, to the sink. pos is the resume point behind them, or "".
func (r *run) send(read, publish context.Context, rows []source.Row, messages []sink.Message, pos source.Position, urgent bool) error {
	t := &ticket{pos: pos, rows: len(messages), messages: messages, urgent: urgent}
	for i := range messages {
		t.bytes += int64(messages[i].Size())
	}
	if len(messages) > 0 {
		last := rows[len(messages)-1]
		t.oldest, t.newest = rows[0].Tx.CommitAt, last.Tx.CommitAt
		t.inside = insideOf(last, messages[len(messages)-1].ID)
	}
	if t.rows == 0 && t.pos == "" {
		return nil
	}
	if err := r.tracker.add(read, t); err != nil {
		return err
	}
	if t.rows == 0 {
		return nil
	}
	r.update(func(s *Status) { s.EventsRead += uint64(len(messages)) })
	if !r.lease.Valid() {
		r.tracker.settle(t, errLeaseLost)
		return errLeaseLost
	}
	r.sink.Publish(publish, messages, func(err error) { r.settle(t, rows, messages, err) })
	return nil
}

// insideOf is the place behind a row in its transaction. Without an id nothing
// proves later that the row is the same.
func insideOf(row source.Row, id []byte) checkpoint.Done {
	if row.Tx.Loose {
		return checkpoint.Done{}
	}
	return checkpoint.Done{Tx: row.Tx.ID, Rows: row.Index + 1, ID: idText(id)}
}

// settle is called by the sink, once per ticket.
func (r *run) settle(t *ticket, rows []source.Row, messages []sink.Message, err error) {
	d := delivery{oldest: t.oldest}
	if err == nil {
		d.runs = runsOf(messages)
	}
	switch {
	case err != nil:
		err = r.mark(rows, messages, err)
	case r.committer == nil:
		r.delivered(d)
	default: // nobody can read it before it is committed
		r.mu.Lock()
		r.sent = append(r.sent, d)
		r.mu.Unlock()
	}
	r.tracker.settle(t, err)
}

// delivered counts batches that readers can see.
func (r *run) delivered(all ...delivery) {
	now, n := time.Now(), 0
	for _, d := range all {
		for _, x := range d.runs {
			n += x.n
			if r.Hooks.Delivered != nil {
				r.Hooks.Delivered(x.table, x.topic, x.n)
			}
		}
		if r.Hooks.Latency != nil {
			r.Hooks.Latency(now.Sub(d.oldest))
		}
	}
	r.update(func(s *Status) {
		s.EventsDelivered += uint64(n)
		s.LastDelivered = now
	})
}

// runsOf counts messages by stretches.
func runsOf(messages []sink.Message) (runs []stretch) {
	for i := 0; i < len(messages); {
		j := i + 1
		for j < len(messages) && messages[j].Topic == messages[i].Topic && messages[j].Table == messages[i].Table {
			j++
		}
		runs = append(runs, stretch{messages[i].Table, messages[i].Topic, j - i})
		i = j
	}
	return runs
}
