// Package sourcetest holds the contract suite that every source must pass,
// and a scripted source in memory for the tests of those who use one.
package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Fake is a scripted source.Source: an append-only log of transactions. Its
// methods beyond the contract may be called from any goroutine. It keeps an
// eye on its user: Broken tells what broke the contract.
type Fake struct {
	// Piece is the most rows of one transaction in a batch; 0 means all.
	Piece int
	// Together is how many transactions share a batch; 0 means one.
	Together int

	mu        sync.Mutex
	log       [][]source.Row // transactions
	first     int            // place Begin gives
	begun     bool
	beginErr  error
	openErr   error
	confirmed int
	stream    *fakeStream
	lease     *fakeLease
	taken     bool // somebody else holds the lease
	broken    []string
	changed   chan struct{} // closed and made anew when anything changes
	opens     []source.Position
}

// Table is the shape of a Fake's rows: id, aggregate_id, payload.
var Table = &source.Table{Schema: "public", Name: "outbox", Columns: []source.Column{
	{Name: "id", Type: "int8", Kind: source.Number},
	{Name: "aggregate_id", Type: "text"},
	{Name: "payload", Type: "jsonb", Kind: source.JSON},
}}

// NewFake makes an empty log.
func NewFake() *Fake { return &Fake{changed: make(chan struct{})} }

// Append commits one transaction with one row per aggregate id. Rows get ids 1, 2, 3, …
func (f *Fake) Append(at time.Time, id *int, aggregates ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tx := &source.Tx{CommitAt: at, ID: strconv.Itoa(len(f.log) + 1)}
	var rows []source.Row
	for i, a := range aggregates {
		*id++
		n := strconv.Itoa(*id)
		rows = append(rows, source.Row{Table: Table, Tx: tx, Index: uint32(i), Values: []source.Value{
			{Data: []byte(n), State: source.Present}, {Data: []byte(a), State: source.Present}, {Data: []byte(`{"n": ` + n + `}`), State: source.Present},
		}})
	}
	f.log = append(f.log, rows)
	f.notify()
}

// BreakStream ends the open stream with err.
func (f *Fake) BreakStream(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stream != nil {
		f.stream.err = err
	}
	f.notify()
}

// LoseLease ends the lease that is held. While taken, nobody gets it back.
func (f *Fake) LoseLease(taken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = taken
	if f.lease != nil {
		f.lease.end()
		f.lease = nil
	}
	f.notify()
}

// DoubtLease makes the lease that is held invalid for a time, without its end.
func (f *Fake) DoubtLease(doubt bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lease != nil {
		f.lease.doubt.Store(doubt)
	}
}

// FreeLease lets Acquire succeed again.
func (f *Fake) FreeLease() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = false
	f.notify()
}

// FailOpen and FailBegin make these fail until called with nil.
func (f *Fake) FailOpen(err error) { f.set(&f.openErr, err) }

// FailBegin makes Begin fail with err.
func (f *Fake) FailBegin(err error) { f.set(&f.beginErr, err) }

func (f *Fake) set(p *error, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*p = err
}

// Confirmed is the number of transactions the source was told are stored.
func (f *Fake) Confirmed() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.confirmed
}

// Opens gives the places streams were opened at.
func (f *Fake) Opens() []source.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]source.Position(nil), f.opens...)
}

// Begun reports whether Begin made its place.
func (f *Fake) Begun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// Broken lists what the user of the source did against the contract.
func (f *Fake) Broken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.broken...)
}

