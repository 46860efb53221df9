package kafka

import (
	"context"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// Config is what an operator can set. The zero value of a field other than
// Brokers and Linger means its default.
type Config struct {
	// Brokers to begin with, as host:port. At least one.
	Brokers []string
	// Compression is none, gzip, snappy, lz4 or zstd. Default lz4.
	Compression string
	// Linger is how long a record may wait for others to share its request.
	// 0 sends at once; batches then form only while a request is under way.
	Linger time.Duration
	// BatchBytes sends before Linger is over when that many bytes wait for
	// one broker. Default 1 MiB.
	BatchBytes int
	// MaxMessageBytes is the limit on key + value + headers of one message,
	// uncompressed, and on one batch of a partition. Default 1 MiB.
	MaxMessageBytes int
	// CreateTopics makes missing topics. Without it they are waited for.
	CreateTopics bool
	// TopicPartitions and TopicReplication of topics made by us. Default: the brokers' own.
	TopicPartitions  int32
	TopicReplication int16
}

// Room in a batch beside key, value and headers: what sarama reckons for one
// record, and its headers' lengths. More headers count against MaxMessageBytes.
const (
	recordOverhead = 36
	headerOverhead = 10
	freeHeaders    = 16
	batchHeadroom  = recordOverhead + freeHeaders*headerOverhead
)

func (c Config) withDefaults() Config {
	if c.Compression == "" {
		c.Compression = "lz4"
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = 1 << 20
	}
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 1 << 20
	}
	if c.TopicPartitions == 0 {
		c.TopicPartitions = -1
	}
	if c.TopicReplication == 0 {
		c.TopicReplication = -1
	}
	return c
}

func (c Config) conn() kafkaconn.Config { return kafkaconn.Config{Brokers: c.Brokers} }

// lookup is for questions that the caller repeats on its own.
func (c Config) lookup(life context.Context) *sarama.Config {
	s := c.conn().Base(life)
	s.Metadata.Retry.Max = 0
	s.Metadata.RefreshFrequency = 0
	return s
}

// producer holds the settings that lose and reorder nothing when brokers are
// killed, leaders move and connections drop. The retries are what matters: the defaults
// give up within seconds, and each message given up is a gap.
func (c Config) producer(life context.Context) (*sarama.Config, error) {
	s := c.conn().Base(life)
	s.Producer.RequiredAcks = sarama.WaitForAll
	s.Producer.Idempotent = true
	s.Net.MaxOpenRequests = 1 // sarama insists on it for an idempotent producer
	s.Producer.Retry.Max = 1000
	s.Producer.Retry.BackoffFunc = kafkaconn.Backoff(life, 100*time.Millisecond)
	s.Producer.Transaction.Retry.BackoffFunc = kafkaconn.Backoff(life, 100*time.Millisecond) // for the producer id too
	s.Metadata.Retry.Max = 5000
	s.Producer.Return.Successes = true
	s.Producer.Return.Errors = true
	s.Producer.Partitioner = sarama.NewMurmur2Partitioner
	s.Producer.MaxMessageBytes = c.MaxMessageBytes + batchHeadroom
	s.ChannelBufferSize = 256
	s.Producer.Flush.Frequency = c.Linger
	if c.Linger > 0 {
		// Without a frequency sarama would wait for the bytes for ever.
		s.Producer.Flush.Bytes = c.BatchBytes
	}
	if err := s.Producer.Compression.UnmarshalText([]byte(strings.ToLower(c.Compression))); err != nil {
		return nil, fault.Config(fault.CodeConfig, "Use none, gzip, snappy, lz4 or zstd.", nil,
			"OUTBOXD_KAFKA_COMPRESSION: %q is not known", c.Compression)
	}
	if err := s.Validate(); err != nil {
		return nil, fault.Config(fault.CodeConfig, "Correct the OUTBOXD_KAFKA_… setting it names.", err, "the Kafka settings don't fit together")
	}
	return s, c.conn().Validate()
}
