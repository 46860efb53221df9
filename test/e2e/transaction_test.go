package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/harness"
)

// ends are the oldest and the newest server of Postgres.
var ends = []stage{{"postgres15", inTopic, harness.Plain}, {"postgres18", inFile, harness.Plain}}

// One transaction of a million rows and 500 MB: in order, once, in bounded memory.
func TestLargeTransaction(t *testing.T) {
	each(t, ends, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active("OUTBOXD_BUFFER_BYTES=8MiB")
		rows := harness.Times(150_000, 1_000_000)
		s.fill(rows)
		s.tail.WaitRecords(t, rows)
		const ceiling = 96 << 20 // the rows alone are more than that
		if peak := p.PeakMemory(t); peak > ceiling {
			t.Errorf("%d rows in one transaction took %d MiB, want at most %d", rows, peak>>20, ceiling>>20)
		} else {
			t.Logf("%d rows in one transaction took %d MiB", rows, peak>>20)
		}
		s.finish(p, "one large transaction", 0)
	})
}

// fill commits n rows of about 500 bytes of payload in one transaction.
func (s *scene) fill(n int) {
	s.t.Helper()
	s.exec(fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
		SELECT '%s', 'agg-' || i %% 500, 'created', jsonb_build_object('seq', i / 500, 'fill', repeat(md5(i::text), 14))
		FROM generate_series(1, %d) i`, s.types[0], n))
}

// A transaction that stays open while others commit: it is delivered when it is
// committed, the time until then is no lag, and /status tells whose it is.
func TestLongTransaction(t *testing.T) {
	if !harness.Long() { // no slot can be made on its server for as long
		t.Parallel()
	}
	together(t, ends, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		conn, err := s.db.SQL().Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		run := func(statement string) {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		insert := func(seq int) string {
			return fmt.Sprintf(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('%s', 'long', 'created', '{"seq": %d}')`, s.types[0], seq)
		}
		var pid int
		run("SET application_name = 'a slow job'")
		if err := conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		run("BEGIN")
		run(insert(1))
		began := time.Now()
		s.commit(200)
		s.tail.WaitEvents(t, 200)

		want := fmt.Sprintf("pid %d (application 'a slow job'", pid)
		harness.Eventually(t, "/status names the open transaction", func() bool {
			return strings.Contains(oldest(p), want)
		})
		if harness.Long() {
			deadline := time.After(10 * time.Minute)
			for open := true; open; {
				s.commit(20)
				select {
				case <-deadline:
					open = false
				case <-time.After(time.Second):
				}
			}
		}
		s.delivered()
		harness.Eventually(t, "an open transaction is no lag", func() bool {
			lag, ok := p.Metric("outboxd_lag_seconds")
			return ok && lag == 0
		})
		run(insert(2))
		held := time.Since(began)
		run("COMMIT")
		var worst float64
		harness.Eventually(t, "the transaction is delivered", func() bool {
			lag, _ := p.Metric("outboxd_lag_seconds")
			worst = max(worst, lag)
			_, events := s.tail.Counts()
			return events >= len(s.truth())
		})
		if worst >= held.Seconds() {
			t.Errorf("a lag of %.1f s was told, which counts the %.1f s that the transaction was open", worst, held.Seconds())
		}
		harness.Eventually(t, "/status names it no longer", func() bool { return !strings.Contains(oldest(p), want) })
		s.finish(p, "long transaction", 0)
	})
}

// oldest is the name of the oldest open transaction, as /status gives it.
func oldest(p *harness.Process) string {
	source, _ := p.Status()["source"].(map[string]any)
	open, _ := source["oldest_transaction"].(map[string]any)
	name, _ := open["name"].(string)
	return name
}
