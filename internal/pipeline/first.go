package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// prepare takes what a session needs, in the order of I9.
func (e *Engine) prepare(ctx context.Context) error {
	steps := []func(context.Context) error{e.hold, e.load, e.resume, e.openSink}
	if e.Transactions != nil { // the sink ends what its predecessor left open, and only then the checkpoint counts
		steps = []func(context.Context) error{e.hold, e.recognise, e.openSink, e.load}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	e.sink.Guard(e.lease.Valid)
	return nil
}

// hold makes sure that we hold the lease.
func (e *Engine) hold(ctx context.Context) error {
	if e.lease != nil && gone(e.lease) {
		e.lose(ctx)
	}
	if e.lease != nil { // held without a break, so nobody else was active
		e.alone = true
		return nil
	}
	lease, err := e.Source.Acquire(ctx, e.standBy)
	if err != nil {
		return inPart("source", fmt.Errorf("take the lease: %w", err))
	}
	e.lease, e.standby = lease, false
	e.enter(Starting, e.Status().Err)
	return nil
}

// recognise makes sure that the checkpoint is ours before the sink fences off
// whoever has our transactional id: it may be another database's connector that was
// given the same name.
func (e *Engine) recognise(ctx context.Context) error {
	judge, able := e.Source.(source.Judge)
	if e.sink != nil || e.started || !able {
		return nil
	}
	c, err := e.Store.Load(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNone), errors.Is(err, checkpoint.ErrOpen):
		return nil
	case err != nil:
		return inPart("checkpoint", fmt.Errorf("load checkpoint: %w", err))
	case c.Intent():
		return nil
	}
	return inPart("source", judge.Judge(ctx, c.Position))
}

func (e *Engine) openSink(ctx context.Context) error {
	if e.sink != nil {
		return nil
	}
	s, err := e.OpenSink(ctx)
	if err != nil {
		return inPart("sink", fmt.Errorf("open sink: %w", err))
	}
	e.sink = s
	if e.Transactions != nil {
		if _, ok := s.(sink.Committer); !ok {
			return fault.Config(fault.CodeConfig, "Use OUTBOXD_SINK=kafka, or OUTBOXD_DELIVERY=at-least-once.", nil, "this sink knows no transactions")
		}
		e.loaded = false // how its predecessor's last commit ended is told by the checkpoint alone
	}
	return nil
}

// resume lets the sink finish what it had when the lease was lost, if nobody
// was active meanwhile, and gives it up otherwise.
func (e *Engine) resume(ctx context.Context) error {
	if e.left == nil {
		return nil
	}
	if !e.alone {
		e.abandon(ctx)
		return nil
	}
	e.sink.Guard(e.lease.Valid)
	for {
		p := e.left.tracker.progress()
		e.from, e.done = p.pos, p.inside
		switch {
		case e.left.sinkFailed(p):
			left := e.left
			e.abandon(ctx) // some may still be acknowledged
			if left.void != nil {
				e.remember(left.void)
			}
			p = left.tracker.progress()
			e.from, e.done = p.pos, p.inside
			if e.from != e.last.Position {
				if err := e.save(ctx, e.from); err != nil {
					return inPart("checkpoint", err)
				}
			}
			return inPart("sink", left.refuse(p.err))
		case p.open == 0:
			e.left = nil
			return nil
		}
		select {
		case <-e.left.tracker.changed:
		case <-e.lease.Done():
			return inPart("lease", errLeaseLost)
		case <-ctx.Done():
			return fmt.Errorf("wait for %d batches to be acknowledged: %w", p.open, ctx.Err())
		}
	}
}

// abandon gives up what the sink has: it is closed before a new stream may
// send any of it again (I4).
func (e *Engine) abandon(ctx context.Context) {
	s := e.sink
	e.sink, e.left = nil, nil
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := s.Close(closing); err != nil {
		e.Log.Debug("close sink", zap.Error(err))
	}
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
	if e.Transactions != nil && e.sink != nil { // the next one is opened under the next lease
		e.abandon(ctx)
	}
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

// load reads the checkpoint under the lease and decides where to go on, once
// for each lease.
func (e *Engine) load(ctx context.Context) error {
	if e.loaded {
		return nil
	}
	if err := e.decide(ctx); err != nil {
		return inPart("checkpoint", err)
	}
	e.loaded = true
	return nil
}

func (e *Engine) decide(ctx context.Context) error {
	c, err := e.Store.Load(ctx)
	e.alone = false
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return e.first(ctx, false)
	case err != nil:
		return fmt.Errorf("load checkpoint: %w", err)
	case c.Intent():
		return e.first(ctx, true)
	case e.from != "" && e.Transactions == nil && (c.Equal(e.last) || slices.ContainsFunc(e.tried, c.Equal)):
		e.last, e.alone = c, true
		// Nobody saved since we did, so nobody was active: go on from what we
		// know to be settled, which may be past the save, without a repeat (I9).
		return nil
	}
	e.Log.Info("resuming from the checkpoint", zap.String("position", string(c.Position)), zap.Time("saved_at", c.SavedAt))
	e.from, e.done, e.last = c.Position, c.Done, c
	if c.Refused != nil && (c.Refused.Skip || e.refused[c.Refused.Tx][c.Refused.Row] == nil) { // what this process was told itself counts more
		e.remember(&refusedRow{Refused: *c.Refused})
	}
	if e.Transactions == nil {
		// Whoever comes after us must see that we were active, even if we deliver
		// something and get to save nothing.
		if err := e.claim(ctx, c); err != nil {
			return err
		}
	}
	e.update(func(s *Status) {
		s.Settled, s.Saved, s.LastSaved = c.Position, c.Position, c.SavedAt
		s.CaughtUpAt = c.SavedAt // the last moment we can vouch for
	})
	return nil
}

// claim saves the checkpoint that was loaded once more, as ours.
func (e *Engine) claim(ctx context.Context, c checkpoint.Checkpoint) error {
	if !e.lease.Valid() {
		return errLeaseLost
	}
	c.SavedAt = time.Now().UTC()
	e.tried = append(e.tried, c)
	if err := e.store(ctx, c); err != nil {
		return err
	}
	e.last, e.tried = c, nil
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
		if !e.lease.Valid() {
			return errLeaseLost
		}
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
	pos, err := e.Source.Begin(begin, source.First{Mode: e.Start, Intended: intended, ExactlyOnce: e.Transactions != nil})
	if err != nil {
		if fault.As(err) != nil && !intended && e.Start != source.StartResume && e.lease.Valid() {
			// It was refused, so what is on the server is not ours: the next start
			// must not take it for half-made work of this one.
			err = errors.Join(err, e.Store.Delete(ctx))
		}
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
// answer may be stored, now or later, and is not another instance's. A further
// try for the same place is the same checkpoint.
func (e *Engine) attempt(pos source.Position) checkpoint.Checkpoint {
	if n := len(e.tried); n > 0 && e.tried[n-1].Position == pos {
		return e.tried[n-1]
	}
	c := checkpoint.Checkpoint{Name: e.Name, Position: pos, SavedAt: time.Now().UTC()}
	e.tried = append(e.tried, c)
	return c
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
	e.last, e.tried = c, nil // what came before can't be stored after it
	e.update(func(s *Status) { s.Saved, s.LastSaved, s.SaveErr = c.Position, c.SavedAt, nil })
}
