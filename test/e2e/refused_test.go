package e2e

import (
	"cmp"
	"maps"
	"strings"
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

// refusal is a first start that ends with exit code 2, or another one.
type refusal struct {
	name     string
	prepare  func(s *scene)
	settings []string
	exit     int
	texts    []string // the code, then what the last line holds
}

func (c refusal) check(t *testing.T, at stage) {
	t.Run(c.name+"/"+at.service, func(t *testing.T) {
		t.Parallel()
		s := newScene(t, at)
		if c.prepare != nil {
			c.prepare(s)
		}
		refused(t, s.start(c.settings...), cmp.Or(c.exit, 2), c.texts...)
	})
}

// redirect changes the database in the URL to one that does not exist, and returns its name.
func (s *scene) redirect() string {
	url := s.env["OUTBOXD_SOURCE_URL"]
	slash := strings.LastIndexByte(url, '/')
	absent := strings.Replace(url[slash+1:], "test_", "absent_", 1)
	s.env["OUTBOXD_SOURCE_URL"] = url[:slash+1] + absent
	return absent
}

// What any server refuses at the start ends the process with exit code 2.
func TestRefusedByTheDatabase(t *testing.T) {
	t.Parallel()
	for _, c := range []refusal{
		{name: "wrong password", settings: []string{"OUTBOXD_SOURCE_PASSWORD=wrong"}, texts: []string{"access_denied"}},
		{name: "no such user", settings: []string{"OUTBOXD_SOURCE_USER=nobody-here"}, texts: []string{"access_denied"}},
		{name: "no such table", settings: []string{"OUTBOXD_TABLES=orders_outbox"}, texts: []string{"table_missing", "orders_outbox"}},
		{name: "columns that don't fit", prepare: func(s *scene) {
			s.exec("CREATE TABLE letters (id INT PRIMARY KEY, body TEXT)")
			if s.postgres() {
				s.exec("ALTER TABLE letters OWNER TO cdc")
			}
		}, settings: []string{"OUTBOXD_TABLES=letters"}, texts: []string{"table_unusable", "letters"}},
		{name: "a view", prepare: func(s *scene) {
			s.exec("CREATE VIEW seen AS SELECT * FROM outbox")
		}, settings: []string{"OUTBOXD_TABLES=seen"}, texts: []string{"table_unusable", "seen"}},
		{name: "nothing saved and resume asked for", settings: []string{"OUTBOXD_START=resume"}, exit: 3, texts: []string{"position_lost"}},
	} {
		for _, at := range families(2) {
			c.check(t, at)
		}
	}
}

func TestRefusedByPostgres(t *testing.T) {
	t.Parallel()
	postgres := func(s *scene) *harness.Postgres { return s.db.(*harness.Postgres) }
	for _, c := range []refusal{
		{name: "no such database", prepare: func(s *scene) { s.redirect() }, texts: []string{"config_invalid", "absent_"}},
		{name: "no right to replicate", prepare: func(s *scene) {
			s.exec("GRANT ALL ON DATABASE " + postgres(s).Name + " TO norights")
			s.exec("GRANT SELECT ON outbox TO norights")
			s.env["OUTBOXD_SOURCE_URL"] = s.db.URL("norights")
		}, texts: []string{"grant_missing", "REPLICATION"}},
		{name: "table of somebody else", prepare: func(s *scene) {
			s.exec("ALTER TABLE outbox OWNER TO postgres")
			s.exec("GRANT SELECT ON outbox TO cdc")
		}, texts: []string{"grant_missing", "PUBLICATION"}},
		{name: "no right to read", prepare: func(s *scene) {
			s.exec("ALTER TABLE outbox OWNER TO postgres")
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
			s.exec("CREATE TABLE other (id INT)")
			s.exec("CREATE PUBLICATION taken FOR TABLE other")
			s.env["OUTBOXD_POSTGRES_PUBLICATION"] = "taken"
		}, texts: []string{"name_taken", "taken"}},
		{name: "set-up asked not to", settings: []string{"OUTBOXD_AUTO_SETUP=false"}, texts: []string{"setup_needed", "CREATE PUBLICATION"}},
	} {
		c.check(t, on("postgres16"))
	}
}

func TestRefusedByMySQL(t *testing.T) {
	t.Parallel()
	account := func(s *scene) string { return s.db.(*harness.MySQL).Name }
	for _, c := range []refusal{
		{name: "no such database", prepare: func(s *scene) {
			s.exec("GRANT SELECT ON " + s.redirect() + ".* TO " + account(s))
		}, texts: []string{"table_missing", "absent_"}},
		{name: "no rights at all", prepare: func(s *scene) {
			s.env["OUTBOXD_SOURCE_URL"] = s.db.URL("norights")
		}, texts: []string{"grant_missing", "GRANT SELECT", "outbox", "norights"}},
		{name: "no right to read", prepare: func(s *scene) {
			s.exec("REVOKE SELECT ON " + account(s) + ".* FROM " + account(s))
			s.exec("CREATE TABLE other (id INT)")
			s.exec("GRANT SELECT ON other TO " + account(s))
		}, texts: []string{"grant_missing", "GRANT SELECT", "outbox"}},
		{name: "no right to replicate", prepare: func(s *scene) {
			s.exec("REVOKE REPLICATION SLAVE ON *.* FROM " + account(s))
		}, texts: []string{"grant_missing", "GRANT REPLICATION SLAVE ON *.* TO", "test_"}},
		{name: "no right to see the log's end", prepare: func(s *scene) {
			right := "REPLICATION CLIENT"
			if strings.HasPrefix(s.service, "mariadb") {
				right = "BINLOG MONITOR"
			}
			s.exec("REVOKE " + right + " ON *.* FROM " + account(s))
		}, texts: []string{"grant_missing", "GRANT ", " ON *.* TO"}},
		{name: "GTIDs asked for and off", prepare: func(s *scene) {
			s.env["OUTBOXD_MYSQL_POSITION"] = "gtid"
		}, texts: []string{"server_setting", "gtid_mode"}},
		{name: "no such TLS authority", prepare: func(s *scene) {
			s.env["OUTBOXD_SOURCE_URL"] += "?ssl-mode=VERIFY_CA&ssl-ca=absent.pem"
		}, texts: []string{"config_invalid", "absent.pem"}},
	} {
		for _, service := range []string{"mysql", "mysql-nogtid", "mariadb118"} {
			if c.name != "GTIDs asked for and off" || service == "mysql-nogtid" {
				c.check(t, on(service))
			}
		}
	}
}

// Servers that were not set up for this are told what to set.
func TestServerSettings(t *testing.T) {
	t.Run("wal_level", func(t *testing.T) {
		const service = "postgres15-replica"
		harness.Ctl(t, "start", service)
		t.Cleanup(func() { harness.Ctl(t, "stop", service) })
		s := newScene(t, on(service))
		refused(t, s.start(), 2, "server_setting", "wal_level", "logical")
	})
	t.Run("log_bin", func(t *testing.T) {
		s := newScene(t, on("mysql-nobinlog"))
		refused(t, s.start(), 2, "server_setting", "log_bin")
	})
}

// Rows that are there before the first start need a choice, and the choice works.
func TestStartNeedsChoice(t *testing.T) {
	eachParallel(t, families(1), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.commit(50)
		refused(t, s.start(), 2, "start_choice_needed", "OUTBOXD_START=snapshot", "OUTBOXD_START=now")
		before := s.truth()
		p := s.active("OUTBOXD_START=now")
		s.commit(50)
		s.tail.WaitEvents(t, 50)
		p.Stop(t)
		checker.Require(t, s.compare("started at now", without(s.truth(), before)), 0)
	})
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
	s := newScene(t, on("postgres17")).withTopics()
	s.once(50)
	s.exec("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
	s.commit(50)
	s.lost("slot")
}

// The same where the log itself was thrown away.
func TestLogPurged(t *testing.T) {
	each(t, everywhere(1)[4:], func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.once(50)
		s.commit(50)
		s.db.(*harness.MySQL).PurgeLogs(t)
		s.lost("purged")
	})
}

