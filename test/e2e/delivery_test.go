package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// The main promise, without a fault: nothing missing, nothing repeated, nothing
// out of order, every byte as the server prints it, and a clean stop.
func TestDelivers(t *testing.T) {
	for i, service := range services {
		shape := harness.Shape(i % 2)
		t.Run(service+"/"+shape.String(), func(t *testing.T) {
			s := newScene(t, service, shape).withTopics()
			p := s.active()
			s.commit(10000)
			s.finish(p, "no fault", 0)
		})
	}
}

// The other shape of table, and a clean stop and start in the middle of a load.
func TestRestartResumes(t *testing.T) {
	t.Parallel()
	for i, service := range services {
		shape := harness.Shape((i + 1) % 2)
		t.Run(service+"/"+shape.String(), func(t *testing.T) {
			t.Parallel()
			s := newScene(t, service, shape).withTopics()
			p := s.active()
			s.commit(500)
			p.Stop(t)
			s.commit(500)
			p = s.active("OUTBOXD_START=resume")
			s.commit(500)
			s.finish(p, "stopped and started", 0)
		})
	}
}

// E01: a stop under load repeats nothing.
func TestStopUnderLoadRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres16", harness.Plain).withTopics()
	p := s.active()
	l := s.committing(0) // as fast as it goes, so that something is in flight at each stop
	for range harness.Times(8, 50) {
		records, _ := s.tail.Counts()
		s.tail.WaitRecords(t, records+500)
		p.Stop(t)
		p = s.active()
	}
	s.end(l)
	s.finish(p, "stopped under load", 0)
}

// The rows a relay marks or removes are no events.
func TestUpdatesAndDeletesAreNoEvents(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres17", harness.Plain).withTopics()
	p := s.active()
	s.commit(200)
	s.delivered()
	exec(s, "UPDATE outbox SET published_at = now(), retry_count = retry_count + 1")
	s.commit(200)
	s.delivered()
	truth := s.db.Truth(t, s.shape)
	exec(s, "UPDATE outbox SET published_at = now()")
	exec(s, "DELETE FROM outbox")
	exec(s, `WITH gone AS (INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		VALUES ($1, 'last', 'created', '{"seq": 1}') RETURNING id) SELECT * FROM gone`, s.types[0])
	truth = append(truth, s.db.Truth(t, s.shape)...)
	s.tail.WaitEvents(t, len(truth))
	p.Stop(t)
	report := checker.Check(truth, harness.Records(t, s.topics...))
	t.Logf("updates and deletes: %s", report.Summary())
	checker.Require(t, report, 0)
}

// A busy server must not keep log for an outbox that is idle.
func TestIdleOutboxHoldsNoLog(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres15", harness.Plain).withTopics()
	p := s.active()
	s.commit(10)
	s.delivered()
	exec(s, "CREATE TABLE busy (id BIGSERIAL PRIMARY KEY, filler TEXT)")
	const mebibyte = 1 << 20
	for range 4 {
		exec(s, "INSERT INTO busy (filler) SELECT repeat(md5(i::text), 32) FROM generate_series(1, 20000) i") // 20 MiB of log
	}
	harness.Eventually(t, "the server keeps less log than 20 of the 80 MiB written", func() bool {
		return s.db.Retained(t) < 20*mebibyte
	})
	s.commit(10)
	s.finish(p, "idle on a busy server", 0)
}

// The sink for pipes gives the same events.
func TestDeliversToStdout(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres18", harness.Plain)
	p := s.active("OUTBOXD_SINK=stdout", "OUTBOXD_KAFKA_BROKERS=")
	s.commit(1000)
	harness.Eventually(t, "1000 events are delivered", func() bool {
		n, _ := p.Metric("outboxd_events_delivered_total")
		return n >= 1000
	})
	p.Stop(t)
	var records []checker.Record
	for line := range strings.Lines(p.Stdout()) {
		records = append(records, stdoutRecord(t, line, len(records)))
	}
	report := checker.Check(s.db.Truth(t, s.shape), records)
	t.Logf("stdout: %s", report.Summary())
	checker.Require(t, report, 0)
}

func stdoutRecord(t *testing.T, line string, n int) checker.Record {
	t.Helper()
	var event struct {
		Topic, Key, Value string
		Headers           json.RawMessage
	}
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		t.Fatalf("line %d is no JSON object: %v", n, err)
	}
	rec := checker.Record{Topic: event.Topic, Offset: int64(n), Key: []byte(event.Key), Value: []byte(event.Value)}
	var headers map[string]string
	if err := json.Unmarshal(event.Headers, &headers); err != nil {
		t.Fatalf("headers of line %d: %v: %s", n, err, event.Headers)
	}
	for name, value := range headers {
		rec.Headers = append(rec.Headers, checker.Header{Name: name, Value: []byte(value)})
	}
	return rec
}

// A topic that does not exist is named in the log, and delivery goes on once it is made.
func TestUnknownTopicIsNamed(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres16", harness.Debezium)
	p := s.active()
	s.commit(20)
	p.WaitLog(t, s.topics[0], 0)
	if !p.Running() {
		t.Fatal("the connector ended")
	}
	s.withTopics()
	s.delivered()
	p.Stop(t)
	checker.Require(t, s.judge("topic made late"), 40)
}

// With OUTBOXD_KAFKA_CREATE_TOPICS the connector makes them.
func TestCreatesTopics(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres18", harness.Debezium)
	p := s.active("OUTBOXD_KAFKA_CREATE_TOPICS=true", fmt.Sprintf("OUTBOXD_KAFKA_TOPIC_PARTITIONS=%d", partitions))
	s.commit(200)
	harness.DeleteTopicsLater(t, s.topics...)
	harness.Eventually(t, "200 events are delivered", func() bool {
		n, _ := p.Metric("outboxd_events_delivered_total")
		return n >= 200
	})
	p.Stop(t)
	checker.Require(t, s.judge("topics made by the connector"), 0)
}

func exec(s *scene, statement string, args ...any) {
	s.t.Helper()
	if _, err := s.db.SQL().ExecContext(s.t.Context(), statement, args...); err != nil {
		s.t.Fatalf("%.80s: %v", statement, err)
	}
}
