package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// Config is what an Engine is made of. Everything but Hooks is required.
type Config struct {
	Name   string
	Source source.Source
	// OpenSink makes a sink. It is called again after a sink failed.
	OpenSink func(ctx context.Context) (sink.Sink, error)
	Store    checkpoint.Store
	// Route appends one message per row to dst. On a row that can't be routed
	// it returns the messages before it and an error that wraps *sink.Refusal.
	Route func(rows []source.Row, dst []sink.Message) ([]sink.Message, error)
	Start source.Start
	// OnReject is what happens with an event that can't be published.
	OnReject OnReject

	BufferEvents        int           // read and not acknowledged, in events
	BufferBytes         int64         // the same in bytes
	CheckpointInterval  time.Duration // longest time between delivery and save
	CheckpointMaxEvents int           // most events delivered and not saved
	DrainTimeout        time.Duration // limit of a stop
	StartTimeout        time.Duration // limit for the first start; 0 waits for ever

	// Transactions, when set, make delivery exactly-once: the sink must be a
	// sink.Committer, and the checkpoint travels in its transactions.
	Transactions *Transactions

	Hooks Hooks
	Log   *zap.Logger
}

// Transactions configure exactly-once delivery.
type Transactions struct {
	Interval time.Duration // longest time between a delivery and its commit
	Timeout  time.Duration // after which the brokers end a transaction that was not committed
	// Record makes the message that stands for a checkpoint in the store.
	Record func(c checkpoint.Checkpoint) sink.Message
}

// Engine runs one connector. Status may be called from any goroutine.
type Engine struct {
	Config

	mu      sync.Mutex
	status  Status
	tracker *tracker
	stream  source.Stream
	waiter  sink.Waiter // the session's sink, if it can tell what it waits for

	// The rest belongs to the goroutine in Run.
	lease   source.Lease
	sink    sink.Sink
	from    source.Position                   // where the next stream starts; settled
	done    checkpoint.Done                   // rows behind from that are settled too: the next stream's first
	last    checkpoint.Checkpoint             // our own last save, or what was loaded
	tried   []checkpoint.Checkpoint           // our own tries since, which may have been stored without our hearing of it
	standby bool                              // another instance holds the lease
	loaded  bool                              // the checkpoint was loaded under the lease we hold
	alone   bool                              // what was loaded was our own last save, so nobody was active meanwhile
	left    *run                              // a session that lost the lease, with events still with the sink
	refused map[string]map[uint32]*refusedRow // events that were refused after they were sent, by transaction and row
	started bool                              // a stream was open once in this process
	began   time.Time
}

// New makes an Engine. Nothing happens before Run.
func New(c Config) *Engine {
	return &Engine{Config: c, status: Status{State: Starting, Since: time.Now()}}
}

// errStop is the cause of the reading context when a stop was asked for.
var errStop = errors.New("stop asked for")

// Run moves events until stop is closed, ctx is cancelled, or something
// happens that does not mend itself. Closing stop drains: reading ends, what is
// in flight is awaited for DrainTimeout, saved and confirmed (I7); the result
// is nil, or a fault with CodeDrainIncomplete. Cancelling ctx cuts the drain.
func (e *Engine) Run(ctx context.Context, stop <-chan struct{}) error {
	e.began = time.Now()
	e.update(func(s *Status) { s.CaughtUpAt = e.began })
	reading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-stop:
			cancel(errStop)
		case <-reading.Done():
		}
	}()
	err := e.loop(ctx, reading)
	err = errors.Join(err, e.release())
	e.enter(Stopped, err)
	return err
}

// loop is the one place that decides about restarts.
func (e *Engine) loop(ctx, reading context.Context) error {
	var wait backoff
	var lastText string
	for {
		moved, err := e.session(ctx, reading)
		if reading.Err() != nil {
			if f := fault.As(err); f != nil {
				return f
			}
			return e.saveRest(ctx, err)
		}
		if e.permanent(err) {
			return err
		}
		if moved {
			wait.reset()
		}
		if text := err.Error(); text != lastText {
			lastText = text
			e.logRetry(err)
		}
		if moved {
			lastText = ""
		}
		e.enter(Waiting, err)
		if e.Hooks.Restart != nil {
			e.Hooks.Restart(restartReason(err))
		}
		if err := e.pause(reading, wait.next()); err != nil {
			return err
		}
	}
}