// once runs the connector for n events and stops it.
func (s *scene) once(n int) {
	s.t.Helper()
	p := s.active()
	s.commit(n)
	s.delivered()
	p.Stop(s.t)
}

// lost wants that the connector, which delivered 50 events, starts no more, whatever it is told.
func (s *scene) lost(texts ...string) {
	s.t.Helper()
	for _, start := range []string{"auto", "now", "resume"} {
		refused(s.t, s.start("OUTBOXD_START="+start), 3, append([]string{"position_lost"}, texts...)...)
	}
	if records, _ := s.tail.Counts(); records != 50 {
		s.t.Errorf("%d records, want the 50 of before", records)
	}
}

// A database that can't be reached is waited for, until the limit if there is one.
func TestDatabaseAbsentAtStart(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql"} {
		env := map[string]string{
			"OUTBOXD_SOURCE_URL":    scheme + "://cdc:cdc-pw@" + harness.FreeAddr(t) + "/shop",
			"OUTBOXD_KAFKA_BROKERS": harness.FreeAddr(t),
		}
		t.Run(scheme+"/stopped while waiting", func(t *testing.T) {
			t.Parallel()
			p := harness.Start(t, harness.Command{Env: env})
			p.WaitCode(t, "/readyz", 503)
			p.WaitCode(t, "/livez", 200)
			p.Stop(t)
		})
		t.Run(scheme+"/limit reached", func(t *testing.T) {
			t.Parallel()
			limited := maps.Clone(env)
			limited["OUTBOXD_START_TIMEOUT"] = "1s"
			refused(t, harness.Start(t, harness.Command{Env: limited}), 1, "start_timeout")
		})
	}
}

