package admin

import (
	"fmt"
	"strings"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// Status is the answer of /status.
type Status struct {
	// Sentence tells state, since when, what blocks it and what to do.
	Sentence string    `json:"sentence"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"`
	Ready    bool      `json:"ready"`
	Role     string    `json:"role,omitempty"`
	Holder   string    `json:"holder,omitempty"`
	Blocked  string    `json:"blocked,omitempty"`

	Positions struct {
		Read    string `json:"read"`
		Settled string `json:"settled"`
		Saved   string `json:"saved"`
	} `json:"positions"`
	InFlight struct {
		Events int   `json:"events"`
		Bytes  int64 `json:"bytes"`
	} `json:"in_flight"`
	UnsavedEvents int     `json:"unsaved_events"`
	LagSeconds    float64 `json:"lag_seconds"`
	CaughtUp      bool    `json:"caught_up"`

	Snapshot *Snapshot `json:"snapshot,omitempty"`

	Error     *Failure `json:"error,omitempty"`
	SaveError string   `json:"save_error,omitempty"`

	Last struct {
		Heard     time.Time `json:"heard,omitzero"`
		Read      time.Time `json:"read,omitzero"`
		Delivered time.Time `json:"delivered,omitzero"`
		Saved     time.Time `json:"saved,omitzero"`
	} `json:"last"`
	Source *Source `json:"source,omitempty"`
	Counts struct {
		Read      uint64 `json:"read"`
		Delivered uint64 `json:"delivered"`
		Sessions  uint64 `json:"sessions"`
	} `json:"counts"`
}

// Source is what the database keeps for the connector.
type Source struct {
	AskedAt           time.Time        `json:"asked_at"`
	RetainedBytes     int64            `json:"retained_bytes"`
	SecondsToLimit    *float64         `json:"seconds_to_limit,omitempty"`
	OldestTransaction *OpenTransaction `json:"oldest_transaction,omitempty"`
}

// OpenTransaction holds the database's log as long as it is open.
type OpenTransaction struct {
	Name    string    `json:"name"`
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"`
}

// Failure is an error as it is shown. Code, Found and Fix are there when someone must act.
type Failure struct {
	Code  string `json:"code,omitempty"`
	Found string `json:"found,omitempty"`
	Fix   string `json:"fix,omitempty"`
	Text  string `json:"text"` // the whole chain
}

func newStatus(r Report, a Readiness, now time.Time) Status {
	s := Status{
		Sentence: sentence(r, a, now), Name: r.Name, Version: r.Version, State: r.State, Since: r.Since,
		Ready: a.Ready, Role: a.Role, Holder: r.Holder, Blocked: a.Reason,
		UnsavedEvents: r.UnsavedEvents, LagSeconds: r.Lag.Seconds(), CaughtUp: r.CaughtUp,
		Error: newFailure(r.Err), Snapshot: r.Snapshot,
	}
	if r.SaveErr != nil {
		s.SaveError = r.SaveErr.Error()
	}
	s.Positions.Read, s.Positions.Settled, s.Positions.Saved = r.Read, r.Settled, r.Saved
	s.InFlight.Events, s.InFlight.Bytes = r.InFlightEvents, r.InFlightBytes
	s.Last.Heard, s.Last.Read, s.Last.Delivered, s.Last.Saved = r.LastHeard, r.LastRead, r.LastDelivered, r.LastSaved
	s.Source = newSource(r, now)
	s.Counts.Read, s.Counts.Delivered, s.Counts.Sessions = r.EventsRead, r.EventsDelivered, r.Sessions
	return s
}

func newSource(r Report, now time.Time) *Source {
	if r.RetentionAskedAt.IsZero() {
		return nil
	}
	s := &Source{AskedAt: r.RetentionAskedAt, RetainedBytes: r.RetainedBytes, SecondsToLimit: r.SecondsToLimit}
	if r.OldestOpen != "" {
		s.OldestTransaction = &OpenTransaction{Name: r.OldestOpen, Since: r.OldestOpenSince, Seconds: max(0, now.Sub(r.OldestOpenSince)).Seconds()}
	}
	return s
}

func newFailure(err error) *Failure {
	if err == nil {
		return nil
	}
	f := &Failure{Text: err.Error()}
	if e := fault.As(err); e != nil {
		f.Code, f.Found, f.Fix = e.Code, e.Found, e.Fix
	}
	return f
}

// sentence is what an operator reads first.
func sentence(r Report, a Readiness, now time.Time) string {
	const nothing = "nothing to do."
	head := fmt.Sprintf("%s is %s since %s (%s)", r.Name, r.State, r.Since.UTC().Format(time.RFC3339), now.Sub(r.Since).Round(time.Second))
	switch {
	case r.State == active && !a.Ready:
		return fmt.Sprintf("%s but blocked: %s. %s", head, a.Reason, remedy(r))
	case r.State == active && r.SaveErr == nil && r.Waits != "":
		return fmt.Sprintf("%s, but %s. %s", head, waits(r), remedy(r))
	case r.State == active && r.SaveErr != nil:
		return fmt.Sprintf("%s, but the checkpoint can't be saved: %v. Mend the checkpoint store; reading stops once OUTBOXD_CHECKPOINT_MAX_EVENTS are unsaved.", head, r.SaveErr)
	case r.State == active && r.Snapshot != nil:
		return fmt.Sprintf("%s: publishing the rows that were there before the first start, %d of about %d read (%s), then the log; %s",
			head, r.Snapshot.Rows, r.Snapshot.Estimate, r.Snapshot.Table, nothing)
	case r.State == active && r.CaughtUp:
		return fmt.Sprintf("%s: caught up with the log; %s", head, nothing)
	case r.State == active:
		return fmt.Sprintf("%s: publishing, %d events in flight, %s behind; %s", head, r.InFlightEvents, r.Lag.Round(time.Millisecond), nothing)
	case r.State == standby:
		return fmt.Sprintf("%s: %s is the active one, this one takes over when that ends; %s", head, orElse(r.Holder, "another instance"), nothing)
	case r.State == draining && r.Waits != "":
		return fmt.Sprintf("%s: it stops as soon as %d events in flight are acknowledged, or when OUTBOXD_DRAIN_TIMEOUT is over, but they wait: %s. To do: %s.", head, r.InFlightEvents, r.Waits, r.WaitsFix)
	case r.State == draining:
		return fmt.Sprintf("%s: it stops as soon as %d events in flight are acknowledged; %s", head, r.InFlightEvents, nothing)
	case r.Err == nil && r.State == stopped:
		return fmt.Sprintf("%s: it was asked to; %s", head, nothing)
	case r.Err == nil:
		return fmt.Sprintf("%s: it takes the lease and opens the log; %s", head, nothing)
	}
	doing := "It tries again by itself."
	if r.State == stopped {
		doing = "It does not go on by itself."
	}
	fix := ""
	if f := fault.As(r.Err); f != nil && f.Fix != "" {
		fix = " To do: " + f.Fix
	}
	return fmt.Sprintf("%s: %s. %s%s", head, oneLine(r.Err), doing, fix)
}

// remedy says what to do about an active instance that does not move.
func remedy(r Report) string {
	switch {
	case r.SaveErr != nil && r.UnsavedEvents > 0:
		return "Mend the checkpoint store; it goes on by itself."
	case r.Waits != "":
		return "To do: " + r.WaitsFix + "; it goes on by itself."
	case r.InFlightEvents > 0:
		return "See that the brokers are reachable and take writes; it goes on by itself."
	}
	return "See that the database is reachable and sends; it goes on by itself."
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
