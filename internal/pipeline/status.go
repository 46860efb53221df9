package pipeline

import (
	"time"

	"github.com/outboxd/outboxd/source"
)

// State is what the engine is doing.
type State string

// The states. Only Active reads and publishes.
const (
	Starting State = "starting" // taking the lease, loading the checkpoint, opening
	Standby  State = "standby"  // another instance holds the lease
	Active   State = "active"   // reading and publishing
	Waiting  State = "waiting"  // something failed; a new try is due
	Draining State = "draining" // stopping: no more reads, waiting for acks
	Stopped  State = "stopped"  // ended
)

// Status is one consistent view of the engine. It holds no secret and no payload.
type Status struct {
	State  State
	Since  time.Time // when State began
	Holder string    // Standby: who holds the lease
	Err    error     // why the last session ended; nil once a stream is open again

	Read    source.Position // last commit boundary read
	Settled source.Position // last one acknowledged by the sink
	Saved   source.Position // last one in the checkpoint store

	Waits    string // what the events in flight wait for, where the sink can tell …
	WaitsFix string // … and what the operator can do about it

	InFlightEvents int       // read and not yet acknowledged
	InFlightBytes  int64     // key + value + headers of those
	UnsavedEvents  int       // acknowledged and not yet covered by a save
	OldestCommit   time.Time // commit time of the oldest event in flight; zero if none

	LastRead      time.Time // last batch from the source, with or without rows
	LastDelivered time.Time // last acknowledgement from the sink
	LastSaved     time.Time // last save
	CaughtUpAt    time.Time // last moment known that everything was delivered; at first: the last save, or the start of the process
	SettledCommit time.Time // commit time of the last event of the settled prefix
	CaughtUp      bool      // still so, with the stream open
	SaveErr       error     // the last save failed with this; nil when saves work
	WindowFull    bool      // as much is delivered and unsaved as may be: reading stops

	Retention source.Retention // what the server keeps for us; zero when it doesn't say

	EventsRead      uint64
	EventsDelivered uint64
	Sessions        uint64 // streams opened since the process began
}

// Lag is the age of the oldest committed event that is not delivered: zero
// when caught up with the log's end. While the log can't be read it grows
// from the last moment known caught up.
func (s Status) Lag(now time.Time) time.Duration {
	switch {
	case s.CaughtUp:
		return 0
	case !s.OldestCommit.IsZero():
		return max(0, now.Sub(s.OldestCommit))
	}
	// Nothing is in flight and the log's end is not known: all that was
	// committed up to these moments is delivered.
	through := s.CaughtUpAt
	if s.SettledCommit.After(through) {
		through = s.SettledCommit
	}
	if through.IsZero() {
		return 0
	}
	return max(0, now.Sub(through))
}

// Hooks are called by the engine as things happen; each may be nil. They must
// be fast and must not call back into the engine.
type Hooks struct {
	// Delivered counts n acknowledged events of one table to one topic.
	Delivered func(table, topic string, n int)
	// Latency is the time from commit to acknowledgement of a batch's oldest event.
	Latency func(d time.Duration)
	// Restart counts a session that ended with a transient error, by a short stable reason.
	Restart func(reason string)
	// Rejected counts an event that could not be published.
	Rejected func(reason string)
}
