package config

import (
	"errors"
	"regexp"
	"strings"
)

const (
	kafkaCheckpoint = "kafka:outboxd.checkpoints"
	fileCheckpoint  = "file:outboxd.checkpoint"
	checkpointLegal = "kafka:TOPIC, file:PATH"
)

// String is the store as OUTBOXD_CHECKPOINT names it.
func (c Checkpoint) String() string {
	if c.Topic != "" {
		return "kafka:" + c.Topic
	}
	return "file:" + c.Path
}

var topicName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// set takes kafka:TOPIC or file:PATH.
func (c *Checkpoint) set(v string) error {
	store, where, _ := strings.Cut(v, ":")
	switch {
	case store == "kafka" && topicName.MatchString(where) && where != "." && where != "..":
		c.Topic, c.Path = where, ""
	case store == "kafka":
		return errors.New("names no topic: 1 to 249 of a-z A-Z 0-9 . _ -")
	case store == "file" && where != "":
		c.Topic, c.Path = "", where
	default:
		return errors.New("is neither kafka:TOPIC nor file:PATH")
	}
	return nil
}

// WithCheckpoint is c with another store, written as OUTBOXD_CHECKPOINT is.
// The error says what is wrong with it.
func (c *Config) WithCheckpoint(v string) (*Config, error) {
	other := *c
	if err := other.Checkpoint.set(v); err != nil {
		return nil, err
	}
	if other.Checkpoint.Topic != "" && len(c.Kafka.Brokers) == 0 {
		return nil, errors.New("needs OUTBOXD_KAFKA_BROKERS")
	}
	return &other, nil
}
