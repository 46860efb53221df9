package admin

import (
	"fmt"
	"time"
)

// Report is what the connector tells of itself. It holds no secret and no payload.
type Report struct {
	Name    string
	Version string

	State  string // starting, standby, active, waiting, draining, stopped
	Since  time.Time
	Holder string // standby: who holds the lease
	Err    error  // why the last session ended; nil once a stream is open again

	Read, Settled, Saved string // positions

	Waits    string // what the events in flight wait for, where the sink can tell
	WaitsFix string // what to do about it

	InFlightEvents int       // read and not yet acknowledged
	InFlightBytes  int64     // key + value + headers of those
	UnsavedEvents  int       // acknowledged and not yet saved
	OldestCommit   time.Time // of the oldest event in flight; zero if none
	Lag            time.Duration
	CaughtUp       bool

	LastHeard     time.Time // last bytes from the source, heartbeats included
	LastRead      time.Time // last batch from the source
	LastDelivered time.Time // last acknowledgement from the sink
	LastSaved     time.Time // last save
	SaveErr       error     // the last save failed with this; nil when saves work
	WindowFull    bool      // as much is unsaved as may be: reading stops

	RetainedBytes    int64     // of log that the database keeps for us
	SecondsToLimit   *float64  // until the database drops log that we need; nil: it comes no nearer, or there is no limit
	OldestOpen       string    // the oldest open transaction, which holds log; "" when there is none worth telling
	OldestOpenSince  time.Time // when it began
	RetentionAskedAt time.Time // when the database was asked for these; zero: it doesn't tell

	EventsRead, EventsDelivered, Sessions uint64

	Snapshot *Snapshot // nil: no first snapshot is under way
}

// Snapshot tells how far a first snapshot is.
type Snapshot struct {
	Table    string    `json:"table"` // being read
	Rows     int64     `json:"rows"`  // read so far
	Estimate int64     `json:"rows_estimate"`
	Since    time.Time `json:"since"` // this run began to read
}

// The states of a Report.
const (
	starting = "starting"
	standby  = "standby"
	active   = "active"
	waiting  = "waiting"
	draining = "draining"
	stopped  = "stopped"
)

// Limits says how long nothing may happen before an active instance no longer
// counts as moving (I8). A zero field stands for a minute.
type Limits struct {
	Source time.Duration // nothing heard from the source while nothing is in flight
	Sink   time.Duration // nothing acknowledged while events are in flight
	Save   time.Duration // saves fail while events are unsaved
}

func (l Limits) orDefault() Limits {
	for _, d := range []*time.Duration{&l.Source, &l.Sink, &l.Save} {
		if *d == 0 {
			*d = time.Minute
		}
	}
	return l
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready bool   `json:"ready"`
	Role  string `json:"role,omitempty"` // active or standby; "" when neither
	State string `json:"state"`
	// Reason says why it is not ready, or what an active instance is blocked by,
	// or what its events wait for while that is not too long.
	Reason string `json:"reason,omitempty"`
}

// Ready judges a report: an active instance that moves and a healthy standby are ready.
func (l Limits) Ready(r Report, now time.Time) Readiness {
	a := Readiness{State: r.State}
	switch r.State {
	case active:
		a.Role = active
		a.Reason = l.blocked(r, now)
		a.Ready = a.Reason == ""
		if a.Ready {
			a.Reason = waits(r)
		}
	case standby:
		a.Role, a.Ready = standby, true
	case draining:
		a.Role, a.Reason = active, "draining: it stops"
		if w := waits(r); w != "" {
			a.Reason += "; " + w
		}
	case starting, waiting, stopped:
		if a.Reason = r.State; r.Err != nil {
			a.Reason = fmt.Sprintf("%s: %v", r.State, r.Err)
		}
	default:
		a.Reason = fmt.Sprintf("unknown state %q", r.State)
	}
	return a
}

// blocked says what keeps an active instance from moving, "" when nothing does.
func (l Limits) blocked(r Report, now time.Time) string {
	quiet := func(limit time.Duration, events ...time.Time) (time.Duration, bool) {
		last := r.Since
		for _, e := range events {
			if e.After(last) {
				last = e
			}
		}
		d := now.Sub(last)
		return d.Round(time.Second), d > limit
	}
	if r.SaveErr != nil && r.UnsavedEvents > 0 {
		if d, over := quiet(l.Save, r.LastSaved); over || r.WindowFull {
			return fmt.Sprintf("no checkpoint saved for %s, %d events unsaved: %v", d, r.UnsavedEvents, r.SaveErr)
		}
	}
	if r.InFlightEvents > 0 {
		// After a quiet time the last ack is old, but the oldest event in flight
		// is not. It can't have been read after the last read, whatever the
		// database's clock says.
		begun := r.OldestCommit
		if begun.After(r.LastRead) {
			begun = r.LastRead
		}
		if d, over := quiet(l.Sink, r.LastDelivered, begun); over {
			reason := fmt.Sprintf("no acknowledgement from the sink for %s, %d events in flight", d, r.InFlightEvents)
			if r.Waits != "" {
				reason += ": " + r.Waits
			}
			return reason
		}
		return ""
	}
	if d, over := quiet(l.Source, r.LastHeard, r.LastRead); over {
		return fmt.Sprintf("nothing heard from the source for %s", d)
	}
	return ""
}

// waits says what events in flight wait for, "" when the sink tells of nothing.
func waits(r Report) string {
	if r.Waits == "" {
		return ""
	}
	return fmt.Sprintf("%d events wait: %s", r.InFlightEvents, r.Waits)
}
