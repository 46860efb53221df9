package checkpointtest

import (
	"context"
	"errors"
	"testing"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
)

// view is one connector's store on a shared Memory, as another process has it.
type view struct {
	*Memory
	name string
}

func (v view) take() *Memory { v.Name = v.name; return v.Memory }

func (v view) Load(ctx context.Context) (checkpoint.Checkpoint, error) { return v.take().Load(ctx) }
func (v view) Save(ctx context.Context, c checkpoint.Checkpoint) error { return v.take().Save(ctx, c) }
func (v view) Delete(ctx context.Context) error                        { return v.take().Delete(ctx) }

func TestMemoryContract(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Place {
		m := &Memory{}
		return Place{
			Open:    func(_ *testing.T, name string) checkpoint.Store { return view{m, name} },
			Corrupt: func(*testing.T) { m.Corrupt() },
		}
	})
}

func TestMemoryFailsOnCue(t *testing.T) {
	t.Parallel()
	m := &Memory{}
	save(t, m, at("1"))

	down := errors.New("down")
	m.FailSave(down)
	m.FailLoad(down)
	if err := m.Save(t.Context(), at("2")); !errors.Is(err, down) {
		t.Fatalf("Save: %v", err)
	}
	if _, err := m.Load(t.Context()); !errors.Is(err, down) {
		t.Fatalf("Load: %v", err)
	}
	m.FailSave(nil)
	m.FailLoad(nil)
	expect(t, m, at("1"))

	other := at("9")
	other.Name = "other"
	m.Put(other)
	if _, err := m.Load(t.Context()); !fault.Is(err, fault.CodeForeign) {
		t.Fatalf("Load: %v", err)
	}
	m.Put(at("1"))

	m.HoldSaves()
	result := make(chan error)
	go func() { result <- m.Save(t.Context(), at("3")) }()
	select {
	case err := <-result:
		t.Fatalf("a held Save returned %v", err)
	default:
	}
	m.ReleaseSaves()
	if err := m.Wait(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Fatalf("Save: %v", err)
	}
	if got := m.Saves(); len(got) != 2 || !got[1].Equal(at("3")) {
		t.Fatalf("Saves gave %+v", got)
	}
}
