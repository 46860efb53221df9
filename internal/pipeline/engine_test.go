package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/checkpointtest"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/sinktest"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/sourcetest"
)

// rig is an engine on fakes. It runs inside a synctest bubble: time is false
// and moves only when every goroutine waits.
type rig struct {
	t      *testing.T
	source *sourcetest.Fake
	store  *checkpointtest.Memory
	engine *Engine
	stop   chan struct{}
	cut    context.CancelFunc
	result chan error
	nextID int

	transactions *Transactions
	onReject     OnReject
	mended       bool // the sinks refuse nothing any more
	mu           sync.Mutex
	sinks        []*sinktest.Fake
	prepare      func(*sinktest.Fake)
	wrap         func(sink.Sink) sink.Sink
	openErr      func() error
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, source: sourcetest.NewFake(), store: &checkpointtest.Memory{}}
}

func route(rows []source.Row, dst []sink.Message) ([]sink.Message, error) {
	for _, r := range rows {
		m := sink.Message{Topic: "t", ID: r.Values[0].Data, Key: r.Values[1].Data, Value: r.Values[2].Data, Table: r.Table.String()}
		if string(m.Key) == "unroutable" {
			return dst, fmt.Errorf("event %q: %w", m.ID, &sink.Refusal{Reason: "null_key"})
		}
		dst = append(dst, m)
	}
	return dst, nil
}

func (r *rig) start() {
	var ctx context.Context
	ctx, r.cut = context.WithCancel(context.Background())
	r.stop, r.result = make(chan struct{}), make(chan error, 1)
	r.engine = New(Config{
		Name: "test", Source: r.source, Store: r.store, Route: route, Start: source.StartNow,
		OpenSink: func(context.Context) (sink.Sink, error) {
			f := &sinktest.Fake{OnCommit: r.committed}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.openErr != nil {
				if err := r.openErr(); err != nil {
					return nil, err
				}
			}
			if r.prepare != nil {
				r.prepare(f)
			}
			r.sinks = append(r.sinks, f)
			if r.wrap != nil {
				return r.wrap(f), nil
			}
			return f, nil
		},
		BufferEvents: 100, BufferBytes: 1 << 20, CheckpointInterval: time.Second, CheckpointMaxEvents: 50,
		DrainTimeout: 20 * time.Second, Log: zap.NewNop(), Transactions: r.transactions, OnReject: r.onReject,
	})
	stop, result := r.stop, r.result
	go func() { result <- r.engine.Run(ctx, stop) }()
	synctest.Wait()
}

func (r *rig) append(aggregates ...string) {
	r.source.Append(time.Now(), &r.nextID, aggregates...)
}

func (r *rig) sink() *sinktest.Fake {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sinks[len(r.sinks)-1]
}

// delivered gives the ids all sinks acknowledged, in order.
func (r *rig) delivered() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, s := range r.sinks {
		for _, m := range s.Delivered() {
			ids = append(ids, string(m.ID))
		}
	}
	return ids
}

func (r *rig) expect(what string, ids ...int) {
	r.t.Helper()
	want := make([]string, len(ids))
	for i, id := range ids {
		want[i] = fmt.Sprint(id)
	}
	if got := r.delivered(); fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("%s: delivered %v, want %v", what, got, want)
	}
}

func (r *rig) saved() source.Position {
	saves := r.store.Saves()
	if len(saves) == 0 {
		return ""
	}
	return saves[len(saves)-1].Position
}

// end waits for the result; a stop is asked for when ask is set.
func (r *rig) end(ask bool) error {
	r.t.Helper()
	if ask {
		close(r.stop)
	}
	err := <-r.result
	r.cut()
	for _, b := range r.source.Broken() {
		r.t.Errorf("contract of the source: %s", b)
	}
	return err
}

func TestEngineDeliversSavesAndConfirms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a", "b")
		r.append("a")
		time.Sleep(2 * time.Second)
		r.expect("two transactions", 1, 2, 3)
		if r.saved() != "fake:2" || r.source.Confirmed() != 2 {
			t.Errorf("saved %q, confirmed %d", r.saved(), r.source.Confirmed())
		}
		if err := r.end(true); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

