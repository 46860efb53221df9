package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// Topic is what a topic is set to, as far as a record is concerned.
type Topic struct {
	Partitions int32 // 0: it does not exist
	// Retention is how old a record's timestamp may be before the record is
	// deleted; 0: it is kept, or not known, or the broker's clock counts and not the record's.
	Retention time.Duration
}

// Inspect looks at a topic and makes nothing. It needs the right to Describe it; without that to
// describe its settings the retention is not known.
func Inspect(ctx context.Context, cfg Config, name string) (Topic, error) {
	cfg = cfg.withDefaults()
	if wrong := badTopic(name); wrong != "" {
		return Topic{}, fmt.Errorf("topic %.300q %s", name, wrong)
	}
	client, err := sarama.NewClient(cfg.Brokers, cfg.lookup(ctx))
	if err != nil {
		return Topic{}, fmt.Errorf("look at topic %q: %w", name, err)
	}
	defer client.Close() //nolint:errcheck // nothing is pending
	ids, err := client.Partitions(name)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
		return Topic{}, nil
	}
	if err != nil {
		return Topic{}, fmt.Errorf("look at topic %q: %w", name, err)
	}
	t := Topic{Partitions: int32(len(ids))}
	settings := settings(client, name)
	if ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64); err == nil && ms > 0 &&
		settings["cleanup.policy"] != "compact" && settings["message.timestamp.type"] != "LogAppendTime" {
		t.Retention = time.Duration(ms) * time.Millisecond
		if t.Retention/time.Millisecond != time.Duration(ms) { // beyond what a Duration holds
			t.Retention = 0
		}
	}
	return t, nil
}

// settings gives a topic's settings by name, none where they can't be had.
func settings(client sarama.Client, topic string) map[string]string {
	b := client.LeastLoadedBroker()
	if b == nil {
		return nil
	}
	if err := b.Open(client.Config()); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return nil
	}
	answer, err := b.DescribeConfigs(&sarama.DescribeConfigsRequest{Version: 2, Resources: []*sarama.ConfigResource{
		{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms", "cleanup.policy", "message.timestamp.type"}},
	}})
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for _, r := range answer.Resources {
		for _, c := range r.Configs {
			found[c.Name] = c.Value
		}
	}
	return found
}
