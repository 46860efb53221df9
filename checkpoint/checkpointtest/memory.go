// Package checkpointtest holds the contract suite that every checkpoint store
// must pass, and a store in memory that fails on cue for the tests of those
// who use one.
package checkpointtest

import (
	"context"
	"sync"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
)

// Memory is a checkpoint.Store that outlives its Close, so one value stands
// for the place where checkpoints are kept. Its zero value is empty and
// belongs to nobody: the first Save names its owner. Its methods may be called from any goroutine.
type Memory struct {
	// Name is the connector it is opened for; empty takes the name of what is saved first.
	Name string

	mu      sync.Mutex
	stored  *checkpoint.Checkpoint
	corrupt bool
	saves   []checkpoint.Checkpoint
	loadErr error
	saveErr error
	gate    chan struct{} // non-nil while saves are held
	changed chan struct{}
}

// Load gives the last save, or the error set by FailLoad.
func (m *Memory) Load(context.Context) (checkpoint.Checkpoint, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.loadErr != nil:
		return checkpoint.Checkpoint{}, m.loadErr
	case m.corrupt:
		return checkpoint.Checkpoint{}, unreadable()
	case m.stored == nil:
		return checkpoint.Checkpoint{}, checkpoint.ErrNone
	case m.Name != "" && m.stored.Name != m.Name:
		return checkpoint.Checkpoint{}, m.foreign(m.stored.Name)
	}
	return *m.stored, nil
}

// Save keeps c, after waiting for ReleaseSaves when saves are held, or gives
// the error set by FailSave.
func (m *Memory) Save(ctx context.Context, c checkpoint.Checkpoint) error {
	m.mu.Lock()
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saveErr != nil {
		return m.saveErr
	}
	if m.Name == "" {
		m.Name = c.Name
	}
	if c.Name != m.Name {
		return m.foreign(c.Name)
	}
	if m.corrupt {
		return unreadable()
	}
	if m.stored != nil && m.stored.Name != m.Name {
		return m.foreign(m.stored.Name)
	}
	m.stored = &c
	m.saves = append(m.saves, c)
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	return nil
}

// Delete forgets the checkpoint.
func (m *Memory) Delete(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored != nil && m.Name != "" && m.stored.Name != m.Name {
		return m.foreign(m.stored.Name)
	}
	m.stored, m.corrupt = nil, false
	return nil
}

// Close does nothing: the same value may be used again.
func (m *Memory) Close() error { return nil }

// Put places c there as another process would.
func (m *Memory) Put(c checkpoint.Checkpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stored = &c
}

// Corrupt makes what is stored unreadable until Delete.
func (m *Memory) Corrupt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.corrupt = true
}

// FailLoad makes every Load fail with err until FailLoad(nil).
func (m *Memory) FailLoad(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loadErr = err
}

// FailSave makes every Save fail with err until FailSave(nil).
func (m *Memory) FailSave(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saveErr = err
}

// HoldSaves makes Save block until ReleaseSaves.
func (m *Memory) HoldSaves() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate == nil {
		m.gate = make(chan struct{})
	}
}

// ReleaseSaves ends HoldSaves.
func (m *Memory) ReleaseSaves() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gate != nil {
		close(m.gate)
		m.gate = nil
	}
}

// Saves gives every successful save in order.
func (m *Memory) Saves() []checkpoint.Checkpoint {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]checkpoint.Checkpoint(nil), m.saves...)
}

// Wait blocks until n saves succeeded, and returns ctx's error when it ends first.
func (m *Memory) Wait(ctx context.Context, n int) error {
	for {
		m.mu.Lock()
		if len(m.saves) >= n {
			m.mu.Unlock()
			return nil
		}
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *Memory) foreign(name string) error {
	return fault.Position(fault.CodeForeign, "use the checkpoint store of this connector", nil,
		"checkpoint of connector %q, not of %q", name, m.Name)
}

func unreadable() error {
	return fault.Position(fault.CodeCheckpointUnreadable, "delete the checkpoint", nil, "damaged checkpoint")
}