func TestEngineResumesWithoutRepeatAfterCleanStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		synctest.Wait()
		if err := r.end(true); err != nil {
			t.Fatal(err)
		}
		r.append("b")
		r.start()
		time.Sleep(time.Second)
		r.expect("after a clean stop", 1, 2)
		_ = r.end(true)
	})
}

// I2: while saves fail nothing is confirmed, and reading stops at the window.
func TestEngineStopsReadingWhenSavesFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.store.FailSave(errors.New("disk full"))
		for range 200 {
			r.append("a")
		}
		time.Sleep(time.Minute)
		if n := len(r.delivered()); n < 50 || n > 51 {
			t.Errorf("delivered %d with a window of 50", n)
		}
		if r.source.Confirmed() != 0 {
			t.Error("confirmed what was not saved")
		}
		if s := r.engine.Status(); s.SaveErr == nil || !s.WindowFull {
			t.Errorf("status hides that saves fail and reading stands: %v, %t", s.SaveErr, s.WindowFull)
		}
		r.store.FailSave(nil)
		time.Sleep(time.Minute)
		if n := len(r.delivered()); n != 200 {
			t.Errorf("delivered %d of 200 after the repair", n)
		}
		if err := r.end(true); err != nil {
			t.Error(err)
		}
	})
}

// I4: a lost connection to the database repeats nothing, even when acks are still out.
func TestEngineReopensFromTheSettledPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.sink().Hold()
		r.append("a")
		r.append("b")
		synctest.Wait()
		r.source.BreakStream(errors.New("connection reset"))
		time.Sleep(5 * time.Second)
		if n := len(r.source.Opens()); n != 1 {
			t.Errorf("reopened %d times while a batch is in flight", n-1)
		}
		r.sink().ReleaseAll()
		r.append("c")
		time.Sleep(10 * time.Second)
		r.expect("after a reconnect", 1, 2, 3)
		_ = r.end(true)
	})
}

func TestEngineRewindsWhenTheSinkFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		synctest.Wait()
		r.sink().Hold()
		r.append("b")
		r.append("c")
		synctest.Wait()
		r.sink().Release(1) // c is durable, b is not
		r.sink().Fail(errors.New("broker gone"))
		time.Sleep(10 * time.Second)
		r.expect("b and what follows it again", 1, 3, 2, 3)
		if got := r.source.Opens(); got[len(got)-1] != "fake:1" {
			t.Errorf("reopened at %q", got[len(got)-1])
		}
		_ = r.end(true)
	})
}

// I9: nothing is sent or saved without the lease; nobody was active, so nothing repeats.
func TestEngineGoesOnAfterALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		saves := len(r.store.Saves())
		r.sink().Hold()
		r.append("b")
		synctest.Wait()
		r.source.LoseLease(true)
		time.Sleep(time.Second)
		r.sink().ReleaseAll() // the answer to what was on the wire still counts
		time.Sleep(5 * time.Second)
		if s := r.engine.Status(); s.State != Standby {
			t.Errorf("state %s without the lease", s.State)
		}
		r.append("c")
		time.Sleep(5 * time.Second)
		r.expect("as a standby", 1, 2)
		if len(r.store.Saves()) != saves {
			t.Error("saved without the lease")
		}
		r.source.FreeLease()
		time.Sleep(5 * time.Second)
		r.expect("active again", 1, 2, 3)
		_ = r.end(true)
	})
}

func TestEngineAbandonsWhatAnotherInstanceWentPast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.source.LoseLease(true)
		time.Sleep(5 * time.Second)
		r.append("b")
		r.append("c")
		r.store.Put(checkpoint.Checkpoint{Name: "test", Position: "fake:2", SavedAt: time.Now()}) // another one delivered b
		r.source.FreeLease()
		time.Sleep(5 * time.Second)
		r.expect("only what the other left", 1, 3)
		_ = r.end(true)
	})
}

