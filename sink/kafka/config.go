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
	// Security is TLS and the login. Default neither.
	Security kafkaconn.Security
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
	// TopicPrefix is what the topics of all events begin with, for what is said
	// about rights. Empty: not known.
	TopicPrefix string
	// CreateTopics makes missing topics. Without it they are waited for.
	CreateTopics bool
	// RejectAfter is how long what may be mended (a right, a policy) is tried
	// before the event counts as refused. Default 1 minute.
	RejectAfter time.Duration
	// Refresh is how often the brokers are asked what became of the topics in
	// use, beside when something fails. Default 1 minute.
	Refresh time.Duration
	// TopicPartitions and TopicReplication of topics made by us. Default: the brokers' own.
	TopicPartitions  int32
	TopicReplication int16
	// TransactionalID makes the sink a sink.Committer that publishes in
	// transactions of that id. Empty: it publishes without.
	TransactionalID string
	// TransactionTimeout is how long a transaction may be open before the
	// brokers end it. Default 15 seconds.
	TransactionTimeout time.Duration
	// PossibleRepeat is told how many events were sent again although the
	// broker may no longer know that it has them. It must not block; nil is allowed.
	PossibleRepeat func(events int)
}

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
	if c.RejectAfter == 0 {
		c.RejectAfter = time.Minute
	}
	if c.Refresh == 0 {
		c.Refresh = time.Minute
	}
	if c.TopicPartitions == 0 {
		c.TopicPartitions = -1
	}
	if c.TopicReplication == 0 {
		c.TopicReplication = -1
	}
	if c.TransactionTimeout == 0 {
		c.TransactionTimeout = 15 * time.Second
	}
	if c.TransactionalID != "" { // a transaction that waits longer is void
		c.RejectAfter = min(c.RejectAfter, c.TransactionTimeout/2)
	}
	if c.PossibleRepeat == nil {
		c.PossibleRepeat = func(int) {}
	}
	return c
}

func (c Config) conn() kafkaconn.Config {
	return kafkaconn.Config{Brokers: c.Brokers, Security: c.Security}
}

// lookup is for questions that the caller repeats on its own.
func (c Config) lookup(life context.Context) *sarama.Config {
	s := c.conn().Base(life)
	s.Metadata.Retry.Max = 0
	s.Metadata.RefreshFrequency = 0
	return s
}

// producer gives sarama's settings for our own produce path: what it retries
// by itself would pass what we hold back.
func (c Config) producer(life context.Context) (*sarama.Config, sarama.CompressionCodec, error) {
	s := c.conn().Base(life)
	s.Metadata.Retry.Max, s.Metadata.RefreshFrequency = 0, c.Refresh
	s.Net.MaxOpenRequests = requestsInFlight + 1                                             // ours are bounded below it: AsyncProduce waits under the broker's lock
	s.Producer.Transaction.Retry.BackoffFunc = kafkaconn.Backoff(life, 100*time.Millisecond) // of asking for a producer id
	var codec sarama.CompressionCodec
	if err := codec.UnmarshalText([]byte(strings.ToLower(c.Compression))); err != nil {
		return nil, 0, fault.Config(fault.CodeConfig, "Use none, gzip, snappy, lz4 or zstd.", nil,
			"OUTBOXD_KAFKA_COMPRESSION: %q is not known", c.Compression)
	}
	if err := s.Validate(); err != nil {
		return nil, 0, fault.Config(fault.CodeConfig, "Correct the OUTBOXD_KAFKA_… setting it names.", err, "the Kafka settings don't fit together")
	}
	return s, codec, c.conn().Validate()
}
