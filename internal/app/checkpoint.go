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

// errHeld is why a command gave up waiting for the lease.
var errHeld = errors.New("another instance holds the lease")

// commandTimeout bounds what a command other than run waits for.
const commandTimeout = 30 * time.Second

// A broker that has just started has no leaders for a moment. Where run would
// try again for ever, a command does so for patience.
const (
	patience = 10 * time.Second
	pause    = 250 * time.Millisecond
)

// load reads what s, the store of c, holds.
func load(ctx context.Context, s checkpoint.Store, c *config.Config) (checkpoint.Checkpoint, error) {
	began := time.Now()
	for {
		place, err := s.Load(ctx)
		switch {
		case err == nil, errors.Is(err, checkpoint.ErrNone), fault.As(err) != nil, c.Checkpoint.Topic == "":
			return place, err
		case ctx.Err() != nil, time.Since(began) >= patience:
			return place, noAnswer(err, fmt.Sprintf("the brokers did not give the checkpoint in %s within %s", c.Checkpoint, time.Since(began).Round(time.Second)),
				"See that the brokers in OUTBOXD_KAFKA_BROKERS run, can be reached, and that the topic's partition has a leader; then try again.")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// noAnswer makes of what run would try again for ever what a command ends with.
// A fault, and an end that was asked for, stay what they are.
func noAnswer(err error, found, fix string) error {
	if err == nil || fault.As(err) != nil || errors.Is(err, context.Canceled) {
		return err
	}
	return &fault.Error{Code: fault.CodeNotReached, Exit: fault.ExitFailure, Err: err, Found: found, Fix: fix}
}

// What a command says when it got no answer, and from whom.
const (
	databaseSilent = "the database did not answer"
	databaseFix    = "See that the database in OUTBOXD_SOURCE_URL runs and can be reached; then try again."
	brokersSilent  = "the brokers did not answer"
	brokersFix     = "See that the brokers in OUTBOXD_KAFKA_BROKERS run and can be reached; then try again."
)

// ShowCheckpoint reads the stored place; saved is false when there is none.
func ShowCheckpoint(ctx context.Context, c *config.Config, log *zap.Logger) (place checkpoint.Checkpoint, saved bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	s := newStore(c, log)
	defer func() { err = errors.Join(err, s.Close()) }()
	place, err = load(ctx, s, c)
	if errors.Is(err, checkpoint.ErrNone) {
		return place, false, nil
	}
	return place, err == nil, err
}

// DeleteCheckpoint removes the stored place, damaged or not, while nobody is active.
func DeleteCheckpoint(ctx context.Context, c *config.Config, log *zap.Logger) error {
	db, err := newSource(c, c.Source.Login, nil, log)
	if err != nil {
		return err
	}
	return deleteCheckpoint(ctx, db, c, log)
}

func deleteCheckpoint(ctx context.Context, db source.Source, c *config.Config, log *zap.Logger) error {
	return alone(ctx, db, func(ctx context.Context) (err error) {
		s := newStore(c, log)
		defer func() { err = errors.Join(err, s.Close()) }()
		held, err := look(ctx, s, c)
		if err != nil {
			return err
		}
		if err := s.Delete(ctx); err != nil {
			return err
		}
		audit(log, "checkpoint delete", c.Name+" in "+c.Checkpoint.String(), held.String(), "none")
		return nil
	})
}

// holding is what a store was found to hold of us.
type holding struct {
	place  checkpoint.Checkpoint
	saved  bool   // place is what was saved
	broken string // why what is there can't be loaded, so that only Delete makes room
}

func (h holding) String() string {
	switch {
	case h.broken != "":
		return h.broken
	case !h.saved:
		return "none"
	case h.place.Intent():
		return "intent"
	}
	return string(h.place.Position)
}

// look fails at another connector's checkpoint, and when there is no answer.
func look(ctx context.Context, s store, c *config.Config) (holding, error) {
	place, err := load(ctx, s, c)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return holding{}, nil
	case fault.Is(err, fault.CodeCheckpointUnreadable):
		return holding{broken: "unreadable"}, nil
	case fault.Is(err, fault.CodePositionLost):
		return holding{broken: "lost"}, nil
	}
	return holding{place: place, saved: true}, err
}

// alone does something under the lease, or refuses at once when somebody else has it.
func alone(ctx context.Context, db source.Source, do func(context.Context) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	taking, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	holder := ""
	lease, err := db.Acquire(taking, func(h string) {
		holder = h
		giveUp(errHeld)
	})
	if err != nil && errors.Is(context.Cause(taking), errHeld) {
		return fault.Config(fault.CodeLeaseHeld, "Stop that instance first.", nil, "an instance is active (%s)", holder)
	}
	if err != nil {
		return noAnswer(fmt.Errorf("take the lease: %w", err), databaseSilent, databaseFix)
	}
	defer func() {
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, lease.Release(release))
	}()
	return do(ctx)
}
