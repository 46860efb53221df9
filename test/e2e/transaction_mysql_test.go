package e2e

import (
	"fmt"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// One transaction of many rows: in order, once, and the process stays small. A rolled back one of that size, which a
// table without transactions puts into the log, is never seen.
func TestLargeTransactionOfMySQL(t *testing.T) {
	each(t, []stage{on("mysql"), {"mariadb118", inTopic, harness.Plain}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.exec("CREATE TABLE notes (id INT) ENGINE = MyISAM")
		p := s.active("OUTBOXD_BUFFER_BYTES=8MiB")
		rows := harness.Times(150_000, 1_000_000)
		if at.service != "mysql" { // which refuses such a transaction with GTIDs
			s.fillMySQL(rows/3, "BEGIN", "INSERT INTO notes VALUES (1)", fill, "ROLLBACK")
		}
		s.fillMySQL(rows, fill)
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

const fill = "fill"

// fillMySQL runs statements in one session; fill inserts n rows of about 500 bytes of payload.
func (s *scene) fillMySQL(n int, statements ...string) {
	s.t.Helper()
	numbers := fmt.Sprintf("WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < %d)", n)
	insert := fmt.Sprintf("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) %s SELECT '%s', CONCAT('agg-', i %% 500), 'created', JSON_OBJECT('seq', i DIV 500, 'fill', REPEAT(SHA2(i, 224), 8)) FROM numbers", numbers, s.types[0])
	limit := "SET SESSION cte_max_recursion_depth = 10000000"
	if s.service != "mysql" {
		limit = "SET SESSION max_recursive_iterations = 10000000"
	}
	conn, err := s.db.SQL().Conn(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range append([]string{limit}, statements...) {
		if statement == fill {
			statement = insert
		}
		if _, err := conn.ExecContext(s.t.Context(), statement); err != nil {
			s.t.Fatalf("%.80s: %v", statement, err)
		}
	}
}
