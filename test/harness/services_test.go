package harness

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/load"
)

// relay does by hand what the product does: each committed row becomes a record.
func relay(t *testing.T, events []checker.Event) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...)) // its default partitioner is the Java client's
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, e := range events {
		r := &kgo.Record{Topic: e.Topic, Key: e.Key, Value: e.Value}
		for _, h := range e.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
		}
		client.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The load's truth, carried over by hand, satisfies the checker; with one row less it doesn't.
func TestLoadAndCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		service string
		shapes  []Shape
	}{
		{"postgres15", []Shape{Plain, Debezium}},
		{"mysql", []Shape{Plain, Debezium, Binary}},
		{"mariadb118", []Shape{Plain, Debezium, Binary}},
	} {
		for _, shape := range c.shapes {
			t.Run(c.service+"/"+shape.String(), func(t *testing.T) {
				t.Parallel()
				loadAndCheck(t, c.service, shape)
			})
		}
	}
}

func loadAndCheck(t *testing.T, service string, shape Shape) {
	db := NewDatabase(t, service)
	db.CreateOutbox(t, shape)
	kinds := []string{Unique("order-"), Unique("invoice-")}
	topics := []string{"outbox.event." + kinds[0], "outbox.event." + kinds[1]}
	CreateTopics(t, 6, topics...)
	cfg := load.Config{Events: 1000, Aggregates: 50, Types: kinds, Table: shape.Load(), Dialect: db.Dialect()}
	for range 2 { // the second goes on where the first ended
		got, err := load.Run(t.Context(), db.SQL(), cfg)
		if err != nil || got.Committed != 1000 || got.Rollbacks == 0 {
			t.Fatalf("load: %+v, %v", got, err)
		}
	}
	events := db.Truth(t, shape.Checker())
	if len(events) != 2000 {
		t.Fatalf("%d events committed, want 2000", len(events))
	}
	gapless(t, events)

	tail := Follow(t, topics...)
	slices.SortFunc(events, func(a, b checker.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	relay(t, events)
	tail.WaitEvents(t, 2000)
	tail.WaitRecords(t, 2000)
	records := Records(t, topics...)
	checker.Require(t, checker.Check(events, records), 0)
	if r := checker.Check(events[1:], records); r.Phantom.Count != 1 {
		t.Errorf("a record without a row was not noticed:\n%s", r)
	}
}

// gapless wants the numbers of each aggregate to be 1, 2, 3, …
func gapless(t *testing.T, events []checker.Event) {
	t.Helper()
	count, last := make(map[string]int64), make(map[string]int64)
	for _, e := range events {
		at := e.Topic + string(e.Key)
		count[at]++
		last[at] = max(last[at], e.Seq)
	}
	for at, n := range count {
		if last[at] != n {
			t.Errorf("%s: %d events, the last is number %d", at, n, last[at])
		}
	}
}
