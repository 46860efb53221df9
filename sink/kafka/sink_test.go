package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/sink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// scripted is a producer that answers when told to.
type scripted struct {
	sarama.AsyncProducer
	input     chan *sarama.ProducerMessage
	successes chan *sarama.ProducerMessage
	errs      chan *sarama.ProducerError
	stuck     bool // AsyncClose never ends by itself
	closing   chan struct{}
	end       sync.Once
}

func newScripted() *scripted {
	return &scripted{
		input:     make(chan *sarama.ProducerMessage),
		successes: make(chan *sarama.ProducerMessage),
		errs:      make(chan *sarama.ProducerError),
		closing:   make(chan struct{}),
	}
}

func (p *scripted) Input() chan<- *sarama.ProducerMessage     { return p.input }
func (p *scripted) Successes() <-chan *sarama.ProducerMessage { return p.successes }
func (p *scripted) Errors() <-chan *sarama.ProducerError      { return p.errs }

func (p *scripted) AsyncClose() {
	close(p.closing)
	if !p.stuck {
		p.finish()
	}
}

func (p *scripted) finish() {
	p.end.Do(func() { close(p.successes); close(p.errs) })
}

// cluster is the part of sarama.Client that topics and Close use.
type cluster struct {
	sarama.Client
	mu      sync.Mutex
	answers map[string][]error // what Partitions says next; nil for good when empty
	asked   []string
	closes  int
	bell    chan struct{} // rung at each question, when not nil
}

// Close panics where sarama's would: called once too often (it serves as two clients).
func (c *cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closes++; c.closes > 2 {
		panic("close of closed client")
	}
	return nil
}

func (c *cluster) Partitions(topic string) ([]int32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, topic)
	if c.bell != nil {
		c.bell <- struct{}{}
	}
	if next := c.answers[topic]; len(next) > 0 {
		c.answers[topic] = next[1:]
		return nil, next[0]
	}
	return []int32{0}, nil
}

type bench struct {
	*Sink
	producer *scripted
	cluster  *cluster
	logs     *observer.ObservedLogs
	cuts     chan struct{}
}

func newBench(t *testing.T) *bench {
	core, logs := observer.New(zapcore.InfoLevel)
	b := &bench{producer: newScripted(), cluster: &cluster{answers: map[string][]error{}}, logs: logs, cuts: make(chan struct{})}
	b.Sink = newSink(Config{}.withDefaults(), zap.New(core), b.producer, b.cluster, b.cluster)
	b.cut = sync.OnceFunc(func() { close(b.cuts) })
	b.hush = func() {}
	go b.collect()
	t.Cleanup(func() {
		_ = b.Close(context.Background())
		b.producer.finish() // what is stuck ends once its connections are cut
		<-b.ended
	})
	return b
}

// results counts the answers by batch.
type results struct {
	mu   sync.Mutex
	got  map[string][]error
	bell chan string
}

func newResults() *results {
	return &results{got: map[string][]error{}, bell: make(chan string, 100)}
}

func (r *results) done(name string) func(error) {
	return func(err error) {
		r.mu.Lock()
		r.got[name] = append(r.got[name], err)
		r.mu.Unlock()
		r.bell <- name
	}
}

func (r *results) of(t *testing.T, name string) error {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got[name]) != 1 {
		t.Fatalf("batch %s was answered %d times: %v", name, len(r.got[name]), r.got[name])
	}
	return r.got[name][0]
}

func (r *results) silent(t *testing.T, name string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.got[name]) != 0 {
		t.Fatalf("batch %s was answered: %v", name, r.got[name])
	}
}

func batchOf(ids ...string) []sink.Message {
	msgs := make([]sink.Message, len(ids))
	for i, id := range ids {
		msgs[i] = sink.Message{Topic: "t", ID: []byte(id), Key: []byte("k"), Value: []byte("secret"), Table: "public.outbox"}
	}
	return msgs
}

// feed publishes a batch and takes its records off the producer.
func (b *bench) feed(t *testing.T, r *results, name string, ids ...string) []*sarama.ProducerMessage {
	t.Helper()
	returned := make(chan struct{})
	go func() {
		b.Publish(context.Background(), batchOf(ids...), r.done(name))
		close(returned)
	}()
	taken := make([]*sarama.ProducerMessage, 0, len(ids))
	for range ids {
		taken = append(taken, <-b.producer.input)
	}
	<-returned
	return taken
}

func (b *bench) ack(m *sarama.ProducerMessage) { b.producer.successes <- m }
func (b *bench) refuse(m *sarama.ProducerMessage, err error) {
	b.producer.errs <- &sarama.ProducerError{Msg: m, Err: err}
}

