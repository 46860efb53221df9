package kafka

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
)

// Pauses between tries of one batch, and of the search for leaders.
const (
	minPause = 50 * time.Millisecond
	maxPause = 3 * time.Second
)

// pause grows with each try in a row that led nowhere.
type pause struct {
	tries int
	until time.Time
}

// extend counts a try and gives the time until the next.
func (p *pause) extend() time.Duration {
	d := jittered(min(minPause<<min(p.tries, 7), maxPause))
	p.tries++
	p.until = time.Now().Add(d)
	return d
}

func jittered(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }

// outcome collects what must be called when s.mu is let go.
type outcome struct {
	done   []func(error) // publishes that are durable
	failed error         // ends the sink
	of     *publish      // whose it was
}

// answer acts on the answer to one request.
func (s *Sink) answer(l *link, a answer) {
	if a.err != nil {
		s.lose(l, a.err)
	}
	var o outcome
	s.mu.Lock()
	if a.err == nil {
		delete(s.pauses, l.broker.ID())
		s.dark = pause{}
	}
	for _, b := range a.batches {
		b.wire = false
		b.doubt = b.doubt || a.err != nil
		if a.err != nil && (time.Since(b.records.MaxTimestamp) > remembered || time.Since(b.first) > remembered) {
			s.mayRepeat(b, a.err, &o)
		}
		s.judge(b, a, &o)
	}
	s.sent--
	l.waits--
	l.asked = time.Time{}
	if l.waits > 0 {
		l.asked = time.Now()
	}
	wake(s.quiet)
	s.mu.Unlock()
	for _, done := range o.done {
		s.call(done, nil)
	}
	if o.failed != nil {
		s.fail(o.of, o.failed)
	}
}

// lose takes a link out of use, once. Its connection is closed before its
// partitions are routed anew, by fresh metadata: their leader may have moved with the broker.
func (s *Sink) lose(l *link, err error) {
	s.mu.Lock()
	down := l.down
	l.down = true
	s.mu.Unlock()
	if down {
		return
	}
	s.log.Info("connection to a broker lost", zap.Int32("broker", l.broker.ID()), zap.Error(err))
	_ = l.broker.Close() // so that the next one who needs it opens it anew
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orphan(l)
	wake(l.kick) // its goroutine ends
}

// orphan takes a lost link's partitions off it. They pause together, as long
// as the broker does, so that it is dialled once for all of them. s.mu is held.
func (s *Sink) orphan(l *link) {
	delete(s.links, l.broker)
	broker := s.pauses[l.broker.ID()]
	if broker == nil {
		broker = &pause{}
		s.pauses[l.broker.ID()] = broker
	}
	broker.extend()
	for _, p := range l.ready {
		p.listed = false
	}
	l.ready = nil
	for _, ps := range s.partitions {
		for _, p := range ps {
			if p.link == l {
				p.unlink()
				p.pause, p.leader = *broker, l.broker.ID()
				s.list(p)
			}
		}
	}
}

// unlink says that the leader is to be looked for anew. s.mu is held.
func (p *partition) unlink() {
	p.link, p.stale = nil, true
	p.lost++
}

// judge decides about one batch. s.mu is held.
func (s *Sink) judge(b *batch, a answer, o *outcome) {
	err := a.err
	if err == nil {
		block := a.response.GetBlock(b.partition.topic, b.partition.index)
		switch {
		case block == nil:
			err = errors.New("the broker's answer leaves the partition out")
		case block.Err != sarama.ErrNoError:
			err = block.Err
		}
	}
	switch verdict(err) {
	case taken:
		s.settle(b, o)
	case again:
		s.again(b, false, err)
	case elsewhere:
		s.again(b, true, err)
	case anew:
		s.forget(b, err, o)
	case refusedNow:
		s.refuse(b, err, o)
	case refusedLater:
		if len(b.pending) == 1 && time.Since(b.first) < s.cfg.RejectAfter {
			s.again(b, false, err)
			return
		}
		s.refuse(b, err, o)
	case fatal:
		o.failed, o.of = s.cfg.permanent(err), b.pending[0].of
	default:
		if b.tries&(b.tries-1) == 0 { // at the first, second, third, fifth, ninth, … try
			s.log.Warn("the broker answers with a code that is not known here; trying again", zap.Int("try", b.tries+1), zap.Error(err))
		}
		s.again(b, false, err)
	}
}

// forget gives a batch's partition a new producer id. s.mu is held.
func (s *Sink) forget(b *batch, err error, o *outcome) {
	s.mayRepeat(b, err, o)
	b.partition.renew = true
	s.again(b, true, err)
}

