// Package kafka is the sink for Kafka topics.
//
// The produce path is ours, on sarama's client and connections: its
// AsyncProducer lets later batches of a partition pass one that failed, and
// fails batches of other partitions with it.
//
//	Publish -> queue of each partition -> link (one goroutine per broker) -> request
//	                                        answers -> settle -> done
//	           partitions without a leader -> router (one goroutine)
//
// A partition has at most one batch without an answer. It is sent again, the
// same bytes with the same sequence number, until the broker's answer is known, so
// that nothing is behind it that could pass it, and the broker knows a copy when it
// sees one. All state is under one mutex; callbacks of sarama only hand answers over.
package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
)

var errClosed = errors.New("sink is closed")

var (
	_ sink.Sink      = (*Sink)(nil)
	_ sink.Judge     = (*Sink)(nil)
	_ sink.Isolator  = (*Sink)(nil)
	_ sink.Committer = (*Sink)(nil)
	_ sink.Waiter    = (*Sink)(nil)
)

// Sink is a sink.Sink and a sink.Judge. Publish, Judge and Close
// are called by one goroutine; done is called from a goroutine of the sink, or from Publish.
type Sink struct {
	cfg    Config
	codec  sarama.CompressionCodec
	log    *zap.Logger
	client sarama.Client
	topics topics
	tx     *transaction // nil: at least once
	sizes  sizes
	judged string             // the topic name last judged and found legal
	count  time.Time          // when the partitions of the topics in use are counted next
	cut    context.CancelFunc // ends every connection and every wait between retries
	closed bool

	stop   chan struct{} // closed when nothing more is sent
	kick   chan struct{} // size 1: a partition has no leader
	halted sync.Once
	work   sync.WaitGroup // links and router
	calls  sync.WaitGroup // done being called

	mu         sync.Mutex
	err        error       // why the sink is finished
	may        func() bool // asked before each request
	id         producerID
	partitions map[string][]*partition // count pinned when the topic is first used; see widen
	lastTopic  string
	last       []*partition // partitions[lastTopic]: a run of events costs no look-up
	links      map[*sarama.Broker]*link
	pauses     map[int32]*pause // of brokers that were lost, by id
	dark       pause            // of the search for any broker
	open       map[*publish]struct{}
	unanswered int           // bytes of records that are queued or on the wire
	sent       int           // requests without an answer
	handing    int           // those of them that sarama has not written yet
	quiet      chan struct{} // size 1: one of both went down
	drained    chan struct{} // size 1: open is empty
	empty      chan struct{} // size 1: a partition has nothing left
	room       chan struct{} // size 1: unanswered went down
	sticky     int           // counts records without a key

	complaint obstacle   // why partitions have no leader
	held      *partition // under mu: has a leader that takes nothing …
	unwilling obstacle   // … and why
}

// publish is one call of Publish: it is done when all its records are.
type publish struct {
	left int
	done func(error)
}

// pending is one record on its way.
type pending struct {
	message *sink.Message
	of      *publish
}

// partition is one partition's queue and what is known of its last batch.
type partition struct {
	topic  string
	index  int32
	link   *link     // to its leader; nil while that is looked for
	stale  bool      // the leader we know is not the leader: ask again
	lost   int       // counts how often link became nil, so that an old finding is not taken for a new one
	pause  pause     // of the search for a leader
	leader int32     // broker of the last link that was lost; 0 or -1 may be none
	absent time.Time // since when the cluster does not know it; zero: it does
	queue  []pending
	bytes  int    // of queue
	limit  int    // bytes of a batch the broker takes, where it took less than we are set to; else 0
	flight *batch // without an answer; nothing of queue is sent before it has one
	listed bool   // in link.ready
	renew  bool   // needs a new producer id before it sends again
	timer  *time.Timer

	id       producerID
	sequence int32 // of the next batch
	joined   int   // the last transaction it was added to
}

// producerID is what the broker knows copies by, together with the sequence.
type producerID struct {
	id    int64
	epoch int16
}

// Open connects to the brokers. When none answers it fails, with what each of
// them did; the caller tries again.
func Open(ctx context.Context, cfg Config, log *zap.Logger) (*Sink, error) {
	cfg = cfg.withDefaults()
	life, cut := context.WithCancel(context.Background())
	release := context.AfterFunc(ctx, cut) // until the sink is open, ctx ends its connections
	s, err := open(life, cfg, log)
	if err != nil {
		cut()
		return nil, fmt.Errorf("open kafka sink: %w", err)
	}
	s.cut = cut
	s.work.Go(s.router)
	if !release() {
		_ = s.Close(ctx)
		return nil, fmt.Errorf("open kafka sink: %w", ctx.Err())
	}
	return s, nil
}

