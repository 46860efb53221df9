package sinktest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/sink"
)

// Rig is one open sink and what the suite needs around it.
type Rig struct {
	Sink sink.Sink
	// Topic takes messages and is empty at first.
	Topic string
	// Read gives everything that is durable in Topic: in order per key, with keys, values,
	// headers and timestamps as they were stored.
	Read func(t *testing.T) []sink.Message
	// Break makes every later write fail for good.
	Break func(t *testing.T)
}

// Factory opens a fresh sink. It is called once a case.
type Factory func(t *testing.T) Rig

// patience ends a case that would hang; no case waits for it to pass.
const patience = time.Minute

// Run checks the contract of sink.Sink.
func Run(t *testing.T, open Factory) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *bench)
	}{
		{"a message arrives as it was given", asGiven},
		{"order per key over many batches", order},
		{"an empty batch is settled", emptyBatch},
		{"Close settles everything", closeSettles},
		{"nothing succeeds after Close", afterClose},
		{"nothing succeeds after a failure", afterFailure},
		{"an ended context settles the batch", endedContext},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			b := &bench{Rig: open(t), ctx: ctx}
			defer b.once(t)
			defer b.Sink.Close(ctx) //nolint:errcheck // the cases that look at it close on their own
			c.test(t, b)
		})
	}
}

// bench counts how often each published batch was settled, and with what.
type bench struct {
	Rig
	ctx context.Context //nolint:containedctx // one bench is one case

	mu      sync.Mutex
	batches []*outcome
}

type outcome struct {
	calls   int
	err     error
	settled chan struct{}
}

func (b *bench) publish(ctx context.Context, batch []sink.Message) *outcome {
	o := &outcome{settled: make(chan struct{})}
	b.mu.Lock()
	b.batches = append(b.batches, o)
	b.mu.Unlock()
	b.Sink.Publish(ctx, batch, func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if o.calls++; o.calls == 1 {
			o.err = err
			close(o.settled)
		}
	})
	return o
}

