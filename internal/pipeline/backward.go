package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
)

// backward is goroutine B of a session: it waits for acknowledgements, saves
// and confirms the settled prefix, and decides when the session is over.
type backward struct {
	*run
	forward        <-chan error // the result of goroutine A
	stopReading    context.CancelCauseFunc
	stopPublishing context.CancelCauseFunc

	end      error            // why the session ends, once it does
	readOver bool             // goroutine A has returned
	cut      <-chan time.Time // when what is in flight is given up

	tried   time.Time // last attempt to save
	failing bool      // that attempt failed
	halted  bool      // the sink sends nothing any more
}

// loop returns why the session ended: nil after a stop that left nothing behind.
func (b *backward) loop(ctx, reading context.Context) error {
	tick := time.NewTimer(b.CheckpointInterval)
	defer tick.Stop()
	stopping, lost := reading.Done(), b.lease.Done()
	for {
		p := b.tracker.progress()
		b.judge(p)
		stopped := reading.Err() != nil
		b.save(ctx, p, b.readOver && p.open == 0)
		p = b.tracker.progress()
		if b.readOver && (b.sinkFailed(p) || (p.open == 0 && (!p.moved || !stopped))) {
			return b.finish(ctx, reading)
		}
		b.arm(tick, p)
		select {
		case err := <-b.forward:
			b.readOver = true
			if !errors.Is(err, errOver) && !errors.Is(err, errStop) {
				b.fail(err)
			}
		case <-b.tracker.changed:
		case <-tick.C:
		case <-stopping:
			stopping = nil
			b.enter(Draining, nil)
			b.cut = time.After(b.DrainTimeout)
		case <-lost:
			lost = nil
			b.loseLease()
		case <-b.cut:
			return b.finish(ctx, reading)
		case <-ctx.Done():
			return b.finish(ctx, reading)
		}
	}
}

// fail records the first reason and stops reading.
func (b *backward) fail(err error) {
	if b.end == nil {
		b.end = err
	}
	b.stopReading(errOver)
}

// judge reacts to a ticket that failed.
func (b *backward) judge(p progress) {
	switch {
	case b.sinkFailed(p):
		b.fail(inPart("sink", b.refuse(p.err)))
		b.stopPublishing(errOver)
	case p.err != nil:
		b.loseLease()
	}
}

// sinkFailed tells the sink's failure, which finishes it, from a ticket we held back ourselves.
func (b *backward) sinkFailed(p progress) bool {
	return p.err != nil && !errors.Is(p.err, errLeaseLost)
}

// loseLease stops sending. Answers to what is on the wire still count (I9).
func (b *backward) loseLease() {
	b.fail(inPart("lease", errLeaseLost))
	if h, ok := b.sink.(sink.Halter); ok {
		h.Halt()
		b.halted = true
	}
	if b.cut == nil {
		b.cut = time.After(wireGrace)
	}
}

// finish ends what is open: goroutine A, and the sink when something of it is
// in doubt. Then it saves what is settled, if it still may.
func (b *backward) finish(ctx, reading context.Context) error {
	b.stopReading(errOver)
	if p := b.tracker.progress(); p.open > 0 || p.err != nil || !b.readOver || b.halted {
		b.stopPublishing(errOver)
		if !b.readOver {
			<-b.forward
		}
		// I4: what can't settle is ended before a new stream may send it again.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		if err := b.sink.Close(closing); err != nil {
			b.Log.Debug("close sink", zap.Error(err))
		}
		b.Engine.sink = nil
	}
	p := b.tracker.progress()
	b.failing = false
	b.save(context.WithoutCancel(ctx), p, true)
	left := b.tracker.progress()
	if reading.Err() != nil && fault.As(b.end) == nil && (left.moved || left.err != nil) {
		return &fault.Error{
			Code: fault.CodeDrainIncomplete, Exit: fault.ExitFailure,
			Found: fmt.Sprintf("stopped with %d batches not acknowledged (saved %t)", left.failed, !left.moved),
			Fix:   "nothing is lost: the next start sends them again from the checkpoint; a longer OUTBOXD_DRAIN_TIMEOUT gives Kafka more time",
			Err:   b.end,
		}
	}
	return b.end
}

// save stores and confirms the settled prefix when it is due (I2). A failed
// save is tried again each second; meanwhile the tracker's limit stops reading.
func (b *backward) save(ctx context.Context, p progress, now bool) {
	if !p.moved || time.Now().Before(b.due(p, now)) {
		return
	}
	b.tried = time.Now()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err := b.Engine.save(ctx, p.pos)
	switch {
	case errors.Is(err, errLeaseLost):
		b.loseLease()
		return
	case err != nil:
		if !b.failing {
			b.Log.Error("can't save the checkpoint; reading stops when OUTBOXD_CHECKPOINT_MAX_EVENTS is reached", zap.Error(err))
		}
		b.failing = true
		return
	}
	if b.failing {
		b.Log.Info("checkpoint saved again", zap.String("position", string(p.pos)))
	}
	b.failing = false
	b.tracker.stored(p)
	b.stream.Confirm(p.pos) // I2: after Save, never before
}

// due tells when p is to be saved.
func (b *backward) due(p progress, now bool) time.Time {
	switch {
	case b.failing:
		return b.tried.Add(time.Second)
	case now, p.urgent, p.rows*2 >= b.CheckpointMaxEvents:
		return time.Time{}
	}
	return b.tried.Add(b.CheckpointInterval)
}

func (b *backward) arm(tick *time.Timer, p progress) {
	if p.moved {
		tick.Reset(max(0, time.Until(b.due(p, false))))
	}
}