func open(life context.Context, cfg Config, log *zap.Logger) (*Sink, error) {
	conf, codec, err := cfg.producer(life)
	if err != nil {
		return nil, err
	}
	seed, err := cfg.conn().Reach(conf) // so that the error tells what each broker did
	if err != nil {
		return nil, err
	}
	err = judgeBroker(seed, codec, log)
	_ = seed.Close() // it has served
	if err != nil {
		return nil, err
	}
	s := newSink(cfg, codec, log)
	cfg.conn().Hush(life, conf, s.stop) // sarama may hold a request back while it dials or is throttled
	client, err := sarama.NewClient(cfg.Brokers, conf)
	if err != nil {
		return nil, err
	}
	s.client, s.topics.client = client, client
	if s.id, err = s.firstID(life); err != nil {
		_ = client.Close()
		return nil, err
	}
	return s, nil
}

func newSink(cfg Config, codec sarama.CompressionCodec, log *zap.Logger) *Sink {
	s := &Sink{
		cfg: cfg, codec: codec, log: log, cut: func() {},
		topics: topics{cfg: cfg, log: log, known: map[string]bool{}, said: map[string]string{}, why: map[string]hindrance{}, denied: map[string]time.Time{}},
		stop:   make(chan struct{}), kick: make(chan struct{}, 1), quiet: make(chan struct{}, 1), drained: make(chan struct{}, 1), empty: make(chan struct{}, 1), room: make(chan struct{}, 1),
		may:        func() bool { return true },
		sizes:      sizes{limit: map[string]int{}, warned: map[string]bool{}},
		partitions: map[string][]*partition{}, links: map[*sarama.Broker]*link{}, pauses: map[int32]*pause{}, open: map[*publish]struct{}{},
	}
	if cfg.TransactionalID != "" {
		s.tx = &transaction{id: cfg.TransactionalID, timeout: cfg.TransactionTimeout, gate: make(chan struct{}, 1), number: 1}
	}
	return s
}

// firstID gives the id that all partitions begin with.
func (s *Sink) firstID(ctx context.Context) (producerID, error) {
	if s.tx != nil {
		return s.begin(ctx)
	}
	return s.freshID()
}

// freshID asks the cluster for a producer id. sarama leaves it to us to look at
// the answer's own error: a broker that has just started has no id to give at
// first, and without one the brokers would know no copy.
func (s *Sink) freshID() (producerID, error) {
	for over := time.Now().Add(idTime); ; {
		r, err := s.client.InitProducerID()
		if err == nil && r.Err != sarama.ErrNoError {
			err = r.Err
		}
		switch {
		case err == nil:
			return producerID{r.ProducerID, r.ProducerEpoch}, nil
		case verdict(err) == fatal:
			return producerID{}, s.cfg.permanent(err)
		case !errors.Is(err, sarama.ErrOffsetsLoadInProgress) || time.Now().After(over):
			return producerID{}, fmt.Errorf("ask for a producer id: %w", err)
		}
		select {
		case <-time.After(minPause):
		case <-s.stop:
			return producerID{}, errClosed
		}
	}
}

// idTime is how long a broker may take to fetch ids from its controller.
const idTime = 5 * time.Second

// Guard implements sink.Sink.
func (s *Sink) Guard(may func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.may = may
	for _, l := range s.links {
		wake(l.kick)
	}
}

// Publish puts the batch into its partitions' queues. It waits for topics that
// don't exist yet; an ended ctx then finishes the sink. It waits too while enough is
// on its way already.
func (s *Sink) Publish(ctx context.Context, msgs []sink.Message, done func(error)) {
	err := s.topics.wait(ctx, s.stop, msgs) // outside of the gate: a topic that is missing holds up no commit
	s.ahead(ctx)                            // outside of the gate too: a commit makes room
	if err == nil && s.tx != nil {
		if err = s.tx.enter(ctx, s.stop); err == nil {
			defer s.tx.leave()
		}
	}
	if err == nil {
		err = s.widen(ctx)
	}
	if err != nil {
		s.finish(err)
		msgs = nil
	}
	s.publish(ctx, msgs, done)
}

func (s *Sink) publish(ctx context.Context, msgs []sink.Message, done func(error)) {
	err := s.pin(msgs)
	for i := 0; err == nil && i < len(msgs); i++ { // Judge could not, for a topic's first messages
		if r := s.misplaced(&msgs[i]); r != nil {
			r.Message = &msgs[i]
			err = refused(&msgs[i], r)
		}
	}
	if err == nil && s.tx != nil {
		err = s.join(ctx, msgs)
	}
	if err != nil {
		s.finish(err)
	}
	s.mu.Lock()
	if s.err != nil || len(msgs) == 0 {
		err := s.err
		s.mu.Unlock()
		done(err)
		return
	}
	of := &publish{left: len(msgs), done: done}
	s.open[of] = struct{}{}
	for i := range msgs {
		m := &msgs[i]
		p := s.route(m)
		p.queue = append(p.queue, pending{m, of})
		p.bytes += m.Size()
		s.unanswered += m.Size()
		s.list(p)
	}
	s.mu.Unlock()
}

