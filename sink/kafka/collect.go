package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/sink"
)

// encoder gives the producer bytes that belong to a sink.Message, in place.
type encoder []byte

func (e *encoder) Encode() ([]byte, error) { return *e, nil }
func (e *encoder) Length() int             { return len(*e) }

// prepare makes the producer's records of a batch, in two allocations and one
// for each header name that isn't the one of the record before.
func prepare(msgs []sink.Message, b *batch) []record {
	n := 0
	for i := range msgs {
		n += len(msgs[i].Headers)
	}
	records := make([]record, len(msgs))
	headers := make([]sarama.RecordHeader, n)
	var before []sarama.RecordHeader
	for i := range msgs {
		m, r := &msgs[i], &records[i]
		r.batch, r.msg = b, m
		r.Metadata = r
		r.Topic, r.Timestamp = m.Topic, m.Timestamp
		r.Value = (*encoder)(&m.Value) // nil is written as null, here and in headers
		if m.Key != nil {              // without an encoder the record is spread
			r.Key = (*encoder)(&m.Key)
		}
		n := len(m.Headers)
		r.Headers, headers = headers[:n:n], headers[n:]
		for j := range m.Headers {
			h := &r.Headers[j]
			h.Value = m.Headers[j].Value
			if j < len(before) && string(before[j].Key) == m.Headers[j].Name {
				h.Key = before[j].Key
			} else {
				h.Key = []byte(m.Headers[j].Name)
			}
		}
		before = r.Headers
	}
	return records
}

// collect takes the producer's answers until it has closed.
//
// Some refusals are about single records, but the producer gives the broker's
// word for each record of the batch it sent, so whose fault it is can be told
// only when the record was alone. The answers of one batch come right behind each
// other; the verdict is when a second one came, or none for a while.
func (s *Sink) collect() {
	defer close(s.drained)
	acks, errs := s.producer.Successes(), s.producer.Errors()
	var suspect *sarama.ProducerError
	var alone <-chan time.Time
	convict := func(one bool) {
		if suspect != nil {
			s.reject(suspect, one)
			suspect, alone = nil, nil
		}
	}
	for acks != nil || errs != nil {
		select {
		case m, ok := <-acks:
			if !ok {
				acks = nil
				continue
			}
			s.acknowledge(m.Metadata.(*record).batch)
		case e, ok := <-errs:
			switch {
			case !ok:
				errs = nil
			case suspect != nil && sameBatch(suspect, e):
				convict(false)
			case suspect == nil && s.failure() == nil && perRecord(e.Err):
				s.halt()
				suspect, alone = e, time.After(s.verdict)
			case suspect == nil:
				s.reject(e, false)
			}
		case <-alone:
			convict(true)
		}
	}
}

func (s *Sink) acknowledge(b *batch) {
	if b.left--; b.left == 0 {
		s.settle(b, nil)
	}
}

// reject finishes the sink and settles the batch of the failed record.
func (s *Sink) reject(e *sarama.ProducerError, alone bool) {
	r := e.Msg.Metadata.(*record)
	s.fail(failure(e.Err, r.msg, alone))
	s.settle(r.batch, s.failure())
}

func sameBatch(a, b *sarama.ProducerError) bool {
	return a.Msg.Topic == b.Msg.Topic && a.Msg.Partition == b.Msg.Partition && errors.Is(b.Err, a.Err)
}

func perRecord(err error) bool {
	for _, e := range []error{
		sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge,
		sarama.ErrInvalidRecord, sarama.ErrInvalidTimestamp,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failure tells a refusal for good from what another try may mend. alone says
// that the record was the only one of its batch.
func failure(err error, m *sink.Message, alone bool) error {
	var r *sink.Refusal
	switch {
	case errors.Is(err, sarama.ErrMessageSizeTooLarge), errors.Is(err, sarama.ErrMessageSetSizeTooLarge):
		if !alone {
			return fmt.Errorf("publish to topic %q: the broker finds a batch of several records too large: "+
				"raise the topic's max.message.bytes, or lower OUTBOXD_KAFKA_MAX_MESSAGE_BYTES to it: %w", m.Topic, err)
		}
		r = &sink.Refusal{Reason: ReasonTooLarge, Fix: "Raise max.message.bytes of the topic (message.max.bytes of the brokers)."}
		r.Detail = fmt.Sprintf("the broker takes no record of %d bytes", m.Size())
	case errors.Is(err, sarama.ErrInvalidTopic):
		r = &sink.Refusal{Reason: ReasonBadTopic, Fix: topicFix}
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		r = &sink.Refusal{Reason: ReasonNotAuthorized, Fix: authorizeFix}
	case errors.Is(err, sarama.ErrPolicyViolation):
		r = &sink.Refusal{Reason: ReasonPolicy, Fix: "Change the brokers' policy, or what the event holds."}
	case errors.Is(err, sarama.ErrInvalidRecord):
		r = &sink.Refusal{Reason: ReasonInvalidRecord, Fix: "See the broker's log; a compacted topic takes no record without a key."}
	case errors.Is(err, sarama.ErrInvalidTimestamp):
		r = &sink.Refusal{Reason: ReasonBadTimestamp, Fix: "Change message.timestamp.before.max.ms or .after.max.ms of the topic, or map another timestamp column."}
	default:
		return fmt.Errorf("publish to topic %q: %w", m.Topic, err)
	}
	if r.Detail == "" {
		r.Detail = err.Error()
		if !alone && perRecord(err) {
			r.Detail += " (said of a batch: this record, or one sent with it)"
		}
	}
	return refused(m, r)
}

// refused names the event, and nothing of what it holds.
func refused(m *sink.Message, r *sink.Refusal) error {
	return fmt.Errorf("publish event %q of table %s to topic %q: %w", m.ID, m.Table, m.Topic, r)
}
