package harness

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/load"
)

// Outbox is an application with its database and topics, and the settings of
// a connector between them, for tests of what happens at Kafka.
type Outbox struct {
	DB     Database
	Topics []string
	Env    map[string]string // of the connector: a checkpoint in Kafka
	Tail   *Tail
	types  []string
	level  checker.Isolation // of those who read the topics
}

// NewOutbox makes an outbox on a database service, with topics.
func NewOutbox(t testing.TB, service string, partitions int32) *Outbox {
	t.Helper()
	return newOutbox(t, service, partitions, checker.Uncommitted)
}

// NewExactlyOnce is NewOutbox with a connector that delivers exactly once, for
// readers of what is committed.
func NewExactlyOnce(t testing.TB, service string, partitions int32) *Outbox {
	t.Helper()
	o := newOutbox(t, service, partitions, checker.Committed)
	o.Env["OUTBOXD_DELIVERY"] = "exactly-once"
	o.Env["OUTBOXD_NAME"] = Unique("once-") // the transactional id, which all of Kafka shares
	return o
}

func newOutbox(t testing.TB, service string, partitions int32, level checker.Isolation) *Outbox {
	t.Helper()
	o := &Outbox{DB: NewDatabase(t, service), level: level}
	o.DB.CreateOutbox(t, Plain)
	for _, name := range []string{"order-", "invoice-"} {
		o.types = append(o.types, Unique(name))
		o.Topics = append(o.Topics, "outbox.event."+o.types[len(o.types)-1])
	}
	checkpoints := Unique("checkpoints-")
	CreateTopics(t, partitions, o.Topics...)
	DeleteTopicsLater(t, checkpoints)
	o.Env = map[string]string{
		"OUTBOXD_SOURCE_URL":    o.DB.URL("cdc"),
		"OUTBOXD_KAFKA_BROKERS": strings.Join(Brokers(t), ","),
		"OUTBOXD_CHECKPOINT":    "kafka:" + checkpoints,
	}
	o.Tail = FollowAt(t, level, o.Topics...)
	return o
}

// Load is what the application commits.
func (o *Outbox) Load() load.Config {
	return load.Config{Types: o.types, Table: Plain.Load(), Dialect: o.DB.Dialect()}
}

// Commit commits n events.
func (o *Outbox) Commit(t testing.TB, n int) {
	t.Helper()
	cfg := o.Load()
	cfg.Events = n
	if _, err := load.Run(t.Context(), o.DB.SQL(), cfg); err != nil {
		t.Fatalf("load: %v", err)
	}
}

// Finish waits for every event, stops the connector, prints the line of the
// fault, and requires that all is sound, with at most window repeats.
func (o *Outbox) Finish(t testing.TB, p *Process, what string, window int) {
	t.Helper()
	truth := o.DB.Truth(t, Plain.Checker())
	o.Tail.WaitEvents(t, len(truth))
	p.Stop(t)
	report := checker.Check(truth, RecordsAt(t, o.level, o.Topics...))
	t.Logf("%s from %s: %s", what, o.DB.Service(), report.Summary())
	checker.Require(t, report, window)
}

// Type is an aggregate type that has a topic.
func (o *Outbox) Type() string { return o.types[0] }
