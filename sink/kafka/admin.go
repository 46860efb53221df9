package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/internal/preflight"
)

// Check reports, for `outboxd check`, which brokers answer and what they run.
// It writes nothing and returns soon after ctx ends.
func Check(ctx context.Context, cfg Config) []preflight.Result {
	cfg = cfg.withDefaults()
	conf, codec, err := cfg.producer(ctx)
	if err != nil {
		return []preflight.Result{failed("kafka.config", err)}
	}
	var up *sarama.Broker
	var down []string
	for _, address := range cfg.Brokers {
		one := cfg.conn()
		one.Brokers = []string{address}
		b, err := one.Reach(conf)
		switch {
		case err != nil:
			down = append(down, err.Error())
		case up == nil:
			up = b
			defer b.Close() //nolint:errcheck // it was opened to ask
		default:
			_ = b.Close()
		}
	}
	r := preflight.Result{ID: "kafka.reachable", Status: preflight.OK}
	r.Found = fmt.Sprintf("%d of %d brokers answer", len(cfg.Brokers)-len(down), len(cfg.Brokers))
	if len(down) > 0 {
		r.Status = preflight.Warn
		r.Found += ": " + strings.Join(down, "; ")
		r.Fix = []string{"Check OUTBOXD_KAFKA_BROKERS: that Kafka listens there, nothing else, and that the network lets this host connect."}
	}
	if up == nil {
		r.Status = preflight.Fail
		return []preflight.Result{r}
	}
	results := append([]preflight.Result{r}, checkVersion(up, codec)...)
	if cfg.TransactionalID != "" {
		results = append(results, checkTransactions(up, conf, cfg))
	} else if err := mayProduce(up); denied(err) {
		results = append(results, failed("kafka.acl.idempotent_write", cfg.permanent(err)))
	}
	return results
}

func checkVersion(b *sarama.Broker, codec sarama.CompressionCodec) []preflight.Result {
	answer, err := versions(b)
	if err == nil {
		err = suits(answer, codec)
	}
	if err != nil {
		return []preflight.Result{failed("kafka.version", err)}
	}
	r := preflight.Result{ID: "kafka.version", Status: preflight.OK, Found: "the brokers tell no metadata.version; they have the APIs that outboxd needs"}
	if highest, ok := level(answer); ok && tested(highest) {
		r.Found = fmt.Sprintf("metadata.version up to %d: Kafka 3.9 to 4.4", highest)
	} else if ok {
		r.Status = preflight.Warn
		r.Found = fmt.Sprintf("metadata.version up to %d: not one of Kafka 3.9 to 4.4", highest)
		r.Fix = []string{"outboxd is tested with Kafka 3.9 to 4.4. Your brokers have the APIs it needs; try your version out."}
	}
	return []preflight.Result{r}
}

func failed(id string, err error) preflight.Result {
	r := preflight.Result{ID: id, Status: preflight.Fail, Found: err.Error()}
	if f := fault.As(err); f != nil {
		r.Found, r.Fix = f.Found, []string{f.Fix}
	}
	return r
}

// CreateTopics makes the topics of names that don't exist, with cfg's
// partitions and replication, and tells which are new and which were there. It
// stops at the first it can't make.
func CreateTopics(ctx context.Context, cfg Config, names []string) (made, existing []string, err error) {
	cfg = cfg.withDefaults()
	for _, name := range names {
		if wrong := badTopic(name); wrong != "" {
			return nil, nil, fault.Config(fault.CodeConfig, "Use 1 to 249 of a-z A-Z 0-9 . _ - in a topic name.", nil, "topic %.300q %s", name, wrong)
		}
	}
	if err := cfg.conn().Validate(); err != nil {
		return nil, nil, err
	}
	client, err := sarama.NewClient(cfg.Brokers, cfg.lookup(ctx))
	if err != nil {
		return nil, nil, fmt.Errorf("create topics: %w", err)
	}
	defer client.Close() //nolint:errcheck // nothing is pending
	for _, name := range names {
		isNew := false
		_, err := client.Partitions(name)
		if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
			isNew, err = createTopic(client, cfg, name)
		}
		if err != nil {
			return made, existing, createFault(cfg, name, err)
		}
		if isNew {
			made = append(made, name)
		} else {
			existing = append(existing, name)
		}
	}
	return made, existing, nil
}

// CreateCommand is the shell command that makes a topic as CreateTopics would.
// What cfg leaves open is the brokers' default.
func CreateCommand(cfg Config, topic string) string {
	command := fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --if-not-exists --topic %s", strings.Join(cfg.Brokers, ","), topic)
	if cfg.TopicPartitions > 0 {
		command += fmt.Sprintf(" --partitions %d", cfg.TopicPartitions)
	}
	if cfg.TopicReplication > 0 {
		command += fmt.Sprintf(" --replication-factor %d", cfg.TopicReplication)
	}
	return command
}

func createFault(cfg Config, name string, err error) error {
	switch {
	case denied(err):
		return fault.Config(fault.CodeGrantMissing, cfg.conn().Grant("Create Describe", kafkaconn.Topic, name)+" or let an administrator create it: "+CreateCommand(cfg, name), err, "topic %q", name)
	case errors.Is(err, sarama.ErrPolicyViolation), errors.Is(err, sarama.ErrInvalidPartitions), errors.Is(err, sarama.ErrInvalidReplicationFactor):
		return fault.Config(fault.CodeServerSetting, "Set OUTBOXD_KAFKA_TOPIC_PARTITIONS and OUTBOXD_KAFKA_TOPIC_REPLICATION to what the brokers allow.", err, "topic %q", name)
	}
	return fmt.Errorf("create topic %q: %w", name, err)
}