// remembered is how long a broker surely knows a producer: half of the default
// of producer.id.expiration.ms. It counts from the newest timestamp of the
// producer's last batch, which is a commit time and may lie far back.
const remembered = 12 * time.Hour

// mayRepeat tells, once for a batch, that it is sent again although the broker
// may have taken and forgotten it. A transaction ends there. s.mu is held.
func (s *Sink) mayRepeat(b *batch, err error, o *outcome) {
	if b.told {
		return
	}
	b.told = true
	if s.tx != nil {
		o.failed, o.of = fmt.Errorf("%w: %w", errVoid, err), b.pending[0].of
		return
	}
	s.cfg.PossibleRepeat(len(b.pending))
	s.log.Warn("the broker lost or may have lost this producer's state; events in doubt are sent again and may be repeats",
		zap.String("topic", b.partition.topic), zap.Int32("partition", b.partition.index), zap.Int("events", len(b.pending)), zap.Error(err))
}

// kind of answer to a batch.
type kind int

const (
	unknown      kind = iota
	taken             // durable
	again             // same bytes to the same broker
	elsewhere         // same bytes to whoever is the leader now
	anew              // with a new producer id
	refusedNow        // for good, if it is one record
	refusedLater      // for good, if it stays
	fatal             // for everything
)

// verdict sorts every error; one that is not listed is unknown, and said so.
func verdict(err error) kind {
	var code sarama.KError
	if !errors.As(err, &code) {
		var encoding sarama.PacketEncodingError
		switch {
		case err == nil:
			return taken
		case errors.As(err, &encoding):
			return fatal
		}
		return elsewhere // the connection: cut, refused, timed out
	}
	switch code {
	case sarama.ErrDuplicateSequenceNumber: // an earlier try had arrived
		return taken
	case sarama.ErrRequestTimedOut, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
		sarama.ErrThrottlingQuotaExceeded, sarama.ErrInvalidMessage, sarama.ErrUnknown:
		return again
	case sarama.ErrNotLeaderForPartition, sarama.ErrLeaderNotAvailable, sarama.ErrFencedLeaderEpoch, sarama.ErrUnknownLeaderEpoch,
		sarama.ErrReplicaNotAvailable, sarama.ErrBrokerNotAvailable, sarama.ErrNetworkException, sarama.ErrKafkaStorageError,
		sarama.ErrUnknownTopicOrPartition, sarama.ErrOffsetNotAvailable:
		return elsewhere
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID, sarama.ErrInvalidProducerEpoch,
		sarama.ErrInvalidProducerIDMapping, sarama.ErrProducerFenced, sarama.ErrInvalidTxnState, transactionAbortable:
		return anew
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge, sarama.ErrInvalidTimestamp, sarama.ErrInvalidTopic:
		return refusedNow
	case sarama.ErrInvalidRecord, sarama.ErrPolicyViolation, sarama.ErrTopicAuthorizationFailed:
		return refusedLater
	case sarama.ErrClusterAuthorizationFailed, sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
		sarama.ErrUnsupportedVersion, sarama.ErrUnsupportedForMessageFormat, sarama.ErrUnsupportedCompressionType, sarama.ErrInvalidRequiredAcks:
		return fatal
	}
	return unknown
}

// transactionAbortable is TRANSACTION_ABORTABLE of KIP-890, which sarama has no name for.
const transactionAbortable sarama.KError = 120

// settle counts a batch that is durable. s.mu is held.
func (s *Sink) settle(b *batch, o *outcome) {
	p := b.partition
	p.advance(len(b.pending))
	p.flight, p.pause = nil, pause{}
	s.unanswered -= b.bytes
	wake(s.room)
	if s.held == p {
		s.held = nil
		s.unwilling.clear()
		s.log.Info("the partition takes events again", zap.String("topic", p.topic), zap.Int32("partition", p.index))
	}
	p.limit += p.limit / 16 // the topic's own limit may have been raised
	for i := range b.pending {
		of := b.pending[i].of
		if of.left--; of.left == 0 {
			if done := s.take(of); done != nil {
				o.done = append(o.done, done)
			}
		}
	}
	if len(p.queue) > 0 {
		s.list(p)
	} else {
		wake(s.empty)
	}
}

