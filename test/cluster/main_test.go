// Package cluster tests against a Kafka of three brokers: what happens when
// some of them fail while the sink, or the real binary, publishes. Everything is
// read back and compared; each fault prints one line.
package cluster

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

func TestMain(m *testing.M) {
	if brokers := os.Getenv("OUTBOXD_TEST_KAFKA3"); brokers != "" {
		_ = os.Setenv("OUTBOXD_TEST_KAFKA", brokers) // the harness makes and reads topics there; no NUL is in it
	}
	harness.Main(m)
}

// admin asks or changes something of the cluster.
func admin(t *testing.T, do func(ctx context.Context, c *kadm.Client) error) {
	t.Helper()
	if err := try(t, do); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, do func(ctx context.Context, c *kadm.Client) error) error {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(harness.Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	return do(ctx, kadm.NewClient(client))
}

// describe gives what the cluster says of a topic. A broker that is down or
// has not heard of it says nothing.
func describe(t *testing.T, topic string) (detail kadm.TopicDetail) {
	t.Helper()
	harness.Eventually(t, "topic "+topic+" is known", func() bool {
		return try(t, func(ctx context.Context, c *kadm.Client) error {
			found, err := c.ListTopics(ctx, topic)
			if err == nil {
				detail, err = found[topic], found[topic].Err
			}
			return err
		}) == nil
	})
	return detail
}

// inSync waits until every replica of the topic is in sync, and has a leader.
func inSync(t *testing.T, topic string) {
	t.Helper()
	harness.Eventually(t, "all replicas in sync", func() bool {
		for _, p := range describe(t, topic).Partitions {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				return false
			}
		}
		return true
	})
}

// leader gives the broker that leads partition 0, by its name for ctl.
func leader(t *testing.T, topic string) string {
	t.Helper()
	return member(describe(t, topic).Partitions[0].Leader)
}

func member(id int32) string { return members[id-1] }

var members = []string{"kafka3-1", "kafka3-2", "kafka3-3"}

// repaired promises that all brokers run again at the end of the test.
func repaired(t *testing.T) { harness.Disturb(t, "kafka3") }

// plain are the settings of a sink that talks to the brokers themselves.
func plain(t *testing.T) kafka.Config { return kafka.Config{Brokers: harness.Brokers(t)} }

// proxied puts a proxy before each broker, and gives the settings of a sink
// that can reach them through these alone.
func proxied(t *testing.T) (kafka.Config, []*faultproxy.Proxy) {
	t.Helper()
	var cfg kafka.Config
	var all []*faultproxy.Proxy
	for _, pair := range strings.Split(harness.Need(t, "OUTBOXD_TEST_KAFKA3_PROXIED"), ",") {
		advertised, behind, _ := strings.Cut(pair, "=")
		p, err := faultproxy.Listen(advertised, behind)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		cfg.Brokers, all = append(cfg.Brokers, advertised), append(all, p)
	}
	return cfg, all
}
