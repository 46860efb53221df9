package app

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// CopyCheckpoint copies the stored place from one store to another, both of the
// same connector, while nobody is active, and leaves the first as it is. Another
// place in the second is replaced only if replace is set. copied is false when it
// is there already.
func CopyCheckpoint(ctx context.Context, from, to *config.Config, replace bool, log *zap.Logger) (place checkpoint.Checkpoint, copied bool, err error) {
	db, err := newSource(from, from.Source.Login, nil, log)
	if err != nil {
		return place, false, err
	}
	c := copying{from: from, to: to, replace: replace, log: log}
	err = c.run(ctx, db)
	return c.given.place, c.done, err
}

// copying is one run of CopyCheckpoint.
type copying struct {
	from, to *config.Config
	replace  bool
	log      *zap.Logger

	given holding
	done  bool
}

func (c *copying) run(ctx context.Context, db source.Source) error {
	if c.from.Checkpoint.String() == c.to.Checkpoint.String() {
		return fault.Config(fault.CodeConfig, "Name another store.", nil, "the checkpoint is in %s already, as OUTBOXD_CHECKPOINT says", c.to.Checkpoint)
	}
	return alone(ctx, db, func(ctx context.Context) (err error) {
		old, s := newStore(c.from, c.log), newStore(c.to, c.log)
		defer func() { err = errors.Join(err, old.Close(), s.Close()) }()
		if c.given.place, err = load(ctx, old, c.from); errors.Is(err, checkpoint.ErrNone) {
			return fault.Config(fault.CodeConfig, "Set OUTBOXD_CHECKPOINT to the store that holds it.", nil, "nothing was ever saved in %s", c.from.Checkpoint)
		} else if err != nil {
			return err
		}
		c.given.saved = true
		held, err := look(ctx, s, c.to)
		if err != nil || held.saved && held.place.Equal(c.given.place) {
			return err
		}
		if err := c.put(ctx, s, held); err != nil {
			return err
		}
		c.done = true
		audit(c.log, "checkpoint copy", fmt.Sprintf("%s from %s to %s", c.from.Name, c.from.Checkpoint, c.to.Checkpoint), held.String(), c.given.String())
		return nil
	})
}

// put saves what is given in s. An intent there is no place, so it is in nobody's way.
func (c *copying) put(ctx context.Context, s store, held holding) error {
	free := held.broken == "" && (held.place.Intent() || held.place.Position == c.given.place.Position)
	if !free && !c.replace {
		return fault.Config(fault.CodeConfig, "Find out which one is right; --yes replaces it.", nil, "%s is not empty and holds something else: %s", c.to.Checkpoint, held)
	}
	if held.broken != "" {
		if err := s.Delete(ctx); err != nil {
			return err
		}
	}
	return s.Save(ctx, c.given.place)
}
