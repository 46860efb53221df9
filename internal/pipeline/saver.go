package pipeline

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
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
}

// saved is what became of one save.
type saved struct {
	progress
	checkpoint checkpoint.Checkpoint
	err        error
}

// start begins a save when one is due. It reports that the lease forbids it.
func (v *saver) start(ctx context.Context, p progress, now bool) (lost bool) {
	if v.result != nil || v.barred || !p.moved || time.Now().Before(v.due(p, now)) {
		return false
	}
	if !v.lease.Valid() {
		return true
	}
	v.tried = time.Now()
	ctx, v.cancel = context.WithTimeout(ctx, saveLimit)
	result := make(chan saved, 1)
	v.result = result
	c := v.attempt(p.pos)
	go func() { result <- saved{p, c, v.store(ctx, c)} }()
	return false
}

// took acts on the end of a save.
func (v *saver) took(r saved) {
	v.cancel()
	v.result = nil
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
		if v.result == nil {
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
	case now, p.urgent, p.rows*2 >= v.CheckpointMaxEvents:
		return time.Time{}
	}
	return v.tried.Add(v.CheckpointInterval)
}

// arm sets the loop's timer to the next save that is due.
func (v *saver) arm(tick *time.Timer, p progress) {
	if p.moved && v.result == nil && !v.barred {
		tick.Reset(max(0, time.Until(v.due(p, false))))
	}
}
