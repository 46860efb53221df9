package checkpointtest

import (
	"errors"
	"testing"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Place is one empty place where checkpoints can be kept.
type Place struct {
	// Open gives the store of the connector called name, as a new process would.
	Open func(t *testing.T, name string) checkpoint.Store
	// Corrupt damages what is stored, for sure.
	Corrupt func(t *testing.T)
}

// Run checks the contract of checkpoint.Store. fresh is called once a case.
func Run(t *testing.T, fresh func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Place)
	}{
		{"nothing saved is ErrNone", nothingSaved},
		{"a save is read back by the next process", readBack},
		{"the last save counts", lastSave},
		{"an intent is a checkpoint", intent},
		{"another connector's is refused and kept", foreign},
		{"a damaged one is refused until deleted", damaged},
		{"delete forgets", deleted},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, fresh(t)) })
	}
}

const name = "orders-outbox"

func at(position source.Position) checkpoint.Checkpoint {
	// Nanoseconds and a zone that is not UTC, to see that both survive.
	when := time.Date(2026, 11, 30, 12, 34, 56, 123456789, time.FixedZone("", 3600))
	return checkpoint.Checkpoint{Name: name, Position: position, SavedAt: when}
}

func open(t *testing.T, p Place, name string) checkpoint.Store {
	t.Helper()
	s := p.Open(t, name)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func save(t *testing.T, s checkpoint.Store, c checkpoint.Checkpoint) {
	t.Helper()
	if err := s.Save(t.Context(), c); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func expect(t *testing.T, s checkpoint.Store, want checkpoint.Checkpoint) {
	t.Helper()
	got, err := s.Load(t.Context())
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if !got.Equal(want) {
		t.Fatalf("Load gave %+v, want %+v", got, want)
	}
}

func expectNone(t *testing.T, s checkpoint.Store) {
	t.Helper()
	if c, err := s.Load(t.Context()); !errors.Is(err, checkpoint.ErrNone) {
		t.Fatalf("Load gave %+v, %v; want ErrNone", c, err)
	}
}

func expectFault(t *testing.T, err error, code string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != code || f.Exit != fault.ExitPosition {
		t.Fatalf("got %v, want a fault %s with exit %d", err, code, fault.ExitPosition)
	}
	if f.Found == "" || f.Fix == "" {
		t.Fatalf("fault says too little: %+v", f)
	}
	if errors.Is(err, checkpoint.ErrNone) {
		t.Fatal("a refusal must not be ErrNone")
	}
}

func nothingSaved(t *testing.T, p Place) {
	s := open(t, p, name)
	expectNone(t, s)
	expectNone(t, s)
}

func readBack(t *testing.T, p Place) {
	want := at(`pg1;7301;"tab	and ü\"";0/16B3748`)
	s := open(t, p, name)
	save(t, s, want)
	expect(t, s, want)
	expect(t, open(t, p, name), want)
	want.Done = checkpoint.Done{Tx: "0/16B3800", Rows: 70000, ID: `"7` + "\u00fc"}
	save(t, s, want)
	expect(t, open(t, p, name), want)
}

func lastSave(t *testing.T, p Place) {
	s := open(t, p, name)
	long := at(source.Position(make([]byte, 4096)))
	save(t, s, long)
	want := at("short")
	save(t, s, want)
	expect(t, s, want)
	expect(t, open(t, p, name), want)
}

func intent(t *testing.T, p Place) {
	save(t, open(t, p, name), at(""))
	s := open(t, p, name)
	expect(t, s, at(""))
	if c, _ := s.Load(t.Context()); !c.Intent() {
		t.Fatal("want an intent")
	}
}

func foreign(t *testing.T, p Place) {
	want := at("1")
	ours := open(t, p, name)
	save(t, ours, want)

	other := want
	other.Name = "somebody-else"
	theirs := open(t, p, other.Name)
	_, err := theirs.Load(t.Context())
	expectFault(t, err, fault.CodeForeign)
	expectFault(t, theirs.Save(t.Context(), other), fault.CodeForeign)
	expectFault(t, theirs.Delete(t.Context()), fault.CodeForeign)
	expectFault(t, ours.Save(t.Context(), other), fault.CodeForeign)

	// Without a Load before it.
	expectFault(t, open(t, p, other.Name).Save(t.Context(), other), fault.CodeForeign)
	expect(t, ours, want)
}

func damaged(t *testing.T, p Place) {
	save(t, open(t, p, name), at("1"))
	p.Corrupt(t)
	s := open(t, p, name)
	_, err := s.Load(t.Context())
	expectFault(t, err, fault.CodeCheckpointUnreadable)
	expectFault(t, s.Save(t.Context(), at("2")), fault.CodeCheckpointUnreadable)
	if err := s.Delete(t.Context()); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	expectNone(t, s)
}

func deleted(t *testing.T, p Place) {
	s := open(t, p, name)
	if err := s.Delete(t.Context()); err != nil {
		t.Fatalf("Delete of nothing: %v", err)
	}
	save(t, s, at("1"))
	if err := s.Delete(t.Context()); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	expectNone(t, s)
	expectNone(t, open(t, p, name))
	save(t, s, at("2"))
	expect(t, s, at("2"))
}
