// Package e2e runs the real binary between real databases and a real Kafka and
// lets the checker judge what arrived.
//
// Tests that stop or kill a shared service are not parallel: the go tool runs
// them before the others, one after the other.
package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
	"github.com/outboxd/outboxd/test/load"
)

func TestMain(m *testing.M) { harness.Main(m) }

// services are the databases that everything about delivery is shown on.
var services = []string{"postgres15", "postgres16", "postgres17", "postgres18"}

// scene is one application with its database, its topics and its connector.
type scene struct {
	t      *testing.T
	db     harness.Database
	shape  harness.Shape
	types  []string
	topics []string
	tail   *harness.Tail
	dir    string            // the connector's working folder: its checkpoint stays there
	env    map[string]string // what every start of the connector gets
}

const partitions = 6

// newScene makes a database with an empty outbox, and topics.
func newScene(t *testing.T, service string, shape harness.Shape) *scene {
	t.Helper()
	s := &scene{t: t, db: harness.NewDatabase(t, service), shape: shape, dir: t.TempDir()}
	s.db.CreateOutbox(t, shape)
	for _, name := range []string{"order-", "invoice-"} {
		s.types = append(s.types, harness.Unique(name))
		s.topics = append(s.topics, "outbox.event."+s.types[len(s.types)-1])
	}
	s.env = map[string]string{
		"OUTBOXD_SOURCE_URL":    s.db.URL("cdc"),
		"OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(t), ","),
	}
	return s
}

// withTopics makes the scene's topics and follows them.
func (s *scene) withTopics() *scene {
	s.t.Helper()
	harness.CreateTopics(s.t, partitions, s.topics...)
	s.tail = harness.Follow(s.t, s.topics...)
	return s
}

// smallWindow bounds what a crash may repeat to window events.
func (s *scene) smallWindow() *scene {
	s.env["OUTBOXD_CHECKPOINT_MAX_EVENTS"] = "100"
	s.env["OUTBOXD_BUFFER_EVENTS"] = "400"
	return s
}

// window is what one crash may repeat after smallWindow: events delivered and
// not saved, events in flight, and the rest of a transaction at either end.
const window = 100 + 400 + 2*load.MaxTransaction

// command is the connector's with "NAME=value" settings on top.
func (s *scene) command(settings ...string) harness.Command {
	env := maps.Clone(s.env)
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		env[name] = value
	}
	return harness.Command{Env: env, Dir: s.dir}
}

// start starts the connector.
func (s *scene) start(settings ...string) *harness.Process {
	s.t.Helper()
	return harness.Start(s.t, s.command(settings...))
}

// active starts the connector and waits until it reads the log.
func (s *scene) active(settings ...string) *harness.Process {
	s.t.Helper()
	p := s.start(settings...)
	p.WaitActive(s.t)
	return p
}

// commit has the application commit n events.
func (s *scene) commit(n int) {
	s.t.Helper()
	if _, err := load.Run(s.t.Context(), s.db.SQL(), load.Config{Events: n, Types: s.types, Table: s.shape.Load()}); err != nil {
		s.t.Fatalf("load: %v", err)
	}
}

// committing has the application commit until the load is stopped.
func (s *scene) committing(perSecond int) *load.Load {
	s.t.Helper()
	cfg := load.Config{PerSecond: perSecond, Types: s.types, Table: s.shape.Load(), Faults: true}
	l, err := load.Start(s.t.Context(), s.db.SQL(), cfg)
	if err != nil {
		s.t.Fatalf("load: %v", err)
	}
	s.t.Cleanup(func() { _, _ = l.Stop() })
	return l
}

// end ends a load.
func (s *scene) end(l *load.Load) {
	s.t.Helper()
	if _, err := l.Stop(); err != nil {
		s.t.Fatalf("load: %v", err)
	}
}

// delivered waits until every committed event was seen in Kafka.
func (s *scene) delivered() {
	s.t.Helper()
	s.tail.WaitEvents(s.t, len(s.db.Truth(s.t, s.shape)))
}

// judge compares the table with the topics and prints the one line per fault.
func (s *scene) judge(what string) *checker.Report {
	s.t.Helper()
	report := checker.Check(s.db.Truth(s.t, s.shape), harness.Records(s.t, s.topics...))
	s.t.Logf("%s on %s: %s", what, s.db.Service(), report.Summary())
	return report
}

// finish waits for what was committed, stops the connector, and judges: sound
// and with at most window repeats.
func (s *scene) finish(p *harness.Process, what string, window int) {
	s.t.Helper()
	s.delivered()
	p.Stop(s.t)
	checker.Require(s.t, s.judge(what), window)
}