func TestBatchIsDeliveredWithItsLastRecord(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	one := b.feed(t, r, "one", "1", "2", "3")
	two := b.feed(t, r, "two", "4")
	b.ack(one[2])
	b.ack(one[0])
	b.ack(two[0])
	<-r.bell
	r.silent(t, "one")
	if err := r.of(t, "two"); err != nil {
		t.Fatal(err)
	}
	b.ack(one[1])
	<-r.bell
	if err := r.of(t, "one"); err != nil {
		t.Fatal(err)
	}
}

func TestFirstErrorFinishesTheSink(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	before := b.feed(t, r, "before", "1", "2")
	failed := b.feed(t, r, "failed", "3", "4")
	behind := b.feed(t, r, "behind", "5", "6")
	b.ack(before[0])
	b.refuse(failed[0], sarama.ErrNotEnoughReplicas)
	<-r.bell
	if err := r.of(t, "failed"); !errors.Is(err, sarama.ErrNotEnoughReplicas) {
		t.Fatalf("done(%v)", err)
	}

	b.Publish(t.Context(), batchOf("7"), r.done("later"))
	b.Publish(t.Context(), nil, r.done("empty"))
	for _, name := range []string{"later", "empty"} {
		if err := r.of(t, name); !errors.Is(err, sarama.ErrNotEnoughReplicas) {
			t.Fatalf("%s: done(%v)", name, err)
		}
	}

	// What is acknowledged still counts, and no more than that.
	b.ack(before[1])
	b.ack(failed[1])
	b.ack(behind[0])
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.of(t, "before"); err != nil {
		t.Fatalf("done(%v)", err)
	}
	if err := r.of(t, "behind"); err == nil {
		t.Fatal("a batch with an unanswered record was settled with nil")
	}
	r.of(t, "failed") //nolint:errcheck // once
}

func TestErrorWhileFeeding(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	returned := make(chan struct{})
	go func() {
		b.Publish(t.Context(), batchOf("1", "2", "3"), r.done("one"))
		close(returned)
	}()
	first := <-b.producer.input
	b.refuse(first, sarama.ErrOutOfOrderSequenceNumber)
	<-returned
	if err := r.of(t, "one"); !errors.Is(err, sarama.ErrOutOfOrderSequenceNumber) {
		t.Fatalf("done(%v)", err)
	}
	select {
	case m := <-b.producer.input:
		t.Fatalf("fed %v after the error", m.Key)
	default:
	}
}

func TestContextEndsWhileFeeding(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		b.Publish(ctx, batchOf("1", "2"), r.done("one"))
		close(returned)
	}()
	<-b.producer.input
	cancel()
	<-returned
	if err := r.of(t, "one"); !errors.Is(err, context.Canceled) {
		t.Fatalf("done(%v)", err)
	}
	// Nothing may pass what was not fed.
	b.Publish(t.Context(), batchOf("3"), r.done("two"))
	if err := r.of(t, "two"); err == nil {
		t.Fatal("a batch was taken after a half-fed one")
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		code     sarama.KError
		together bool // other records were in the producer's batch
		reason   string
		says     string
	}{
		{sarama.ErrMessageSizeTooLarge, false, ReasonTooLarge, "no record of 7 bytes"},
		{sarama.ErrMessageSetSizeTooLarge, false, ReasonTooLarge, "no record of 7 bytes"},
		{sarama.ErrMessageSizeTooLarge, true, "", "batch of several records"},
		{sarama.ErrInvalidTopic, false, ReasonBadTopic, ""},
		{sarama.ErrTopicAuthorizationFailed, false, ReasonNotAuthorized, ""},
		{sarama.ErrTopicAuthorizationFailed, true, ReasonNotAuthorized, ""},
		{sarama.ErrPolicyViolation, false, ReasonPolicy, ""},
		{sarama.ErrInvalidRecord, false, ReasonInvalidRecord, ""},
		{sarama.ErrInvalidRecord, true, ReasonInvalidRecord, "or one sent with it"},
		{sarama.ErrInvalidTimestamp, false, ReasonBadTimestamp, ""},
		{sarama.ErrNotEnoughReplicas, false, "", "topic \"t\""},
		{sarama.ErrUnknownTopicOrPartition, false, "", "topic \"t\""},
		{sarama.ErrClusterAuthorizationFailed, false, "", "topic \"t\""},
	} {
		t.Run(fmt.Sprintf("%d together %v", c.code, c.together), func(t *testing.T) {
			t.Parallel()
			b, r := newBench(t), newResults()
			b.verdict = time.Hour
			if !c.together {
				b.verdict = time.Millisecond
			}
			records := b.feed(t, r, "one", "17", "18")
			b.refuse(records[0], c.code)
			if c.together {
				b.refuse(records[1], c.code)
			}
			<-r.bell
			err := r.of(t, "one")
			var refusal *sink.Refusal
			if got := errors.As(err, &refusal); got != (c.reason != "") {
				t.Fatalf("refused %v: %v", got, err)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("says %q, want %q and no payload", err, c.says)
			}
			if refusal == nil {
				return
			}
			if refusal.Reason != c.reason || refusal.Detail == "" || refusal.Fix == "" {
				t.Fatalf("%+v, want %s", refusal, c.reason)
			}
			for _, part := range []string{`"17"`, "public.outbox", `"t"`} {
				if !strings.Contains(err.Error(), part) {
					t.Fatalf("%q does not name %s", err, part)
				}
			}
		})
	}
}

