package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// settings are those of a topic made by us. Small segments: only closed ones
// are compacted, so they bound what a first start has to read.
func settings() [][2]string {
	return [][2]string{
		{"cleanup.policy", "compact"},
		{"segment.bytes", "1048576"},
		{"segment.ms", "86400000"},
		{"min.cleanable.dirty.ratio", "0.1"},
		{"delete.retention.ms", "86400000"},
		{"message.timestamp.type", "LogAppendTime"}, // a host whose clock is wrong may save too
	}
}

// Command is the shell command that makes the topic as Create would.
func (c Config) Command() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions 1", strings.Join(c.Conn.Brokers, ","), c.Topic)
	for _, s := range settings() {
		fmt.Fprintf(&b, " --config %s=%s", s[0], s[1])
	}
	return b.String()
}

// Rights is the command that gives the rights the store needs, and no other:
// Create only where it may have to make the topic. With DescribeConfigs it also sees whether the topic is compacted.
func (c Config) Rights() string {
	operations := "Read Write"
	if c.CreateTopic {
		operations += " Create"
	}
	return c.Conn.Grant(operations, kafkaconn.Topic, c.Topic)
}

// create asks for the topic, or only whether it may be made, and reports
// whether it was this call that made it.
func (t *session) create(tryOnly bool) (bool, error) {
	controller, err := t.dial(t.controller)
	if err != nil {
		return false, err
	}
	defer controller.Close() //nolint:errcheck // it was opened to ask
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: -1, ConfigEntries: map[string]*string{}}
	for _, s := range settings() {
		detail.ConfigEntries[s[0]] = &s[1]
	}
	request := sarama.NewCreateTopicsRequest(t.conf.Version, map[string]*sarama.TopicDetail{t.cfg.Topic: detail}, ackTimeout, tryOnly)
	answer, err := controller.CreateTopics(request)
	if err != nil {
		return false, fmt.Errorf("create it: %w", err)
	}
	result := answer.TopicErrors[t.cfg.Topic]
	switch {
	case result == nil:
		return false, fmt.Errorf("create it: %w", sarama.ErrIncompleteResponse)
	case errors.Is(result.Err, sarama.ErrTopicAlreadyExists):
		return false, nil
	case result.Err != sarama.ErrNoError:
		return false, fmt.Errorf("create it: %w", result)
	}
	return true, nil
}

// await returns when a topic just made can be used.
func (t *session) await(ctx context.Context) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := t.usable()
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errNoLeader), ctx.Err() != nil:
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// usable returns errNoLeader as long as brokers are still learning of the topic.
func (t *session) usable() error {
	if err := t.open(); err != nil {
		return err
	}
	if t.leader == nil {
		return errNoLeader
	}
	_, err := t.offset(sarama.OffsetNewest)
	if errors.Is(err, sarama.ErrUnknownTopicOrPartition) || errors.Is(err, sarama.ErrNotLeaderForPartition) {
		return errNoLeader
	}
	return err
}

// judge refuses a topic that does not keep the newest record of each key for ever.
func (t *session) judge() error {
	const policy = "cleanup.policy"
	answer, err := t.leader.DescribeConfigs(&sarama.DescribeConfigsRequest{Version: 2, Resources: []*sarama.ConfigResource{
		{Type: sarama.TopicResource, Name: t.cfg.Topic, ConfigNames: []string{policy}},
	}})
	if err != nil {
		return fmt.Errorf("ask for its settings: %w", err)
	}
	if len(answer.Resources) != 1 {
		return fmt.Errorf("ask for its settings: %w", sarama.ErrIncompleteResponse)
	}
	code := sarama.KError(answer.Resources[0].ErrorCode)
	if t.blind = errors.Is(code, sarama.ErrTopicAuthorizationFailed); t.blind { // whoever made it is trusted
		return nil
	}
	if code != sarama.ErrNoError {
		return fmt.Errorf("ask for its settings: %w", code)
	}
	i := slices.IndexFunc(answer.Resources[0].Configs, func(e *sarama.ConfigEntry) bool { return e.Name == policy })
	if i < 0 {
		return fmt.Errorf("ask for its settings: the answer does not tell %s", policy)
	}
	value := answer.Resources[0].Configs[i].Value
	if value == "compact" {
		return nil
	}
	return t.unfit(fmt.Sprintf("its %s is %q, so Kafka deletes checkpoints after a while", policy, value), fmt.Sprintf(
		"Name another topic in %s, or, when nothing else uses this one: kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s=compact",
		variable, strings.Join(t.cfg.Conn.Brokers, ","), t.cfg.Topic, policy))
}

func (t *session) unfit(why, fix string) error {
	return fault.Config(fault.CodeConfig, fix, nil, "checkpoint topic %q can't be used: %s", t.cfg.Topic, why)
}

func (t *session) setupNeeded() error {
	return fault.Config(fault.CodeSetupNeeded, "Set OUTBOXD_AUTO_SETUP=true, or make it: "+t.cfg.Command(), nil,
		"checkpoint topic %q does not exist, and outboxd may not create it", t.cfg.Topic)
}
