package e2e

import (
	"fmt"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// emit writes a message of the scene's first type and gives the event it must become.
func (s *scene) emit(aggregate string, seq int) (statement string, event checker.Event) {
	id := harness.Unique("m-")
	payload := fmt.Sprintf(`{"seq": %d, "order_id": 1.10, "dup": 1, "dup": 2}`, seq)
	statement = fmt.Sprintf(`SELECT pg_logical_emit_message(true, 'orders', '{"id": "%s", "aggregate_type": "%s", "aggregate_id": "%s", "event_type": "paid", "payload": %s}')`,
		id, s.types[0], aggregate, payload)
	return statement, checker.Event{
		Topic: s.topics[0], Key: []byte(aggregate), Seq: int64(seq), ID: []byte(id), Value: []byte(payload),
		Headers: []checker.Header{{Name: "id", Value: []byte(id)}, {Name: "eventType", Value: []byte("paid")}, {Name: "aggregateType", Value: []byte(s.types[0])}},
	}
}

// Events without a table: committed ones arrive once and in order, those of a rolled back
// transaction never, across a crash too.
func TestMessages(t *testing.T) {
	eachParallel(t, []stage{on("postgres15"), {"postgres18", inTopic, harness.Plain}}, func(t *testing.T, at stage) {
		s := newScene(t, at).smallWindow().withTopics()
		s.env["OUTBOXD_TABLES"], s.env["OUTBOXD_POSTGRES_MESSAGE_PREFIX"] = "none", "orders"
		p := s.active()
		var truth []checker.Event
		write := func() {
			for range 100 {
				for n := range 10 {
					statement, event := s.emit(fmt.Sprintf("agg-%d", n), len(truth)/10+1)
					ghost, _ := s.emit(fmt.Sprintf("agg-%d", n), 0)
					s.exec("BEGIN; " + ghost + "; ROLLBACK; BEGIN; SAVEPOINT s; " + ghost + "; ROLLBACK TO s; " + statement + "; COMMIT")
					truth = append(truth, event)
				}
			}
		}
		write()
		s.tail.WaitEvents(t, 500)
		p.Kill()
		write()
		p = s.active("OUTBOXD_START=resume")
		s.tail.WaitEvents(t, len(truth))
		p.Stop(t)
		checker.Require(t, s.compare("messages", truth), window)
	})
}

// Beside a table, rows and messages of one aggregate stand in the order they were
// written in. A message that can't be read stops at its place, and one outside of its transaction is warned of.
func TestMessagesBesideATable(t *testing.T) {
	eachParallel(t, []stage{on("postgres18")}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.env["OUTBOXD_POSTGRES_MESSAGE_PREFIX"] = "orders"
		p := s.active()
		var truth []checker.Event
		for n := range 50 {
			statement, event := s.emit("a", 2*n+1)
			s.exec(fmt.Sprintf(`BEGIN; %s; INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'a', 'paid', '{"seq": %d}'); COMMIT`,
				statement, s.types[0], 2*n+2))
			truth = append(truth, event)
		}
		s.exec(`SELECT pg_logical_emit_message(false, 'orders', '{}')`)
		truth = append(truth, s.truth()...)
		s.tail.WaitEvents(t, len(truth))
		p.WaitLog(t, "not transactional", 0)
		s.exec(`SELECT pg_logical_emit_message(true, 'orders', '{"id": 1, "payload": {}}')`) // no aggregate
		refused(t, p, 4, "event_refused", "null_key")
		refused(t, s.start(), 4, "event_refused", "null_key")
		checker.Require(t, s.compare("messages beside a table", truth), 0)
	})
}

// What is no JSON object stops with exit 4, again and again, and repeats nothing before it.
func TestMessageMalformed(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres16")).withTopics()
	s.env["OUTBOXD_TABLES"], s.env["OUTBOXD_POSTGRES_MESSAGE_PREFIX"] = "none", "orders"
	p := s.active()
	statement, event := s.emit("a", 1)
	s.exec(statement)
	s.exec(`SELECT pg_logical_emit_message(true, 'orders', '{"id": ')`)
	refused(t, p, 4, "event_refused", "is not JSON", "docs/operations.md")
	refused(t, s.start(), 4, "event_refused")
	checker.Require(t, s.compare("before a malformed message", []checker.Event{event}), 0)
}

// none needs a prefix.
func TestNoTablesNeedAPrefix(t *testing.T) {
	t.Parallel()
	p := harness.Start(t, harness.Command{Env: withSettings(t, "OUTBOXD_TABLES=none")})
	refused(t, p, 2, "config_invalid", "OUTBOXD_POSTGRES_MESSAGE_PREFIX")
}
