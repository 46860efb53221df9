package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// run runs one command to its end and returns what it printed.
func (s *scene) run(want int, args ...string) string {
	s.t.Helper()
	c := s.command()
	c.Args = args
	p := harness.Start(s.t, c)
	if code := p.Wait(s.t); code != want {
		s.t.Errorf("%s: exit code %d, want %d\n%s", strings.Join(args, " "), code, want, p.Stdout()+p.Log())
	}
	return p.Stdout()
}

// The way a team takes that gives the connector no rights to make anything.
func TestSetupThenRun(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17"))
	harness.DeleteTopicsLater(t, s.topics...)
	s.env["OUTBOXD_AUTO_SETUP"] = "false"
	if out := s.run(2, "check"); !strings.Contains(out, "FAIL") || !strings.Contains(out, "fix:") {
		t.Errorf("check before the set-up prints no fix:\n%s", out)
	}
	if out := s.run(0, "setup", "--dry-run", "--start", "now", "--topics", strings.Join(s.topics, ",")); !strings.Contains(out, "CREATE PUBLICATION") || !strings.Contains(out, "kafka-topics.sh") {
		t.Errorf("a dry run prints no SQL, or no command:\n%s", out)
	}
	s.run(2, "check") // nothing was made
	for range 2 {     // it may be repeated
		s.run(0, "setup", "--yes", "--start", "now", "--topics", strings.Join(s.topics, ","))
	}
	s.run(0, "check")
	s.tail = harness.Follow(t, s.topics...)
	s.commit(50) // committed before the first run: the place is there already
	p := s.active()
	s.commit(50)
	s.delivered()
	s.run(0, "check") // safe beside a running instance
	s.finish(p, "set up by command", 0)
}

// OUTBOXD_START=auto looks for rows: check tells of the rights for that before
// run needs them, and what it tells to do is enough.
func TestCheckTriesToRead(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17"))
	s.exec("CREATE SCHEMA hidden")
	s.exec("ALTER TABLE outbox OWNER TO postgres")
	s.exec("ALTER TABLE outbox SET SCHEMA hidden")
	s.exec("CREATE PUBLICATION given FOR TABLE hidden.outbox")
	s.env["OUTBOXD_POSTGRES_PUBLICATION"] = "given"
	fix := s.fix(s.run(2, "check"), "pg.select")
	if !strings.Contains(fix, "GRANT USAGE ON SCHEMA") || !strings.Contains(fix, "GRANT SELECT ON") {
		t.Errorf("fix: %s", fix)
	}
	refused(t, s.start(), 2, "grant_missing", fix[:20])
	s.env["OUTBOXD_START"] = "now" // nobody looks then
	s.run(0, "check")
	s.env["OUTBOXD_START"] = "auto"
	s.exec(fix)
	s.run(0, "check")
	s.active().Stop(t)
}

// Addresses that lead to the wrong server: check says where to look.
func TestCheckOfMixedUpAddresses(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage{"postgres17", inTopic, harness.Plain})
	broker := s.env["OUTBOXD_KAFKA_BROKERS"]
	s.env["OUTBOXD_KAFKA_BROKERS"] = s.db.Addr()
	out := s.run(2, "check")
	for _, id := range []string{"kafka.reachable", "kafka.checkpoint_topic"} {
		if fix := s.fix(out, id); !strings.Contains(fix, "OUTBOXD_KAFKA_BROKERS") {
			t.Errorf("%s, fix: %s", id, fix)
		}
	}
	for scheme, id := range map[string]string{"postgres": "pg.reachable", "mysql": "mysql.reachable"} {
		s.env["OUTBOXD_SOURCE_URL"] = scheme + "://cdc:cdc-pw@" + broker + "/shop"
		if fix := s.fix(s.run(2, "check"), id); !strings.Contains(fix, "OUTBOXD_SOURCE_URL") {
			t.Errorf("%s, fix: %s", id, fix)
		}
	}
}

// fix gives the fix of a line of check's result that failed.
func (s *scene) fix(result, id string) string {
	s.t.Helper()
	_, after, failed := strings.Cut(result, "FAIL "+id)
	lines := strings.Split(after, "\n")
	if !failed || len(lines) < 2 || !strings.Contains(lines[1], "fix: ") {
		s.t.Fatalf("check prints no fix for %s:\n%s", id, result)
	}
	return strings.TrimPrefix(strings.TrimSpace(lines[1]), "fix: ")
}

func TestCheckpointCommand(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		if out := s.run(0, "checkpoint", "show"); !strings.Contains(out, "nothing was ever saved") {
			t.Errorf("before the first start: %s", out)
		}
		s.once(10)
		var shown map[string]any
		if err := json.Unmarshal([]byte(s.run(0, "checkpoint", "show", "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		if shown["position"] == "" || shown["intent"] != false {
			t.Errorf("checkpoint show: %v", shown)
		}
		s.run(2, "checkpoint", "delete") // asks, and nobody can answer
		s.run(0, "checkpoint", "delete", "--yes")
		if out := s.run(0, "checkpoint", "show"); !strings.Contains(out, "nothing was ever saved") {
			t.Errorf("after delete: %s", out)
		}
	})
}

