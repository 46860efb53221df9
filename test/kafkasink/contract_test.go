package kafkasink

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/sink/sinktest"
	"github.com/outboxd/outboxd/test/harness"
)

func TestContractOnFakeKafka(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Rig {
		c := fake(t)
		return sinktest.Rig{
			Sink:  open(t, kafka.Config{Brokers: c.ListenAddrs(), RejectAfter: time.Millisecond}, zaptest.NewLogger(t)),
			Topic: topic,
			Read:  func(t *testing.T) []sink.Message { return messages(read(t, c.ListenAddrs(), topic)) },
			Break: func(*testing.T) {
				c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			},
		}
	})
}

func TestContractOnKafka(t *testing.T) {
	for _, compression := range []string{"none", "lz4", "zstd", "snappy", "gzip"} {
		t.Run(compression, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Rig {
				name, brokers := harness.Unique("kafkasink-"), harness.Brokers(t)
				harness.CreateTopics(t, 6, name)
				return sinktest.Rig{
					Sink:  open(t, kafka.Config{Brokers: brokers, Compression: compression}, zaptest.NewLogger(t)),
					Topic: name,
					Read:  func(t *testing.T) []sink.Message { return messages(read(t, brokers, name)) },
					Break: func(t *testing.T) { limit(t, name, "1") },
				}
			})
		})
	}
}

// limit sets max.message.bytes of a topic of the real Kafka, and waits until it
// counts: the controller answers before the brokers have taken the setting up. They
// do so in order, so a second topic that is set behind it tells when it is done.
func limit(t *testing.T, topic, bytes string) {
	t.Helper()
	probe := harness.Unique("probe-")
	harness.CreateTopics(t, 1, probe)
	harness.SetTopic(t, topic, "max.message.bytes", bytes)
	harness.SetTopic(t, probe, "max.message.bytes", "1")
	client, err := kgo.NewClient(kgo.SeedBrokers(harness.Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	harness.Eventually(t, "the limit", func() bool {
		err := client.ProduceSync(limited(t), &kgo.Record{Topic: probe, Value: []byte("too large")}).FirstErr()
		return errors.Is(err, kerr.MessageTooLarge)
	})
}