// I5: what stands before a refused row is sent, nothing behind it, and the place stays before its transaction.
func TestEngineStopsAtARefusedRow(t *testing.T) {
	t.Parallel()
	judged := func(f *sinktest.Fake) {
		f.Refuse = func(m *sink.Message) *sink.Refusal {
			if string(m.Key) == "large" {
				return &sink.Refusal{Reason: "too_large"}
			}
			return nil
		}
	}
	for _, bad := range []string{"unroutable", "large"} {
		t.Run(bad, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.prepare = judged
				r.start()
				r.append("a")
				r.append("b", bad, "c")
				r.append("d")
				err := r.end(false)
				if f := fault.As(err); f == nil || f.Code != fault.CodeEventRefused || f.Exit != fault.ExitRefused {
					t.Errorf("result %v", err)
				}
				r.expect("up to the refused row", 1, 2)
				if r.saved() != "fake:1" {
					t.Errorf("saved %q", r.saved())
				}
			})
		})
	}
}

// Transactions before the refused one that share its batch are saved: twenty
// starts against it add no copy of them.
func TestEngineSavesWhatIsWholeBeforeARefusedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.Together = 10
		r.start()
		r.source.BreakStream(errors.New("so that the next batch holds all"))
		r.append("a")
		r.append("b")
		r.append("c", "unroutable", "d")
		for range 20 {
			if err := r.end(false); fault.ExitCode(err) != fault.ExitRefused {
				t.Fatalf("result %v", err)
			}
			r.start()
		}
		_ = r.end(false)
		copies := map[string]int{}
		for _, id := range r.delivered() {
			copies[id]++
		}
		if copies["1"] != 1 || copies["2"] != 1 || r.saved() != "fake:2" {
			t.Errorf("copies %v, saved %q", copies, r.saved())
		}
	})
}

// I9: what the sink has not sent when the lease is lost waits for the next one,
// and goes out then if nobody was active meanwhile: nothing is sent twice.
func TestEngineHoldsWhatIsNotSentWithoutTheLease(t *testing.T) {
	t.Parallel()
	for _, active := range []bool{false, true} {
		t.Run(fmt.Sprintf("another was active %t", active), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				r.append("a")
				time.Sleep(3 * time.Second)
				r.sink().Stall()
				r.append("b")
				r.append("c")
				synctest.Wait()
				if n := r.sink().Guarded(); n != 2 {
					t.Fatalf("%d batches wait in the sink, want 2", n)
				}
				r.source.LoseLease(true)
				time.Sleep(time.Minute)
				r.expect("without the lease", 1)
				if active {
					r.store.Put(checkpoint.Checkpoint{Name: "test", Position: "fake:2", SavedAt: time.Now()})
				}
				r.source.FreeLease()
				time.Sleep(5 * time.Second)
				if active {
					r.expect("what the other left", 1, 3)
				} else {
					r.expect("all of it", 1, 2, 3)
				}
				_ = r.end(true)
			})
		})
	}
}

// I9: a save that hangs must not keep the engine from acting on a lost lease.
func TestEngineLeavesWhileASaveHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.store.HoldSaves()
		r.append("b")
		synctest.Wait()
		r.sink().Hold()
		r.append("c")
		time.Sleep(2 * time.Second)
		r.source.LoseLease(true)
		synctest.Wait()
		if s := r.engine.Status(); s.State == Active {
			t.Error("still active without the lease")
		}
		r.sink().ReleaseAll()
		r.store.ReleaseSaves()
		r.source.FreeLease()
		time.Sleep(10 * time.Second)
		_ = r.end(true)
		r.expect("nothing twice", 1, 2, 3)
	})
}

// A save that was stored although its answer was lost is our own: nobody else was active.
func TestEngineKnowsItsOwnSaveInDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.store.HoldSaves()
		r.append("b")
		time.Sleep(2 * time.Second)
		r.append("c") // settled behind the save that hangs
		synctest.Wait()
		r.source.LoseLease(true)
		time.Sleep(5 * time.Second)
		r.store.ReleaseSaves()
		r.store.Put(r.engine.tried[0]) // it had arrived
		r.source.FreeLease()
		time.Sleep(10 * time.Second)
		_ = r.end(true)
		r.expect("nothing twice", 1, 2, 3)
	})
}

// A standby has nothing to save: what it knew is the active one's matter.
func TestEngineStopAsAStandbyIsClean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.store.FailSave(errors.New("slow"))
		r.append("b")
		time.Sleep(time.Second)
		r.source.LoseLease(true)
		time.Sleep(10 * time.Second)
		if err := r.end(true); err != nil {
			t.Errorf("result %v", err)
		}
	})
}

