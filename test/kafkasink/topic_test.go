package kafkasink

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

// lines is a logger whose lines can be waited for.
func lines() (*zap.Logger, <-chan string) {
	heard := make(chan string, 100)
	config := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l", EncodeLevel: zapcore.LowercaseLevelEncoder})
	return zap.New(zapcore.NewCore(config, zapcore.AddSync(writer(heard)), zapcore.InfoLevel)), heard
}

type writer chan<- string

func (w writer) Write(b []byte) (int, error) { w <- string(b); return len(b), nil }

func hear(t *testing.T, heard <-chan string, parts ...string) {
	t.Helper()
	select {
	case line := <-heard:
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Fatalf("log says %s, want %q", line, part)
			}
		}
	case <-limited(t).Done():
		t.Fatalf("nothing was logged, want %q", parts)
	}
}

func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// silentAddress accepts a connection, never answers, and calls accepted.
func silentAddress(t *testing.T, accepted func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		accepted()
		_, _ = c.Read(make([]byte, 1<<16)) // the request
		_, _ = c.Read(make([]byte, 1))     // until it hangs up
	}()
	return l.Addr().String()
}

func TestUnknownTopicIsNamedAndWaitedFor(t *testing.T) {
	cluster := fake(t)
	log, heard := lines()
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, log)
	a := newAnswers()
	returned := make(chan struct{})
	go func() {
		a.publish(t.Context(), s, append(numbered("invoices", 0, 100), numbered(topic, 0, 100)...))
		close(returned)
	}()
	hear(t, heard, `"warn"`, "does not exist", "invoices", "outboxd setup --topics invoices")
	waits(t, s, "does not exist", `"invoices"`, "outboxd setup --topics invoices")
	if err := cluster.CreateTopic("invoices", 5, nil); err != nil {
		t.Fatal(err)
	}
	hear(t, heard, `"info"`, "is there", "invoices")
	<-returned
	if what, _ := s.Waiting(); what != "" {
		t.Errorf("still waits: %s", what)
	}
	a.wantDelivered(t)
	wantExact(t, read(t, cluster.ListenAddrs(), "invoices"), 100, 5)
	wantExact(t, read(t, cluster.ListenAddrs(), topic), 100, 12)
	if len(heard) != 0 {
		t.Fatalf("log goes on: %s", <-heard)
	}
}

// waits goes on when the sink tells of a wait; what it tells must hold the parts.
func waits(t *testing.T, s *kafka.Sink, parts ...string) {
	t.Helper()
	told := ""
	harness.Eventually(t, "the sink tells what it waits for", func() bool {
		what, fix := s.Waiting()
		told = what + ". " + fix
		return what != "" && fix != ""
	})
	for _, part := range parts {
		if !strings.Contains(told, part) {
			t.Errorf("told %q, want %q", told, part)
		}
	}
}

// A leader that answers and takes nothing is told with the way out, and no longer when it takes events again.
func TestUnwillingPartitionsAreTold(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault kfake.Fault
		once  bool // in a transaction
		parts []string
	}{
		{"partition", kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1}, false, []string{"takes nothing", topic, "min.insync.replicas"}},
		{"coordinator", kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1}, true, []string{"coordinator", "__transaction_state"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := fake(t)
			config := kafka.Config{Brokers: cluster.ListenAddrs()}
			if c.once {
				config.TransactionalID, config.TransactionTimeout = harness.Unique("told-"), time.Minute
			}
			s := open(t, config, zap.NewNop())
			fault := cluster.Fault(c.fault)
			a := newAnswers()
			returned := make(chan struct{})
			go func() {
				a.publish(t.Context(), s, numbered(topic, 0, 100))
				close(returned)
			}()
			waits(t, s, c.parts...)
			fault.Remove()
			<-returned
			a.wantDelivered(t)
			harness.Eventually(t, "nothing is told any more", func() bool {
				what, _ := s.Waiting()
				return what == ""
			})
		})
	}
}

