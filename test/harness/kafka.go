package harness

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/test/checker"
)

// Brokers is where Kafka is.
func Brokers(t testing.TB) []string {
	t.Helper()
	return strings.Split(Need(t, "OUTBOXD_TEST_KAFKA"), ",")
}

// CreateTopics makes topics and deletes them at the end of the test.
func CreateTopics(t testing.TB, partitions int32, topics ...string) {
	t.Helper()
	admin := DeleteTopicsLater(t, topics...)
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	made, err := admin.CreateTopics(ctx, partitions, -1, nil, topics...)
	if err == nil {
		err = made.Error()
	}
	if err != nil {
		t.Fatalf("create topics: %v", err)
	}
}

// DeleteTopicsLater deletes topics at the end of the test, whoever made them.
func DeleteTopicsLater(t testing.TB, topics ...string) *kadm.Client {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(Patience.Milliseconds()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if _, err := admin.DeleteTopics(ctx, topics...); err != nil {
			t.Errorf("delete topics: %v", err)
		}
		client.Close()
	})
	return admin
}

// Records reads everything the topics hold.
func Records(t testing.TB, topics ...string) []checker.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	records, err := checker.ReadTopics(ctx, Brokers(t), checker.Uncommitted, topics...)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// Tail follows topics and counts what arrives.
type Tail struct {
	mu      sync.Mutex
	records int
	ids     map[string]struct{}
	more    chan struct{} // closed and replaced when something arrived
}

// Follow starts a Tail that ends with the test.
func Follow(t testing.TB, topics ...string) *Tail {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...), kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	tail := &Tail{ids: make(map[string]struct{}), more: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			tail.take(fetches)
		}
	}()
	t.Cleanup(func() { client.Close(); <-done })
	return tail
}

func (tail *Tail) take(fetches kgo.Fetches) {
	tail.mu.Lock()
	defer tail.mu.Unlock()
	fetches.EachRecord(func(r *kgo.Record) {
		tail.records++
		for _, h := range r.Headers {
			if h.Key == "id" {
				tail.ids[r.Topic+"\x00"+string(h.Value)] = struct{}{}
			}
		}
	})
	close(tail.more)
	tail.more = make(chan struct{})
}

// Counts returns how many records were seen, and how many events, copies aside.
func (tail *Tail) Counts() (records, events int) {
	tail.mu.Lock()
	defer tail.mu.Unlock()
	return tail.records, len(tail.ids)
}

// WaitRecords waits until n records were seen in all.
func (tail *Tail) WaitRecords(t testing.TB, n int) {
	t.Helper()
	tail.wait(t, "records", func() int { return tail.records }, n)
}

// WaitEvents waits until n events were seen, copies aside. It fails the test
// when they don't come and returns, so that the check can say which are missing.
func (tail *Tail) WaitEvents(t testing.TB, n int) {
	t.Helper()
	tail.wait(t, "events", func() int { return len(tail.ids) }, n)
}

func (tail *Tail) wait(t testing.TB, what string, count func() int, n int) {
	t.Helper()
	late := time.NewTimer(Patience)
	defer late.Stop()
	for best := 0; ; {
		tail.mu.Lock()
		have, more := count(), tail.more
		tail.mu.Unlock()
		if have >= n {
			return
		}
		if have > best {
			best = have
			late.Reset(Patience) // it moves
		}
		select {
		case <-more:
		case <-late.C:
			t.Errorf("%d of %d %s arrived, and no more for %v", have, n, what, Patience)
			return
		}
	}
}
