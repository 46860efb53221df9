// Package kafkasink tests the Kafka sink against a broker in process, which
// fails on cue, and against a real one.
package kafkasink

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// One for the process, and a timer of 10 s that nobody can stop.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		// kfake's own, when a cluster is closed while a request sleeps in it.
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).continueSleptControl"),
		goleak.IgnoreAnyFunction("github.com/eapache/go-resiliency/breaker.(*Breaker).timer"))
}

const topic = "orders"

// limited ends what would hang; nothing waits for it to pass.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

func fake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SeedTopics(12, topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func open(t *testing.T, cfg kafka.Config, log *zap.Logger) *kafka.Sink {
	t.Helper()
	s, err := kafka.Open(limited(t), cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Close(ctx) // at once, if the test has not closed it
	})
	return s
}

// record is a message as it is stored.
type record struct {
	sink.Message
	partition int32
	producer  int64
}

// read gives everything in a topic, in order per partition.
func read(t *testing.T, brokers []string, topic string) []record {
	t.Helper()
	ctx := limited(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left, from := int64(0), map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		left += o.Offset
		from[o.Partition] = kgo.NewOffset().AtStart()
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	var all []record
	for int64(len(all)) < left {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records read: %v", len(all), left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			m := sink.Message{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}
			for _, h := range r.Headers {
				m.Headers = append(m.Headers, sink.Header{Name: h.Key, Value: h.Value})
			}
			all = append(all, record{m, r.Partition, r.ProducerID})
		})
	}
	return all
}

func messages(records []record) []sink.Message {
	all := make([]sink.Message, len(records))
	for i := range records {
		all[i] = records[i].Message
	}
	return all
}

// numbered makes messages whose values count up, over some 97 keys.
func numbered(topic string, from, n int) []sink.Message {
	batch := make([]sink.Message, n)
	for i := range batch {
		id := fmt.Appendf(nil, "%08d", from+i)
		batch[i] = sink.Message{Topic: topic, Key: fmt.Appendf(nil, "key-%d", (from+i)%97), Value: id, ID: id, Table: "public.outbox"}
	}
	return batch
}

// wantExact checks that the topic holds numbered 0 to n once each, in order per key, where Java would put them.
func wantExact(t *testing.T, records []record, n int, partitions int32) {
	t.Helper()
	seen, newest := map[string]bool{}, map[string]string{}
	for _, r := range records {
		key, value := string(r.Key), string(r.Value)
		switch {
		case seen[value]:
			t.Errorf("%s is there twice", value)
		case value < newest[key]:
			t.Errorf("key %s: %s came after %s", key, value, newest[key])
		}
		if want := checker.Partition(r.Key, partitions); r.partition != want {
			t.Errorf("key %s is on partition %d, want %d", key, r.partition, want)
		}
		seen[value], newest[key] = true, value
	}
	if len(seen) != n {
		t.Errorf("%d different records, want %d", len(seen), n)
	}
}

// answers collects what done was called with.
type answers struct {
	mu   sync.Mutex
	got  [][]error
	bell chan struct{}
}

func newAnswers() *answers { return &answers{bell: make(chan struct{}, 1)} }

func (a *answers) publish(ctx context.Context, s sink.Sink, batch []sink.Message) {
	a.mu.Lock()
	i := len(a.got)
	a.got = append(a.got, nil)
	a.mu.Unlock()
	s.Publish(ctx, batch, func(err error) {
		a.mu.Lock()
		a.got[i] = append(a.got[i], err)
		a.mu.Unlock()
		select {
		case a.bell <- struct{}{}:
		default:
		}
	})
}

// all waits until every batch is answered and gives the answers, one a batch.
func (a *answers) all(t *testing.T) []error {
	t.Helper()
	return a.when(t, func(got [][]error) bool {
		return !slices.ContainsFunc(got, func(e []error) bool { return len(e) == 0 })
	})
}

// when waits for what done says, and gives each batch's first answer so far.
func (a *answers) when(t *testing.T, done func([][]error) bool) []error {
	t.Helper()
	ctx := limited(t)
	for {
		a.mu.Lock()
		if done(a.got) {
			defer a.mu.Unlock()
			first := make([]error, len(a.got))
			for i, e := range a.got {
				if len(e) > 1 {
					t.Fatalf("batch %d was answered %d times: %v", i, len(e), e)
				}
				if len(e) == 1 {
					first[i] = e[0]
				}
			}
			return first
		}
		a.mu.Unlock()
		select {
		case <-a.bell:
		case <-ctx.Done():
			t.Fatal("batches were never answered")
		}
	}
}

func (a *answers) wantDelivered(t *testing.T) {
	t.Helper()
	for i, err := range a.all(t) {
		if err != nil {
			t.Fatalf("batch %d: done(%v)", i, err)
		}
	}
}
