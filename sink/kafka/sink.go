// Package kafka is the sink for Kafka topics.
//
// For now records go through sarama's AsyncProducer. It keeps order per key
// and repeats nothing as long as it reports no error, but after an error
// later records of the same partition may pass the failed one, and records of other
// partitions fail with it. So the first error finishes the sink: nothing
// more is fed, what is acknowledged still counts, and the engine opens a new sink
// and goes on from the place everything before is settled (I4).
//
//	Publish -> topics known? -> producer.Input
//	                            producer.Successes, Errors -> collect -> done
package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/sink"
)

var (
	errClosed = errors.New("sink is closed")
	errHalted = errors.New("sink is halted")
)

// Sink is a sink.Sink, a sink.Judge and a sink.Halter. Publish, Judge and Close
// are called by one goroutine, Halt by any; done is called from a goroutine of
// the sink, or from Publish.
type Sink struct {
	cfg      Config
	log      *zap.Logger
	producer sarama.AsyncProducer
	topics   topics
	judged   string        // the topic name last judged and found legal
	cut      func()        // ends every connection and every wait between retries
	hangUp   func()        // closes the clients, once: sarama panics on two at a time
	drained  chan struct{} // the collector has ended: the producer answers no more
	ended    chan struct{} // nothing of the sink is left
	closed   bool
	verdict  time.Duration // see collect
	hush     func()        // the producer's connections send no more

	halted sync.Once
	stop   chan struct{} // closed when nothing more may be fed
	failed chan struct{} // closed when err is set

	mu    sync.Mutex
	err   error // why the sink is finished
	open  map[*batch]struct{}
	calls sync.WaitGroup // done being called
}

// batch is one Publish. left is written before the first record is fed and
// then belongs to the collector.
type batch struct {
	left int
	done func(error)
}

// record is one message on its way through the producer.
type record struct {
	sarama.ProducerMessage
	batch *batch
	msg   *sink.Message
}

// Open connects to the brokers and starts a producer. When no broker answers
// it fails, with what each of them did; the caller tries again.
func Open(ctx context.Context, cfg Config, log *zap.Logger) (*Sink, error) {
	cfg = cfg.withDefaults()
	life, cut := context.WithCancel(context.Background())
	quiet := make(chan struct{})
	release := context.AfterFunc(ctx, cut) // until the sink is open, ctx ends its connections
	s, err := open(life, quiet, cfg, log)
	if err != nil {
		cut()
		return nil, fmt.Errorf("open kafka sink: %w", err)
	}
	s.cut, s.hush = cut, sync.OnceFunc(func() { close(quiet) })
	go s.collect()
	if !release() {
		_ = s.Close(ctx)
		return nil, fmt.Errorf("open kafka sink: %w", ctx.Err())
	}
	return s, nil
}

func open(life context.Context, quiet <-chan struct{}, cfg Config, log *zap.Logger) (*Sink, error) {
	conf, err := cfg.producer(life)
	if err != nil {
		return nil, err
	}
	kafkaconn.Hush(conf, life, quiet)
	lookup, err := sarama.NewClient(cfg.Brokers, cfg.lookup(life)) // asks nobody yet
	if err != nil {
		return nil, err
	}
	producer, client, err := start(cfg, conf)
	if err != nil {
		_ = lookup.Close()
		return nil, err
	}
	return newSink(cfg, log, producer, client, lookup), nil
}

// start makes a producer. It asks only one of its seeds for its id, so it is
// first given one that answers, and all of them afterwards.
func start(cfg Config, conf *sarama.Config) (sarama.AsyncProducer, sarama.Client, error) {
	seed, err := cfg.conn().Reach(conf)
	if err != nil {
		return nil, nil, err
	}
	defer seed.Close() //nolint:errcheck // it has served
	client, err := sarama.NewClient([]string{seed.Addr()}, conf)
	if err != nil {
		return nil, nil, err
	}
	producer, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		_ = client.Close()
		return nil, nil, err
	}
	_ = client.RefreshBrokers(cfg.Brokers) // fails only on a closed client
	return producer, client, nil
}

