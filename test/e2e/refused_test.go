package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// refused starts the connector and wants it to end with that exit code, and
// with a last log line that holds each of the texts: first the stable code, then what an operator needs.
func refused(t *testing.T, p *harness.Process, exit int, texts ...string) {
	t.Helper()
	if code := p.Wait(t); code != exit {
		t.Errorf("exit code %d, want %d", code, exit)
	}
	lines := p.Lines()
	if len(lines) == 0 {
		t.Fatal("nothing was logged")
	}
	last := lines[len(lines)-1]
	if last.Fields == nil {
		t.Errorf("the last line is no JSON: %s", last.Text)
	}
	if code, _ := last.Fields["code"].(string); code != texts[0] {
		t.Errorf("the last line has code %q, want %q", code, texts[0])
	}
	if fix, _ := last.Fields["fix"].(string); fix == "" {
		t.Error("the last line does not say what to do")
	}
	for _, text := range texts[1:] {
		if !strings.Contains(last.Text, text) {
			t.Errorf("the last line does not hold %q: %s", text, last.Text)
		}
	}
}

// What a server refuses at the start ends the process with exit code 2.
func TestRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	postgres := func(s *scene) *harness.Postgres { return s.db.(*harness.Postgres) }
	for _, c := range []struct {
		name     string
		prepare  func(s *scene)
		settings []string
		texts    []string
	}{
		{name: "wrong password", settings: []string{"OUTBOXD_SOURCE_PASSWORD=wrong"}, texts: []string{"access_denied"}},
		{name: "no such user", settings: []string{"OUTBOXD_SOURCE_USER=nobody-here"}, texts: []string{"access_denied"}},
		{name: "no such database", prepare: func(s *scene) {
			s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], "/test_", "/absent_", 1)
		}, texts: []string{"config_invalid", "absent_"}},
		{name: "no such table", settings: []string{"OUTBOXD_TABLES=shop.orders_outbox"}, texts: []string{"table_missing", "orders_outbox", "test_"}},
		{name: "columns that don't fit", prepare: func(s *scene) {
			exec(s, "CREATE TABLE letters (id INT PRIMARY KEY, body TEXT)")
			exec(s, "ALTER TABLE letters OWNER TO cdc")
		}, settings: []string{"OUTBOXD_TABLES=letters"}, texts: []string{"table_unusable", "letters"}},
		{name: "a view", prepare: func(s *scene) {
			exec(s, "CREATE VIEW seen AS SELECT * FROM outbox")
		}, settings: []string{"OUTBOXD_TABLES=seen"}, texts: []string{"table_unusable", "seen"}},
		{name: "no right to replicate", prepare: func(s *scene) {
			exec(s, "GRANT ALL ON DATABASE "+postgres(s).Name+" TO norights")
			exec(s, "GRANT SELECT ON outbox TO norights")
			s.env["OUTBOXD_SOURCE_URL"] = s.db.URL("norights")
		}, texts: []string{"grant_missing", "REPLICATION"}},
		{name: "table of somebody else", prepare: func(s *scene) {
			exec(s, "ALTER TABLE outbox OWNER TO postgres")
			exec(s, "GRANT SELECT ON outbox TO cdc")
		}, texts: []string{"grant_missing", "PUBLICATION"}},
		{name: "no right to read", prepare: func(s *scene) {
			exec(s, "ALTER TABLE outbox OWNER TO postgres")
		}, texts: []string{"grant_missing", "GRANT SELECT", "outbox"}},
		{name: "slot of another database", prepare: func(s *scene) {
			other := harness.NewPostgres(s.t, s.db.Service())
			other.Exec(s.t, "SELECT pg_create_logical_replication_slot($1, 'pgoutput')", other.Name)
			s.env["OUTBOXD_POSTGRES_SLOT"] = other.Name
		}, texts: []string{"name_taken", "test_"}},
		{name: "slot of another plugin", prepare: func(s *scene) {
			postgres(s).Exec(s.t, "SELECT pg_create_logical_replication_slot($1, 'test_decoding')", postgres(s).Name)
			s.env["OUTBOXD_POSTGRES_SLOT"] = postgres(s).Name
		}, texts: []string{"name_taken", "test_decoding"}},
		{name: "publication of another table", prepare: func(s *scene) {
			exec(s, "CREATE TABLE other (id INT)")
			exec(s, "CREATE PUBLICATION taken FOR TABLE other")
			s.env["OUTBOXD_POSTGRES_PUBLICATION"] = "taken"
		}, texts: []string{"name_taken", "taken"}},
		{name: "set-up asked not to", settings: []string{"OUTBOXD_AUTO_SETUP=false"}, texts: []string{"setup_needed", "CREATE PUBLICATION"}},
		{name: "nothing saved and resume asked for", settings: []string{"OUTBOXD_START=resume"}, texts: []string{"position_lost"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "postgres16", harness.Plain)
			if c.prepare != nil {
				c.prepare(s)
			}
			exit := 2
			if c.texts[0] == "position_lost" {
				exit = 3
			}
			refused(t, s.start(c.settings...), exit, c.texts...)
		})
	}
}

