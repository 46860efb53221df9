package kafkasink

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
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

// limit sets max.message.bytes of a topic of the real Kafka.
func limit(t *testing.T, topic, bytes string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(harness.Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &bytes}}
	answers, err := kadm.NewClient(client).AlterTopicConfigs(limited(t), set, topic)
	if err == nil {
		_, err = answers.On(topic, func(r *kadm.AlterConfigsResponse) error { return r.Err })
	}
	if err != nil {
		t.Fatal(err)
	}
}
