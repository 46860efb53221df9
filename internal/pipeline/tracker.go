package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// ticket stands for one batch between Publish and its acknowledgement.
type ticket struct {
	pos      source.Position // resume point behind the batch; zero inside a transaction
	inside   checkpoint.Done // its last row's place, where pos is zero
	rows     int
	bytes    int64
	oldest   time.Time      // commit time of the first row
	newest   time.Time      // commit time of the last row
	messages []sink.Message // kept until settled, for counting
	urgent   bool
	settled  bool
}

// tracker is the FIFO of tickets that turns acknowledgements in any order into
// the settled prefix (I1). It is safe for concurrent use by one adder, one
// saver, and any number of settlers.
type tracker struct {
	limit limits

	mu       sync.Mutex
	queue    []*ticket // queue[head:] are open, oldest first
	head     int
	rows     int   // rows in tickets not yet settled
	bytes    int64 // bytes of those
	unsettle int   // tickets not yet settled
	pos      source.Position
	saved    source.Position
	covered  int             // rows settled up to pos and not saved
	beyond   int             // rows settled behind pos, inside a transaction that goes on
	inside   checkpoint.Done // rows of the prefix behind pos
	kept     checkpoint.Done // exactly-once: what of that is saved
	since    time.Time       // exactly-once: when the first of the rows that are not committed was settled
	waiting  time.Time       // exactly-once: commit time of the oldest row that is not committed in Kafka
	urgent   bool            // the server waits for pos
	newest   time.Time       // commit time of the last row of the prefix
	err      error           // first failure; nothing settles the prefix past it
	failed   int             // tickets that failed

	room    chan struct{} // size 1: something left or was saved
	changed chan struct{} // size 1: the prefix, the failure, or the number of open tickets changed
}

// limits bound what is read and not acknowledged, and what is acknowledged and not saved.
type limits struct {
	events  int
	bytes   int64
	unsaved int
	inside  bool // exactly-once: a place inside a transaction can be saved
}

func newTracker(l limits, from source.Position, done checkpoint.Done) *tracker {
	return &tracker{limit: l, pos: from, saved: from, inside: done, kept: done, room: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
}

// add waits for room and appends t; after a failure it returns errOver. A ticket larger than the limits passes
// alone. A ticket without rows needs no room and settles by itself.
func (k *tracker) add(ctx context.Context, t *ticket) error {
	for {
		k.mu.Lock()
		if k.err != nil {
			k.mu.Unlock()
			return errOver
		}
		if k.fits(t) {
			k.queue = append(k.queue, t)
			k.rows += t.rows
			k.bytes += t.bytes
			k.unsettle++
			k.mu.Unlock()
			if t.rows == 0 {
				k.settle(t, nil)
			}
			return nil
		}
		k.mu.Unlock()
		select {
		case <-k.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// idle returns when nothing is open, or with errOver after a failure. It is called
// by the one that adds.
func (k *tracker) idle(ctx context.Context) error {
	for {
		k.mu.Lock()
		open, err := k.unsettle, k.err
		k.mu.Unlock()
		switch {
		case err != nil:
			return errOver
		case open == 0:
			return nil
		}
		select {
		case <-k.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (k *tracker) fits(t *ticket) bool {
	if t.rows == 0 {
		return true
	}
	// Only rows a save would cover count here: inside a huge transaction there
	// is nothing to save yet, and waiting for it would never end.
	if k.covered >= k.limit.unsaved {
		return false
	}
	return k.rows == 0 || (k.rows+t.rows <= k.limit.events && k.bytes+t.bytes <= k.limit.bytes)
}

// settle records the outcome of t and moves the settled prefix. A failed
// ticket never leaves the queue, so the prefix never passes it (I1).
func (k *tracker) settle(t *ticket, err error) {
	k.mu.Lock()
	k.rows -= t.rows
	k.bytes -= t.bytes
	k.unsettle--
	t.messages = nil
	if err == nil {
		t.settled = true
	} else {
		k.failed++
		if k.err == nil || errors.Is(k.err, errLeaseLost) { // that the sink failed counts more
			k.err = err
		}
	}
	for k.head < len(k.queue) && k.queue[k.head].settled {
		k.pop()
	}
	k.mu.Unlock()
	wake(k.room)
	wake(k.changed)
}

func (k *tracker) pop() {
	t := k.queue[k.head]
	k.queue[k.head] = nil
	k.head++
	if k.head == len(k.queue) {
		k.queue, k.head = k.queue[:0], 0
	} else if k.head >= 1024 && k.head*2 >= len(k.queue) {
		k.queue, k.head = append(k.queue[:0], k.queue[k.head:]...), 0
	}
	k.beyond += t.rows
	if t.rows > 0 {
		k.newest = t.newest
	}
	if t.rows > 0 {
		k.inside = t.inside
	}
	if k.limit.inside && t.rows > 0 && k.waiting.IsZero() {
		k.waiting, k.since = t.oldest, time.Now()
	}
	if t.pos != "" { // I3: only commit boundaries move the place
		k.pos, k.inside = t.pos, checkpoint.Done{}
		k.urgent = k.urgent || t.urgent
	}
	if t.pos != "" || k.limit.inside {
		k.covered += k.beyond
		k.beyond = 0
	}
}

// progress is what the saver acts on.
type progress struct {
	pos    source.Position // settled prefix
	rows   int             // rows a save of pos would cover
	inside checkpoint.Done // rows settled behind pos, in a transaction that goes on
	moved  bool            // pos, or with exactly-once inside, differs from what is saved
	since  time.Time       // exactly-once: when the first of rows was settled
	urgent bool
	open   int   // tickets without an outcome
	failed int   // tickets that failed
	err    error // the first failure
}

func (k *tracker) progress() progress {
	k.mu.Lock()
	defer k.mu.Unlock()
	return progress{
		pos: k.pos, inside: k.inside, since: k.since, rows: k.covered, moved: k.pos != k.saved || k.limit.inside && k.inside != k.kept,
		urgent: k.urgent, open: k.unsettle, failed: k.failed, err: k.err,
	}
}

// stored says that p, a value progress returned, is now in the store.
func (k *tracker) stored(p progress) {
	k.mu.Lock()
	k.saved, k.kept = p.pos, p.inside
	k.covered -= p.rows
	k.waiting = time.Time{}
	if k.covered > 0 {
		k.waiting, k.since = k.newest, time.Now()
	}
	if k.pos == p.pos || p.urgent { // what came since asks anew
		k.urgent = false
	}
	k.mu.Unlock()
	wake(k.room)
}

// fill writes the tracker's part of a Status.
func (k *tracker) fill(s *Status) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Settled = k.pos
	s.InFlightEvents, s.InFlightBytes = k.rows, k.bytes
	s.UnsavedEvents = k.covered + k.beyond
	s.SettledCommit = k.newest
	s.WindowFull = k.covered >= k.limit.unsaved
	s.OldestCommit = k.waiting
	for _, t := range k.queue[k.head:] {
		if !s.OldestCommit.IsZero() {
			break
		}
		if !t.settled && t.rows > 0 {
			s.OldestCommit = t.oldest
			break
		}
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
