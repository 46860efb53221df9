package e2e

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// seq is an event's number within its aggregate, in SQL.
func (at stage) seq() string {
	if at.postgres() {
		return "(payload->>'seq')::bigint"
	}
	return "CAST(JSON_VALUE(payload, '$.seq') AS UNSIGNED)"
}

// snapshotSettings give an order to tables that have neither an integer key nor a time.
func snapshotSettings(at stage) []string {
	settings := []string{"OUTBOXD_START=snapshot"}
	if at.shape != harness.Plain {
		settings = append(settings, "OUTBOXD_SNAPSHOT_ORDER_BY="+at.seq())
	}
	return settings
}

// The rows that are there before the first start, and what is committed meanwhile, are
// published once and in order.
func TestSnapshot(t *testing.T) {
	eachParallel(t, everywhere(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.commit(3000)
		if at.shape != harness.Plain {
			refused(t, s.start("OUTBOXD_START=snapshot"), 2, "snapshot_order_needed", "OUTBOXD_SNAPSHOT_ORDER_BY")
		}
		load := s.committing(300)
		p := s.start(snapshotSettings(at)...)
		s.tail.WaitEvents(t, 3000)
		s.end(load)
		s.finish(p, "snapshot under load", 0)
		s.commit(100)
		s.finish(s.active("OUTBOXD_START=resume"), "and a restart", 0)
	})
}

// SIGKILL in the middle of the snapshot, twice, while the application writes:
// none missing, none out of order, repeats inside the window. Topics that are
// not there yet hold up the snapshot where it is to be killed.
func TestSnapshotKilled(t *testing.T) {
	stages := []stage{{"postgres15", inFile, harness.Plain}, {"postgres18", inTopic, harness.Debezium},
		{"mysql", inTopic, harness.Plain}, {"mysql-nogtid", inFile, harness.Binary}, {"mariadb118", inFile, harness.Debezium}, {"mariadb1011", inTopic, harness.Plain}}
	eachParallel(t, stages, func(t *testing.T, at stage) {
		rows := harness.Times(20_000, 200_000)
		s := newScene(t, at).smallWindow()
		all := []string{harness.Unique("a-"), harness.Unique("b-"), harness.Unique("c-")}
		s.topics = nil
		for _, name := range all {
			s.types = []string{name}
			s.topics = append(s.topics, "outbox.event."+name)
			s.commit(rows / len(all))
		}
		harness.CreateTopics(t, partitions, s.topics[0])
		s.types = all[:1]
		load := s.committing(200)
		settings := []string{"OUTBOXD_START=snapshot"}
		if at.shape != harness.Plain {
			settings = append(settings, "OUTBOXD_SNAPSHOT_ORDER_BY=aggregatetype, "+at.seq())
		}
		for _, missing := range s.topics[1:] {
			p := s.start(settings...)
			p.WaitLog(t, missing, 0)
			harness.Eventually(t, "a saved place in the snapshot", func() bool {
				positions, _ := p.Status()["positions"].(map[string]any)
				saved, _ := positions["saved"].(string)
				return strings.Contains(saved, "%22after%22")
			})
			p.Kill()
			if at.postgres() {
				s.exec(`UPDATE outbox SET payload = payload WHERE (payload->>'seq')::bigint % 2 = 0`)
			} else if at.shape == harness.Plain {
				s.exec(`UPDATE outbox SET retry_count = retry_count + 1 WHERE id % 2 = 0`)
			}
			harness.CreateTopics(t, partitions, missing)
		}
		s.tail = harness.Follow(t, s.topics...)
		p := s.start(settings...)
		s.tail.WaitEvents(t, rows/len(all)*len(all))
		s.end(load)
		const batch = 1000 // passes alone where it is larger than the window
		s.finish(p, "snapshot killed twice under load", 2*(window+2*batch))
		line, _ := p.WaitLog(t, "going on with a later one", 0)
		if line.Fields["all_of_them_known"] != true {
			t.Errorf("rows that are left to the log: %s", line.Text)
		}
	})
}

// Setup makes slot and place; the rows are published by the run that follows.
func TestSetupStartsSnapshot(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		at.shape = harness.Plain
		s := newScene(t, at).withTopics()
		s.commit(500)
		refused(t, s.start(), 2, "start_choice_needed", "OUTBOXD_START=snapshot")
		if out := s.run(0, "setup", "--start", "snapshot", "--yes"); !strings.Contains(out, "position") || !strings.Contains(out, "snapshot=") {
			t.Errorf("setup: %s", out)
		}
		s.commit(500)
		s.finish(s.active("OUTBOXD_START=resume"), "setup with a snapshot", 0)
	})
}

// A condition leaves rows out; those committed later are all there.
func TestSnapshotWhere(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres16")).withTopics()
	s.commit(400)
	s.exec(`UPDATE outbox SET published_at = now() WHERE id % 3 > 0`)
	// Per aggregate the rest begins anew, as the checker counts.
	s.exec(`UPDATE outbox o SET payload = jsonb_set(payload, '{seq}', to_jsonb(n)) FROM
		(SELECT id, row_number() OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY id) n FROM outbox WHERE published_at IS NULL) k WHERE k.id = o.id`)
	s.exec(`CREATE TABLE aside AS SELECT * FROM outbox WHERE published_at IS NOT NULL`)
	p := s.active("OUTBOXD_START=snapshot", "OUTBOXD_SNAPSHOT_WHERE=published_at IS NULL")
	var left int
	if err := s.db.SQL().QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE published_at IS NULL`).Scan(&left); err != nil {
		t.Fatal(err)
	}
	s.tail.WaitEvents(t, left)
	p.Stop(t)
	s.exec(`DELETE FROM outbox WHERE published_at IS NOT NULL`)
	checker.Require(t, s.judge("snapshot with a condition"), 0)
}

// Whoever holds up the slot is told of, until it is there.
func TestSlotWaitsForATransaction(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres18")).withTopics()
	s.commit(50)
	tx, err := s.db.SQL().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var pid float64
	var name, xid string
	const begin = `SELECT pg_backend_pid(), set_config('application_name', 'month end', true), pg_current_xact_id()::text`
	if err := tx.QueryRowContext(t.Context(), begin).Scan(&pid, &name, &xid); err != nil {
		t.Fatal(err)
	}
	p := s.start("OUTBOXD_START=snapshot")
	n := 0
	for range 2 {
		var line harness.Line
		line, n = p.WaitLog(t, "waits for an open transaction", n)
		if line.Fields["pid"] != pid || line.Fields["user"] != "postgres" || line.Fields["application_name"] != "month end" {
			t.Errorf("told of %s, want pid %v", line.Text, pid)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	s.finish(p, "snapshot after a long transaction", 0)
}

// How far the snapshot is stands in /status, and the log tells of its end.
func TestSnapshotProgress(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at)
		s.commit(3000)
		p := s.start(snapshotSettings(at)...) // there are no topics yet
		harness.Eventually(t, "the snapshot in /status", func() bool {
			_, body := p.Get("/status")
			return strings.Contains(body, `"rows_estimate"`) && strings.Contains(body, "publishing the rows that were there")
		})
		s.withTopics()
		s.delivered()
		p.WaitLog(t, "the rows that were there are read", 0)
		harness.Eventually(t, "the snapshot is over in /status", func() bool {
			_, body := p.Get("/status")
			return !strings.Contains(body, `"rows_estimate"`)
		})
		s.finish(p, "snapshot without topics", 0)
	})
}