// Until the verdict the reason isn't known, but nothing more may be fed, even
// where the producer would take it.
func TestNothingIsFedBeforeTheVerdict(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	b.verdict = time.Hour
	one := b.feed(t, r, "one", "1", "2")
	b.refuse(one[0], sarama.ErrMessageSizeTooLarge)
	<-b.stop
	b.producer.input = make(chan *sarama.ProducerMessage, 100)
	returned := make(chan struct{})
	go func() {
		b.Publish(t.Context(), batchOf(slices.Repeat([]string{"3"}, 100)...), r.done("two"))
		close(returned)
	}()
	select {
	case <-returned:
		t.Fatal("answered before the verdict")
	case b.producer.errs <- &sarama.ProducerError{Msg: one[1], Err: sarama.ErrMessageSizeTooLarge}:
	}
	<-returned
	if n := len(b.producer.input); n > 0 {
		t.Fatalf("fed %d records after the first error", n)
	}
	if err := r.of(t, "two"); !strings.Contains(err.Error(), "batch of several records") {
		t.Fatalf("done(%v)", err)
	}
}

// Both ways are open, and the choice must not be a matter of luck.
func TestFeedPrefersToStop(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.producer.input = make(chan *sarama.ProducerMessage, 100)
	b.fail(sarama.ErrOutOfBrokers)
	for range 100 {
		if err := b.Sink.feed(t.Context(), &sarama.ProducerMessage{}); !errors.Is(err, sarama.ErrOutOfBrokers) {
			t.Fatalf("got %v", err)
		}
	}
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	header := func(name, value string) sink.Header { return sink.Header{Name: name, Value: []byte(value)} }
	at := time.UnixMilli(1764500000123)
	b := &batch{}
	msgs := []sink.Message{
		{Topic: "a", Key: []byte("k"), Value: []byte("v"), Timestamp: at, Headers: []sink.Header{header("id", "1"), header("type", "x")}},
		{Topic: "b", Value: nil, Headers: []sink.Header{header("type", "y"), {Name: "none"}}},
		{Topic: "b", Key: []byte{}, Value: []byte{}, Headers: []sink.Header{header("type", "z"), header("none", ""), header("", "")}},
	}
	records := prepare(msgs, b)
	for i := range msgs {
		r, m := &records[i], &msgs[i]
		if r.Metadata != any(r) || r.batch != b || r.msg != m || r.Topic != m.Topic || !r.Timestamp.Equal(m.Timestamp) {
			t.Errorf("record %d: %+v", i, r)
		}
		if (r.Key == nil) != (m.Key == nil) { // the partitioner looks at this
			t.Errorf("record %d: key %v of %v", i, r.Key, m.Key)
		}
		if v, _ := r.Value.Encode(); string(v) != string(m.Value) || (v == nil) != (m.Value == nil) {
			t.Errorf("record %d: value %v of %v", i, v, m.Value)
		}
		for j, h := range m.Headers {
			got := r.Headers[j]
			if string(got.Key) != h.Name || got.Key == nil || string(got.Value) != string(h.Value) || (got.Value == nil) != (h.Value == nil) {
				t.Errorf("record %d: header %q=%v of %+v", i, got.Key, got.Value, h)
			}
		}
	}
}

// The producer closes while a verdict is open.
func TestVerdictAtClose(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	b.verdict = time.Hour
	one := b.feed(t, r, "one", "1")
	b.refuse(one[0], sarama.ErrInvalidRecord)
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.of(t, "one") //nolint:errcheck // once, whatever it says
}

