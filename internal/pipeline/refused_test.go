package pipeline

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/sinktest"
)

// refusing makes every sink refuse the events of key "bad" after they were sent.
func (r *rig) refusing() {
	r.prepare = func(f *sinktest.Fake) {
		f.RefuseSent = func(m *sink.Message) *sink.Refusal {
			if string(m.Key) == "bad" && !r.mended {
				return &sink.Refusal{Reason: "policy_violation", Fix: "see the policy"}
			}
			return nil
		}
	}
}

func (r *rig) copies() map[string]int {
	n := map[string]int{}
	for _, id := range r.delivered() {
		n[id]++
	}
	return n
}

// Twenty starts against an event that the brokers refuse add at most one copy of
// any other, even of those that stand before it in its transaction.
func TestEngineStartsAgainstARefusedEventAddNoCopies(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"bad", "unroutable"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.refusing()
				r.source.Together = 10
				r.start()
				r.append("a")
				r.append("b", "c", key, "d")
				r.append("e")
				for range 20 {
					if err := r.end(false); !fault.Is(err, fault.CodeEventRefused) {
						t.Fatalf("result %v", err)
					}
					r.start()
				}
				_ = r.end(false)
				for id, n := range r.copies() {
					if n > 2 {
						t.Errorf("event %s was delivered %d times", id, n)
					}
				}
				c := r.store.Saves()[len(r.store.Saves())-1]
				if c.Refused == nil || c.Refused.Row != 2 || c.Refused.Tx != "2" || c.Done.Rows != 2 {
					t.Errorf("saved %+v, refused %+v", c, c.Refused)
				}
			})
		})
	}
}

// An event that is taken after all is not lost, and what stands behind it follows.
func TestEngineGoesOnWhenARefusedEventIsTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.refusing()
		r.start()
		r.append("a", "bad", "b")
		if err := r.end(false); !fault.Is(err, fault.CodeEventRefused) {
			t.Fatalf("result %v", err)
		}
		r.mended = true
		r.start()
		time.Sleep(5 * time.Second)
		r.expect("all of it", 1, 2, 3)
		if c := r.store.Saves()[len(r.store.Saves())-1]; c.Refused != nil || c.Position != "fake:1" {
			t.Errorf("saved %+v", c)
		}
		_ = r.end(true)
	})
}

// A decision beside the refused place leaves out that event and no other.
func TestEngineSkipsByDecision(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"bad", "unroutable"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.refusing()
				r.start()
				r.append("a", key, "b")
				r.append("c")
				if err := r.end(false); !fault.Is(err, fault.CodeEventRefused) {
					t.Fatalf("result %v", err)
				}
				c := r.store.Saves()[len(r.store.Saves())-1]
				decided := *c.Refused
				decided.Skip = true
				c.Refused = &decided
				r.store.Put(c)
				r.start()
				time.Sleep(5 * time.Second)
				r.expect("all but it", 1, 3, 4)
				_ = r.end(true)
			})
		})
	}
}

// OUTBOXD_ON_REJECT=skip leaves out what can't be published, however it is found out.
func TestEngineSkipsWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("exactly once %t", once), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if once {
					r = exactlyOnce(t)
				}
				r.onReject = Skip
				r.refusing()
				r.source.Together = 10
				r.start()
				r.append("a", "unroutable", "bad", "b")
				r.append("bad", "c")
				r.append("unroutable")
				r.append("d")
				time.Sleep(time.Minute)
				got := map[string]bool{}
				for _, id := range r.delivered() {
					got[id] = true
				}
				for _, id := range []string{"1", "4", "6", "8"} {
					if !got[id] {
						t.Errorf("event %s was not delivered", id)
					}
				}
				if len(got) != 4 {
					t.Errorf("delivered %v", got)
				}
				if err := r.end(true); err != nil {
					t.Error(err)
				}
				if r.saved() != "fake:4" && !once {
					t.Errorf("saved %q", r.saved())
				}
			})
		})
	}
}

// Exactly once the decision survives commits of the same transaction.
func TestCheckpointRefusedIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := exactlyOnce(t)
		r.refusing()
		r.start()
		r.append("a")
		r.append("b", "bad", "c")
		if err := r.end(false); !fault.Is(err, fault.CodeEventRefused) {
			t.Fatalf("result %v", err)
		}
		c, err := r.store.Load(t.Context())
		if err != nil || c.Refused == nil || c.Refused.ID != "3" || c.Done != (checkpoint.Done{Tx: "2", Rows: 1, ID: "2"}) {
			t.Errorf("stored %+v, refused %+v, %v", c, c.Refused, err)
		}
		r.visible("what stands before it", "1", "2")
	})
}

// What the sink wants sent alone repeats nothing when it is refused: nothing else was under way.
func TestEngineSendsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.onReject = Skip
		r.refusing()
		r.wrap = func(s sink.Sink) sink.Sink { return isolating{s.(*sinktest.Fake), t} }
		r.source.Together = 10
		r.start()
		r.append("a", "b", "bad", "c")
		r.append("bad", "d")
		r.append("e")
		time.Sleep(time.Minute)
		r.expect("all but the refused, each once", 1, 2, 4, 6, 7)
		_ = r.end(true)
	})
}

// isolating wants the events of key "bad" alone.
type isolating struct {
	*sinktest.Fake
	t *testing.T
}

func (f isolating) Publish(ctx context.Context, batch []sink.Message, done func(error)) {
	for i := range batch {
		if f.Isolate(&batch[i]) && (len(batch) > 1 || f.Held() > 0) {
			f.t.Errorf("an event that goes alone was published among %d others, %d batches held", len(batch)-1, f.Held())
		}
	}
	f.Fake.Publish(ctx, batch, done)
}

func (isolating) Isolate(m *sink.Message) bool { return string(m.Key) == "bad" }
