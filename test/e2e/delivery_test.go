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
	each(t, everywhere(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		s.commit(10000)
		s.finish(p, "no fault", 0)
	})
}

// The other store, another table, and a clean stop and start in the middle of a load.
func TestRestartResumes(t *testing.T) {
	eachParallel(t, everywhere(1), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		s.commit(500)
		p.Stop(t)
		s.commit(500)
		p = s.active("OUTBOXD_START=resume")
		s.commit(500)
		s.finish(p, "stopped and started", 0)
	})
}

// E01: a stop under load repeats nothing.
func TestStopUnderLoadRepeatsNothing(t *testing.T) {
	eachParallel(t, families(3), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		l := s.committing(0) // as fast as it goes, so that something is in flight at each stop
		for range harness.Times(6, 50) {
			s.more(500)
			p.Stop(t)
			p = s.active()
		}
		s.end(l)
		s.finish(p, "stopped under load", 0)
	})
}

// The rows a relay marks or removes are no events.
func TestUpdatesAndDeletesAreNoEvents(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		at.shape = harness.Plain
		s := newScene(t, at).withTopics()
		p := s.active()
		s.commit(200)
		s.delivered()
		s.exec("UPDATE outbox SET published_at = now(), retry_count = retry_count + 1")
		s.commit(200)
		s.delivered()
		truth := s.truth()
		s.exec("UPDATE outbox SET published_at = now()")
		s.exec("DELETE FROM outbox")
		s.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('" + s.types[0] + `', 'last', 'created', '{"seq": 1}')`)
		truth = append(truth, s.truth()...)
		s.tail.WaitEvents(t, len(truth))
		p.Stop(t)
		checker.Require(t, s.compare("updates and deletes", truth), 0)
	})
}

// The sink for pipes gives the same events.
func TestDeliversToStdout(t *testing.T) {
	eachParallel(t, []stage{on("postgres18"), on("mysql"), on("mariadb1011")}, func(t *testing.T, at stage) {
		s := newScene(t, at)
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
		report := checker.Check(s.truth(), records)
		t.Logf("stdout on %s: %s", at, report.Summary())
		checker.Require(t, report, 0)
	})
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
	s := newScene(t, stage{"postgres16", inFile, harness.Debezium})
	p := s.active()
	s.commit(20)
	// The first batch may hold events of one topic alone.
	if line, _ := p.WaitLog(t, "topic does not exist", 0); !strings.Contains(line.Text, s.topics[0]) && !strings.Contains(line.Text, s.topics[1]) {
		t.Errorf("logged: %s", line.Text)
	}
	harness.Eventually(t, "/status tells the topic and what to do, /readyz the topic", func() bool {
		sentence, _ := p.Status()["sentence"].(string)
		_, ready := p.Get("/readyz")
		named := func(text string) bool {
			return strings.Contains(text, s.topics[0]) || strings.Contains(text, s.topics[1])
		}
		return named(sentence) && strings.Contains(sentence, "outboxd setup --topics") && !strings.Contains(sentence, "nothing to do") && named(ready)
	})
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
	s := newScene(t, stage{"postgres18", inTopic, harness.Debezium})
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
