package cluster

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
	"github.com/outboxd/outboxd/test/load"
)

// The real binary, while brokers are down at its start, are killed, and are restarted one after the other.
func TestOutboxdThroughFaults(t *testing.T) {
	repaired(t)
	o := harness.NewOutbox(t, "postgres17", partitions)
	harness.Ctl(t, "stop", "kafka3")
	p := harness.Start(t, harness.Command{Env: o.Env})
	harness.Never(t, "ready without a broker", func() bool { code, _ := p.Get("/readyz"); return code == 200 })
	harness.Ctl(t, "start", "kafka3")
	p.WaitActive(t)

	cfg := o.Load()
	cfg.PerSecond = 500
	l, err := load.Start(t.Context(), o.DB.SQL(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Stop() })
	more := func() {
		records, _ := o.Tail.Counts()
		o.Tail.WaitRecords(t, records+200)
	}
	more()
	victim := leader(t, o.Topics[0])
	harness.Ctl(t, "kill", victim)
	more()
	harness.Ctl(t, "start", victim)
	for _, m := range members {
		for _, topic := range o.Topics {
			inSync(t, topic)
		}
		harness.Ctl(t, "stop", m)
		more()
		harness.Ctl(t, "start", m)
	}
	more()
	if _, err := l.Stop(); err != nil {
		t.Fatal(err)
	}
	o.Finish(t, p, "brokers down at start, leader killed, rolling restart", 0)
}

const (
	buffer    = 4 << 20
	bulkRows  = 500 // a transaction
	bulkBytes = 2000
	bulk      = 64 << 20 // far more than the buffer and what the sockets hold
)

// slow is one connector whose Kafka has stopped to answer.
type slow struct {
	*harness.Outbox
	p      *harness.Process
	before int64 // peak memory
	reader int64 // id of the session that reads the log
}

// Kafka stalls for longer than the databases' timeouts: memory stays bounded,
// the sessions that read the logs stay, the databases stop when they are told to, and
// all arrives in the end.
func TestSlowKafka(t *testing.T) {
	pause := 25 * time.Second // wal_sender_timeout is 10 s, net_write_timeout 2 s
	if harness.Long() {
		pause = 5 * time.Minute
	}
	cfg, proxies := proxied(t)
	var all []*slow
	for _, service := range []string{"postgres17", "mysql"} {
		harness.Disturb(t, service)
		s := &slow{Outbox: harness.NewOutbox(t, service, partitions)}
		if service == "mysql" {
			s.exec(t, "SET GLOBAL net_write_timeout = 2") // until the restart below
		}
		s.Env["OUTBOXD_KAFKA_BROKERS"] = strings.Join(cfg.Brokers, ",")
		s.Env["OUTBOXD_BUFFER_BYTES"] = fmt.Sprint(buffer)
		s.p = harness.Start(t, harness.Command{Env: s.Env})
		s.p.WaitActive(t)
		s.Commit(t, 500)
		s.Tail.WaitEvents(t, 500)
		s.before, s.reader = s.p.PeakMemory(t), s.readerID(t)
		all = append(all, s)
	}
	for _, p := range proxies {
		p.Stall(faultproxy.Both)
	}
	over := time.After(pause)
	for _, s := range all {
		s.flood(t)
	}
	<-over
	for _, s := range all {
		if id := s.readerID(t); id != s.reader {
			t.Errorf("%s: session %d reads the log, it was %d", s.DB.Service(), id, s.reader)
		}
		s.stop(t)
	}
	for _, s := range all {
		// The buffer, its encoded and compressed copy, as much again until the collector runs, and what the stream has read ahead.
		peak := s.p.PeakMemory(t)
		t.Logf("%s: peak memory %d MiB, before the stall %d MiB, buffer %d MiB, held back %d MiB",
			s.DB.Service(), peak>>20, s.before>>20, buffer>>20, bulk>>20)
		if grown := peak - s.before; grown > 4*buffer+24<<20 {
			t.Errorf("%s: memory grew by %d MiB", s.DB.Service(), grown>>20)
		}
		harness.Ctl(t, "start", s.DB.Service())
	}
	for _, p := range proxies {
		p.Heal()
	}
	for _, s := range all {
		// The database took the lease with it; nobody else was active meanwhile, so the sink finishes what it had.
		s.Finish(t, s.p, "Kafka stalled, then the database stopped", 0)
	}
}

func (s *slow) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := s.DB.SQL().ExecContext(t.Context(), statement); err != nil {
		t.Fatalf("%.60s: %v", statement, err)
	}
}

// flood commits many transactions of events that are the first of their aggregates.
func (s *slow) flood(t *testing.T) {
	t.Helper()
	for i := range bulk / bulkBytes / bulkRows {
		var rows []string
		for j := range bulkRows {
			n := i*bulkRows + j
			rows = append(rows, fmt.Sprintf(`('%s', 'bulk-%d', 'Bulk', '{"seq": 1, "order_id": "bulk-%d", "pad": "%0*d"}')`,
				s.Type(), n, n, bulkBytes, n))
		}
		s.exec(t, "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES "+strings.Join(rows, ","))
	}
}

// readerID is the session that reads the log for the connector.
func (s *slow) readerID(t *testing.T) (id int64) {
	t.Helper()
	query := "SELECT active_pid FROM pg_replication_slots WHERE database = current_database()"
	if s.DB.Service() == "mysql" {
		query = "SELECT id FROM information_schema.processlist WHERE db IS NULL AND command LIKE 'Binlog Dump%'"
	}
	if err := s.DB.SQL().QueryRowContext(t.Context(), query).Scan(&id); err != nil {
		t.Fatalf("%s: who reads the log: %v", s.DB.Service(), err)
	}
	return id
}

// stop stops the database, which must not wait for the connector; ctl kills one that does.
func (s *slow) stop(t *testing.T) {
	t.Helper()
	out, err := exec.Command(harness.Need(t, "OUTBOXD_TEST_CTL"), "stop", s.DB.Service()).CombinedOutput()
	if err != nil || strings.Contains(string(out), "killed") {
		t.Errorf("stop %s: %v\n%s", s.DB.Service(), err, out)
	}
}
