package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/sinktest"
	"github.com/outboxd/outboxd/source"
)

func exactlyOnce(t *testing.T) *rig {
	r := newRig(t)
	r.transactions = &Transactions{
		Interval: 100 * time.Millisecond, Timeout: 15 * time.Second,
		Record: func(c checkpoint.Checkpoint) sink.Message {
			value, err := json.Marshal(c)
			if err != nil {
				t.Error(err)
			}
			return sink.Message{Topic: "checkpoints", Value: value}
		},
	}
	return r
}

// committed stores the checkpoint that a transaction brought along.
func (r *rig) committed(record sink.Message) {
	var c checkpoint.Checkpoint
	if err := json.Unmarshal(record.Value, &c); err != nil {
		r.t.Error(err)
	}
	if err := r.store.Save(r.t.Context(), c); err != nil {
		r.t.Error(err)
	}
}

// visible checks what readers of committed messages see: everything once, in order.
func (r *rig) visible(what string, ids ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var got []string
	for _, s := range r.sinks {
		for _, m := range s.Committed() {
			got = append(got, string(m.ID))
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(ids) {
		r.t.Errorf("%s: visible are %v, want %v", what, got, ids)
	}
}

func numbers(from, to int) (all []string) {
	for ; from <= to; from++ {
		all = append(all, fmt.Sprint(from))
	}
	return all
}

func TestExactlyOnceCommitsEventsAndPlaceTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		saves := len(r.store.Saves())
		time.Sleep(time.Minute)
		if n := len(r.sink().Committed()); n != 0 {
			t.Errorf("%d messages out of nothing", n)
		}
		r.sink().Hold()
		r.append("a", "b")
		r.append("c")
		time.Sleep(time.Second)
		r.visible("without an acknowledgement")
		if s := r.engine.Status(); s.EventsDelivered != 0 || s.Lag(time.Now()) < time.Second {
			t.Errorf("%d delivered, lag %s", s.EventsDelivered, s.Lag(time.Now()))
		}
		if r.source.Confirmed() != 0 {
			t.Error("confirmed before the commit")
		}
		r.sink().ReleaseAll()
		time.Sleep(time.Second)
		r.visible("committed", "1", "2", "3")
		if r.saved() != "fake:2" || r.source.Confirmed() != 2 {
			t.Errorf("saved %s, confirmed %d", r.saved(), r.source.Confirmed())
		}
		if s := r.engine.Status(); s.EventsDelivered != 3 || s.Lag(time.Now()) != 0 || s.UnsavedEvents != 0 {
			t.Errorf("%d delivered, lag %s, unsaved %d", s.EventsDelivered, s.Lag(time.Now()), s.UnsavedEvents)
		}
		if n := len(r.store.Saves()) - saves; n != 1 {
			t.Errorf("%d commits for one burst", n)
		}
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// A commit without an answer may have been carried out or not: the checkpoint tells.
func TestExactlyOnceCommitInDoubt(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied %t", applied), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := exactlyOnce(t)
				r.start()
				r.append("a")
				time.Sleep(time.Second)
				r.sink().FailCommit(errors.New("connection lost"), applied)
				r.append("b", "b")
				time.Sleep(10 * time.Second)
				r.append("c")
				time.Sleep(10 * time.Second)
				r.visible("after a commit in doubt", numbers(1, 4)...)
				if err := r.end(true); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A commit fails while the next batch is on its way into the sink, and stuck there: closing the sink frees it.
func TestExactlyOnceStuckInAFailedSink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		r.append("a") // is committed at once
		synctest.Wait()
		r.append("b") // not yet
		synctest.Wait()
		r.sink().Hold()
		r.append("c")
		time.Sleep(time.Second) // the commit waits for it
		r.append("d")           // and this one for the commit
		synctest.Wait()
		r.sink().FailCommit(errors.New("connection lost"), false)
		r.sink().Stick()
		r.sink().ReleaseAll()
		time.Sleep(time.Minute)
		r.visible("by the next sink", numbers(1, 4)...)
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

func TestExactlyOnceSinkFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		r.append("a")
		time.Sleep(time.Second)
		r.sink().FailAfter(1, errors.New("fenced"))
		r.append("b")
		r.append("c")
		time.Sleep(10 * time.Second)
		r.visible("after a void transaction", numbers(1, 3)...)
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// A stream that breaks leaves the transaction alone: it is committed, and the sink goes on.
func TestExactlyOnceStreamBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		r.append("a")
		r.source.BreakStream(errors.New("cut"))
		time.Sleep(5 * time.Second)
		r.append("b")
		time.Sleep(5 * time.Second)
		r.visible("after a broken stream", "1", "2")
		if len(r.sinks) != 1 {
			t.Errorf("%d sinks", len(r.sinks))
		}
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// I9: without the lease nothing is committed, and what was not is sent again by whoever gets it.
func TestExactlyOnceLeaseLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		r.append("a")
		time.Sleep(time.Second)
		r.sink().Hold()
		r.append("b")
		synctest.Wait()
		r.source.LoseLease(true)
		time.Sleep(time.Minute)
		r.visible("without the lease", "1")
		r.source.FreeLease()
		time.Sleep(5 * time.Second)
		r.visible("with a new lease", "1", "2")
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// A source transaction that outlasts one of Kafka's is cut, and goes on behind the
// rows that are committed, whatever happens in between.
func TestExactlyOnceCutsALongTransaction(t *testing.T) {
	t.Parallel()
	many := strings.Fields(strings.Repeat("a b c ", 100))
	for _, c := range []struct {
		name string
		do   func(r *rig)
	}{
		{"the sink fails", func(r *rig) { r.sink().Fail(errors.New("fenced")) }},
		{"the stream breaks", func(r *rig) { r.source.BreakStream(errors.New("cut")) }},
		{"a commit in doubt", func(r *rig) { r.sink().FailCommit(errors.New("no answer"), true) }},
		{"the process is cut", func(r *rig) {
			r.cut()
			<-r.result
			r.start()
		}},
		{"the process ends", func(r *rig) {
			r.sink().ReleaseAll()
			if err := r.end(true); err != nil {
				r.t.Error(err)
			}
			r.start()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := exactlyOnce(t)
				r.source.Piece = 20 // of 300; 100 fit into the buffer
				r.start()
				r.append("first")
				time.Sleep(time.Second)
				r.sink().Hold()
				r.append(many...)
				synctest.Wait()
				for range 2 { // what was in the buffer, and what came before the commit shut the door
					r.sink().ReleaseN(5)
					time.Sleep(6 * time.Second)
				}
				if saves := r.store.Saves(); saves[len(saves)-1].Done.Rows == 0 {
					t.Fatalf("not cut: %+v", saves)
				}
				c.do(r)
				r.sink().ReleaseAll()
				time.Sleep(time.Minute)
				r.append("last")
				time.Sleep(time.Minute)
				r.visible(c.name, numbers(1, 302)...)
				if saves := r.store.Saves(); saves[len(saves)-1].Done != (checkpoint.Done{}) {
					t.Errorf("the place is %+v", saves[len(saves)-1])
				}
				if err := r.end(true); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What is to be skipped must be what was delivered.
func TestExactlyOnceRefusesOtherRows(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]checkpoint.Done{
		"another transaction": {Tx: "7", Rows: 2, ID: "2"},
		"another event":       {Tx: "1", Rows: 2, ID: "9"},
		"more rows":           {Tx: "1", Rows: 4, ID: "4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := exactlyOnce(t)
				r.append("a", "b", "c")
				r.append("d")
				r.store.Put(checkpoint.Checkpoint{Name: "test", Position: "fake:0", Done: done, SavedAt: time.Now()})
				r.start()
				err := r.end(false)
				if f := fault.As(err); f == nil || f.Code != fault.CodeDiverged {
					t.Errorf("ended with %v", err)
				}
				r.visible("nothing")
			})
		})
	}
}

// An event that Kafka refuses makes its transaction void: what stands before it
// is sent again without it, and it stops there.
func TestExactlyOnceRefusedEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.prepare = func(f *sinktest.Fake) {
			f.RefuseSent = func(m *sink.Message) *sink.Refusal {
				if string(m.ID) == "4" {
					return &sink.Refusal{Reason: "too_large", Fix: "raise it"}
				}
				return nil
			}
		}
		r.start()
		r.append("a")
		r.append("b")
		r.append("c", "refused", "d")
		r.append("e")
		err := r.end(false)
		if f := fault.As(err); f == nil || f.Code != fault.CodeEventRefused {
			t.Errorf("ended with %v", err)
		}
		r.visible("what stands before it", "1", "2", "3")
		r.start()
		_ = r.end(false)
		r.visible("nothing more at the next start", "1", "2", "3")
	})
}

