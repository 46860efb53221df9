package kafka

import (
	"fmt"

	"github.com/outboxd/outboxd/sink"
)

// Reasons of a sink.Refusal.
const (
	ReasonTooLarge      = "too_large"
	ReasonBadTopic      = "bad_topic"
	ReasonBadTimestamp  = "bad_timestamp"
	ReasonBadPartition  = "bad_partition"
	ReasonNotAuthorized = "not_authorized"
	ReasonPolicy        = "policy_violation"
	ReasonInvalidRecord = "invalid_record"
)

const topicFix = "Make OUTBOXD_TOPIC, or the column it takes the name from, give 1 to 249 of a-z A-Z 0-9 . _ - (not . or .. alone)."

// Timestamps outside are either a mistake in the row or refused by every
// broker; within them no two are too far apart for one batch.
const (
	minTimestamp = 0
	maxTimestamp = 7258118400000 // 2200-01-01, in ms
)

// Judge refuses what no broker would take: a message over the limit, an illegal
// topic name, a timestamp out of range. It is called by the goroutine that publishes.
func (s *Sink) Judge(m *sink.Message) *sink.Refusal {
	if m.Topic != s.judged {
		if fault := badTopic(m.Topic); fault != "" {
			return &sink.Refusal{Reason: ReasonBadTopic, Detail: fmt.Sprintf("topic %.300q %s", m.Topic, fault), Fix: topicFix}
		}
		s.judged = m.Topic
	}
	limit := s.cfg.MaxMessageBytes
	if size := m.Size(); size > limit {
		return &sink.Refusal{
			Reason: ReasonTooLarge,
			Detail: fmt.Sprintf("key, value and %d headers are %d bytes, the limit is %d", len(m.Headers), size, limit),
			Fix:    "Raise OUTBOXD_KAFKA_MAX_MESSAGE_BYTES, and max.message.bytes of the topic with it.",
		}
	}
	if ms := m.Timestamp.UnixMilli(); !m.Timestamp.IsZero() && (ms < minTimestamp || ms > maxTimestamp) {
		return &sink.Refusal{
			Reason: ReasonBadTimestamp,
			Detail: fmt.Sprintf("timestamp %s is not between 1970 and 2200", m.Timestamp.UTC().Format("2006-01-02")),
			Fix:    "The record's timestamp is the commit time: see the database server's clock; or it is OUTBOXD_COLUMN_TIMESTAMP's: see the row.",
		}
	}
	return s.misplaced(m)
}

// misplaced refuses a partition that the topic does not have, as far as its
// partitions are known here.
func (s *Sink) misplaced(m *sink.Message) *sink.Refusal {
	if !m.Pinned {
		return nil
	}
	if n := len(s.partitions[m.Topic]); m.Partition < 0 || n > 0 && int(m.Partition) >= n {
		return &sink.Refusal{
			Reason: ReasonBadPartition,
			Detail: fmt.Sprintf("the row asks for partition %d, and topic %q has %d", m.Partition, m.Topic, n),
			Fix:    "Add partitions to the topic, or take the partition out of OUTBOXD_COLUMN_PLACEMENT.",
		}
	}
	return nil
}

// badTopic says what is wrong with a topic name, by Kafka's rules.
func badTopic(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "is reserved"
	case len(name) > 249:
		return fmt.Sprintf("is %d bytes long, the limit is 249", len(name))
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Sprintf("holds %q", name[i:i+1])
		}
	}
	return ""
}
