// Package e2e runs the real binary between real databases and a real Kafka and
// lets the checker judge what arrived.
//
// Tests that stop or kill a shared service, or throw its log away, are not
// parallel: the go tool runs them before the others, one after the other.
package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
	"github.com/outboxd/outboxd/test/load"
)

func TestMain(m *testing.M) { harness.Main(m) }

// scene is one application with its database, its topics and its connector.
type scene struct {
	stage
	t      *testing.T
	db     harness.Database
	table  checker.Table
	types  []string
	topics []string
	tail   *harness.Tail
	dir    string            // the connector's working folder: a checkpoint file stays there
	level  checker.Isolation // of those who read the topics
	env    map[string]string // what every start of the connector gets
	saves  *harness.Tail     // of the checkpoint topic, once it was needed
}

const (
	partitions     = 6
	checkpointFile = "outboxd.checkpoint"
)

// newScene makes a database with an empty outbox, and names for topics.
func newScene(t *testing.T, at stage) *scene {
	t.Helper()
	s := &scene{stage: at, t: t, db: harness.NewDatabase(t, at.service), table: at.shape.Checker(), dir: t.TempDir()}
	s.db.CreateOutbox(t, at.shape)
	for _, name := range []string{"order-", "invoice-"} {
		s.types = append(s.types, harness.Unique(name))
		s.topics = append(s.topics, "outbox.event."+s.types[len(s.types)-1])
	}
	s.env = map[string]string{
		"OUTBOXD_SOURCE_URL":    s.db.URL("cdc"),
		"OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(t), ","),
		"OUTBOXD_CHECKPOINT":    "file:" + checkpointFile,
	}
	if at.store == inTopic {
		s.env["OUTBOXD_CHECKPOINT"] = "kafka:" + harness.Unique("checkpoints-")
		harness.DeleteTopicsLater(t, s.checkpoints())
	}
	return s
}

// checkpoints is the checkpoint topic.
func (s *scene) checkpoints() string {
	return strings.TrimPrefix(s.env["OUTBOXD_CHECKPOINT"], "kafka:")
}

// withTopics makes the scene's topics and follows them.
func (s *scene) withTopics() *scene {
	s.t.Helper()
	harness.CreateTopics(s.t, partitions, s.topics...)
	s.tail = harness.FollowAt(s.t, s.level, s.topics...)
	return s
}

// exactlyOnce makes the scene's connector deliver exactly once, for readers of
// what is committed. It comes before withTopics.
func (s *scene) exactlyOnce() *scene {
	s.level = checker.Committed
	s.env["OUTBOXD_DELIVERY"] = "exactly-once"
	s.env["OUTBOXD_NAME"] = harness.Unique("once-") // the transactional id, which all of Kafka shares
	if s.store == inFile {
		s.store = inTopic
		s.env["OUTBOXD_CHECKPOINT"] = "kafka:" + harness.Unique("checkpoints-")
		harness.DeleteTopicsLater(s.t, s.checkpoints())
	}
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

func (s *scene) load() load.Config {
	return load.Config{Types: s.types, Table: s.shape.Load(), Dialect: s.db.Dialect()}
}

// commit has the application commit n events.
func (s *scene) commit(n int) {
	s.t.Helper()
	cfg := s.load()
	cfg.Events = n
	if _, err := load.Run(s.t.Context(), s.db.SQL(), cfg); err != nil {
		s.t.Fatalf("load: %v", err)
	}
}

// commitAtOnce has the application commit n events in one transaction.
func (s *scene) commitAtOnce(n int) {
	s.t.Helper()
	cfg := s.load()
	cfg.Events, cfg.Together = n, true
	if _, err := load.Run(s.t.Context(), s.db.SQL(), cfg); err != nil {
		s.t.Fatalf("load: %v", err)
	}
}

// committing has the application commit until the load is stopped.
func (s *scene) committing(perSecond int) *load.Load {
	s.t.Helper()
	cfg := s.load()
	cfg.PerSecond, cfg.Faults = perSecond, true
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

// more waits until n more records were seen.
func (s *scene) more(n int) {
	s.t.Helper()
	records, _ := s.tail.Counts()
	s.tail.WaitRecords(s.t, records+n)
}

// saved waits until the checkpoint was saved n more times and returns at once.
func (s *scene) saved(n int) {
	s.t.Helper()
	if s.store == inTopic {
		before := len(harness.Records(s.t, s.checkpoints()))
		if s.saves == nil {
			s.saves = harness.Follow(s.t, s.checkpoints())
		}
		s.saves.WaitRecords(s.t, before+n)
		return
	}
	path := filepath.Join(s.dir, checkpointFile)
	at := func() time.Time {
		info, err := os.Stat(path)
		if err != nil {
			s.t.Fatal(err)
		}
		return info.ModTime()
	}
	late := time.Now().Add(harness.Patience)
	for last := at(); n > 0; {
		if now := at(); !now.Equal(last) {
			last = now
			n--
		}
		if time.Now().After(late) {
			s.t.Fatalf("%s is not saved any more", path)
		}
	}
}

// truth is every committed event.
func (s *scene) truth() []checker.Event {
	s.t.Helper()
	return s.db.Truth(s.t, s.table)
}

// delivered waits until every committed event was seen in Kafka.
func (s *scene) delivered() {
	s.t.Helper()
	s.tail.WaitEvents(s.t, len(s.truth()))
}

// judge compares the table with the topics and prints the one line per fault.
func (s *scene) judge(what string) *checker.Report {
	s.t.Helper()
	return s.compare(what, s.truth())
}

func (s *scene) compare(what string, truth []checker.Event) *checker.Report {
	s.t.Helper()
	report := checker.Check(truth, harness.RecordsAt(s.t, s.level, s.topics...))
	s.t.Logf("%s on %s: %s", what, s.stage, report.Summary())
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

// exec runs a statement as the administrator.
func (s *scene) exec(statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.SQL().ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%.80s: %v", statement, err)
	}
}
