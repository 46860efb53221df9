package sinktest

import (
	"context"

	"github.com/outboxd/outboxd/sink"
)

// Commit implements sink.Committer: it waits until nothing is held, and makes
// what was delivered since the last Commit part of Committed.
func (f *Fake) Commit(ctx context.Context, record func() sink.Message) error {
	gate := f.gate()
	select {
	case gate <- struct{}{}:
		defer func() { <-gate }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		f.mu.Lock()
		if f.err != nil {
			defer f.mu.Unlock()
			return f.err
		}
		if len(f.pending)+len(f.guarded) == 0 {
			break
		}
		changed := f.change()
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			f.Fail(ctx.Err())
			return ctx.Err()
		}
	}
	f.mu.Unlock()
	r := record()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commitErr == nil || f.commitApplied {
		f.committed = append(f.committed, f.delivered[f.visible:]...)
		f.visible = len(f.delivered)
		if f.OnCommit != nil {
			f.OnCommit(r)
		}
	}
	if f.commitErr != nil && f.err == nil {
		f.err = f.commitErr
	}
	return f.commitErr
}

// FailCommit makes the next Commit fail with err, after it was carried out or without.
func (f *Fake) FailCommit(err error, applied bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commitErr, f.commitApplied = err, applied
}

// Committed gives what readers of committed messages see, in order.
func (f *Fake) Committed() []sink.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]sink.Message(nil), f.committed...)
}

// gate is held by a Publish for a moment, and by Commit until it is over. It is a
// channel, so that time in a synctest bubble goes on while somebody waits for it.
func (f *Fake) gate() chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gated == nil {
		f.gated = make(chan struct{}, 1)
	}
	return f.gated
}