// Kafka refuses one event. Starts against it send no other event more than once
// again, and skipping it by its id lets everything else go on.
func TestRefusedByKafka(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		at.shape = harness.Plain
		s := newScene(t, at)
		for _, topic := range s.topics {
			harness.CreateTopic(t, topic, partitions, map[string]string{"max.message.bytes": "20000"})
		}
		s.tail = harness.Follow(t, s.topics...)
		s.env["OUTBOXD_KAFKA_COMPRESSION"] = "none"
		p := s.active()
		s.commit(100)
		before := s.truth()
		s.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('" + s.types[0] +
			`', 'large', 'large', '{"seq": 1, "fill": "` + strings.Repeat("x", 30000) + `"}')`)
		large := without(s.truth(), before)[0]
		s.commit(100)
		refused(t, p, 4, "event_refused", "too_large", string(large.ID), "outbox")
		for range harness.Times(3, 20) {
			refused(t, s.start(), 4, "event_refused", "too_large", string(large.ID))
		}
		copies := map[string]int{}
		for _, r := range harness.Records(t, s.topics...) {
			for _, h := range r.Headers {
				if h.Name == "id" {
					copies[r.Topic+string(h.Value)]++
				}
			}
		}
		for id, n := range copies {
			if n > 2 {
				t.Errorf("event %s is there %d times", id, n)
			}
		}
		s.run(2, "skip", "--yes", "--id", "another")
		s.run(0, "skip", "--yes", "--id", string(large.ID), "--reason", "a test")
		p = s.active()
		rest := without(s.truth(), []checker.Event{large})
		s.tail.WaitEvents(t, len(rest))
		p.Stop(t)
		checker.Require(t, s.compare("refused by Kafka and skipped", rest), 200)
	})
}

// OUTBOXD_ON_REJECT=skip leaves out what Kafka refuses, wherever it stands, also
// as the very first event, and nothing else.
func TestSkipsWhatIsRefused(t *testing.T) {
	eachParallel(t, []stage{{"postgres17", inTopic, harness.Plain}, on("mysql")}, func(t *testing.T, at stage) {
		for _, once := range []bool{false, true} {
			s := newScene(t, at)
			if once {
				s.exactlyOnce()
			}
			for _, topic := range s.topics {
				harness.CreateTopic(t, topic, partitions, map[string]string{"max.message.bytes": "20000"})
			}
			s.tail = harness.FollowAt(t, s.level, s.topics...)
			s.env["OUTBOXD_KAFKA_COMPRESSION"], s.env["OUTBOXD_ON_REJECT"] = "none", "skip"
			p := s.active()
			var bad []checker.Event
			poison := func(size int) {
				before := s.truth()
				s.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('" + s.types[0] +
					`', 'large', 'large', '{"seq": 1, "fill": "` + strings.Repeat("x", size) + `"}')`)
				bad = append(bad, without(s.truth(), before)...)
			}
			poison(30_000)
			s.commit(200)
			poison(2 << 20) // above OUTBOXD_KAFKA_MAX_MESSAGE_BYTES too
			s.commit(200)
			poison(30_000)
			if !once {
				p.Kill()
				p = s.active()
			}
			s.commit(200)
			rest := without(s.truth(), bad)
			s.tail.WaitEvents(t, len(rest))
			p.Stop(t)
			repeats := 600
			if once {
				repeats = 0
			}
			checker.Require(t, s.compare("refused events skipped", rest), repeats)
		}
	})
}
