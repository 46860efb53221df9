package kafka

import (
	"strconv"
	"sync"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
)

// sizes knows what the topics in use take: their max.message.bytes, where we may
// ask for it. The brokers measure a batch as it is compressed, so beyond it a message
// may be refused and need not be.
type sizes struct {
	mu     sync.Mutex
	limit  map[string]int  // by topic
	warned map[string]bool // tables that came near a limit
}

// small messages are below every limit worth a look: they cost one comparison.
const small = 8 << 10

// learn asks for a topic's limit. Without the right to, it is not known.
func (s *Sink) learn(topic string) {
	admin, err := sarama.NewClusterAdminFromClient(s.client) // closing it would close the client
	if err != nil {
		return
	}
	const name = "max.message.bytes"
	answers, err := admin.DescribeConfigs([]*sarama.ConfigResource{{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}}}, sarama.DescribeConfigsOptions{})
	if err == nil && len(answers) != 1 {
		err = sarama.ErrIncompleteResponse
	}
	if err == nil {
		err = code(answers[0].ErrorCode)
	}
	if err != nil {
		s.log.Debug("the topic's limit is not known", zap.String("topic", topic), zap.Error(err))
		return
	}
	for _, e := range answers[0].Configs {
		if n, err := strconv.Atoi(e.Value); err == nil && e.Name == name {
			s.sizes.mu.Lock()
			s.sizes.limit[topic] = n
			s.sizes.mu.Unlock()
		}
	}
}

// Isolate implements sink.Isolator: a message beyond what its topic takes
// uncompressed. It warns once for each table of one that comes near the limit.
func (s *Sink) Isolate(m *sink.Message) bool {
	size := m.Size()
	if size < small {
		return false
	}
	s.sizes.mu.Lock()
	defer s.sizes.mu.Unlock()
	of, known := s.sizes.limit[m.Topic]
	limit := s.cfg.MaxMessageBytes
	if known {
		limit = min(limit, of)
	}
	if size >= limit/5*4 && !s.sizes.warned[m.Table] {
		s.sizes.warned[m.Table] = true
		s.log.Warn("an event is near the limit of OUTBOXD_KAFKA_MAX_MESSAGE_BYTES or of its topic, or beyond what the topic takes uncompressed; larger ones will be refused",
			zap.String("table", m.Table), zap.ByteString("id", m.ID), zap.String("topic", m.Topic), zap.Int("bytes", size), zap.Int("limit", limit))
	}
	return known && onWire(m)+batchOverhead > of
}
