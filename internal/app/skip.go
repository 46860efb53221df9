package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// SkipEvent decides, while nobody is active, that the event the stream stopped at
// is left out at the next start. reason is for the audit line and the checkpoint.
func SkipEvent(ctx context.Context, c *config.Config, id, reason string, log *zap.Logger) (checkpoint.Refused, error) {
	db, err := newSource(c, c.Source.Login, nil, log)
	if err != nil {
		return checkpoint.Refused{}, err
	}
	return skipEvent(ctx, db, c, id, reason, log)
}

func skipEvent(ctx context.Context, db source.Source, c *config.Config, id, reason string, log *zap.Logger) (refused checkpoint.Refused, err error) {
	err = alone(ctx, db, func(ctx context.Context) (err error) {
		s := newStore(c, log)
		defer func() { err = errors.Join(err, s.Close()) }()
		place, err := load(ctx, s, c)
		switch {
		case errors.Is(err, checkpoint.ErrNone), err == nil && place.Refused == nil:
			return fault.Config(fault.CodeConfig, "Start it: if an event is refused, the last log line names it.", nil, "the connector %q did not stop at an event", c.Name)
		case err != nil:
			return err
		case place.Refused.ID != id:
			return fault.Config(fault.CodeConfig, "Give the id that outboxd checkpoint show names.", nil, "the stream stopped at event %q, not at %.64q", place.Refused.ID, id)
		}
		decided := *place.Refused
		decided.Skip, decided.Why = true, reason
		place.Refused, place.SavedAt = &decided, time.Now().UTC()
		if err := s.Save(ctx, place); err != nil {
			return fmt.Errorf("save the decision: %w", err)
		}
		audit(log.With(zap.String("reason", reason)), "skip", fmt.Sprintf("event %q of %s in %s", id, decided.Table, c.Name), "refused: "+decided.Reason, "skip")
		refused = decided
		return nil
	})
	return refused, err
}