// saveRest settles and saves what an earlier session left, when a stop comes
// between sessions. A stop is clean only when nothing is left.
func (e *Engine) saveRest(ctx context.Context, cause error) error {
	if (e.left == nil && e.from == e.last.Position) || e.standby { // as a standby it is the active one's matter
		return nil
	}
	err := errLeaseLost
	if e.lease != nil && e.loaded {
		draining, stop := context.WithTimeout(ctx, e.DrainTimeout)
		err = e.resume(draining)
		stop()
	}
	if err == nil && e.from != e.last.Position {
		saving, stop := context.WithTimeout(context.WithoutCancel(ctx), saveLimit)
		err = e.save(saving, e.from)
		stop()
	}
	if err != nil {
		return incomplete("stopped before what is acknowledged was saved", errors.Join(err, cause))
	}
	return nil
}

// permanent tells what ends the run. What a server refuses once we have been
// running (a password, a grant, a setting) may be a rotation: it is waited for.
func (e *Engine) permanent(err error) bool {
	f := fault.As(err)
	return f != nil && !(f.Exit == fault.ExitConfig && e.started)
}

func (e *Engine) pause(reading context.Context, d time.Duration) error {
	if !e.started && e.StartTimeout > 0 && time.Since(e.began)+d > e.StartTimeout {
		return &fault.Error{
			Code: fault.CodeStartTimeout, Exit: fault.ExitFailure,
			Found: fmt.Sprintf("not started within %s", e.StartTimeout),
			Fix:   "see the cause; OUTBOXD_START_TIMEOUT unset waits for ever",
			Err:   e.Status().Err,
		}
	}
	select {
	case <-time.After(d):
	case <-reading.Done(): // the loop sees it at its next turn
	}
	return nil
}

func (e *Engine) logRetry(err error) {
	fields := []zap.Field{zap.Error(err)}
	if f := fault.As(err); f != nil {
		fields = append(fields, zap.String("code", f.Code), zap.String("fix", f.Fix))
	}
	e.Log.Warn("interrupted, will try again", fields...)
}

// release ends what outlives a session, in the order of I7.
func (e *Engine) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	if e.sink != nil {
		err = e.sink.Close(ctx)
		e.sink = nil
	}
	if e.lease != nil {
		// An error here is no failure of the run: the server ends the lease by itself.
		if rerr := e.lease.Release(ctx); rerr != nil {
			e.Log.Debug("release lease", zap.Error(rerr))
		}
		e.lease = nil
	}
	if err != nil {
		return fmt.Errorf("close sink: %w", err)
	}
	return nil
}

// Status returns one consistent view.
func (e *Engine) Status() Status {
	s, waiter := e.view()
	if waiter != nil && s.InFlightEvents > 0 && (s.State == Active || s.State == Draining) {
		s.Waits, s.WaitsFix = waiter.Waiting() // not under our lock: the sink's done takes that
	}
	return s
}

func (e *Engine) view() (Status, sink.Waiter) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	if e.tracker != nil {
		e.tracker.fill(&s)
	}
	if p, ok := e.stream.(source.Pulse); ok {
		if at := p.LastReceived(); at.After(s.LastRead) {
			s.LastRead = at
		}
	}
	if r, ok := e.stream.(source.Retainer); ok {
		s.Retention = r.Retention()
	}
	s.CaughtUp = s.CaughtUp && s.State == Active && s.InFlightEvents == 0
	return s, e.waiter
}

// update changes the status under its lock.
func (e *Engine) update(change func(*Status)) {
	e.mu.Lock()
	change(&e.status)
	e.mu.Unlock()
}

// enter moves to a state; Since moves only when the state really changes.
func (e *Engine) enter(state State, err error) {
	e.update(func(s *Status) {
		if s.State != state {
			if s.State == Active && s.CaughtUp {
				s.CaughtUpAt = time.Now()
			}
			s.State, s.Since = state, time.Now()
		}
		s.Err, s.Holder = err, ""
	})
}

// restartReason is the label of outboxd_restarts_total.
func restartReason(err error) string {
	var p partError
	if errors.As(err, &p) {
		return p.part
	}
	return "other"
}

// partError marks which part a transient error came from.
type partError struct {
	part string
	err  error
}

func (p partError) Error() string { return p.err.Error() }
func (p partError) Unwrap() error { return p.err }

func inPart(part string, err error) error {
	if err == nil {
		return nil
	}
	return partError{part, err}
}

// backoff gives jittered waits that double from 100 ms to 5 s.
type backoff struct{ n int }

func (b *backoff) next() time.Duration {
	d := min(100*time.Millisecond<<min(b.n, 6), 5*time.Second)
	b.n++
	return d/2 + rand.N(d/2+1)
}

func (b *backoff) reset() { b.n = 0 }
