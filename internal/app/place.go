package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/source"
)

// SetCheckpoint stores the position that text names, while nobody is active and
// after the source judged that it can go on from there. reason is for the audit line.
func SetCheckpoint(ctx context.Context, c *config.Config, text, reason string, log *zap.Logger) (place checkpoint.Checkpoint, err error) {
	db, err := newSource(c, c.Source.Login, nil, log)
	if err != nil {
		return place, err
	}
	return setCheckpoint(ctx, db, c, text, reason, log)
}

// locator is what setCheckpoint asks of a database.
type locator interface {
	source.Source
	Locate(ctx context.Context, text string, held source.Position) (source.Position, error)
}

func setCheckpoint(ctx context.Context, db locator, c *config.Config, text, reason string, log *zap.Logger) (place checkpoint.Checkpoint, err error) {
	err = alone(ctx, db, func(ctx context.Context) (err error) {
		s := newStore(c, log)
		defer func() { err = errors.Join(err, s.Close()) }()
		held, err := look(ctx, s, c)
		if err != nil {
			return err
		}
		pos, err := db.Locate(ctx, text, held.place.Position)
		if err != nil {
			return err
		}
		if held.broken != "" { // only an empty store takes a place then
			if err := s.Delete(ctx); err != nil {
				return err
			}
		}
		place = checkpoint.Checkpoint{Name: c.Name, Position: pos, SavedAt: time.Now().UTC()}
		if err := s.Save(ctx, place); err != nil {
			return fmt.Errorf("save the position: %w", err)
		}
		audit(log.With(zap.String("reason", reason)), "checkpoint set", c.Name+" in "+c.Checkpoint.String(), held.String(), string(pos))
		return nil
	})
	return place, err
}
