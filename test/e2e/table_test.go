package e2e

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// workers are the stages for tables that a worker marks: where the log names its columns, and where it doesn't.
var workers = []stage{
	{"mysql", inTopic, harness.Laravel}, {"mysql-nogtid", inFile, harness.Laravel},
	{"mariadb1011", inTopic, harness.Laravel}, {"mariadb118", inFile, harness.Laravel},
}

// A table without aggregates: the key is the event's id, with one warning, or
// a member of the payload.
func TestTableWithoutAggregates(t *testing.T) {
	eachParallel(t, workers, func(t *testing.T, at stage) {
		t.Run("key from the id", func(t *testing.T) {
			s := newScene(t, at)
			s.topics = s.topics[:1]
			s.table.Topic = s.topics[0]
			s.env["OUTBOXD_TOPIC"] = s.topics[0]
			s.withTopics()
			p := s.active()
			s.commit(500)
			s.finish(p, "no aggregates", 0)
			if n := warnings(p, "OUTBOXD_COLUMN_AGGREGATE_ID"); n != 1 {
				t.Errorf("%d warnings about the missing aggregate id, want 1", n)
			}
		})
		t.Run("key from the payload", func(t *testing.T) {
			s := newScene(t, at)
			s.topics = s.topics[:1]
			s.table.Topic, s.table.AggregateID = s.topics[0], "JSON_VALUE(payload, '$.order_id')"
			s.env["OUTBOXD_TOPIC"] = s.topics[0]
			s.env["OUTBOXD_COLUMN_AGGREGATE_ID"] = "payload:$.order_id"
			s.withTopics()
			p := s.active()
			s.commit(500)
			s.finish(p, "aggregate in the payload", 0)
			if n := warnings(p, ""); n != 0 {
				t.Errorf("%d warnings, want none", n)
			}
		})
	})
}

// warnings counts the warnings that hold text.
func warnings(p *harness.Process, text string) (n int) {
	for _, l := range p.Lines() {
		if l.Level == "warn" && strings.Contains(l.Text, text) {
			n++
		}
	}
	return n
}

// Where the table has no aggregate type and no topic is set, the table names it.
func TestTopicOfTheTable(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage{"mysql", inFile, harness.Laravel})
	s.topics = []string{s.table.Topic}
	s.withTopics()
	p := s.active("OUTBOXD_COLUMN_AGGREGATE_ID=none")
	s.commit(100)
	s.finish(p, "topic of the table", 0)
	if n := warnings(p, ""); n != 0 {
		t.Errorf("%d warnings, want none", n)
	}
}

// A worker that marks rows makes no events, and no flood of lines in the log.
func TestStatusUpdatesAreNoEvents(t *testing.T) {
	eachParallel(t, workers, func(t *testing.T, at stage) {
		s := newScene(t, at)
		s.topics = s.topics[:1]
		s.table.Topic = s.topics[0]
		s.env["OUTBOXD_TOPIC"] = s.topics[0]
		s.withTopics()
		p := s.active()
		s.commit(300)
		s.delivered()
		before := len(p.Lines())
		s.mark()
		s.commit(100)
		s.delivered()
		for _, l := range p.Lines()[before:] {
			t.Errorf("logged: %s", l.Text)
		}
		s.finish(p, "rows marked by a worker", 0)
	})
}

// mark updates each row twice, one by one, as workers do.
func (s *scene) mark() {
	s.t.Helper()
	rows, err := s.db.SQL().QueryContext(s.t.Context(), "SELECT id FROM outbox")
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		s.exec("UPDATE outbox SET status = 'processing', attempts = attempts + 1 WHERE id = ?", id)
		s.exec("UPDATE outbox SET status = 'processed', processed_at = NOW(3) WHERE id = ?", id)
	}
}

// Where nothing speaks for a worker, updates are told, but not each of them.
func TestUpdatesAreWarnedOf(t *testing.T) {
	eachParallel(t, []stage{{"mysql", inTopic, harness.Debezium}, {"mariadb1011", inFile, harness.Binary}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		s.commit(300)
		s.delivered()
		for range 10 {
			s.exec("UPDATE outbox SET aggregatetype = CONCAT('x', aggregatetype)")
			s.exec("UPDATE outbox SET aggregatetype = SUBSTR(aggregatetype, 2)")
		}
		s.commit(100)
		s.finish(p, "rows updated", 0)
		if n := warnings(p, "update"); n == 0 || n > 3 {
			t.Errorf("%d warnings about 6000 updates, want a few", n)
		}
	})
}

// OUTBOXD_ON_UPDATE=stop ends at the first update, with everything before it delivered.
func TestUpdateStops(t *testing.T) {
	eachParallel(t, []stage{on("mysql"), on("mariadb118")}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active("OUTBOXD_ON_UPDATE=stop")
		s.commit(100)
		s.exec("UPDATE outbox SET retry_count = 1 LIMIT 1")
		refused(t, p, 4, "event_refused", "outbox")
		refused(t, s.start("OUTBOXD_ON_UPDATE=stop"), 4, "event_refused", "outbox")
		p = s.active("OUTBOXD_ON_UPDATE=ignore")
		s.commit(100)
		s.finish(p, "stopped at an update", 100)
	})
}

