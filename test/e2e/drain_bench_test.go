package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/test/harness"
)

// BenchmarkDrain has the binary drain a backlog of 500,000 rows from
// Postgres into Kafka, and a raw reader that decodes nothing read the same
// log just before, and tells the one's rate as a share of the other's.
//
//	go test -run - -bench Drain -benchtime 3x ./e2e
func BenchmarkDrain(b *testing.B) {
	const rows = 500_000
	var raw, drained, used time.Duration
	for b.Loop() {
		r, d, cpu := drain(b, rows)
		raw, drained, used = raw+r, drained+d, used+cpu
	}
	n := float64(rows * b.N)
	b.ReportMetric(n/raw.Seconds(), "raw-rows/s")
	b.ReportMetric(n/drained.Seconds(), "rows/s")
	b.ReportMetric(100*raw.Seconds()/drained.Seconds(), "%of-raw")
	b.ReportMetric(used.Seconds()/n*1e6, "cpu-s/M")
}

// drain makes the backlog and returns how long the raw reader and the binary took for it.
func drain(b *testing.B, rows int) (raw, drained, cpu time.Duration) {
	db := harness.NewPostgres(b, "postgres17")
	db.CreateOutbox(b, harness.Plain)
	kind := harness.Unique("bench-")
	topic := "outbox.event." + kind
	harness.CreateTopics(b, partitions, topic)
	name := harness.Unique("drain-")
	slot := strings.ReplaceAll(name, "-", "_")
	command := harness.Command{Dir: b.TempDir(), Env: map[string]string{
		"OUTBOXD_SOURCE_URL": db.URL("cdc"), "OUTBOXD_NAME": name, "OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(b), ","),
		"OUTBOXD_CHECKPOINT": "file:" + checkpointFile,
	}}
	p := harness.Start(b, command)
	p.WaitActive(b)
	p.Stop(b)
	for range rows / 10000 { // 10 rows a transaction
		db.Exec(b, fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..1000 LOOP
			INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
			SELECT '%s', 'agg-' || (i * 10 + j) %% 10000, 'created', jsonb_build_object('seq', i * 10 + j, 'fill', repeat('x', 270)) FROM generate_series(0, 9) j;
			COMMIT; END LOOP; END $$`, kind))
	}
	db.Exec(b, "SELECT pg_copy_logical_replication_slot($1, $2)", slot, slot+"_raw")
	raw = readRaw(b, db.URL("cdc"), slot, rows)

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

// readRaw reads n rows as fast as the walsender gives them: a large buffer, no
// decoding, a wake-up for each 128 KiB.
func readRaw(b *testing.B, url, slot string, n int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), harness.Patience)
	defer cancel()
	conn, err := pgconn.Connect(ctx, url+"?replication=database")
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	err = pglogrepl.StartReplication(ctx, conn, slot+"_raw", 0, pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication,
		PluginArgs: []string{"proto_version '1'", "publication_names '" + slot + "'"}})
	if err != nil {
		b.Fatal(err)
	}
	h, err := conn.Hijack()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Conn.Close() }()
	socket, err := h.Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		b.Fatal(err)
	}
	mark := func(bytes int) {
		_ = socket.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes) })
	}
	mark(128 << 10)
	buf := make([]byte, 4<<20)
	first, seen := 0, 0
	for seen < n {
		_ = h.Conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		wait := true
		_ = socket.Read(func(uintptr) bool { wait = !wait; return wait }) // let bytes gather
		_ = h.Conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		got, err := h.Conn.Read(buf[first:])
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			b.Fatalf("after %d rows: %v", seen, err)
		}
		end, at := first+got, 0
		for end-at >= 5 {
			length := int(binary.BigEndian.Uint32(buf[at+1:])) + 1
			if end-at < length {
				break
			}
			if buf[at] == 'd' && buf[at+5] == 'w' && buf[at+30] == 'I' {
				seen++
			}
			at += length
		}
		first = copy(buf, buf[at:end])
	}
	return time.Since(began)
}

// BenchmarkForeignTransactions has another table of the database written to in
// transactions of one row, about 5,000 a second, and tells how much of a core
// the binary takes.
//
//	go test -run - -bench Foreign -benchtime 1x ./e2e
func BenchmarkForeignTransactions(b *testing.B) {
	db := harness.NewPostgres(b, "postgres17")
	db.CreateOutbox(b, harness.Plain)
	db.Exec(b, "CREATE TABLE busy (id bigint, filler text)")
	p := harness.Start(b, harness.Command{Dir: b.TempDir(), Env: map[string]string{
		"OUTBOXD_SOURCE_URL": db.URL("cdc"), "OUTBOXD_KAFKA_BROKERS": strings.Join(harness.Brokers(b), ","), "OUTBOXD_CHECKPOINT": "file:" + checkpointFile,
	}})
	p.WaitActive(b)
	const transactions = 25_000
	var took, used time.Duration
	for b.Loop() {
		before, began := harness.CPU(p.PID()), time.Now()
		db.Exec(b, "DO $$ BEGIN FOR i IN 1.."+strconv.Itoa(transactions)+" LOOP INSERT INTO busy VALUES (i, 'x'); COMMIT; IF i % 50 = 0 THEN PERFORM pg_sleep(0.009); END IF; END LOOP; END $$")
		took += time.Since(began)
		used += harness.CPU(p.PID()) - before
	}
	rate := float64(transactions*b.N) / took.Seconds()
	b.ReportMetric(rate, "tx/s")
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
}