// hesitates tells once of a partition whose broker answers and takes nothing. s.mu is held.
func (s *Sink) hesitates(b *batch, err error) {
	var answer sarama.KError
	if b.tries < hesitant || !errors.As(err, &answer) || (s.held != nil && s.held != b.partition) {
		return
	}
	p, first, fix := b.partition, s.held == nil, "see the broker's log; it goes on by itself"
	if errors.Is(err, sarama.ErrNotEnoughReplicas) || errors.Is(err, sarama.ErrNotEnoughReplicasAfterAppend) {
		fix = "see that as many replicas of the partition are in sync as its topic's min.insync.replicas asks for; it goes on by itself"
	}
	s.held = p
	s.unwilling.set(fmt.Sprintf("partition %d of topic %q takes nothing: %v", p.index, p.topic, err), fix)
	if first {
		s.log.Warn("the broker takes nothing for a partition; its events wait", zap.String("topic", p.topic), zap.Int32("partition", p.index),
			zap.Error(err), zap.String("fix", fix))
	}
}

// hesitant is how many answers in a row take nothing, over two seconds or so,
// until it is told; a few are usual while a leader moves.
const hesitant = 6

// again sends the batch once more after a pause, the same bytes. s.mu is held.
func (s *Sink) again(b *batch, lookForLeader bool, err error) {
	p := b.partition
	s.hesitates(b, err)
	if lookForLeader {
		if p.link != nil {
			p.unlink()
			p.pause.extend()
		}
		wake(s.kick)
	}
	wait := jittered(min(minPause<<min(b.tries, 6), maxPause))
	b.tries++
	p.timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if p.flight == b {
			b.due = true
			s.list(p)
		}
	})
}

// refuse narrows a batch that was refused to the record it is about: it is
// halved, nothing being behind it, and the halves are sent with the sequence it
// had. A single record ends the sink; its sequence is not used up. s.mu is held.
func (s *Sink) refuse(b *batch, err error, o *outcome) {
	n := len(b.pending)
	if b.doubt && n > 1 {
		// An earlier copy may be in the log: halves of it would be other batches.
		s.forget(b, err, o)
		return
	}
	if n == 1 {
		o.failed, o.of = s.cfg.failure(err, b.pending[0].message), b.pending[0].of
		return
	}
	p := b.partition
	if errors.Is(err, sarama.ErrMessageSizeTooLarge) || errors.Is(err, sarama.ErrMessageSetSizeTooLarge) {
		p.limit = 0 // or every batch would be sent twice
		for i := range b.pending[:n/2] {
			p.limit += onWire(b.pending[i].message)
		}
	}
	first, rest := b.pending[:n/2], b.pending[n/2:]
	size := 0
	for i := range rest {
		size += rest[i].message.Size()
	}
	p.queue = append(append(make([]pending, 0, len(rest)+len(p.queue)), rest...), p.queue...)
	p.bytes += size
	half := s.newBatch(p, first, b.bytes-size)
	half.due, half.first = true, b.first
	p.flight = half
	s.list(p)
}

// failure tells what a record was refused for, and nothing of what it holds.
func (c Config) failure(err error, m *sink.Message) error {
	r := &sink.Refusal{Message: m, Detail: err.Error()}
	switch {
	case errors.Is(err, sarama.ErrMessageSizeTooLarge), errors.Is(err, sarama.ErrMessageSetSizeTooLarge):
		r.Reason, r.Fix = ReasonTooLarge, "Raise max.message.bytes of the topic (message.max.bytes of the brokers)."
		r.Detail = fmt.Sprintf("the broker takes no record of %d bytes", m.Size())
	case errors.Is(err, sarama.ErrInvalidTopic):
		r.Reason, r.Fix = ReasonBadTopic, topicFix
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		r.Reason, r.Fix = ReasonNotAuthorized, c.mayWrite(m.Topic)
	case errors.Is(err, sarama.ErrPolicyViolation):
		r.Reason, r.Fix = ReasonPolicy, "Change the brokers' policy, or what the event holds."
	case errors.Is(err, sarama.ErrInvalidRecord):
		r.Reason, r.Fix = ReasonInvalidRecord, "See the broker's log; a compacted topic takes no record without a key."
	case errors.Is(err, sarama.ErrInvalidTimestamp):
		r.Reason, r.Fix = ReasonBadTimestamp, "Change message.timestamp.before.max.ms or .after.max.ms of the topic."
	default:
		return fmt.Errorf("publish to topic %q: %w", m.Topic, err)
	}
	return refused(m, r)
}

// refused names the event.
func refused(m *sink.Message, r *sink.Refusal) error {
	return fmt.Errorf("publish event %q of table %s to topic %q: %w", m.ID, m.Table, m.Topic, r)
}