// TRUNCATE is no event, but is told of: ids may come again. Our own publication
// on Postgres does not carry it, one that is not ours may.
func TestTruncateIsWarnedOf(t *testing.T) {
	eachParallel(t, []stage{{"postgres17", inFile, harness.Debezium}, {"mysql", inTopic, harness.Debezium}, {"mariadb118", inFile, harness.Debezium}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		if at.postgres() {
			s.exec("CREATE PUBLICATION given FOR TABLE outbox")
			s.env["OUTBOXD_POSTGRES_PUBLICATION"] = "given"
		}
		p := s.active()
		s.commit(50)
		s.delivered()
		truth := s.truth()
		s.exec("TRUNCATE TABLE outbox")
		if line, _ := p.WaitLog(t, "truncated", 0); line.Level != "warn" || !strings.Contains(line.Text, "outbox") || !strings.Contains(line.Text, "fix") {
			t.Errorf("logged: %s", line.Text)
		}
		s.commit(50)
		truth = append(truth, s.truth()...)
		s.tail.WaitEvents(t, len(truth))
		p.Stop(t)
		checker.Require(t, s.compare("truncated", truth), 0)
	})
}

// The record's timestamp is the time of the commit, not of the insert and not
// of the delivery.
func TestCommitTime(t *testing.T) {
	eachParallel(t, everywhere(0), func(t *testing.T, at stage) {
		at.shape = harness.Plain
		s := newScene(t, at).withTopics()
		s.active().Stop(t)
		tx := s.insertOne()
		s.pass()
		before := s.now()
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		after := s.now()
		s.pass()
		p := s.active()
		s.finish(p, "committed late and delivered late", 0)
		got := harness.Records(t, s.topics...)[0].Timestamp
		if strings.HasPrefix(at.service, "mariadb") { // it records seconds
			before = before.Truncate(time.Second)
		}
		if got.Before(before.Truncate(time.Millisecond)) || got.After(after) {
			t.Errorf("the timestamp is %v, the commit was between %v and %v", got, before, after)
		}
	})
}

// insertOne inserts one event into a plain table and leaves its transaction open.
func (s *scene) insertOne() *sql.Tx {
	s.t.Helper()
	tx, err := s.db.SQL().BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = tx.Rollback() })
	insert := "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('" + s.types[0] + `', 'one', 'created', '{"seq": 1}')`
	if _, err := tx.ExecContext(s.t.Context(), insert); err != nil {
		s.t.Fatal(err)
	}
	return tx
}

// pass returns when the server's clock has gone on by two seconds.
func (s *scene) pass() {
	s.t.Helper()
	if s.postgres() {
		s.exec("SELECT pg_sleep(2)")
	} else {
		s.exec("DO SLEEP(2)")
	}
}

// now is the server's clock.
func (s *scene) now() time.Time {
	s.t.Helper()
	query := "SELECT CAST(1000000 * UNIX_TIMESTAMP(NOW(6)) AS SIGNED)"
	if s.postgres() {
		query = "SELECT (1000000 * extract(epoch FROM clock_timestamp()))::bigint"
	}
	var micros int64
	if err := s.db.SQL().QueryRowContext(s.t.Context(), query).Scan(&micros); err != nil {
		s.t.Fatal(err)
	}
	return time.UnixMicro(micros)
}

// The place moves along with a busy server, so that what the outbox doesn't need may be purged.
func TestIdleOutboxMovesAlong(t *testing.T) {
	each(t, []stage{{"mysql", inTopic, harness.Plain}, {"mysql-nogtid", inFile, harness.Plain}, {"mariadb118", inTopic, harness.Plain}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		s.commit(10)
		s.delivered()
		s.exec("CREATE TABLE busy (id BIGINT AUTO_INCREMENT PRIMARY KEY, filler TEXT)")
		s.exec("INSERT INTO busy (filler) VALUES (REPEAT('x', 1024))")
		for range 14 { // 16 MiB of rows
			s.exec("INSERT INTO busy (filler) SELECT filler FROM busy")
		}
		s.exec("FLUSH BINARY LOGS")
		s.exec("INSERT INTO busy (filler) SELECT filler FROM busy")
		_, file := s.db.(*harness.MySQL).LogFiles(t)
		harness.Eventually(t, "the saved place is in the newest file", func() bool {
			return strings.Contains(s.run(0, "checkpoint", "show"), file)
		})
		p.Kill() // it saves nothing at its end
		s.db.(*harness.MySQL).PurgeLogsTo(t, file)
		p = s.active()
		s.commit(10)
		s.finish(p, "idle on a busy server", 0)
	})
}