// pin fixes the number of partitions of topics that are used for the first
// time. Only one goroutine at a time adds to s.partitions: the one that publishes,
// or holds the gate.
func (s *Sink) pin(msgs []sink.Message) error {
	last := ""
	for i := range msgs {
		topic := msgs[i].Topic
		if topic == last || s.partitions[topic] != nil {
			last = topic
			continue
		}
		ids, err := s.client.Partitions(topic)
		if err != nil {
			return fmt.Errorf("look up topic %q: %w", topic, err)
		}
		all := make([]*partition, len(ids))
		for i := range all {
			all[i] = &partition{topic: topic, index: int32(i), id: s.id}
		}
		s.mu.Lock()
		s.partitions[topic] = all
		s.mu.Unlock()
		go s.learn(topic) // a request of its own; nothing waits for it, and the client's end ends it
	}
	return nil
}

// route gives the partition of m. s.mu is held.
func (s *Sink) route(m *sink.Message) *partition {
	if m.Topic != s.lastTopic || s.last == nil {
		s.lastTopic, s.last = m.Topic, s.partitions[m.Topic]
	}
	if m.Pinned {
		return s.last[m.Partition]
	}
	return s.last[s.choose(m.Key)]
}

// choose gives the partition the Java client chooses for the same key. Records
// without a key are spread.
func (s *Sink) choose(key []byte) int {
	if key == nil {
		s.sticky++
		return s.sticky % len(s.last)
	}
	return int(Partition(key, int32(len(s.last))))
}

// list makes sure that somebody acts on p: its leader's link, or the router. s.mu is held.
func (s *Sink) list(p *partition) {
	if p.listed || (p.flight == nil && len(p.queue) == 0) || (p.flight != nil && !p.flight.due) {
		return
	}
	if p.link == nil {
		wake(s.kick)
		return
	}
	p.listed = true
	p.link.ready = append(p.link.ready, p)
	wake(p.link.kick)
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// finish ends the sink; only the first reason counts. What is on the wire may
// still be answered until Close.
func (s *Sink) finish(err error) {
	s.halt()
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
}

func (s *Sink) halt() { s.halted.Do(func() { close(s.stop) }) }

// fail finishes the sink and answers the batch it was about, so that the
// engine hears of it; the others are answered as their answers come, or by Close.
func (s *Sink) fail(of *publish, err error) {
	s.finish(err)
	s.mu.Lock()
	done := s.take(of)
	s.mu.Unlock()
	s.call(done, err)
}

// take ends an open publish and gives its done; nil when it is ended already. s.mu is held.
func (s *Sink) take(of *publish) func(error) {
	if _, open := s.open[of]; !open {
		return nil
	}
	delete(s.open, of)
	if len(s.open) == 0 {
		wake(s.drained)
	}
	s.calls.Add(1)
	return of.done
}

func (s *Sink) call(done func(error), err error) {
	if done != nil {
		done(err)
		s.calls.Done()
	}
}

// Close stops sending, waits for the answers to what is on the wire until ctx
// ends, cuts the connections, and answers what is left.
func (s *Sink) Close(ctx context.Context) error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.finish(errClosed)
	err := s.answered(ctx)
	s.cut()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.work.Wait()
		_ = s.client.Close() // may wait for brokers that are down
	}()
	select {
	case <-ended:
	case <-time.After(5 * handTime): // sarama holds somebody back, who can send nothing any more
	}
	s.mu.Lock()
	reason := s.err
	var left []func(error)
	for of := range s.open {
		left = append(left, s.take(of))
	}
	for _, ps := range s.partitions {
		for _, p := range ps {
			if p.timer != nil {
				p.timer.Stop()
			}
		}
	}
	s.mu.Unlock()
	for _, done := range left {
		s.call(done, reason)
	}
	s.calls.Wait()
	return err
}

// answered waits until nothing is on the wire. A request that sarama still
// holds when sending has ended never gets there: it dials, or is throttled.
func (s *Sink) answered(ctx context.Context) error {
	var held <-chan time.Time
	for {
		s.mu.Lock()
		sent, handing := s.sent, s.handing
		s.mu.Unlock()
		switch {
		case sent == 0:
			return nil
		case sent > handing:
			held = nil
		case held == nil:
			held = time.After(handTime)
		}
		select {
		case <-s.quiet:
		case <-held:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("close kafka sink: %w", ctx.Err())
		}
	}
}

// handTime is far more than handing a request to an open connection takes.
const handTime = 200 * time.Millisecond