func (b *bench) wait(t *testing.T, o *outcome) error {
	t.Helper()
	select {
	case <-o.settled:
	case <-b.ctx.Done():
		t.Fatal("a batch was never settled")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return o.err
}

func (b *bench) delivered(t *testing.T, o *outcome) {
	t.Helper()
	if err := b.wait(t, o); err != nil {
		t.Fatalf("done(%v), want done(nil)", err)
	}
}

// once checks, at the end of a case, that done was called exactly once a batch.
func (b *bench) once(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, o := range b.batches {
		if o.calls != 1 {
			t.Errorf("done of batch %d of %d was called %d times after Close", i+1, len(b.batches), o.calls)
		}
	}
}

// messages makes n of them over a few keys; the value is the number.
func (b *bench) messages(from, n int) []sink.Message {
	batch := make([]sink.Message, n)
	for i := range batch {
		id := fmt.Appendf(nil, "%06d", from+i)
		batch[i] = sink.Message{
			Topic: b.Topic, Key: fmt.Appendf(nil, "key-%d", (from+i)%7), Value: id, ID: id, Table: "public.outbox",
			Timestamp: time.UnixMilli(1764500000000 + int64(from+i)),
		}
	}
	return batch
}

func asGiven(t *testing.T, b *bench) {
	at := time.Date(2026, 11, 30, 12, 34, 56, 789999999, time.UTC)
	stored := at.Truncate(time.Millisecond)
	sent := []sink.Message{
		{Key: []byte("a"), Value: []byte(`{"n": 1.10, "s": "<&>\u2028 ü"}`), Headers: []sink.Header{
			{Name: "id", Value: []byte("1")}, {Name: "none"}, {Name: "empty", Value: []byte{}}, {Name: "bytes", Value: []byte{0xff, 0}},
		}},
		{Key: []byte("a"), Value: nil},
		{Key: []byte("a"), Value: []byte{}},
		{Key: []byte("a"), Value: []byte{0, 0xff, 0xfe, '\n'}},
		{Key: []byte{0xff, 0x01}, Value: []byte("binary key")},
		{Key: []byte{}, Value: []byte("empty key")},
		{Key: nil, Value: []byte("no key"), Headers: []sink.Header{{Name: "id", Value: []byte("2")}}},
	}
	for i := range sent {
		sent[i].Topic, sent[i].Timestamp = b.Topic, at
	}
	b.delivered(t, b.publish(b.ctx, slices.Clone(sent)))
	got := b.Read(t)
	if len(got) != len(sent) {
		t.Fatalf("%d messages arrived, want %d", len(got), len(sent))
	}
	for _, want := range sent {
		i := slices.IndexFunc(got, func(m sink.Message) bool { return same(m.Key, want.Key) && same(m.Value, want.Value) })
		if i < 0 {
			t.Errorf("missing: key %#v value %#v", want.Key, want.Value)
			continue
		}
		if !got[i].Timestamp.Equal(stored) {
			t.Errorf("value %q: timestamp %v, want %v", want.Value, got[i].Timestamp, stored)
		}
		if !slices.EqualFunc(got[i].Headers, want.Headers, func(a, b sink.Header) bool { return a.Name == b.Name && same(a.Value, b.Value) }) {
			t.Errorf("value %q: headers %#v, want %#v", want.Value, got[i].Headers, want.Headers)
		}
	}
}

// same tells nil from empty.
func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func order(t *testing.T, b *bench) {
	const batches, size = 40, 25
	var last *outcome
	for i := range batches {
		last = b.publish(b.ctx, b.messages(i*size, size))
	}
	b.delivered(t, last)
	for _, o := range b.batches {
		b.delivered(t, o)
	}
	got := b.Read(t)
	if len(got) != batches*size {
		t.Fatalf("%d messages arrived, want %d", len(got), batches*size)
	}
	newest := map[string]string{}
	for _, m := range got {
		key, value := string(m.Key), string(m.Value)
		if value <= newest[key] {
			t.Fatalf("key %s: %s came after %s", key, value, newest[key])
		}
		newest[key] = value
	}
}

func emptyBatch(t *testing.T, b *bench) {
	b.delivered(t, b.publish(b.ctx, nil))
	b.delivered(t, b.publish(b.ctx, b.messages(0, 1)))
	b.delivered(t, b.publish(b.ctx, []sink.Message{}))
	if got := b.Read(t); len(got) != 1 {
		t.Fatalf("%d messages arrived, want 1", len(got))
	}
}

func closeSettles(t *testing.T, b *bench) {
	for i := range 20 {
		b.publish(b.ctx, b.messages(i*50, 50))
	}
	if err := b.Sink.Close(b.ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	b.once(t)
	stored := map[string]bool{}
	for _, m := range b.Read(t) {
		stored[string(m.Value)] = true
	}
	for i, o := range b.batches {
		if o.err != nil {
			continue
		}
		for _, m := range b.messages(i*50, 50) {
			if !stored[string(m.Value)] {
				t.Fatalf("batch %d was settled with nil, but %s did not arrive", i, m.Value)
			}
		}
	}
}

func afterClose(t *testing.T, b *bench) {
	b.delivered(t, b.publish(b.ctx, b.messages(0, 5)))
	if err := b.Sink.Close(b.ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for _, batch := range [][]sink.Message{b.messages(5, 5), nil} {
		o := b.publish(b.ctx, batch)
		if err := b.wait(t, o); err == nil {
			t.Fatal("a batch published after Close was settled with nil")
		}
	}
	if got := b.Read(t); len(got) != 5 {
		t.Fatalf("%d messages arrived, want 5", len(got))
	}
}

func afterFailure(t *testing.T, b *bench) {
	b.delivered(t, b.publish(b.ctx, b.messages(0, 5)))
	b.Break(t)
	if err := b.wait(t, b.publish(b.ctx, b.messages(5, 5))); err == nil {
		t.Fatal("a batch to a broken place was settled with nil")
	}
	for i := range 5 {
		if err := b.wait(t, b.publish(b.ctx, b.messages(10+i, 1))); err == nil {
			t.Fatal("a batch after the failure was settled with nil")
		}
	}
	if err := b.wait(t, b.publish(b.ctx, nil)); err == nil {
		t.Fatal("an empty batch after the failure was settled with nil")
	}
	if err := b.Sink.Close(b.ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// A sink may take such a batch or fail it, but must not keep it.
func endedContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	o := b.publish(ctx, b.messages(0, 5))
	if err := b.Sink.Close(b.ctx); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := b.wait(t, o); err == nil && len(b.Read(t)) != 5 {
		t.Fatal("settled with nil, but it did not arrive")
	}
}
