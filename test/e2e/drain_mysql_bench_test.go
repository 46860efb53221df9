package e2e

import (
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/harness"
)

// BenchmarkDrainMySQL has the binary drain a backlog of 500,000 events from
// MySQL into Kafka, and the server's own mysqlbinlog copy the same log to a file just before, which decodes
// nothing, and tells the one's rate as a share of the other's. Each event is an INSERT of its own, ten a transaction.
//
//	go test -run - -bench DrainMySQL -benchtime 3x ./e2e
func BenchmarkDrainMySQL(b *testing.B) {
	const rows = 500_000
	var raw, drained, used time.Duration
	for b.Loop() {
		r, d, cpu := drainMySQL(b, rows)
		raw, drained, used = raw+r, drained+d, used+cpu
	}
	n := float64(rows * b.N)
	b.ReportMetric(n/raw.Seconds(), "raw-rows/s")
	b.ReportMetric(n/drained.Seconds(), "rows/s")
	b.ReportMetric(100*raw.Seconds()/drained.Seconds(), "%of-raw")
	b.ReportMetric(used.Seconds()/n*1e6, "cpu-s/M")
}

// drainMySQL makes the backlog and returns how long mysqlbinlog and the binary took for it.
func drainMySQL(b *testing.B, rows int) (raw, drained, cpu time.Duration) {
	db := harness.NewMySQL(b, "mysql")
	db.CreateOutbox(b, harness.Plain)
	kind := harness.Unique("bench-")
	harness.CreateTopics(b, partitions, "outbox.event."+kind)
	command := harness.Command{Dir: b.TempDir(), Env: map[string]string{
		"OUTBOXD_SOURCE_URL": db.URL("cdc") + "?ssl-mode=DISABLED", "OUTBOXD_NAME": harness.Unique("drain-"), "OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(b), ","),
		"OUTBOXD_CHECKPOINT": "file:" + checkpointFile,
	}}
	db.Exec(b, "FLUSH BINARY LOGS")
	p := harness.Start(b, command)
	p.WaitActive(b)
	p.Stop(b)
	db.Exec(b, fmt.Sprintf(`CREATE PROCEDURE fill(n INT) BEGIN
		DECLARE i INT DEFAULT 0;
		WHILE i < n DO
			IF i %% 10 = 0 THEN START TRANSACTION; END IF;
			INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
				VALUES ('%s', CONCAT('agg-', i %% 10000), 'created', JSON_OBJECT('seq', i, 'amount', i / 4, 'fill', REPEAT('x', 250)));
			SET i = i + 1;
			IF i %% 10 = 0 THEN COMMIT; END IF;
		END WHILE; END`, kind))
	db.Exec(b, fmt.Sprintf("CALL fill(%d)", rows))
	raw = copyLog(b, db)

	began := time.Now()
	p = harness.Start(b, command)
	var used time.Duration
	harness.Eventually(b, "the backlog is drained", func() bool {
		n, _ := p.Metric("outboxd_events_delivered_total")
		used = harness.CPU(p.PID())
		return n >= float64(rows)
	})
	drained = time.Since(began)
	p.Stop(b)
	return raw, drained, used
}

// copyLog has mysqlbinlog copy the newest log file.
func copyLog(b *testing.B, db *harness.MySQL) time.Duration {
	b.Helper()
	cache, err := exec.CommandContext(b.Context(), harness.Need(b, "OUTBOXD_TEST_CTL"), "cache").Output()
	if err != nil {
		b.Fatalf("where the programs are: %v", err)
	}
	host, port, _ := net.SplitHostPort(db.Addr())
	_, file := db.LogFiles(b)
	program := filepath.Join(strings.TrimSpace(string(cache)), "mysql/run/mysqlbinlog")
	began := time.Now()
	out, err := exec.CommandContext(b.Context(), program, "--no-defaults", "--read-from-remote-server", "--raw", "--ssl-mode=DISABLED",
		"-h", host, "-P", port, "-u", "root", "--result-file="+b.TempDir()+"/", file).CombinedOutput()
	if err != nil {
		b.Fatalf("mysqlbinlog: %v: %s", err, out)
	}
	return time.Since(began)
}

// BenchmarkForeignMySQL has another table of the server written to in transactions of one
// row, about 5,000 a second, and tells how much of a core the binary takes.
//
//	go test -run - -bench ForeignMySQL -benchtime 1x ./e2e
func BenchmarkForeignMySQL(b *testing.B) {
	db := harness.NewMySQL(b, "mysql")
	db.CreateOutbox(b, harness.Plain)
	db.Exec(b, "CREATE TABLE busy (id INT, filler VARCHAR(200))")
	db.Exec(b, `CREATE PROCEDURE fill(n INT) BEGIN
		DECLARE i INT DEFAULT 0;
		WHILE i < n DO
			INSERT INTO busy VALUES (i, REPEAT('x', 200));
			SET i = i + 1;
			IF i % 50 = 0 THEN DO SLEEP(0.007); END IF;
		END WHILE; END`)
	p := harness.Start(b, harness.Command{Dir: b.TempDir(), Env: map[string]string{
		"OUTBOXD_SOURCE_URL": db.URL("cdc") + "?ssl-mode=DISABLED", "OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(b), ","), "OUTBOXD_CHECKPOINT": "file:" + checkpointFile,
	}})
	p.WaitActive(b)
	const transactions = 25_000
	var took, used time.Duration
	for b.Loop() {
		before, began := harness.CPU(p.PID()), time.Now()
		db.Exec(b, fmt.Sprintf("CALL fill(%d)", transactions))
		took += time.Since(began)
		used += harness.CPU(p.PID()) - before
	}
	b.ReportMetric(float64(transactions*b.N)/took.Seconds(), "tx/s")
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
}