func TestHalt(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	hushed := false
	b.hush = func() { hushed = true }
	wire := b.feed(t, r, "wire", "1")
	b.feed(t, r, "waiting", "2")
	returned := make(chan struct{})
	go func() {
		b.Publish(t.Context(), batchOf("3", "4"), r.done("feeding"))
		close(returned)
	}()
	<-b.producer.input
	b.Halt()
	<-returned
	b.ack(wire[0])
	if !hushed || r.of(t, "feeding") == nil {
		t.Fatal("went on sending")
	}
	for name := range r.bell {
		if name == "wire" {
			break
		}
	}
	if err := r.of(t, "wire"); err != nil {
		t.Fatalf("done(%v)", err)
	}
	r.silent(t, "waiting") // until Close
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r.of(t, "waiting") == nil {
		t.Fatal("settled with nil")
	}
}

func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	b.producer.stuck = true
	one := b.feed(t, r, "one", "1")
	b.feed(t, r, "two", "2")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- b.Close(ctx) }()
	<-b.producer.closing
	b.ack(one[0])
	<-r.bell
	select {
	case <-b.cuts:
		t.Fatal("connections were cut before ctx ended")
	default:
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("Close: %v", err)
	}
	<-b.cuts
	if err := r.of(t, "one"); err != nil {
		t.Fatalf("answered while closing: done(%v)", err)
	}
	if err := r.of(t, "two"); !errors.Is(err, context.Canceled) {
		t.Fatalf("done(%v)", err)
	}
}

// Close must not return while a done it has lost the race to is still running.
func TestCloseWaitsForRunningDone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.producer.stuck = true
	r := newResults()
	entered, leave := make(chan struct{}), make(chan struct{})
	returned := make(chan struct{})
	go func() {
		b.Publish(t.Context(), batchOf("1"), func(err error) {
			close(entered)
			<-leave
			r.done("one")(err)
		})
		close(returned)
	}()
	m := <-b.producer.input
	<-returned
	b.ack(m)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	closed := make(chan struct{})
	go func() { _ = b.Close(ctx); close(closed) }()
	<-b.cuts
	select {
	case <-closed:
		t.Fatal("Close returned before done did")
	default:
	}
	close(leave)
	<-closed
	if err := r.of(t, "one"); err != nil {
		t.Fatalf("done(%v)", err)
	}
}

func TestUnknownTopicIsNamedAndWaitedFor(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	b.cluster.answers["t"] = slices.Repeat([]error{sarama.ErrUnknownTopicOrPartition}, 2)
	m := b.feed(t, r, "one", "1")
	b.ack(m[0])
	<-r.bell
	var said []string
	for _, e := range b.logs.All() {
		said = append(said, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()))
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "warn topic does not exist") || !strings.HasPrefix(said[1], "info topic is there") {
		t.Fatalf("log: %q", said)
	}
	for _, part := range []string{"topic:t", "create it", "OUTBOXD_KAFKA_CREATE_TOPICS=true", "outboxd setup --topics t"} {
		if !strings.Contains(said[0], part) {
			t.Errorf("log line %q lacks %q", said[0], part)
		}
	}
	// Known from now on.
	b.ack(b.feed(t, r, "two", "2")[0])
	<-r.bell
	if len(b.cluster.asked) != 3 {
		t.Fatalf("asked %q", b.cluster.asked)
	}
}

func TestWaitForTopicEndsWithContext(t *testing.T) {
	t.Parallel()
	b, r := newBench(t), newResults()
	b.cluster.answers["t"] = slices.Repeat([]error{sarama.ErrUnknownTopicOrPartition}, 10000)
	b.cluster.bell = make(chan struct{}, 10000)
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		b.Publish(ctx, batchOf("1"), r.done("one"))
		close(returned)
	}()
	<-b.cluster.bell
	cancel()
	<-returned
	if err := r.of(t, "one"); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `"t"`) {
		t.Fatalf("done(%v)", err)
	}
}

func TestTopicNotToBeSeenIsRefused(t *testing.T) {
	t.Parallel()
	for code, reason := range map[error]string{
		sarama.ErrTopicAuthorizationFailed: ReasonNotAuthorized,
		sarama.ErrInvalidTopic:             ReasonBadTopic,
	} {
		b, r := newBench(t), newResults()
		b.cluster.answers["t"] = []error{code}
		b.Publish(t.Context(), batchOf("1"), r.done("one"))
		var refusal *sink.Refusal
		if err := r.of(t, "one"); !errors.As(err, &refusal) || refusal.Reason != reason {
			t.Fatalf("%v: done(%v)", code, err)
		}
	}
}
