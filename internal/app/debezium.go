package app

import (
	"context"
	"time"

	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/debezium"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// DebeziumOffset reads the newest offset of a connector from Kafka Connect's topic of offsets.
func DebeziumOffset(ctx context.Context, c *config.Config, topic, name, prefix string) ([]byte, error) {
	conn := kafkaconn.Config{Brokers: c.Kafka.Brokers, Security: security(c)}
	extents, missing, err := conn.Extents(ctx, []string{topic}, time.Time{})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return nil, fault.Config(fault.CodeConfig, "Give --offsets-topic the worker's offset.storage.topic, or the offset itself with --offset.", nil, "there is no topic %q", topic)
	}
	var newest []byte
	err = conn.Read(ctx, extents, func(r *kafkaconn.Record) error { // one key is in one partition
		if debezium.OffsetKey(r.Key, name, prefix) {
			newest = append([]byte(nil), r.Value...)
		}
		return nil
	})
	if err == nil && len(newest) == 0 {
		return nil, fault.Config(fault.CodeConfig, "Check the connector's name and topic.prefix in the file, and --offsets-topic; or give the offset itself with --offset.", nil,
			"topic %q has no offset of connector %q with topic.prefix %q", topic, name, prefix)
	}
	return newest, err
}