// What is acknowledged and not committed when the lease is lost is void, too.
func TestExactlyOnceLeaseLostBeforeACommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.transactions.Interval = 4 * time.Second
		r.start()
		r.append("a")
		time.Sleep(time.Second)
		r.append("b")
		synctest.Wait()
		r.source.LoseLease(true)
		time.Sleep(time.Minute)
		r.visible("without the lease", "1")
		r.source.FreeLease()
		time.Sleep(time.Minute)
		r.visible("with a new lease", "1", "2")
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// As long as there is time a source transaction is committed whole.
func TestExactlyOnceDoesNotCutInHaste(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.source.Piece = 20
		r.start()
		r.append("first")
		time.Sleep(time.Second)
		r.sink().Hold()
		r.append(strings.Fields(strings.Repeat("a b c ", 100))...)
		synctest.Wait()
		for range 2 {
			r.sink().ReleaseN(5)
			time.Sleep(time.Second)
		}
		r.sink().ReleaseAll()
		time.Sleep(time.Second)
		r.visible("all of it", numbers(1, 301)...)
		for _, c := range r.store.Saves() {
			if c.Done != (checkpoint.Done{}) {
				t.Errorf("cut at %+v", c.Done)
			}
		}
		_ = r.end(true)
	})
}

// Idle progress before a transaction that was cut must not bury how far it was done.
func TestRestIgnoresIdleProgress(t *testing.T) {
	t.Parallel()
	r := &run{skip: checkpoint.Done{Tx: "1", Rows: 2, ID: "2"}}
	if b, err := r.rest(source.Batch{Position: "fake:1"}); err != nil || b.Position != "" {
		t.Errorf("position %q, %v", b.Position, err)
	}
}