func newSink(cfg Config, log *zap.Logger, producer sarama.AsyncProducer, client, lookup sarama.Client) *Sink {
	hangUp := sync.OnceFunc(func() {
		_ = client.Close()
		_ = lookup.Close()
	})
	return &Sink{
		cfg:      cfg,
		log:      log,
		producer: producer,
		hangUp:   hangUp,
		topics:   topics{cfg: cfg, client: lookup, log: log, known: map[string]bool{}, said: map[string]string{}},
		drained:  make(chan struct{}),
		ended:    make(chan struct{}),
		verdict:  time.Second,
		stop:     make(chan struct{}),
		failed:   make(chan struct{}),
		open:     map[*batch]struct{}{},
	}
}

// Publish feeds the batch to the producer, waiting for room and for topics
// that don't exist yet. An ended ctx finishes the sink: a part of the batch
// may be fed, and nothing may pass the rest of it.
func (s *Sink) Publish(ctx context.Context, msgs []sink.Message, done func(error)) {
	b, err := s.begin(len(msgs), done)
	if b == nil {
		done(err)
		return
	}
	err = s.topics.wait(ctx, s.stop, msgs)
	records := prepare(msgs, b)
	for i := 0; err == nil && i < len(records); i++ {
		err = s.feed(ctx, &records[i].ProducerMessage)
	}
	if err != nil {
		s.fail(err)
		s.settle(b, s.failure())
	}
}

func (s *Sink) feed(ctx context.Context, m *sarama.ProducerMessage) error {
	select {
	case <-s.stop: // comes first: the select below would choose at random
		<-s.failed
		return s.failure()
	default:
	}
	select {
	case <-s.stop:
		<-s.failed
		return s.failure()
	case <-ctx.Done():
		return fmt.Errorf("publish: %w", ctx.Err())
	case s.producer.Input() <- m:
		return nil
	}
}

// begin enters a batch of n messages, or gives the answer to one that needs no sending.
func (s *Sink) begin(n int, done func(error)) (*batch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || n == 0 {
		return nil, s.err
	}
	b := &batch{left: n, done: done}
	s.open[b] = struct{}{}
	return b, nil
}

// settle answers a batch, unless it is answered already.
func (s *Sink) settle(b *batch, err error) {
	s.mu.Lock()
	_, open := s.open[b]
	delete(s.open, b)
	if open {
		s.calls.Add(1)
	}
	s.mu.Unlock()
	if open {
		b.done(err)
		s.calls.Done()
	}
}

// halt ends the feeding, before the reason is known.
func (s *Sink) halt() { s.halted.Do(func() { close(s.stop) }) }

// fail finishes the sink; only the first reason counts.
func (s *Sink) fail(err error) {
	s.halt()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
		close(s.failed)
	}
}

func (s *Sink) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Halt ends the sending: what waits in the producer stays there, and
// answers to what is on the wire still settle their batches (I9).
func (s *Sink) Halt() {
	s.hush()
	s.fail(errHalted)
}

// Close ends the producer and waits for its answers until ctx ends; then the
// connections are cut, so that nothing is sent any more, and what is unanswered
// fails. Batches that must arrive are waited for before Close: records that
// the producer is retrying come back as errors.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.fail(errClosed)
	s.producer.AsyncClose()
	go func() {
		<-s.drained
		s.cut() // a client whose brokers are down would wait for them
		s.hangUp()
		close(s.ended)
	}()
	var err error
	select {
	case <-s.ended:
	case <-ctx.Done():
		s.cut()
		go s.hangUp() // so that the producer gives up rather than retry
		err = fmt.Errorf("close kafka sink: %w", ctx.Err())
	}
	s.abandon(err)
	return err
}

// abandon answers what is left, and returns when no done is running.
func (s *Sink) abandon(err error) {
	if err == nil {
		err = errClosed
	}
	s.mu.Lock()
	left := make([]*batch, 0, len(s.open))
	for b := range s.open {
		left = append(left, b)
	}
	s.mu.Unlock()
	for _, b := range left {
		s.settle(b, err)
	}
	s.calls.Wait()
}