func TestEngineCutDoesNotWaitForAHangingSave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.store.HoldSaves()
		r.append("b")
		time.Sleep(2 * time.Second)
		before := time.Now()
		close(r.stop)
		time.Sleep(time.Second)
		r.cut()
		if err := r.end(false); !fault.Is(err, fault.CodeDrainIncomplete) {
			t.Errorf("result %v", err)
		}
		if d := time.Since(before); d > 3*time.Second {
			t.Errorf("took %s", d)
		}
		r.store.ReleaseSaves()
	})
}

// The last save, which begins at a cut, has a second and no more.
func TestEngineCutBoundsTheLastSave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		synctest.Wait()
		if r.saved() != "fake:1" {
			t.Fatalf("saved %q", r.saved())
		}
		r.store.HoldSaves()
		r.append("b") // its save is due a second later
		synctest.Wait()
		r.cut()
		before := time.Now()
		if err := r.end(false); !fault.Is(err, fault.CodeDrainIncomplete) {
			t.Errorf("result %v", err)
		}
		if d := time.Since(before); d != time.Second {
			t.Errorf("took %s after the cut", d)
		}
		r.store.ReleaseSaves()
	})
}

// What the sink waits for is told as long as something is in flight.
func TestEngineTellsWhatTheSinkWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.prepare = (*sinktest.Fake).Hold
		r.wrap = func(s sink.Sink) sink.Sink { return waitingSink{s} }
		r.start()
		if s := r.engine.Status(); s.Waits != "" {
			t.Errorf("told %q with nothing in flight", s.Waits)
		}
		r.append("a")
		synctest.Wait()
		if s := r.engine.Status(); s.Waits != "no topic" || s.WaitsFix != "create it" {
			t.Errorf("told %q, %q", s.Waits, s.WaitsFix)
		}
		close(r.stop)
		synctest.Wait()
		if s := r.engine.Status(); s.State != Draining || s.Waits != "no topic" {
			t.Errorf("%s, told %q", s.State, s.Waits)
		}
		r.sink().ReleaseAll()
		if err := r.end(false); err != nil {
			t.Error(err)
		}
		if s := r.engine.Status(); s.Waits != "" {
			t.Errorf("told %q at the end", s.Waits)
		}
	})
}

type waitingSink struct{ sink.Sink }

func (waitingSink) Waiting() (what, fix string) { return "no topic", "create it" }

// A stop between two sessions is clean only when what was delivered is saved.
func TestEngineStopBetweenSessionsSavesTheRest(t *testing.T) {
	t.Parallel()
	for name, mended := range map[string]bool{"store works again": true, "store still fails": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.start()
				r.append("a")
				time.Sleep(3 * time.Second)
				r.store.FailSave(errors.New("disk full"))
				r.append("b")
				time.Sleep(time.Second)
				r.source.FailOpen(errors.New("connection refused"))
				r.source.BreakStream(errors.New("cut"))
				time.Sleep(30 * time.Second)
				if mended {
					r.store.FailSave(nil)
				}
				err := r.end(true)
				if mended && (err != nil || r.saved() != "fake:2") {
					t.Errorf("result %v, saved %q", err, r.saved())
				}
				if !mended && !fault.Is(err, fault.CodeDrainIncomplete) {
					t.Errorf("result %v although an event is not saved", err)
				}
			})
		})
	}
}

// I7: a sink that never returns must not hold up the end.
func TestEngineEndsBesideASinkThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		release := make(chan struct{})
		r.wrap = func(s sink.Sink) sink.Sink { return hangingSink{s, release} }
		r.start()
		r.append("a")
		synctest.Wait()
		before := time.Now()
		if err := r.end(true); !fault.Is(err, fault.CodeDrainIncomplete) {
			t.Errorf("result %v", err)
		}
		if d := time.Since(before); d > 30*time.Second {
			t.Errorf("took %s", d)
		}
		close(release)
	})
}

type hangingSink struct {
	sink.Sink
	release chan struct{}
}

func (s hangingSink) Publish(_ context.Context, _ []sink.Message, done func(error)) {
	<-s.release
	done(sinktest.ErrClosed)
}

