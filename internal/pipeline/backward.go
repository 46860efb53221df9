package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
)

// backward is goroutine B of a session: it waits for acknowledgements, has the
// settled prefix saved, confirms it, and decides when the session is over. It
// never blocks on a save or on goroutine A, so that a lost lease, a stop and a cut
// are acted on at once.
type backward struct {
	*run
	saver          saver
	forward        <-chan error // the result of goroutine A
	stopReading    context.CancelCauseFunc
	stopPublishing context.CancelCauseFunc

	end      error            // why the session ends, once it does
	readOver bool             // goroutine A has returned
	lost     bool             // the lease is
	cut      <-chan time.Time // when what is in flight is given up
}

// loop returns why the session ended: nil after a stop that left nothing behind.
func (b *backward) loop(ctx, reading context.Context) error {
	tick := time.NewTimer(b.CheckpointInterval)
	defer tick.Stop()
	stopping, lost := reading.Done(), b.lease.Done()
	for {
		p := b.tracker.progress()
		b.judge(p)
		if b.saver.start(ctx, p, b.readOver && p.open == 0) {
			b.loseLease()
		}
		if b.over(p, reading.Err() != nil) {
			return b.finish(ctx, reading)
		}
		b.saver.arm(tick, p)
		select {
		case err := <-b.forward:
			b.readOver = true
			if !errors.Is(err, errOver) && !errors.Is(err, errStop) {
				b.fail(err)
			}
		case r := <-b.saver.result:
			b.saver.took(r)
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

// over reports whether nothing more is to be waited for. A stop also waits
// until what is settled is saved.
func (b *backward) over(p progress, stopped bool) bool {
	if !b.readOver || b.saver.result != nil {
		return false
	}
	return b.sinkFailed(p) || b.lost || b.saver.broken != nil || (p.open == 0 && (!p.moved || !stopped || b.saver.barred))
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
		b.failSink(b.refuse(p.err))
	case b.saver.broken != nil:
		b.failSink(b.saver.broken)
	case p.err != nil:
		b.loseLease()
	}
}

// failSink ends the session for a sink that takes nothing more. Who is in a call
// of it may be stuck there until it is closed.
func (b *backward) failSink(err error) {
	b.fail(inPart("sink", err))
	b.stopPublishing(errOver)
	if b.cut == nil {
		b.cut = time.After(leaveTime)
	}
}

// sinkFailed tells the sink's failure, which finishes it, from a ticket we held back ourselves.
func (r *run) sinkFailed(p progress) bool {
	return p.err != nil && !errors.Is(p.err, errLeaseLost)
}

// loseLease stops reading and saving. The sink asks the lease before it sends,
// so it sends nothing either (I9).
func (b *backward) loseLease() {
	b.fail(inPart("lease", errLeaseLost))
	b.saver.bar()
	b.lost = true
	if b.cut == nil {
		b.cut = time.After(leaveTime)
	}
}

// finish ends what is open: goroutine A, and the sink when something of it is
// in doubt. Then it saves what is settled, if it still may.
func (b *backward) finish(ctx, reading context.Context) error {
	b.stopReading(errOver)
	p := b.tracker.progress()
	switch {
	case b.lost && b.readOver && b.committer == nil && !b.sinkFailed(p):
		b.left = b.run // the next session knows whether the sink may go on
	case b.lost, p.open > 0, p.err != nil, !b.readOver, b.saver.broken != nil:
		b.giveUp(ctx)
	}
	b.saver.last(ctx)
	if b.saver.broken != nil && b.Engine.sink != nil {
		b.fail(inPart("sink", b.saver.broken))
		b.giveUp(ctx)
	}
	left := b.tracker.progress()
	if reading.Err() != nil && fault.As(b.end) == nil && (left.moved || left.err != nil) {
		return incomplete(fmt.Sprintf("stopped with %d batches not acknowledged (saved %t)", left.failed, !left.moved), b.end)
	}
	return b.end
}

func (b *backward) giveUp(ctx context.Context) {
	if err := b.endSink(ctx); err != nil {
		b.end = err
	}
}

// endSink ends goroutine A and the sink: what can't settle is ended before a
// new stream may send it again (I4).
func (b *backward) endSink(ctx context.Context) error {
	b.stopPublishing(errOver)
	s := b.sink
	b.Engine.sink = nil
	if !b.readOver {
		select {
		case <-b.forward:
			b.readOver = true
		case <-time.After(closeLimit): // it may be in a call to a server that is gone: closing cuts that
			cutting, cancel := context.WithCancel(context.WithoutCancel(ctx))
			cancel()
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = s.Close(cutting)
			}()
			select {
			case <-b.forward:
				b.readOver = true
				<-closed
			case <-time.After(closeLimit): // I7: a sink that takes no notice must not hold up the end
				return incomplete(fmt.Sprintf("the sink did not return within %s of being closed", closeLimit), b.end)
			}
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := s.Close(closing); err != nil {
		b.Log.Debug("close sink", zap.Error(err))
	}
	return nil
}

// incomplete is the fault of an end that left events behind.
func incomplete(found string, cause error) *fault.Error {
	return &fault.Error{
		Code: fault.CodeDrainIncomplete, Exit: fault.ExitFailure, Found: found,
		Fix: "nothing is lost: the next start sends them again from the checkpoint; a longer OUTBOXD_DRAIN_TIMEOUT gives the sink more time",
		Err: cause,
	}
}
