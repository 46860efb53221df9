package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// hold makes sure that we hold the lease and know where to go on (I9).
func (e *Engine) hold(ctx context.Context) error {
	if e.lease != nil && gone(e.lease) {
		e.lose(ctx)
	}
	if e.lease == nil {
		lease, err := e.Source.Acquire(ctx, e.standBy)
		if err != nil {
			return inPart("source", fmt.Errorf("take the lease: %w", err))
		}
		e.lease, e.standby = lease, false
	}
	if e.loaded {
		return nil
	}
	if err := e.load(ctx); err != nil {
		return inPart("checkpoint", err)
	}
	e.loaded = true
	return nil
}

// lose gives up a lease that is gone or in doubt. What was settled stays in e.from.
func (e *Engine) lose(ctx context.Context) {
	if e.lease == nil {
		return
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = e.lease.Release(release) // the server ends it by itself if this doesn't
	e.lease, e.loaded = nil, false
}

func gone(l source.Lease) bool {
	select {
	case <-l.Done():
		return true
	default:
		return !l.Valid()
	}
}

func (e *Engine) standBy(holder string) {
	e.standby = true
	e.update(func(s *Status) {
		if s.State != Standby {
			s.State, s.Since = Standby, time.Now()
		}
		s.Holder, s.Err = holder, nil
	})
	e.Log.Info("standby: another instance is active", zap.String("holder", holder))
}

// load reads the checkpoint under the lease and decides where to go on.
func (e *Engine) load(ctx context.Context) error {
	c, err := e.Store.Load(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return e.first(ctx, false)
	case err != nil:
		return fmt.Errorf("load checkpoint: %w", err)
	case c.Intent():
		return e.first(ctx, true)
	case e.from != "" && (c.Equal(e.last) || c.Equal(e.tried)):
		e.last = c
		// Nobody saved since we did, so nobody was active: go on from what we
		// know to be settled, which may be past the save, without a repeat (I9).
		return nil
	}
	e.Log.Info("resuming from the checkpoint", zap.String("position", string(c.Position)), zap.Time("saved_at", c.SavedAt))
	e.from, e.last = c.Position, c
	e.update(func(s *Status) {
		s.Settled, s.Saved, s.LastSaved = c.Position, c.Position, c.SavedAt
		s.CaughtUpAt = c.SavedAt // the last moment we can vouch for
	})
	return nil
}

// first makes the place of a first start. The intent is saved before anything
// is made on the server (I6).
func (e *Engine) first(ctx context.Context, intended bool) error {
	if e.from != "" {
		return fault.Position(fault.CodePositionLost,
			"find out who deleted the checkpoint, then start again: OUTBOXD_START decides",
			nil, "the checkpoint of %q was deleted while this instance was running", e.Name)
	}
	if e.Start != source.StartResume && !intended {
		if err := e.Store.Save(ctx, checkpoint.Checkpoint{Name: e.Name, SavedAt: time.Now().UTC()}); err != nil {
			return fmt.Errorf("save intent: %w", err)
		}
	}
	begin := ctx
	if e.StartTimeout > 0 {
		var cancel context.CancelFunc
		begin, cancel = context.WithDeadline(ctx, e.began.Add(e.StartTimeout))
		defer cancel()
	}
	pos, err := e.Source.Begin(begin, source.First{Mode: e.Start, Intended: intended})
	if err != nil {
		return fmt.Errorf("first start: %w", err)
	}
	if err := e.save(ctx, pos); err != nil {
		return err
	}
	e.from = pos
	e.update(func(s *Status) { s.Settled, s.CaughtUpAt = pos, time.Now() })
	e.Log.Info("first start", zap.String("start", string(e.Start)), zap.String("position", string(pos)))
	return nil
}

// save stores pos as our place and waits for it.
func (e *Engine) save(ctx context.Context, pos source.Position) error {
	if !e.lease.Valid() {
		return errLeaseLost
	}
	c := e.attempt(pos)
	if err := e.store(ctx, c); err != nil {
		e.update(func(s *Status) { s.SaveErr = err })
		return err
	}
	e.note(c)
	return nil
}

// attempt makes the checkpoint of pos and remembers it: a save without an
// answer may be stored, and is not another instance's.
func (e *Engine) attempt(pos source.Position) checkpoint.Checkpoint {
	e.tried = checkpoint.Checkpoint{Name: e.Name, Position: pos, SavedAt: time.Now().UTC()}
	return e.tried
}

// store is the only caller of Store.Save for a place. It may run beside Run's
// goroutine, one at a time.
func (e *Engine) store(ctx context.Context, c checkpoint.Checkpoint) error {
	if err := e.Store.Save(ctx, c); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// note remembers c as our last save.
func (e *Engine) note(c checkpoint.Checkpoint) {
	e.last = c
	e.update(func(s *Status) { s.Saved, s.LastSaved, s.SaveErr = c.Position, c.SavedAt, nil })
}