// After a lost lease nothing is tried again and again until the wire's grace is over.
func TestEngineWaitsQuietlyAfterALostLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start()
		r.append("a")
		time.Sleep(3 * time.Second)
		r.sink().Hold()
		for range 40 { // more than half of the window
			r.append("b")
		}
		synctest.Wait()
		r.append("c")
		synctest.Wait()
		r.sink().ReleaseN(40)
		r.source.LoseLease(false)
		time.Sleep(10 * time.Second) // a busy loop would never let false time move
		_ = r.end(true)
	})
}

func TestEngineStopWithoutAcksIsADrainThatFailed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.prepare = (*sinktest.Fake).Hold
		r.start()
		r.append("a")
		synctest.Wait()
		before := time.Now()
		err := r.end(true)
		if !fault.Is(err, fault.CodeDrainIncomplete) || fault.ExitCode(err) != fault.ExitFailure {
			t.Errorf("result %v", err)
		}
		if d := time.Since(before); d < 20*time.Second || d > 30*time.Second {
			t.Errorf("gave up after %s", d)
		}
		if r.saved() != "fake:0" {
			t.Errorf("saved %q past the acks", r.saved())
		}
	})
}

func TestEngineSecondSignalCutsTheDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.prepare = (*sinktest.Fake).Hold
		r.start()
		r.append("a")
		synctest.Wait()
		before := time.Now()
		close(r.stop)
		time.Sleep(time.Second)
		r.cut()
		err := r.end(false)
		if !fault.Is(err, fault.CodeDrainIncomplete) {
			t.Errorf("result %v", err)
		}
		if d := time.Since(before); d > 2*time.Second {
			t.Errorf("took %s after the second signal", d)
		}
	})
}

// I6: the intent is there before anything is made, and a checkpoint that is damaged or foreign never starts anew.
func TestEngineFirstStart(t *testing.T) {
	t.Parallel()
	t.Run("intent first", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.source.FailBegin(fault.Config(fault.CodeStartChoice, "", nil, "rows are there"))
			r.start()
			if err := r.end(false); fault.ExitCode(err) != fault.ExitConfig {
				t.Errorf("result %v", err)
			}
			saves := r.store.Saves()
			if len(saves) != 1 || !saves[0].Intent() || r.source.Begun() {
				t.Errorf("saves %v, begun %t", saves, r.source.Begun())
			}
			r.source.FailBegin(nil)
			r.start() // the intent is no trap
			r.append("a")
			time.Sleep(time.Second)
			r.expect("second try", 1)
			_ = r.end(true)
		})
	})
	t.Run("damaged", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.store.Corrupt()
			r.start()
			if err := r.end(false); fault.ExitCode(err) != fault.ExitPosition || r.source.Begun() {
				t.Errorf("result %v, begun %t", err, r.source.Begun())
			}
		})
	})
	t.Run("no answer waits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.store.FailLoad(errors.New("timeout"))
			r.start()
			time.Sleep(time.Minute)
			if r.source.Begun() {
				t.Error("no answer was taken as none")
			}
			r.store.FailLoad(nil)
			r.append("a")
			time.Sleep(10 * time.Second)
			r.append("b")
			time.Sleep(10 * time.Second)
			if len(r.delivered()) == 0 {
				t.Error("does not go on when the store answers")
			}
			_ = r.end(true)
		})
	})
}

func TestEngineStopBeforeAnythingIsReachedIsClean(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.FailOpen(errors.New("connection refused"))
		r.start()
		time.Sleep(30 * time.Second)
		if err := r.end(true); err != nil {
			t.Errorf("result %v", err)
		}
	})
}

// A refusal at start ends the run; the same refusal later may be a rotation and is waited for.
func TestEngineWaitsForRefusalsAfterTheStart(t *testing.T) {
	t.Parallel()
	denied := fault.Config(fault.CodeAccessDenied, "", nil, "password")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.source.FailOpen(denied)
		r.start()
		if err := r.end(false); !fault.Is(err, fault.CodeAccessDenied) {
			t.Errorf("at start: %v", err)
		}
		r.source.FailOpen(nil)
		r.start()
		r.source.FailOpen(denied)
		r.source.BreakStream(errors.New("cut"))
		time.Sleep(time.Minute)
		r.source.FailOpen(nil)
		r.append("a")
		time.Sleep(10 * time.Second)
		r.expect("after the rotation", 1)
		_ = r.end(true)
	})
}
