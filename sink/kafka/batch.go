package kafka

import (
	"math"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/sink"
)

// batch is what one partition has on the wire, or is about to send again:
// always the same records, bytes and sequence.
type batch struct {
	partition *partition
	records   *sarama.RecordBatch
	pending   []pending
	bytes     int
	due       bool      // to be sent (again); else on the wire or pausing
	wire      bool      // on the wire
	doubt     bool      // an earlier try had no answer: the broker may have taken it
	told      bool      // that it may be a repeat
	tries     int       // answers that asked for another try
	first     time.Time // when it was first built
}

// What a record and a header take in a batch beside their bytes, at most (KIP-98: varints).
const (
	recordOverhead = 21
	headerOverhead = 10
	batchOverhead  = 61
)

// onWire is what a message takes in a batch, at most.
func onWire(m *sink.Message) int {
	return m.Size() + recordOverhead + headerOverhead*len(m.Headers)
}

// cutBatch takes records from p's queue, as many as fit one batch. s.mu is held.
func (s *Sink) cutBatch(p *partition) *batch {
	limit := s.cfg.MaxMessageBytes - batchOverhead
	if p.limit > 0 {
		limit = min(limit, p.limit)
	}
	n, size, wire := 0, 0, 0
	for n < len(p.queue) {
		m := p.queue[n].message
		if n > 0 && wire+onWire(m) > limit {
			break
		}
		wire += onWire(m)
		size += m.Size()
		n++
	}
	taken := p.queue[:n:n]
	p.queue = p.queue[n:]
	p.bytes -= size
	if len(p.queue) == 0 {
		p.queue, p.bytes = nil, 0
	}
	p.flight = s.newBatch(p, taken, size)
	return p.flight
}

func (s *Sink) newBatch(p *partition, taken []pending, size int) *batch {
	return &batch{partition: p, pending: taken, bytes: size, first: time.Now(), records: s.encode(p, taken)}
}

// encode makes sarama's records, in a handful of allocations for the batch.
// sarama compresses them once, when they are first sent.
func (s *Sink) encode(p *partition, taken []pending) *sarama.RecordBatch {
	headers := 0
	for i := range taken {
		headers += len(taken[i].message.Headers)
	}
	now := time.Now()
	r := &sarama.RecordBatch{
		Version: 2, Codec: s.codec, CompressionLevel: sarama.CompressionLevelDefault,
		IsTransactional: s.tx != nil,
		ProducerID:      p.id.id, ProducerEpoch: p.id.epoch, FirstSequence: p.sequence,
		LastOffsetDelta: int32(len(taken) - 1), Records: make([]*sarama.Record, len(taken)),
	}
	slab := make([]sarama.Record, len(taken))
	hs, ps := make([]sarama.RecordHeader, headers), make([]*sarama.RecordHeader, headers)
	var names []sarama.RecordHeader // of the record before: names repeat
	for i := range taken {
		m, rec := taken[i].message, &slab[i]
		at := m.Timestamp
		if at.IsZero() {
			at = now
		}
		at = at.Truncate(time.Millisecond)
		if i == 0 {
			r.FirstTimestamp, r.MaxTimestamp = at, at
		} else if at.After(r.MaxTimestamp) {
			r.MaxTimestamp = at
		}
		rec.TimestampDelta = at.Sub(r.FirstTimestamp)
		rec.OffsetDelta = int64(i)
		rec.Key, rec.Value = m.Key, m.Value
		n := len(m.Headers)
		for j := range m.Headers {
			h := &hs[j]
			h.Value = m.Headers[j].Value // nil is written as null
			if j < len(names) && string(names[j].Key) == m.Headers[j].Name {
				h.Key = names[j].Key
			} else {
				h.Key = []byte(m.Headers[j].Name)
			}
			ps[j] = h
		}
		names, rec.Headers = hs[:n:n], ps[:n:n]
		hs, ps = hs[n:], ps[n:]
		r.Records[i] = rec
	}
	return r
}

// advance counts n records that the broker has taken. Sequences wrap at 2^31.
func (p *partition) advance(n int) { p.sequence = wrapped(p.sequence, n) }

func wrapped(sequence int32, n int) int32 {
	if int64(sequence)+int64(n) > math.MaxInt32 {
		return int32(int64(sequence) + int64(n) - math.MaxInt32 - 1)
	}
	return sequence + int32(n)
}
