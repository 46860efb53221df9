package app

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/sourcetest"
)

// twoStores configures two stores of one connector.
func twoStores(t *testing.T) (from, to *config.Config) {
	t.Helper()
	from = configure(t)
	to, err := from.WithCheckpoint("file:" + from.Checkpoint.Path + ".copy")
	if err != nil {
		t.Fatal(err)
	}
	return from, to
}

func holds(t *testing.T, c *config.Config, want source.Position) {
	t.Helper()
	if place, saved, err := ShowCheckpoint(t.Context(), c, zap.NewNop()); err != nil || !saved || place.Position != want {
		t.Errorf("%s holds %+v, %v, %v; want %q", c.Checkpoint, place, saved, err, want)
	}
}

func TestCopyCheckpoint(t *testing.T) {
	t.Parallel()
	from, to := twoStores(t)
	save(t, from, "here")
	log, seen := logs()
	c := copying{from: from, to: to, log: log}
	if err := c.run(t.Context(), sourcetest.NewFake()); err != nil || !c.done || c.given.place.Position != "here" {
		t.Fatal(c.given, c.done, err)
	}
	holds(t, from, "here")
	holds(t, to, "here")
	if f := seen.FilterMessage("audit").All()[0].ContextMap(); f["action"] != "checkpoint copy" || f["before"] != "none" || f["after"] != "here" ||
		!strings.Contains(f["object"].(string), from.Checkpoint.String()+" to "+to.Checkpoint.String()) {
		t.Errorf("audit line %v", f)
	}

	again := copying{from: from, to: to, log: log}
	if err := again.run(t.Context(), sourcetest.NewFake()); err != nil || again.done || again.given.place.Position != "here" {
		t.Error(again.given, again.done, err)
	}
	if n := seen.FilterMessage("audit").Len(); n != 1 {
		t.Errorf("%d audit lines", n)
	}
}

// What the target holds decides whether the copy needs a word.
func TestCopyOverSomething(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		fill   func(t *testing.T, to *config.Config)
		before string // of the audit line
		free   bool   // may be replaced without a word
	}{
		{"another place", func(t *testing.T, to *config.Config) { save(t, to, "there") }, "there", false},
		{"the same place, saved at another time", func(t *testing.T, to *config.Config) { save(t, to, "here") }, "here", true},
		{"an intent", func(t *testing.T, to *config.Config) { save(t, to, "") }, "intent", true},
		{"a damaged one", func(t *testing.T, to *config.Config) {
			if err := os.WriteFile(to.Checkpoint.Path, []byte("torn"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "unreadable", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			from, to := twoStores(t)
			save(t, from, "here")
			tc.fill(t, to)
			log, seen := logs()
			c := copying{from: from, to: to, log: log}
			err := c.run(t.Context(), sourcetest.NewFake())
			if tc.free != (err == nil) || tc.free != c.done {
				t.Fatal(c.done, err)
			}
			if !tc.free {
				if !fault.Is(err, fault.CodeConfig) || !strings.Contains(err.Error(), tc.before) || !strings.Contains(fault.As(err).Fix, "--yes") || seen.Len() > 0 {
					t.Errorf("%v, logged %v", err, seen.All())
				}
				c.replace = true
				if err := c.run(t.Context(), sourcetest.NewFake()); err != nil || !c.done {
					t.Fatal(c.done, err)
				}
			}
			holds(t, to, "here")
			if f := seen.FilterMessage("audit").All()[0].ContextMap(); f["before"] != tc.before {
				t.Errorf("audit line %v", f)
			}
		})
	}
}

func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	from, to := twoStores(t)
	run := func(from, to *config.Config, db source.Source) error {
		c := copying{from: from, to: to, replace: true, log: zap.NewNop()}
		err := c.run(t.Context(), db)
		if c.done {
			t.Error("copied")
		}
		return err
	}
	if err := run(from, to, sourcetest.NewFake()); !fault.Is(err, fault.CodeConfig) || !strings.Contains(err.Error(), "nothing was ever saved") {
		t.Errorf("from nothing: %v", err)
	}
	save(t, from, "here")
	if err := run(from, from, sourcetest.NewFake()); !fault.Is(err, fault.CodeConfig) {
		t.Errorf("onto itself: %v", err)
	}
	held := sourcetest.NewFake()
	held.LoseLease(true)
	if err := run(from, to, held); !fault.Is(err, fault.CodeLeaseHeld) {
		t.Errorf("beside an active instance: %v", err)
	}
	other := *to
	other.Name = "other"
	save(t, &other, "there")
	if err := run(from, to, sourcetest.NewFake()); !fault.Is(err, fault.CodeForeign) {
		t.Errorf("over another connector's: %v", err)
	}
	holds(t, &other, "there")
	if err := os.WriteFile(from.Checkpoint.Path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(from, to, sourcetest.NewFake()); !fault.Is(err, fault.CodeCheckpointUnreadable) {
		t.Errorf("from a damaged one: %v", err)
	}
}

// broken is a store that can't be loaded from until it was emptied.
type broken struct {
	store
	err     error
	deleted bool
}

func (b *broken) Load(ctx context.Context) (checkpoint.Checkpoint, error) {
	if !b.deleted {
		return checkpoint.Checkpoint{}, b.err
	}
	return b.store.Load(ctx)
}

func (b *broken) Save(ctx context.Context, c checkpoint.Checkpoint) error {
	if !b.deleted {
		return b.err
	}
	return b.store.Save(ctx, c)
}

func (b *broken) Delete(ctx context.Context) error {
	b.deleted = true
	return b.store.Delete(ctx)
}

// TestCopyOverALostPlace: a topic may hold the birth of a connector and not its place.
func TestCopyOverALostPlace(t *testing.T) {
	t.Parallel()
	from, to := twoStores(t)
	c := copying{from: from, to: to, log: zap.NewNop(), given: holding{place: checkpoint.Checkpoint{Name: from.Name, Position: "here", SavedAt: time.Now()}, saved: true}}
	for code, text := range map[string]string{fault.CodePositionLost: "lost", fault.CodeCheckpointUnreadable: "unreadable"} {
		s := &broken{store: newStore(to, zap.NewNop()), err: fault.Position(code, "", nil, "broken")}
		held, err := look(t.Context(), s, to)
		if err != nil || held.String() != text {
			t.Fatal(held, err)
		}
		c.replace = false
		if err := c.put(t.Context(), s, held); !fault.Is(err, fault.CodeConfig) || s.deleted {
			t.Errorf("%s was replaced: %v", text, err)
		}
		c.replace = true
		if err := c.put(t.Context(), s, held); err != nil {
			t.Error(err)
		}
		holds(t, to, "here")
	}
	none := &broken{store: newStore(to, zap.NewNop()), err: errors.New("no answer")}
	if _, err := look(t.Context(), none, to); err == nil {
		t.Error("no answer was taken for an empty store")
	}
}

func TestCopyOfAnIntent(t *testing.T) {
	t.Parallel()
	from, to := twoStores(t)
	save(t, from, "")
	log, seen := logs()
	c := copying{from: from, to: to, log: log}
	if err := c.run(t.Context(), sourcetest.NewFake()); err != nil || !c.done {
		t.Fatal(err)
	}
	holds(t, to, "")
	if f := seen.FilterMessage("audit").All()[0].ContextMap(); f["after"] != "intent" {
		t.Errorf("audit line %v", f)
	}
}
