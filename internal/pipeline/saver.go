package pipeline

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/sink"
)

const (
	saveLimit = 10 * time.Second // of one save; as long as a lease is trusted
	cutLimit  = time.Second      // of the last one after a cut
)

// saver has one place at a time saved, beside the loop that owns it, and
// confirms it afterwards (I2). A failed save is tried again each second; meanwhile
// the tracker's limit stops reading.
type saver struct {
	*run
	result  chan saved // of the save that is under way; nil when none is
	cancel  context.CancelFunc
	tried   time.Time // last attempt
	failing bool      // it failed
	barred  bool      // the lease is gone: nothing is saved any more
	broken  error     // exactly-once: a commit failed, and its outcome is not known
}

// saved is what became of one save.
type saved struct {
	progress
	checkpoint checkpoint.Checkpoint
	err        error
}

// start begins a save when one is due. It reports that the lease forbids it.
func (v *saver) start(ctx context.Context, p progress, now bool) (lost bool) {
	if v.result != nil || v.barred || v.broken != nil || !p.moved || time.Now().Before(v.due(p, now)) {
		return false
	}
	if !v.lease.Valid() {
		return true
	}
	v.tried = time.Now()
	limit := saveLimit
	if v.committer != nil {
		limit = v.Transactions.Timeout
	}
	ctx, v.cancel = context.WithTimeout(ctx, limit)
	result := make(chan saved, 1)
	v.result = result
	if v.committer != nil {
		go func() { result <- v.commit(ctx) }()
		return false
	}
	c := v.attempt(p.pos)
	go func() { result <- saved{p, c, v.store(ctx, c)} }()
	return false
}

// commit makes what was published visible, and the place behind it durable with
// it. The place is told when nothing more joins the transaction.
func (v *saver) commit(ctx context.Context) (s saved) {
	var sent []delivery
	s.err = v.committer.Commit(ctx, func() sink.Message {
		s.progress = v.tracker.progress()
		s.checkpoint = checkpoint.Checkpoint{Name: v.Name, Position: s.pos, Done: s.inside, SavedAt: time.Now().UTC()}
		if last := v.Engine.last; s.pos == last.Position { // the transaction it is in goes on
			s.checkpoint.Refused = last.Refused
		}
		sent = v.takeSent()
		return v.Transactions.Record(s.checkpoint)
	})
	if s.err == nil {
		v.delivered(sent...)
	}
	return s
}

// took acts on the end of a save.
func (v *saver) took(r saved) {
	v.cancel()
	v.result = nil
	if r.err != nil && v.committer != nil {
		v.broken = fmt.Errorf("commit: %w", r.err)
		return
	}
	if r.err != nil {
		if !v.failing && !v.barred {
			v.Log.Error("can't save the checkpoint; reading stops when OUTBOXD_CHECKPOINT_MAX_EVENTS is reached", zap.Error(r.err))
		}
		v.failing = true
		v.update(func(s *Status) { s.SaveErr = r.err })
		return
	}
	if v.failing {
		v.Log.Info("checkpoint saved again", zap.String("position", string(r.pos)))
	}
	v.failing = false
	v.note(r.checkpoint)
	v.tracker.stored(r.progress)
	v.stream.Confirm(r.pos) // I2: after Save, never before
}

// bar ends saving: the lease is gone (I9).
func (v *saver) bar() {
	v.barred = true
	if v.cancel != nil {
		v.cancel()
	}
}

// last waits for the save that is under way, and saves what is settled since.
func (v *saver) last(ctx context.Context) {
	limit := saveLimit
	if ctx.Err() != nil {
		limit = cutLimit
	}
	over := time.After(limit)
	ctx = context.WithoutCancel(ctx)
	v.failing = false
	for range 2 {
		if v.result == nil && (v.committer == nil || v.Engine.sink != nil) {
			v.start(ctx, v.tracker.progress(), true)
		}
		if v.result == nil {
			return
		}
		select {
		case r := <-v.result:
			v.took(r)
			if r.err != nil {
				return
			}
		case <-over:
			v.cancel()
			return
		}
	}
}

// due tells when p is to be saved.
func (v *saver) due(p progress, now bool) time.Time {
	switch {
	case v.failing:
		return v.tried.Add(time.Second)
	case now, p.urgent:
		return time.Time{}
	case v.committer != nil && p.inside != (checkpoint.Done{}):
		// A transaction of the source is cut only when it would outlast one of Kafka.
		return p.since.Add(v.Transactions.Timeout / 3)
	case v.committer != nil && p.rows > 0:
		return v.tried.Add(v.Transactions.Interval)
	case p.rows*2 >= v.CheckpointMaxEvents:
		return time.Time{}
	}
	return v.tried.Add(v.CheckpointInterval)
}

// arm sets the loop's timer to the next save that is due.
func (v *saver) arm(tick *time.Timer, p progress) {
	if p.moved && v.result == nil && !v.barred && v.broken == nil {
		tick.Reset(max(0, time.Until(v.due(p, false))))
	}
}