// A server that was not set up for logical decoding is told what to set.
func TestWalLevel(t *testing.T) {
	const service = "postgres15-replica"
	harness.Ctl(t, "start", service)
	t.Cleanup(func() { harness.Ctl(t, "stop", service) })
	s := newScene(t, service, harness.Plain)
	refused(t, s.start(), 2, "server_setting", "wal_level", "logical")
}

// Rows that are there before the first start need a choice, and the choice works.
func TestStartNeedsChoice(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres15", harness.Plain).withTopics()
	s.commit(50)
	refused(t, s.start(), 2, "start_choice_needed", "OUTBOXD_START")
	refused(t, s.start("OUTBOXD_START=snapshot"), 2, "config_invalid", "OUTBOXD_START", "snapshot")
	before := s.db.Truth(t, s.shape)
	p := s.active("OUTBOXD_START=now")
	s.commit(50)
	s.tail.WaitEvents(t, 50)
	p.Stop(t)
	after := s.db.Truth(t, s.shape)
	report := checker.Check(without(after, before), harness.Records(t, s.topics...))
	t.Logf("started at now: %s", report.Summary())
	checker.Require(t, report, 0)
}

// without returns the events that are not in old.
func without(events, old []checker.Event) []checker.Event {
	known := make(map[string]bool)
	for _, e := range old {
		known[string(e.ID)] = true
	}
	var rest []checker.Event
	for _, e := range events {
		if !known[string(e.ID)] {
			rest = append(rest, e)
		}
	}
	return rest
}

// The slot behind a checkpoint is gone: what was committed meanwhile can't be read any more.
func TestSlotDropped(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres17", harness.Plain).withTopics()
	p := s.active()
	s.commit(50)
	s.delivered()
	p.Stop(t)
	exec(s, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
	s.commit(50)
	for _, start := range []string{"auto", "now", "resume"} {
		refused(t, s.start("OUTBOXD_START="+start), 3, "position_lost", "slot")
	}
	if records, _ := s.tail.Counts(); records != 50 {
		t.Errorf("%d records, want the 50 of before", records)
	}
}

// A database that can't be reached is waited for, until the limit if there is one.
func TestDatabaseAbsentAtStart(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"OUTBOXD_SOURCE_URL":    "postgres://cdc:cdc-pw@" + harness.FreeAddr(t) + "/shop",
		"OUTBOXD_KAFKA_BROKERS": harness.FreeAddr(t),
	}
	t.Run("stopped while waiting", func(t *testing.T) {
		t.Parallel()
		p := harness.Start(t, harness.Command{Env: env})
		p.WaitCode(t, "/readyz", 503)
		p.WaitCode(t, "/livez", 200)
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(t); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
	})
	t.Run("limit reached", func(t *testing.T) {
		t.Parallel()
		limited := map[string]string{"OUTBOXD_START_TIMEOUT": "1s"}
		for k, v := range env {
			limited[k] = v
		}
		refused(t, harness.Start(t, harness.Command{Env: limited}), 1, "start_timeout")
	})
}