func (f *Fake) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fake) breaks(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// Acquire implements source.Source.
func (f *Fake) Acquire(ctx context.Context, waiting func(string)) (source.Lease, error) {
	told := false
	for {
		f.mu.Lock()
		if !f.taken {
			f.lease = &fakeLease{done: make(chan struct{})}
			l := f.lease
			f.mu.Unlock()
			return l, nil
		}
		changed := f.changed
		f.mu.Unlock()
		if !told && waiting != nil {
			told = true
			waiting("another")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Begin implements source.Source: the place is the log's end of now, the first time.
func (f *Fake) Begin(_ context.Context, first source.First) (source.Position, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.beginErr != nil {
		return "", f.beginErr
	}
	if !f.begun && first.Mode == source.StartResume {
		return "", fault.Position(fault.CodePositionLost, "", nil, "nothing to resume from")
	}
	if !f.begun {
		f.begun, f.first = true, len(f.log)
	}
	return position(f.first), nil
}

// Open implements source.Source.
func (f *Fake) Open(_ context.Context, from source.Position) (source.Stream, error) {
	n, err := number(from)
	if err != nil {
		return nil, fault.Position(fault.CodeCheckpointUnreadable, "", err, "not a place of this source")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.openErr != nil {
		return nil, f.openErr
	}
	if f.lease == nil {
		return nil, errors.New("the lease is not held")
	}
	if f.stream != nil {
		f.breaks("a stream was opened while another is open")
	}
	if n < f.confirmed {
		f.breaks("opened at %d, confirmed is %d: those are gone", n, f.confirmed)
	}
	f.opens = append(f.opens, from)
	f.stream = &fakeStream{fake: f, next: n}
	return f.stream, nil
}

type fakeStream struct {
	fake *Fake
	next int // transaction
	row  int // of it
	err  error
}

func (s *fakeStream) Next(ctx context.Context) (source.Batch, error) {
	for {
		s.fake.mu.Lock()
		if s.err != nil {
			s.fake.mu.Unlock()
			return source.Batch{}, s.err
		}
		if s.next < len(s.fake.log) {
			b := s.batch()
			s.fake.mu.Unlock()
			return b, nil
		}
		changed := s.fake.changed
		s.fake.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return source.Batch{}, context.Cause(ctx)
		}
	}
}

func (s *fakeStream) batch() source.Batch {
	rows := s.fake.log[s.next][s.row:]
	if s.fake.Piece > 0 && len(rows) > s.fake.Piece {
		s.row += s.fake.Piece
		return source.Batch{Rows: rows[:s.fake.Piece:s.fake.Piece]}
	}
	s.next, s.row = s.next+1, 0
	borders := map[int]source.Position{len(rows): position(s.next)}
	rows = rows[:len(rows):len(rows)]
	for n := 1; n < s.fake.Together && s.next < len(s.fake.log); n++ {
		rows = append(rows, s.fake.log[s.next]...)
		s.next++
		borders[len(rows)] = position(s.next)
	}
	return source.Batch{
		Rows: rows, Position: position(s.next), CaughtUp: s.next == len(s.fake.log),
		At: func(n int) source.Position { return borders[n] },
	}
}

func (s *fakeStream) Confirm(pos source.Position) {
	n, err := number(pos)
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	switch {
	case err != nil:
		s.fake.breaks("confirmed %q", pos)
	case n > s.next:
		s.fake.breaks("confirmed %d, read only %d", n, s.next)
	case n > s.fake.confirmed:
		s.fake.confirmed = n
	}
}

func (s *fakeStream) Close(context.Context) error {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if s.fake.stream == s {
		s.fake.stream = nil
	}
	s.err = errors.New("stream closed")
	s.fake.notify()
	return nil
}

type fakeLease struct {
	doubt atomic.Bool
	once  sync.Once
	done  chan struct{}
}

func (l *fakeLease) end()                          { l.once.Do(func() { close(l.done) }) }
func (l *fakeLease) Done() <-chan struct{}         { return l.done }
func (l *fakeLease) Release(context.Context) error { l.end(); return nil }
func (l *fakeLease) Valid() bool {
	select {
	case <-l.done:
		return false
	default:
		return !l.doubt.Load()
	}
}

func position(n int) source.Position { return source.Position("fake:" + strconv.Itoa(n)) }

func number(p source.Position) (int, error) {
	text, ok := strings.CutPrefix(string(p), "fake:")
	if !ok {
		return 0, fmt.Errorf("parse position: %q", p)
	}
	return strconv.Atoi(text)
}
