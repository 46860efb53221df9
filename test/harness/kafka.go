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
	DeleteTopicsLater(t, topics...)
	for _, topic := range topics {
		CreateTopic(t, topic, partitions, nil)
	}
}

// CreateTopic makes a topic with settings.
func CreateTopic(t testing.TB, topic string, partitions int32, settings map[string]string) {
	t.Helper()
	values := make(map[string]*string)
	for name, value := range settings {
		values[name] = &value
	}
	withAdmin(t.Context(), t, func(ctx context.Context, admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, partitions, -1, values, topic)
		return err
	})
}

// SetTopic changes a setting of a topic; an empty value takes it back.
func SetTopic(t testing.TB, topic, name, value string) {
	t.Helper()
	change := kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value}
	if value == "" {
		change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name}
	}
	withAdmin(t.Context(), t, func(ctx context.Context, admin *kadm.Client) error {
		answer, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
		if err == nil {
			_, err = answer.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
		}
		return err
	})
}

// DeleteTopic deletes a topic and waits until the broker knows it no more.
func DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	withAdmin(t.Context(), t, func(ctx context.Context, admin *kadm.Client) error {
		if _, err := admin.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		Eventually(t, topic+" is gone", func() bool { return !topicExists(ctx, t, admin, topic) })
		return nil
	})
}

// TopicExists reports whether the broker knows the topic.
func TopicExists(t testing.TB, topic string) (exists bool) {
	t.Helper()
	withAdmin(t.Context(), t, func(ctx context.Context, admin *kadm.Client) error {
		exists = topicExists(ctx, t, admin, topic)
		return nil
	})
	return exists
}

func topicExists(ctx context.Context, t testing.TB, admin *kadm.Client, topic string) bool {
	t.Helper()
	found, err := admin.ListTopics(ctx, topic)
	if err != nil {
		t.Fatalf("list topics: %v", err)
	}
	return found.Has(topic)
}

// DeleteTopicsLater deletes topics at the end of the test, whoever made them.
func DeleteTopicsLater(t testing.TB, topics ...string) {
	t.Helper()
	t.Cleanup(func() {
		withAdmin(context.Background(), t, func(ctx context.Context, admin *kadm.Client) error {
			_, err := admin.DeleteTopics(ctx, topics...)
			return err
		})
	})
}

func withAdmin(ctx context.Context, t testing.TB, do func(context.Context, *kadm.Client) error) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	admin.SetTimeoutMillis(int32(Patience.Milliseconds()))
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := do(ctx, admin); err != nil {
		t.Errorf("administer topics: %v", err)
	}
}

// Produce writes one record. A nil value is a tombstone.
func Produce(t testing.TB, topic, key string, value []byte) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	record := &kgo.Record{Topic: topic, Key: []byte(key), Value: value}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

// Records reads everything the topics hold.
func Records(t testing.TB, topics ...string) []checker.Record {
	t.Helper()
	return RecordsAt(t, checker.Uncommitted, topics...)
}

// RecordsAt reads what a consumer of that isolation level sees.
func RecordsAt(t testing.TB, level checker.Isolation, topics ...string) []checker.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	records, err := checker.ReadTopics(ctx, Brokers(t), level, topics...)
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
	return FollowAt(t, checker.Uncommitted, topics...)
}

// FollowAt is Follow for a consumer of that isolation level.
func FollowAt(t testing.TB, level checker.Isolation, topics ...string) *Tail {
	t.Helper()
	isolation := kgo.ReadUncommitted()
	if level == checker.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(kgo.FetchIsolationLevel(isolation), kgo.SeedBrokers(Brokers(t)...), kgo.ConsumeTopics(topics...),
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