// Without its leader the sink tells so at once, and no longer when it is back.
func TestLeaderlessPartitionsAreTold(t *testing.T) {
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 100))
	a.wantDelivered(t)
	if what, _ := s.Waiting(); what != "" {
		t.Errorf("waits: %s", what)
	}
	var led atomic.Bool
	cluster.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if led.Load() {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.MetadataResponse)
		for id, address := range cluster.ListenAddrs() {
			b := kmsg.NewMetadataResponseBroker()
			host, port, _ := net.SplitHostPort(address)
			n, _ := strconv.Atoi(port)
			b.NodeID, b.Host, b.Port = int32(id), host, int32(n)
			answer.Brokers = append(answer.Brokers, b)
		}
		for _, asked := range req.(*kmsg.MetadataRequest).Topics {
			found := kmsg.NewMetadataResponseTopic()
			found.Topic, found.ErrorCode = asked.Topic, kerr.LeaderNotAvailable.Code
			answer.Topics = append(answer.Topics, found)
		}
		return answer, nil, true
	})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { // once
		return nil, errors.New("cut"), true
	})
	a.publish(t.Context(), s, numbered(topic, 100, 100))
	waits(t, s, "leader", topic, "brokers")
	led.Store(true)
	a.wantDelivered(t)
	harness.Eventually(t, "the sink waits no longer", func() bool {
		what, _ := s.Waiting()
		return what == ""
	})
}

// Brokers that make a topic when they are asked for it must not by our asking.
func TestAskingMakesNoTopic(t *testing.T) {
	cluster := fake(t, kfake.AllowAutoTopicCreation())
	log, heard := lines()
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, log)
	a := newAnswers()
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		a.publish(ctx, s, numbered("invoices", 0, 1))
		close(returned)
	}()
	hear(t, heard, "does not exist", "invoices")
	cancel()
	<-returned
	if err := a.all(t)[0]; !errors.Is(err, context.Canceled) {
		t.Fatalf("done(%v)", err)
	}
	if cluster.TopicInfo("invoices") != nil {
		t.Fatal("the topic was made")
	}
}

func TestTopicIsMadeWhenAllowed(t *testing.T) {
	cluster := fake(t)
	log, heard := lines()
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs(), CreateTopics: true, TopicPartitions: 7, TopicReplication: 3}, log)
	a := newAnswers()
	a.publish(t.Context(), s, numbered("invoices", 0, 100))
	a.wantDelivered(t)
	wantExact(t, read(t, cluster.ListenAddrs(), "invoices"), 100, 7)
	hear(t, heard, "does not exist", "invoices")
	hear(t, heard, "is there", "invoices")
}

func TestTopicIsMadeOnKafka(t *testing.T) {
	name, brokers := harness.Unique("kafkasink-"), harness.Brokers(t)
	harness.DeleteTopicsLater(t, name)
	s := open(t, kafka.Config{Brokers: brokers, CreateTopics: true}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(name, 0, 1000))
	a.wantDelivered(t)
	wantExact(t, read(t, brokers, name), 1000, 6) // the broker's own number
}

func TestCreateTopics(t *testing.T) {
	one, two := harness.Unique("kafkasink-"), harness.Unique("kafkasink-")
	harness.DeleteTopicsLater(t, one, two)
	cfg := kafka.Config{Brokers: harness.Brokers(t), TopicPartitions: 3}
	for _, c := range []struct{ names, made, existing []string }{
		{[]string{one}, []string{one}, nil},
		{[]string{one, two}, []string{two}, []string{one}},
		{[]string{one, two}, nil, []string{one, two}},
	} {
		made, existing, err := kafka.CreateTopics(limited(t), cfg, c.names)
		if err != nil || !slices.Equal(made, c.made) || !slices.Equal(existing, c.existing) {
			t.Fatalf("CreateTopics(%q) = %q, %q, %v", c.names, made, existing, err)
		}
	}
	if _, _, err := kafka.CreateTopics(limited(t), cfg, []string{"a/b"}); err == nil || !strings.Contains(err.Error(), "a/b") {
		t.Fatalf("an illegal name: %v", err)
	}
	cfg.TopicReplication = 99
	if _, _, err := kafka.CreateTopics(limited(t), cfg, []string{harness.Unique("kafkasink-")}); err == nil ||
		!strings.Contains(err.Error(), "server_setting") {
		t.Fatalf("too many replicas: %v", err)
	}
}