// Right after a broker's start nobody answers for a moment: the command waits for it.
func TestCheckpointShowWaitsForTheBroker(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage{"mysql", inTopic, harness.Plain}).withTopics()
	s.once(10)
	proxy, err := faultproxy.New(harness.Brokers(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	proxy.Refuse()
	c := s.command("OUTBOXD_KAFKA_BROKERS=" + proxy.Addr())
	c.Args = []string{"checkpoint", "show"}
	p := harness.Start(t, c)
	harness.Eventually(t, "it tries more than once", func() bool { return proxy.Connects() > 1 })
	proxy.Heal()
	if code := p.Wait(t); code != 0 || !strings.Contains(p.Stdout(), "position") {
		t.Errorf("exit code %d: %s", code, p.Stdout()+p.Log())
	}
}

// A server that is away is named by the commands, with where to look.
func TestCommandsWithoutAServer(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at)
		copied := "file:copied.checkpoint"
		for _, c := range []struct {
			away string // the setting that names nobody
			args []string
		}{
			{"OUTBOXD_SOURCE_URL", []string{"setup", "--yes"}},
			{"OUTBOXD_SOURCE_URL", []string{"checkpoint", "delete", "--yes"}},
			{"OUTBOXD_SOURCE_URL", []string{"checkpoint", "copy", "--to", copied}},
			{"OUTBOXD_KAFKA_BROKERS", []string{"setup", "--yes", "--topics", s.topics[0]}},
		} {
			value := harness.FreeAddr(t)
			if c.away == "OUTBOXD_SOURCE_URL" {
				value = strings.Replace(s.env[c.away], s.db.Addr(), value, 1)
			}
			command := s.command(c.away + "=" + value)
			command.Args = c.args
			refused(t, harness.Start(t, command), 1, "not_reached", c.away)
		}
	})
}

func TestVersionAndUnknownCommand(t *testing.T) {
	t.Parallel()
	version := harness.Start(t, harness.Command{Args: []string{"version"}})
	if code := version.Wait(t); code != 0 || !strings.HasPrefix(version.Stdout(), "outboxd ") {
		t.Errorf("version: %d, %q", code, version.Stdout())
	}
	for _, c := range []struct {
		args  []string
		found string
	}{{[]string{"parked"}, "parked is not there yet"}, {[]string{"frobnicate"}, "no command"}, {[]string{"run", "now"}, "one argument too many"}} {
		refused(t, harness.Start(t, harness.Command{Args: c.args}), 2, "config_invalid", c.found)
	}
}

// The checkpoint moves from file to Kafka and back, and nothing is repeated.
func TestCheckpointCopy(t *testing.T) {
	eachParallel(t, families(2), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		topic := harness.Unique("copied-")
		harness.DeleteTopicsLater(t, topic)
		first := s.env["OUTBOXD_CHECKPOINT"]
		stores := []string{first, "kafka:" + topic, "file:copied.checkpoint", first}
		for i, store := range stores {
			s.env["OUTBOXD_CHECKPOINT"] = store
			p := s.active()
			s.commit(100)
			s.delivered()
			if i == len(stores)-1 {
				s.finish(p, "checkpoint copied", 0)
				return
			}
			next := stores[i+1]
			if out := s.run(2, "checkpoint", "copy", "--to", next); strings.Contains(out, "copied") {
				t.Errorf("copied beside a running instance: %s", out)
			}
			p.Stop(t)
			s.commit(50)
			args := []string{"checkpoint", "copy", "--to", next}
			if next == first { // an older place is there
				s.run(2, args...)
				args = append(args, "--yes")
			}
			if out := s.run(0, args...); !strings.Contains(out, next) {
				t.Errorf("copy to %s: %s", next, out)
			}
			if out := s.run(0, args...); !strings.Contains(out, "already") {
				t.Errorf("copy to %s once more: %s", next, out)
			}
		}
	})
}

// The position is set back by hand, and what was committed since comes once more; a place that is gone is refused.
func TestCheckpointSet(t *testing.T) {
	eachParallel(t, []stage{{"postgres18", inTopic, harness.Plain}, on("postgres15"), on("mysql")}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.once(20)
		show := func() (shown struct{ Position string }) {
			if err := json.Unmarshal([]byte(s.run(0, "checkpoint", "show", "--json")), &shown); err != nil {
				t.Fatal(err)
			}
			return shown
		}
		place := show().Position
		s.run(2, "checkpoint", "set", "--to", place) // asks, and nobody can answer
		s.run(2, "checkpoint", "set", "--to", "yesterday", "--yes")
		s.commit(20)
		p := s.active()
		if out := s.run(2, "checkpoint", "set", "--to", place, "--yes"); out != "" {
			t.Errorf("set beside a running instance: %s", out)
		}
		s.delivered()
		p.Stop(t)
		if at.postgres() { // the slot lets go of it
			harness.Eventually(t, "the slot is moved", func() bool {
				_, err := s.db.SQL().ExecContext(t.Context(), "SELECT pg_replication_slot_advance(slot_name, pg_current_wal_lsn()) FROM pg_replication_slots WHERE database = current_database()")
				return err == nil
			})
			s.run(3, "checkpoint", "set", "--to", place, "--yes")
			s.run(0, "checkpoint", "delete", "--yes")
			place = s.text("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()")
		}
		if out := s.run(0, "checkpoint", "set", "--to", place, "--reason", "as a test", "--yes"); !strings.Contains(out, show().Position) {
			t.Errorf("set: %s", out)
		}
		p = s.active()
		s.commit(20)
		s.finish(p, "checkpoint set", 20)
	})
}

// text is what a query gives as the administrator sees it.
func (s *scene) text(query string) (text string) {
	s.t.Helper()
	if err := s.db.SQL().QueryRowContext(s.t.Context(), query).Scan(&text); err != nil {
		s.t.Fatalf("%.80s: %v", query, err)
	}
	return text
}
