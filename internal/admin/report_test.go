package admin

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// limits differ, so that a test tells which one was used.
var limits = Limits{Source: 30 * time.Second, Sink: 20 * time.Second, Save: 10 * time.Second}

func TestReady(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	tests := []struct {
		name   string
		report Report
		ready  bool
		role   string
		reason string // part of it
	}{
		{"starting", Report{State: starting}, false, "", "starting"},
		{"starting after a failure", Report{State: starting, Err: errors.New("no route")}, false, "", "no route"},
		{"standby", Report{State: standby, Since: ago(hour)}, true, "standby", ""},
		{"waiting", Report{State: waiting, Err: errors.New("no broker")}, false, "", "no broker"},
		{"draining", Report{State: draining}, false, "active", "draining"},
		{"stopped", Report{State: stopped, Err: fault.Position(fault.CodePositionLost, "", nil, "slot is gone")}, false, "", "position_lost: slot is gone"},
		{"state of another version", Report{State: "dancing"}, false, "", "dancing"},

		{"just begun", Report{State: active, Since: ago(29 * time.Second)}, true, "active", ""},
		{"quiet, heartbeats come", Report{State: active, Since: ago(hour), LastHeard: ago(29 * time.Second), LastRead: ago(hour)}, true, "active", ""},
		{"quiet, batches come", Report{State: active, Since: ago(hour), LastRead: ago(29 * time.Second)}, true, "active", ""},
		{"source silent", Report{State: active, Since: ago(hour), LastHeard: ago(31 * time.Second)}, false, "active", "nothing heard from the source for 31s"},
		{"acks of long ago do not make the source heard", Report{State: active, Since: ago(hour), LastDelivered: ago(time.Second)}, false, "active", "source"},

		{"acks come", Report{State: active, Since: ago(hour), InFlightEvents: 9, OldestCommit: ago(hour), LastRead: ago(hour), LastDelivered: ago(19 * time.Second)}, true, "active", ""},
		{"no ack", Report{State: active, Since: ago(hour), InFlightEvents: 9, OldestCommit: ago(hour), LastRead: ago(0), LastHeard: ago(0), LastDelivered: ago(21 * time.Second)}, false, "active", "no acknowledgement from the sink for 21s, 9 events"},
		{"first event after a quiet hour", Report{State: active, Since: ago(hour), InFlightEvents: 1, OldestCommit: ago(time.Second), LastRead: ago(0), LastDelivered: ago(hour)}, true, "active", ""},
		{"backlog, just begun", Report{State: active, Since: ago(19 * time.Second), InFlightEvents: 1, OldestCommit: ago(hour), LastRead: ago(0)}, true, "active", ""},
		{"events wait, not for long", Report{State: active, Since: ago(hour), InFlightEvents: 9, OldestCommit: now, LastRead: now, LastDelivered: now, Waits: "no topic"}, true, "active", "9 events wait: no topic"},
		{"events wait", Report{State: active, Since: ago(hour), InFlightEvents: 9, OldestCommit: ago(hour), LastRead: now, LastDelivered: ago(21 * time.Second), Waits: "no topic"}, false, "active", "for 21s, 9 events in flight: no topic"},
		{"draining, events wait", Report{State: draining, InFlightEvents: 9, Waits: "no topic"}, false, "active", "draining: it stops; 9 events wait: no topic"},
		{"database's clock ahead hides nothing", Report{State: active, Since: ago(hour), InFlightEvents: 1, OldestCommit: now.Add(hour), LastRead: ago(21 * time.Second), LastDelivered: ago(hour)}, false, "active", "sink"},

		{"saves fail, not for long", Report{State: active, Since: ago(hour), LastHeard: now, SaveErr: errors.New("disk full"), UnsavedEvents: 3, LastSaved: ago(9 * time.Second)}, true, "active", ""},
		{"saves fail", Report{State: active, Since: ago(hour), LastHeard: now, SaveErr: errors.New("disk full"), UnsavedEvents: 3, LastSaved: ago(11 * time.Second)}, false, "active", "11s, 3 events unsaved: disk full"},
		{"saves fail and the window is full", Report{State: active, Since: ago(hour), LastHeard: now, SaveErr: errors.New("disk full"), UnsavedEvents: 3, WindowFull: true, LastSaved: ago(time.Second)}, false, "active", "1s, 3 events unsaved: disk full"},
		{"saves fail, nothing to save", Report{State: active, Since: ago(hour), LastHeard: now, SaveErr: errors.New("disk full"), LastSaved: ago(hour)}, true, "active", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := limits.Ready(tt.report, now)
			if got.Ready != tt.ready || got.Role != tt.role || got.State != tt.report.State {
				t.Errorf("got %+v, want ready %v as %q", got, tt.ready, tt.role)
			}
			if !strings.Contains(got.Reason, tt.reason) || got.Ready && tt.reason == "" && got.Reason != "" {
				t.Errorf("reason %q, want %q", got.Reason, tt.reason)
			}
		})
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	const head = "orders is "
	since := " since 2026-11-30T11:58:58Z (1m2s)"
	lost := fault.Position(fault.CodePositionLost, "Make a new slot.", errors.New("42704"), "slot %q is gone", "orders")
	tests := []struct {
		name   string
		report Report
		want   string
	}{
		{"starting", Report{State: starting}, "starting" + since + ": it takes the lease and opens the log; nothing to do."},
		{"standby", Report{State: standby, Holder: "pid 7 on 10.0.0.1"}, "standby" + since + ": pid 7 on 10.0.0.1 is the active one, this one takes over when that ends; nothing to do."},
		{"standby of somebody", Report{State: standby}, "standby" + since + ": another instance is the active one, this one takes over when that ends; nothing to do."},
		{"caught up", Report{State: active, CaughtUp: true, LastHeard: now}, "active" + since + ": caught up with the log; nothing to do."},
		{"behind", Report{State: active, InFlightEvents: 12, Lag: 3210 * time.Millisecond, LastDelivered: now}, "active" + since + ": publishing, 12 events in flight, 3.21s behind; nothing to do."},
		{"source silent", Report{State: active}, "active" + since + " but blocked: nothing heard from the source for 1m2s. See that the database is reachable and sends; it goes on by itself."},
		{"sink stuck", Report{State: active, InFlightEvents: 5}, "active" + since + " but blocked: no acknowledgement from the sink for 1m2s, 5 events in flight. See that the brokers are reachable and take writes; it goes on by itself."},
		{"events wait, not for long", Report{State: active, InFlightEvents: 5, LastDelivered: now, Waits: "no topic", WaitsFix: "create it"}, "active" + since + ", but 5 events wait: no topic. To do: create it; it goes on by itself."},
		{"events wait", Report{State: active, InFlightEvents: 5, Waits: "no topic", WaitsFix: "create it"}, "active" + since + " but blocked: no acknowledgement from the sink for 1m2s, 5 events in flight: no topic. To do: create it; it goes on by itself."},
		{"draining, events wait", Report{State: draining, InFlightEvents: 4, Waits: "no topic", WaitsFix: "create it"}, "draining" + since + ": it stops as soon as 4 events in flight are acknowledged, or when OUTBOXD_DRAIN_TIMEOUT is over, but they wait: no topic. To do: create it."},
		{"saves fail", Report{State: active, LastHeard: now, SaveErr: errors.New("disk full"), UnsavedEvents: 1}, "active" + since + " but blocked: no checkpoint saved for 1m2s, 1 events unsaved: disk full. Mend the checkpoint store; it goes on by itself."},
		{"a save failed", Report{State: active, LastHeard: now, SaveErr: errors.New("disk full"), UnsavedEvents: 1, LastSaved: now}, "active" + since + ", but the checkpoint can't be saved: disk full. Mend the checkpoint store; reading stops once OUTBOXD_CHECKPOINT_MAX_EVENTS are unsaved."},
		{"waiting", Report{State: waiting, Err: errors.New("dial:\n\trefused")}, "waiting" + since + ": dial: refused. It tries again by itself."},
		{"waiting, someone can help", Report{State: waiting, Err: fault.Config(fault.CodeAccessDenied, "Mend the password.", nil, "login refused")}, "waiting" + since + ": access_denied: login refused. It tries again by itself. To do: Mend the password."},
		{"draining", Report{State: draining, InFlightEvents: 4}, "draining" + since + ": it stops as soon as 4 events in flight are acknowledged; nothing to do."},
		{"stopped", Report{State: stopped, Err: lost}, "stopped" + since + `: position_lost: slot "orders" is gone: 42704. It does not go on by itself. To do: Make a new slot.`},
		{"stopped as asked", Report{State: stopped}, "stopped" + since + ": it was asked to; nothing to do."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := tt.report
			r.Name, r.Since = "orders", ago(62*time.Second)
			if got := sentence(r, limits.Ready(r, now), now); got != head+tt.want {
				t.Errorf("got  %s\nwant %s", got, head+tt.want)
			}
		})
	}
}
