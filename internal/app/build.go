// Package app puts the parts together: it is the one place that knows which
// source, sink and store there are, and in which order they start and stop.
package app

import (
	"context"
	"fmt"
	"io"
	"strings"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/file"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/internal/pipeline"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/sink/stdout"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/transform"
)

// database is what the commands ask of a source beside reading.
type database interface {
	source.Source
	// Check changes nothing and is safe beside a running instance. start is
	// what a first start would be told.
	Check(ctx context.Context, start source.Start) []preflight.Result
	// Locate gives the position that text names, after judging it; the lease must be held.
	Locate(ctx context.Context, text string, held source.Position) (source.Position, error)
	// Statements is the SQL of Setup; it connects to nothing.
	Statements() []string
	// Setup makes what is missing, and reports whether anything was.
	Setup(ctx context.Context) (made bool, err error)
}

// store is a checkpoint store that can be tried before it is needed.
type store interface {
	checkpoint.Store
	Check(ctx context.Context) error
}

func newSource(c *config.Config, login config.Login, validate func(*source.Table) error, log *zap.Logger) (database, error) {
	switch c.Source.Scheme {
	case "mysql", "mariadb":
		cfg := mysqlConfig(c, login)
		cfg.Validate = validate
		return mysql.New(cfg, log.Named("mysql"))
	case "postgres":
		cfg := postgresConfig(c, login)
		cfg.Validate = validate
		return postgres.New(cfg, log.Named("postgres"))
	default:
		return nil, fmt.Errorf("build source: %q is not known", c.Source.Scheme)
	}
}

func mysqlConfig(c *config.Config, login config.Login) mysql.Config {
	tables := make([]mysql.TableName, len(c.Tables))
	for i, t := range c.Tables {
		tables[i] = mysql.TableName{Schema: t.Schema, Name: t.Name}
	}
	return mysql.Config{
		URL: login.URL, User: login.User, Password: login.Password, Name: c.Name, Tables: tables,
		ServerID: c.MySQL.ServerID, Place: mysql.PlaceMode(c.MySQL.Position), Hold: c.BufferBytes, OnUpdate: mysql.OnUpdate(c.OnUpdate),
		Snapshot: mysql.Snapshot{Where: c.Snapshot.Where, OrderBy: c.Snapshot.OrderBy, Aggregate: aggregateOf(c)},
	}
}

func postgresConfig(c *config.Config, login config.Login) postgres.Config {
	tables := make([]postgres.TableName, len(c.Tables))
	for i, t := range c.Tables {
		tables[i] = postgres.TableName{Schema: t.Schema, Name: t.Name}
	}
	return postgres.Config{
		URL: login.URL, User: login.User, Password: login.Password, Name: c.Name, Tables: tables,
		Slot: c.Postgres.Slot, Publication: c.Postgres.Publication, AutoSetup: c.AutoSetup,
		MessagePrefix: c.Postgres.MessagePrefix,
		Failover:      c.Postgres.Failover,
		Snapshot:      postgres.Snapshot{Where: c.Snapshot.Where, OrderBy: c.Snapshot.OrderBy, Aggregate: aggregateOf(c)},
	}
}

func newStore(c *config.Config, log *zap.Logger) store {
	if c.Checkpoint.Topic != "" {
		return topic.Open(topicConfig(c), log.Named("checkpoint"))
	}
	return file.New(c.Checkpoint.Path, c.Name)
}

func topicConfig(c *config.Config) topic.Config {
	return topic.Config{
		Conn: kafkaconn.Config{Brokers: c.Kafka.Brokers, Security: security(c)}, Topic: c.Checkpoint.Topic, Name: c.Name, CreateTopic: c.AutoSetup,
	}
}

func openSink(c *config.Config, out io.Writer, mayRepeat func(events int), log *zap.Logger) (func(context.Context) (sink.Sink, error), error) {
	switch c.Sink {
	case "kafka":
		log := log.Named("kafka")
		cfg := kafkaConfig(c)
		cfg.PossibleRepeat = mayRepeat
		return func(ctx context.Context) (sink.Sink, error) {
			s, err := kafka.Open(ctx, cfg, log)
			if err != nil {
				return nil, err // not s: a nil *Sink would be no nil Sink
			}
			return s, nil
		}, nil
	case "stdout":
		return func(context.Context) (sink.Sink, error) { return stdout.New(out), nil }, nil
	default:
		return nil, fmt.Errorf("build sink: %q is not known", c.Sink)
	}
}

// topicPrefix is what the topics of all events begin with, as far as it is known.
func topicPrefix(c *config.Config) string {
	if c.Route != (config.Route{}) {
		return ""
	}
	prefix, _, _ := strings.Cut(c.Topic, "{")
	return prefix
}

func kafkaConfig(c *config.Config) kafka.Config {
	id := ""
	if c.Delivery == config.ExactlyOnce {
		id = c.Name
	}
	return kafka.Config{
		TransactionalID: id, TopicPrefix: topicPrefix(c), TransactionTimeout: c.Transaction.Timeout,
		Brokers: c.Kafka.Brokers, Security: security(c), Compression: c.Kafka.Compression, Linger: c.Kafka.Linger, BatchBytes: c.Kafka.BatchBytes,
		MaxMessageBytes: c.Kafka.MaxMessageBytes, RejectAfter: c.Kafka.RejectAfter, CreateTopics: c.Kafka.CreateTopics,
		TopicPartitions: int32(c.Kafka.TopicPartitions), TopicReplication: int16(c.Kafka.TopicReplication),
	}
}

// newTransactions gives nil unless delivery is exactly-once.
func newTransactions(c *config.Config) *pipeline.Transactions {
	if c.Delivery != config.ExactlyOnce {
		return nil
	}
	return &pipeline.Transactions{
		Interval: c.Transaction.Interval, Timeout: c.Transaction.Timeout,
		Record: func(place checkpoint.Checkpoint) sink.Message {
			key, value := topic.Encode(place)
			return sink.Message{Topic: c.Checkpoint.Topic, Key: key, Value: value}
		},
	}
}

func newRouter(c *config.Config) (*transform.Router, error) {
	tables := make([]transform.Table, len(c.Aliased))
	for i, a := range c.Aliased {
		own := eventConfig(c, a.Event)
		own.Alias, own.Variables = a.Table.Alias, a.Table.Variables()
		tables[i] = transform.Table{Schema: a.Table.Schema, Name: a.Table.Name, Config: own}
	}
	return transform.New(eventConfig(c, c.Event), tables...)
}

func eventConfig(c *config.Config, e config.Event) transform.Config {
	headers := make([]transform.Header, len(e.Headers))
	for i, h := range e.Headers {
		headers[i] = transform.Header(h)
	}
	placement := make([]transform.Placement, len(e.Placement))
	for i, p := range e.Placement {
		placement[i] = transform.Placement{Column: p.Column, Place: transform.Place(p.Place), Alias: p.Alias}
	}
	return transform.Config{
		Columns: transform.Columns(e.Columns), Headers: headers, HeaderFormat: transform.Format(e.HeaderFormat),
		Placement: placement, IgnoreMissing: e.OnMissingColumn == "ignore",
		Topic: e.Topic, Route: transform.Route(e.Route),
		PayloadFormat: transform.Format(e.PayloadFormat), KeyFormat: transform.Format(e.KeyFormat), ExpandJSON: e.ExpandJSON,
		TombstoneOnEmpty: e.TombstoneOnEmpty, NullKey: transform.NullKey(e.OnNullKey),
		Name: c.Name, Connector: c.Source.Scheme, TopicPrefix: c.TopicPrefix,
	}
}