// A first start that was refused leaves no intent behind: the next one must not
// take what is on the server for half-made work.
func TestEngineRefusedFirstStartLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.FailBegin(fault.Config(fault.CodeConfig, "choose", nil, "the table holds rows"))
		r.start()
		if err := r.end(false); fault.As(err) == nil {
			t.Errorf("ended with %v", err)
		}
		if c, err := r.store.Load(t.Context()); !errors.Is(err, checkpoint.ErrNone) {
			t.Errorf("%+v is left, %v", c, err)
		}
	})
}

// A transaction that comes in pieces: what is delivered of it when the stream
// breaks, or the lease is lost for a moment, doesn't come again from the same process.
func TestEngineRepeatsNothingInsideATransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		do   func(r *rig)
	}{
		{"the stream breaks", func(r *rig) { r.source.BreakStream(errors.New("cut")) }},
		{"the lease is lost", func(r *rig) { r.source.LoseLease(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.source.Piece = 20 // of 300; 100 fit into the buffer
				r.start()
				r.append("first")
				time.Sleep(3 * time.Second)
				r.sink().Hold()
				r.append(strings.Fields(strings.Repeat("a b c ", 100))...)
				synctest.Wait()
				r.sink().ReleaseN(5)
				synctest.Wait()
				c.do(r)
				r.sink().ReleaseAll()
				time.Sleep(time.Minute)
				if got := r.delivered(); fmt.Sprint(got) != fmt.Sprint(numbers(1, 301)) {
					t.Errorf("delivered %v", got)
				}
				if r.saved() != "fake:2" {
					t.Errorf("saved %s", r.saved())
				}
				_ = r.end(true)
			})
		})
	}
}

