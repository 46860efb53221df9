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

// ErrOpen is what Load returns while a transaction that may hold the checkpoint
// is open. Opening the sink of that transactional id ends it.
var ErrOpen = errors.New("a transaction that holds the checkpoint is open: it can be read when the transaction has ended")

// Checkpoint is everything a restart needs.
type Checkpoint struct {
	// Name of the connector it belongs to. A store refuses another one's with fault.CodeForeign.
	Name string
	// Position is zero while only the intent of a first start is saved (I6).
	Position source.Position
	// Done is what is delivered beyond Position: the first rows of the transaction
	// that comes next. At least once it is zero unless the stream stopped there.
	Done Done
	// Refused is the event the stream stopped at, in the transaction that comes
	// next, and what was decided about it; nil: none.
	Refused *Refused
	// SavedAt tells two saves apart and is shown to the operator.
	SavedAt time.Time
}

// Done names the first rows of one transaction. ID is the event id of the last
// of them: it proves, when they are skipped, that they are still the same.
type Done struct {
	Tx   string // source.Tx.ID
	Rows uint32
	ID   string
}

// Refused names an event that can't be published. Nothing behind it is sent
// before it is published, or skipped by decision.
type Refused struct {
	Tx     string `json:"tx"`  // source.Tx.ID
	Row    uint32 `json:"row"` // its ordinal in that transaction
	ID     string `json:"id"`  // event id
	Table  string `json:"table"`
	Reason string `json:"reason"` // of its sink.Refusal
	Skip   bool   `json:"skip,omitempty"`
	Why    string `json:"why,omitempty"` // the reason given for Skip
}

// Intent reports whether a first start was begun and not finished.
func (c Checkpoint) Intent() bool { return c.Position == "" }

// Equal reports whether both are the same save.
func (c Checkpoint) Equal(o Checkpoint) bool {
	return c.Name == o.Name && c.Position == o.Position && c.Done == o.Done && c.SavedAt.Equal(o.SavedAt)
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
