package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// link sends to one broker. Its goroutine builds and encodes requests; a
// second one takes the answers.
type link struct {
	sink    *Sink
	broker  *sarama.Broker
	kick    chan struct{} // size 1: ready grew
	slots   chan struct{} // one per request without an answer
	answers chan answer

	ready []*partition // under sink.mu; have something to send and nothing on the wire
	down  bool         // under sink.mu: the connection failed; partitions are routed anew
	waits int          // under sink.mu: requests without an answer
	asked time.Time    // under sink.mu: since when it owes an answer: the first request's time, or the last answer's
}

// requestsInFlight per broker; different partitions, so order is not at stake.
const requestsInFlight = 5

// requestBytes bounds the records of one request, and ends a linger.
const requestBytes = 8 << 20

// guardPause is how long it takes until the guard that said no is asked again
// by itself.
const guardPause = 100 * time.Millisecond

// answer is what became of one request.
type answer struct {
	batches  []*batch
	response *sarama.ProduceResponse
	err      error
}

// linkTo gives the link to a broker. s.mu is held.
func (s *Sink) linkTo(b *sarama.Broker) *link {
	if l := s.links[b]; l != nil && !l.down {
		return l
	}
	l := &link{
		sink: s, broker: b, kick: make(chan struct{}, 1),
		slots: make(chan struct{}, requestsInFlight), answers: make(chan answer, requestsInFlight),
	}
	s.links[b] = l
	wake(s.room) // it may take something
	s.work.Go(l.send)
	return l
}

// send is the goroutine that writes. It ends with the sink, or when the link is down.
func (l *link) send() {
	s := l.sink
	receiving := make(chan struct{})
	go func() {
		defer close(receiving)
		l.receive()
	}()
	defer func() {
		for range requestsInFlight { // every answer has been given
			l.slots <- struct{}{}
		}
		close(l.answers)
		<-receiving
	}()
	var last time.Time
	for {
		select {
		case <-l.kick:
		case <-s.stop:
			return
		}
		for {
			if !l.linger(last) {
				return
			}
			select {
			case l.slots <- struct{}{}:
			case <-s.stop:
				return
			}
			batches, down := l.collect()
			if len(batches) == 0 {
				<-l.slots
				if down {
					return
				}
				break
			}
			last = time.Now()
			l.request(batches)
		}
	}
}

// linger waits for more records, but only shortly after the last request: the
// first event after a pause leaves at once. It reports whether to go on.
func (l *link) linger(last time.Time) bool {
	s := l.sink
	wait := time.Until(last.Add(s.cfg.Linger))
	if s.cfg.Linger == 0 || wait <= 0 || l.waiting() >= s.cfg.BatchBytes {
		return true
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case <-l.kick:
			if l.waiting() >= s.cfg.BatchBytes {
				return true
			}
		case <-s.stop:
			return false
		}
	}
}

// waiting is how many bytes could be sent.
func (l *link) waiting() (n int) {
	l.sink.mu.Lock()
	defer l.sink.mu.Unlock()
	for _, p := range l.ready {
		n += p.bytes
	}
	return n
}

// collect takes a batch from each partition that is ready.
func (l *link) collect() (batches []*batch, down bool) {
	s := l.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop: // nothing is sent after a halt
		return nil, true
	default:
	}
	if l.down {
		return nil, true
	}
	if len(l.ready) > 0 && !s.may() {
		time.AfterFunc(guardPause, func() { wake(l.kick) })
		return nil, false
	}
	size := 0
	for len(l.ready) > 0 && size < requestBytes {
		p := l.ready[0]
		l.ready = l.ready[1:]
		p.listed = false
		if p.link != l {
			s.list(p)
			continue
		}
		b := p.flight
		if b == nil {
			b = s.cutBatch(p)
		}
		b.due, b.wire = false, true
		size += b.bytes
		batches = append(batches, b)
	}
	if len(batches) > 0 {
		s.sent++
		s.handing++
		if l.waits++; l.waits == 1 {
			l.asked = time.Now()
		}
	}
	if len(l.ready) > 0 {
		wake(l.kick)
	} else {
		l.ready = nil
	}
	return batches, false
}

// request sends the batches. The slot is held until the answer.
func (l *link) request(batches []*batch) {
	r := &sarama.ProduceRequest{RequiredAcks: sarama.WaitForAll, Timeout: int32(produceTimeout.Milliseconds()), Version: produceVersion}
	if l.sink.tx != nil {
		r.TransactionalID = &l.sink.tx.id
	}
	for _, b := range batches {
		r.AddBatch(b.partition.topic, b.partition.index, b.records)
	}
	defer l.sink.handed()
	err := l.broker.AsyncProduce(r, func(response *sarama.ProduceResponse, err error) {
		l.answers <- answer{batches, response, err} // room for one per slot
	})
	if err != nil {
		l.answers <- answer{batches, nil, err}
	}
}

// handed counts a request that sarama has written, or given back.
func (s *Sink) handed() {
	s.mu.Lock()
	s.handing--
	s.mu.Unlock()
	wake(s.quiet)
}

const (
	produceTimeout = 10 * time.Second
	produceVersion = 10 // sarama's highest; restricted to what the broker has
)

// receive takes the answers.
func (l *link) receive() {
	for a := range l.answers {
		l.sink.answer(l, a)
		<-l.slots
	}
}