// Of several saves without an answer any may have been stored: each is our own.
func TestEngineKnowsEachOfItsSavesInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.store.HoldSaves()
		r.append("b")
		time.Sleep(time.Second)
		r.append("c")
		time.Sleep(30 * time.Second) // the first try is given up, others follow
		synctest.Wait()
		if n := len(r.engine.tried); n != 2 {
			t.Fatalf("%d tries are remembered, want one for each place", n)
		}
		first := r.engine.tried[0]
		r.source.LoseLease(true)
		time.Sleep(5 * time.Second)
		r.store.ReleaseSaves()
		r.store.Put(first)
		r.source.FreeLease()
		time.Sleep(10 * time.Second)
		_ = r.end(true)
		r.expect("nothing twice", 1, 2, 3)
	})
}

// What is acknowledged in a void transaction must not be saved by a stop that
// comes before the next sink is there.
func TestExactlyOnceStopAfterAVoidTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.start()
		r.append("a")
		time.Sleep(time.Second)
		var down bool
		r.openErr = func() error {
			if down {
				return errors.New("no broker")
			}
			return nil
		}
		down = true
		r.sink().FailCommit(errors.New("no answer"), false)
		r.append("b")
		r.append("c")
		time.Sleep(5 * time.Second)
		_ = r.end(true)
		down = false
		r.append("d")
		r.start()
		time.Sleep(5 * time.Second)
		r.visible("after the next start", numbers(1, 4)...)
		_ = r.end(true)
	})
}

// A sink that fails while the lease is gone is closed, not waited for.
func TestEngineSinkFailsWithoutTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.sink().Hold()
		r.append("b")
		r.append("c")
		synctest.Wait()
		r.engine.tracker.mu.Lock()
		r.engine.tracker.err = errLeaseLost // a ticket that was held back under load
		r.engine.tracker.mu.Unlock()
		r.source.LoseLease(true)
		time.Sleep(5 * time.Second)
		r.sink().FailOne(errors.New("the topic is gone"))
		r.source.FreeLease()
		time.Sleep(time.Minute)
		r.expect("sent by the next sink", 1, 2, 3)
		_ = r.end(true)
	})
}

// A lease that was doubted for a moment and held all the time: nothing is sent twice.
func TestEngineDoubtedLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.sink().Stall()
		r.append("b")
		synctest.Wait()
		r.source.DoubtLease(true)
		r.append("c")
		synctest.Wait()
		r.source.DoubtLease(false)
		time.Sleep(time.Minute)
		r.expect("once each", 1, 2, 3)
		if n := len(r.sinks); n != 1 {
			t.Errorf("%d sinks", n)
		}
		_ = r.end(true)
	})
}

// Whoever loads a checkpoint saves it anew before it publishes, so that one that
// comes back knows that another one was active, even if that one saved nothing more.
func TestEngineClaimsTheCheckpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.Append(time.Now(), &r.nextID, "a")
		before := checkpoint.Checkpoint{Name: "test", Position: "fake:0", SavedAt: time.Now().Add(-time.Hour)}
		r.store.Put(before)
		r.prepare = func(f *sinktest.Fake) { f.Hold() }
		r.start()
		if c, err := r.store.Load(t.Context()); err != nil || c.Equal(before) || c.Position != "fake:0" {
			t.Errorf("%+v, %v", c, err)
		}
		r.sink().ReleaseAll()
		_ = r.end(true)
	})
}
