// Package topicstore tests the checkpoint store in a Kafka topic against a
// broker in process, which fails on cue, and against a real one.
package topicstore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/harness"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // one for the process
}

const name = "orders-outbox"

func at(position source.Position) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{Name: name, Position: position, SavedAt: time.Unix(1e9, 5).UTC()}
}

// named is a checkpoint of another connector.
func named(name string, i int) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{Name: name, Position: source.Position(strconv.Itoa(i)), SavedAt: time.Unix(1e9, 0)}
}

// limited ends what would hang; nothing waits for it to pass.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

// place is a topic that does not exist yet.
type place struct {
	brokers []string
	topic   string
	client  *kgo.Client
	admin   *kadm.Client
	fake    *kfake.Cluster // nil: it is a real one
}

// everywhere runs a test on either kind of Kafka.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	t.Run("fake", func(t *testing.T) { test(t, onFake(t)) })
	t.Run("real", func(t *testing.T) { test(t, onReal(t)) })
}

func onFake(t *testing.T, opts ...kfake.Opt) *place {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3), kfake.SleepOutOfOrder()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p := &place{brokers: c.ListenAddrs(), topic: "checkpoints", fake: c}
	return p.connect(t)
}

func onReal(t *testing.T) *place {
	t.Helper()
	p := &place{brokers: harness.Brokers(t), topic: harness.Unique("topicstore-")}
	harness.DeleteTopicsLater(t, p.topic)
	return p.connect(t)
}

func (p *place) connect(t *testing.T) *place {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.DefaultProduceTopic(p.topic), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	p.client, p.admin = client, kadm.NewClient(client)
	return p
}

func (p *place) config(name string) topic.Config {
	return topic.Config{Conn: kafkaconn.Config{Brokers: p.brokers}, Topic: p.topic, Name: name, CreateTopic: true}
}

// open gives a store as a new process would have it.
func (p *place) open(t *testing.T, name string) *topic.Store {
	t.Helper()
	return open(t, p.config(name))
}

func open(t *testing.T, cfg topic.Config) *topic.Store {
	t.Helper()
	s := topic.Open(cfg, zaptest.NewLogger(t))
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// create makes the topic with settings of the test's own.
func (p *place) create(t *testing.T, partitions int32, settings map[string]string) {
	t.Helper()
	all := map[string]*string{}
	for k, v := range settings {
		all[k] = &v
	}
	made, err := p.admin.CreateTopic(limited(t), partitions, 1, all, p.topic)
	if err == nil {
		err = made.Err
	}
	if err != nil {
		t.Fatalf("create topic: %v", err)
	}
}

func (p *place) delete(t *testing.T) {
	t.Helper()
	gone, err := p.admin.DeleteTopic(limited(t), p.topic)
	if err == nil {
		err = gone.Err
	}
	if err != nil {
		t.Fatalf("delete topic: %v", err)
	}
	harness.Eventually(t, "the topic is gone", func() bool { return !p.exists(t) })
}

// exists asks a broker; the client would remember what it heard before.
func (p *place) exists(t *testing.T) bool {
	t.Helper()
	request := kmsg.NewMetadataRequest()
	request.Topics = append(request.Topics, kmsg.NewMetadataRequestTopic())
	request.Topics[0].Topic = &p.topic
	answer, err := p.client.SeedBrokers()[0].Request(limited(t), &request)
	if err != nil {
		t.Fatal(err)
	}
	return answer.(*kmsg.MetadataResponse).Topics[0].ErrorCode == 0
}

// end is the offset behind the last record.
func (p *place) end(t *testing.T) int64 {
	t.Helper()
	ends, err := p.admin.ListEndOffsets(limited(t), p.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	o, _ := ends.Lookup(p.topic, 0)
	return o.Offset
}

// put appends a record of somebody else, or one of ours that is wrong; no value is a tombstone.
func (p *place) put(t *testing.T, key string, value []byte) {
	t.Helper()
	if err := p.client.ProduceSync(limited(t), &kgo.Record{Key: []byte(key), Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// foreign appends n records of other connectors.
func (p *place) foreign(t *testing.T, n int) {
	t.Helper()
	value := make([]byte, 200)
	records := make([]*kgo.Record, n)
	for i := range records {
		records[i] = &kgo.Record{Key: []byte{'o', '-', byte('a' + i%20), '/', 'p', 'l', 'a', 'c', 'e'}, Value: value}
	}
	if err := p.client.ProduceSync(limited(t), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func save(t *testing.T, s checkpoint.Store, c checkpoint.Checkpoint) {
	t.Helper()
	if err := s.Save(limited(t), c); err != nil {
		t.Fatalf("Save: %v", err)
	}
}

func expect(t *testing.T, s checkpoint.Store, want checkpoint.Checkpoint) {
	t.Helper()
	if got, err := s.Load(limited(t)); err != nil || !got.Equal(want) {
		t.Fatalf("Load gave %+v, %v; want %+v", got, err, want)
	}
}

func expectNone(t *testing.T, s checkpoint.Store) {
	t.Helper()
	if c, err := s.Load(limited(t)); !errors.Is(err, checkpoint.ErrNone) {
		t.Fatalf("Load gave %+v, %v; want ErrNone", c, err)
	}
}

// expectFault wants a fault whose finding or fix says all that.
func expectFault(t *testing.T, err error, code string, exit int, says ...string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != code || f.Exit != exit || f.Fix == "" {
		t.Fatalf("got %v, want a fault %s with exit %d", err, code, exit)
	}
	for _, part := range says {
		if !strings.Contains(f.Found, part) && !strings.Contains(f.Fix, part) {
			t.Errorf("%q, fix %q: must say %q", f.Found, f.Fix, part)
		}
	}
}

// expectPlain wants an error that the engine retries.
func expectPlain(t *testing.T, err error) {
	t.Helper()
	if err == nil || fault.As(err) != nil || errors.Is(err, checkpoint.ErrNone) {
		t.Fatalf("got %v, want a plain error", err)
	}
}

// set changes a setting of the topic.
func (p *place) set(t *testing.T, key, value string) {
	t.Helper()
	answers, err := p.admin.AlterTopicConfigs(limited(t), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, p.topic)
	if err == nil {
		_, err = answers.On(p.topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatal(err)
	}
}
