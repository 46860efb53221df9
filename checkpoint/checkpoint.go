// Package checkpoint is the contract for the stored place in the log.
package checkpoint

import (
	"context"
	"errors"
	"time"

	"github.com/outboxd/outboxd/source"
)

// ErrNone is what Load returns when nothing was ever saved. No answer, a
// damaged record or somebody else's record is never ErrNone (I6).
var ErrNone = errors.New("no checkpoint was ever saved")

// Checkpoint is everything a restart needs.
type Checkpoint struct {
	// Name of the connector it belongs to. A store refuses another one's with fault.CodeForeign.
	Name string
	// Position is zero while only the intent of a first start is saved (I6).
	Position source.Position
	// SavedAt tells two saves apart and is shown to the operator.
	SavedAt time.Time
}

// Intent reports whether a first start was begun and not finished.
func (c Checkpoint) Intent() bool { return c.Position == "" }

// Equal reports whether both are the same save.
func (c Checkpoint) Equal(o Checkpoint) bool {
	return c.Name == o.Name && c.Position == o.Position && c.SavedAt.Equal(o.SavedAt)
}

// Store keeps one connector's checkpoint. Its methods are not called
// concurrently.
type Store interface {
	// Load returns ErrNone when nothing was ever saved, and a *fault.Error with
	// CodeCheckpointUnreadable or CodeForeign for what must not be used.
	Load(ctx context.Context) (Checkpoint, error)
	// Save is durable when it returns, and whole or not at all (I6).
	Save(ctx context.Context, c Checkpoint) error
	// Delete removes the checkpoint and everything kept beside it.
	Delete(ctx context.Context) error
	Close() error
}