// A user that may not create topics can still be told that they are there.
func TestCreateTopicsWithoutTheRight(t *testing.T) {
	cluster := fake(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	cfg := kafka.Config{Brokers: cluster.ListenAddrs()}
	if _, existing, err := kafka.CreateTopics(limited(t), cfg, []string{topic}); err != nil || !slices.Equal(existing, []string{topic}) {
		t.Fatalf("existing topic: %q, %v", existing, err)
	}
	if _, _, err := kafka.CreateTopics(limited(t), cfg, []string{"invoices"}); err == nil || !strings.Contains(err.Error(), "grant_missing") {
		t.Fatalf("new topic: %v", err)
	}
}

func TestCheck(t *testing.T) {
	brokers, dead := harness.Brokers(t), deadAddress(t)
	for _, c := range []struct {
		name    string
		brokers []string
		want    []preflight.Status
	}{
		{"all up", brokers, []preflight.Status{preflight.OK, preflight.OK}},
		{"one down", append([]string{dead}, brokers...), []preflight.Status{preflight.Warn, preflight.OK}},
		{"all down", []string{dead}, []preflight.Status{preflight.Fail}},
		{"no address", []string{"kafka"}, []preflight.Status{preflight.Fail}},
	} {
		results := kafka.Check(limited(t), kafka.Config{Brokers: c.brokers})
		var got []preflight.Status
		for _, r := range results {
			got = append(got, r.Status)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", c.name, results)
		}
	}
}

// The broker judges a batch; it is narrowed to the record that is too large, and its neighbours go.
func TestTooLargeForTheTopic(t *testing.T) {
	name, brokers := harness.Unique("kafkasink-"), harness.Brokers(t)
	harness.CreateTopics(t, 1, name)
	limit(t, name, "2000")
	random := rand.NewChaCha8([32]byte{})
	for _, c := range []struct {
		name    string
		sizes   []int
		refused bool
		says    string
	}{
		{"one record", []int{5000}, true, `event "00000000" of table public.outbox`},
		{"several that fit", slices.Repeat([]int{500}, 10), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			// They share a request for sure, as it waits for more.
			s := open(t, kafka.Config{Brokers: brokers, Linger: 100 * time.Millisecond}, zap.NewNop())
			batch := numbered(name, 0, len(c.sizes))
			for i, size := range c.sizes {
				batch[i].Value = make([]byte, size)
				_, _ = random.Read(batch[i].Value) // nothing to compress
			}
			a := newAnswers()
			a.publish(t.Context(), s, batch)
			err := a.all(t)[0]
			var refusal *sink.Refusal
			if (err != nil) != c.refused || errors.As(err, &refusal) != c.refused || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("done(%v)", err)
			}
		})
	}
	if got := read(t, brokers, name); len(got) != 10 {
		t.Fatalf("%d records were stored, want the 10 that fit", len(got))
	}
}

// Partitions that were added are used once everything that went to the old
// ones is acknowledged, and said so once.
func TestPartitionsAdded(t *testing.T) {
	cluster := fake(t)
	log, heard := lines()
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs(), Refresh: 10 * time.Millisecond}, log)
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 100))
	a.wantDelivered(t)

	var refusing atomic.Bool
	refusing.Store(true)
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		return notEnoughReplicas(r.(*kmsg.ProduceRequest)), nil, refusing.Load()
	})
	a.publish(t.Context(), s, numbered(topic, 100, 1))
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answers, err := kadm.NewClient(client).CreatePartitions(limited(t), 8, topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	told, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(returned)
		for n := 101; ; n++ {
			a.publish(t.Context(), s, numbered(topic, n, 1))
			select {
			case <-told:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	hear(t, heard, `"warn"`, "more partitions", topic)
	close(told)
	harness.Never(t, "Publish goes on while an event is not acknowledged", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
	refusing.Store(false)
	<-returned
	a.publish(t.Context(), s, numbered(topic, 100_000, 200))
	a.wantDelivered(t)
	seen, added := map[string]bool{}, 0
	for _, r := range read(t, cluster.ListenAddrs(), topic) {
		if seen[string(r.Value)] {
			t.Errorf("%s is there twice", r.Value)
		}
		seen[string(r.Value)] = true
		if r.partition >= 12 {
			added++
		}
	}
	if added == 0 {
		t.Error("the new partitions are not used")
	}
	for len(heard) != 0 {
		if line := <-heard; !strings.Contains(line, "takes nothing") && !strings.Contains(line, "takes events again") {
			t.Errorf("log goes on: %s", line)
		}
	}
}

// notEnoughReplicas is the answer of a broker that takes nothing for now.
func notEnoughReplicas(r *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	answer := r.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range r.Topics {
		to := kmsg.ProduceResponseTopic{Topic: topic.Topic, TopicID: topic.TopicID}
		for _, p := range topic.Partitions {
			to.Partitions = append(to.Partitions, kmsg.ProduceResponseTopicPartition{Partition: p.Partition, ErrorCode: kerr.NotEnoughReplicas.Code})
		}
		answer.Topics = append(answer.Topics, to)
	}
	return answer
}
