package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/source"
)

// The property behind I1 and I3: whatever order tickets settle in, and
// whichever fail, the place to be saved never passes a row that is not settled, and is
// always a commit boundary.
func TestTrackerNeverPassesAnUnsettledRow(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k := newTracker(limits{events: 1 << 30, bytes: 1 << 40, unsaved: 1 << 30}, "0", checkpoint.Done{})
		type entry struct {
			*ticket
			outcome error
			done    bool
		}
		var all []*entry
		check := func() {
			want := source.Position("0")
			rows := 0
			for _, e := range all {
				if !e.done || e.outcome != nil {
					break
				}
				rows += e.rows
				if e.pos != "" {
					want = e.pos
				}
			}
			p := k.progress()
			if p.pos != want {
				t.Fatalf("seed %d: place %q, the settled prefix ends at %q", seed, p.pos, want)
			}
		}
		for step := range 60 {
			open := make([]*entry, 0, len(all))
			for _, e := range all {
				if !e.done {
					open = append(open, e)
				}
			}
			switch {
			case rng.IntN(2) == 0 || len(open) == 0:
				e := &entry{ticket: &ticket{rows: rng.IntN(4)}}
				if rng.IntN(3) > 0 {
					e.pos = source.Position(fmt.Sprint(step + 1))
				}
				if e.rows == 0 && e.pos == "" {
					continue
				}
				if err := k.add(context.Background(), e.ticket); err != nil {
					if k.progress().err == nil {
						t.Fatalf("seed %d: add: %v", seed, err)
					}
					continue // after a failure nothing is taken
				}
				e.done = e.rows == 0
				all = append(all, e)
			default:
				e := open[rng.IntN(len(open))]
				if rng.IntN(20) == 0 {
					e.outcome = errors.New("refused")
				}
				e.done = true
				k.settle(e.ticket, e.outcome)
			}
			check()
			if rng.IntN(5) == 0 {
				k.stored(k.progress())
				if p := k.progress(); p.moved || p.rows != 0 {
					t.Fatalf("seed %d: %d rows left after a save of everything", seed, p.rows)
				}
			}
		}
	}
}

func TestTrackerLimits(t *testing.T) {
	t.Parallel()
	full := func(k *tracker, tk *ticket) bool {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return k.add(ctx, tk) != nil
	}
	ctx := context.Background()

	t.Run("rows", func(t *testing.T) {
		k := newTracker(limits{events: 10, bytes: 1000, unsaved: 100}, "0", checkpoint.Done{})
		first := &ticket{rows: 8, pos: "1"}
		_ = k.add(ctx, first)
		if !full(k, &ticket{rows: 3, pos: "2"}) {
			t.Error("11 rows in flight with a limit of 10")
		}
		k.settle(first, nil)
		if full(k, &ticket{rows: 3, pos: "2"}) {
			t.Error("no room although all is settled")
		}
	})
	t.Run("bytes", func(t *testing.T) {
		k := newTracker(limits{events: 10, bytes: 1000, unsaved: 100}, "0", checkpoint.Done{})
		_ = k.add(ctx, &ticket{rows: 1, bytes: 900, pos: "1"})
		if !full(k, &ticket{rows: 1, bytes: 200, pos: "2"}) {
			t.Error("1100 bytes in flight with a limit of 1000")
		}
	})
	t.Run("one larger event passes alone", func(t *testing.T) {
		k := newTracker(limits{events: 10, bytes: 1000, unsaved: 100}, "0", checkpoint.Done{})
		if full(k, &ticket{rows: 1, bytes: 5000, pos: "1"}) {
			t.Error("a large event never gets in")
		}
	})
	t.Run("delivered and not saved", func(t *testing.T) {
		k := newTracker(limits{events: 1000, bytes: 1000, unsaved: 5}, "0", checkpoint.Done{})
		first := &ticket{rows: 5, pos: "1"}
		_ = k.add(ctx, first)
		k.settle(first, nil)
		if !full(k, &ticket{rows: 1, pos: "2"}) {
			t.Error("reads on although the window is full")
		}
		k.stored(k.progress())
		if full(k, &ticket{rows: 1, pos: "2"}) {
			t.Error("no room although all is saved")
		}
	})
	t.Run("a transaction larger than the window", func(t *testing.T) {
		k := newTracker(limits{events: 1000, bytes: 1000, unsaved: 5}, "0", checkpoint.Done{})
		for range 10 {
			piece := &ticket{rows: 4}
			if full(k, piece) {
				t.Fatal("stuck inside a transaction: nothing can be saved there")
			}
			k.settle(piece, nil)
		}
	})
	t.Run("empty batches need no room", func(t *testing.T) {
		k := newTracker(limits{events: 1, bytes: 1, unsaved: 1}, "0", checkpoint.Done{})
		_ = k.add(ctx, &ticket{rows: 1, bytes: 1, pos: "1"})
		if full(k, &ticket{pos: "2"}) {
			t.Error("idle progress waits for room")
		}
	})
}
