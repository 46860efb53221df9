package sinktest

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/outboxd/outboxd/sink"
)

// ErrClosed is what a Fake answers for batches that were held when it was
// closed, and for those published afterwards.
var ErrClosed = errors.New("sink is closed")

// Fake is a scripted sink.Sink. Without a script it takes every batch and
// settles it at once, before Publish returns. Its zero value is ready, and its
// methods may be called from any goroutine. done is never called under its lock.
type Fake struct {
	// Refuse, when set before first use, is the answer of Judge.
	Refuse func(*sink.Message) *sink.Refusal
	// RefuseSent, when set before first use, is what the brokers say to each
	// message they are sent; a refusal finishes the sink.
	RefuseSent func(*sink.Message) *sink.Refusal
	// OnCommit, when set before first use, is given the record of each commit
	// that is carried out.
	OnCommit func(record sink.Message)

	mu        sync.Mutex
	may       func() bool   // nil: always
	guarded   []pending     // published and not sent, because may said no
	stalled   bool          // nothing is sent until the next Guard
	stuck     chan struct{} // Publish waits for it to be closed
	held      bool
	pending   []pending
	taken     []sink.Message
	delivered []sink.Message
	err       error // the sink is finished
	failAfter int   // messages still accepted before failWith; only when failWith is set
	failWith  error
	changed   chan struct{}

	gated         chan struct{}
	visible       int // of delivered, that are committed
	committed     []sink.Message
	commitErr     error
	commitApplied bool
}

type pending struct {
	batch []sink.Message
	done  func(error)
}

// Guard sets what is asked before each batch, and sends what waits if that allows it.
func (f *Fake) Guard(may func() bool) {
	f.mu.Lock()
	f.may = may
	var waiting []pending
	if may() {
		waiting, f.guarded, f.stalled = f.guarded, nil, false
	}
	f.mu.Unlock()
	for _, p := range waiting {
		f.publish(p.batch, p.done)
	}
}

// Publish records the batch and settles it as the script says.
func (f *Fake) Publish(_ context.Context, batch []sink.Message, done func(error)) {
	gate := f.gate()
	gate <- struct{}{}
	defer func() { <-gate }()
	f.mu.Lock()
	stuck := f.stuck
	f.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	f.publish(batch, done)
}

func (f *Fake) publish(batch []sink.Message, done func(error)) {
	f.mu.Lock()
	if f.err == nil && (f.stalled || f.may != nil && !f.may()) {
		f.guarded = append(f.guarded, pending{batch, done})
		f.notify()
		f.mu.Unlock()
		return
	}
	if f.err == nil && f.failWith != nil {
		if f.failAfter -= len(batch); f.failAfter < 0 {
			f.err = f.failWith
		}
	}
	for i := range batch {
		if f.err == nil && f.RefuseSent != nil {
			if r := f.RefuseSent(&batch[i]); r != nil {
				r.Message = &batch[i]
				f.err = r
			}
		}
	}
	if err := f.err; err != nil {
		f.mu.Unlock()
		done(err)
		return
	}
	f.taken = append(f.taken, batch...)
	hold := f.held
	if hold {
		f.pending = append(f.pending, pending{batch, done})
	} else {
		f.delivered = append(f.delivered, batch...)
	}
	f.notify()
	f.mu.Unlock()
	if !hold {
		done(nil)
	}
}

// Judge answers with Refuse, or accepts everything.
func (f *Fake) Judge(m *sink.Message) *sink.Refusal {
	if f.Refuse == nil {
		return nil
	}
	return f.Refuse(m)
}

// Close finishes the sink and settles held batches with ErrClosed, or with
// the error it had failed with.
func (f *Fake) Close(context.Context) error {
	f.Fail(ErrClosed)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stuck != nil {
		close(f.stuck)
		f.stuck = nil
	}
	return nil
}

// Hold keeps batches unsettled from now on, until one of the Release methods, Fail or Close.
func (f *Fake) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = true
}

// ReleaseAll settles every held batch, oldest first, and ends Hold.
func (f *Fake) ReleaseAll() {
	f.mu.Lock()
	f.held = false
	n := len(f.pending)
	f.mu.Unlock()
	f.ReleaseN(n)
}

// ReleaseN settles the n oldest held batches, or all when there are fewer.
// Hold stays on.
func (f *Fake) ReleaseN(n int) {
	for range n {
		if !f.Release(0) {
			return
		}
	}
}

// Release settles the i-th held batch, 0 being the oldest, so a test can
// settle out of order. It reports whether there was one.
func (f *Fake) Release(i int) bool {
	f.mu.Lock()
	if i >= len(f.pending) {
		f.mu.Unlock()
		return false
	}
	p := f.pending[i]
	f.pending = append(f.pending[:i:i], f.pending[i+1:]...)
	f.delivered = append(f.delivered, p.batch...)
	f.notify()
	f.mu.Unlock()
	p.done(nil)
	return true
}

// Fail finishes the sink: held batches and all later ones are answered with
// err. Only the first failure counts.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	err = f.err
	held := slices.Concat(f.guarded, f.pending)
	f.guarded, f.pending = nil, nil
	f.notify()
	f.mu.Unlock()
	for _, p := range held {
		p.done(err)
	}
}

// FailOne finishes the sink and answers the oldest batch; the others are
// answered by Close.
func (f *Fake) FailOne(err error) {
	f.mu.Lock()
	f.err = err
	var first pending
	switch {
	case len(f.pending) > 0:
		first, f.pending = f.pending[0], f.pending[1:]
	case len(f.guarded) > 0:
		first, f.guarded = f.guarded[0], f.guarded[1:]
	}
	f.notify()
	f.mu.Unlock()
	if first.done != nil {
		first.done(err)
	}
}

// FailAfter makes the sink accept n more messages and fail with err at the
// batch that goes beyond; batches held at that moment stay held.
func (f *Fake) FailAfter(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failAfter, f.failWith = n, err
}

// Messages gives everything accepted so far, settled or not, in order.
func (f *Fake) Messages() []sink.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sink.Message(nil), f.taken...)
}

// Delivered gives what was settled with nil, in the order of settling.
func (f *Fake) Delivered() []sink.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sink.Message(nil), f.delivered...)
}

// Stall keeps what is published from now on in the sink, not sent, until the
// next Guard that allows it.
func (f *Fake) Stall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stalled = true
}

// Stick has Publish take no notice of anything from now on until Close, as a
// call to a server that is gone does.
func (f *Fake) Stick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stuck = make(chan struct{})
}

// Guarded is the number of batches that wait for leave to be sent.
func (f *Fake) Guarded() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.guarded)
}

// Held is the number of unsettled batches.
func (f *Fake) Held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Wait blocks until n messages were accepted, and returns ctx's error when it
// ends first.
func (f *Fake) Wait(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		if len(f.taken) >= n {
			f.mu.Unlock()
			return nil
		}
		changed := f.change()
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// change is closed at the next change. f.mu is held.
func (f *Fake) change() chan struct{} {
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.changed
}

// notify wakes Wait. f.mu is held.
func (f *Fake) notify() {
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}
