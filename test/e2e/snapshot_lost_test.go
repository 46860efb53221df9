package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// amidSnapshot starts the connector on rows of two types of which only the first has a
// topic: it publishes those, saves a place in the middle of the snapshot, and waits.
func (s *scene) amidSnapshot(rows int, settings ...string) *harness.Process {
	s.t.Helper()
	types := s.types
	for _, name := range types {
		s.types = []string{name}
		s.commit(rows / len(types))
	}
	s.types = types
	harness.CreateTopics(s.t, partitions, s.topics[0])
	p := s.start(settings...)
	p.WaitLog(s.t, s.topics[1], 0)
	harness.Eventually(s.t, "a saved place in the snapshot", func() bool {
		positions, _ := p.Status()["positions"].(map[string]any)
		saved, _ := positions["saved"].(string)
		return strings.Contains(saved, "%22after%22")
	})
	return p
}

// A place that is lost in the middle of the snapshot: the way out that is printed
// begins it anew, and nothing is missing then.
func TestSnapshotPlaceLost(t *testing.T) {
	each(t, families(0), func(t *testing.T, at stage) {
		harness.Disturb(t, at.service)
		at.shape = harness.Plain
		s := newScene(t, at).smallWindow()
		p := s.amidSnapshot(4000, "OUTBOXD_START=snapshot")
		p.Kill()
		s.commit(20)
		if m, ok := s.db.(*harness.MySQL); ok {
			m.PurgeLogs(t)
		} else {
			harness.Eventually(t, "the slot is dropped", func() bool {
				s.db.EndReaders(t)
				_, err := s.db.SQL().ExecContext(t.Context(), "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
				return err == nil
			})
		}
		for _, start := range []string{"resume", "snapshot"} {
			p := s.start("OUTBOXD_START=" + start)
			refused(t, p, 3, "position_lost", "OUTBOXD_START=snapshot", "comes again")
			line := p.Lines()[len(p.Lines())-1]
			if fix, _ := line.Fields["fix"].(string); strings.Contains(fix, "=now") {
				t.Errorf("fix: %s", fix)
			}
			repair := regexp.MustCompile("`outboxd (checkpoint delete)`").FindStringSubmatch(line.Text)
			if repair == nil {
				t.Fatalf("no way out: %s", line.Text)
			}
		}
		s.run(0, "checkpoint", "delete", "--yes")
		harness.CreateTopics(t, partitions, s.topics[1])
		s.tail = harness.Follow(t, s.topics...)
		s.finish(s.start("OUTBOXD_START=snapshot"), "a snapshot begun anew", 4000)
	})
}

// SIGKILL in the middle of the snapshot, again and again, while the application
// writes: who reads what is committed sees each event once, in order.
func TestExactlyOnceSnapshotKilled(t *testing.T) {
	stages := []stage{on("postgres17"), {"postgres18", inTopic, harness.Debezium}, on("mysql"), {"mysql-nogtid", inTopic, harness.Debezium}, on("mariadb118")}
	eachParallel(t, stages, func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		s.env["OUTBOXD_BUFFER_EVENTS"] = "300" // slowly
		s.commit(harness.Times(20_000, 200_000))
		l := s.committing(200)
		settings := snapshotSettings(at)
		p := s.start(settings...)
		amid := 0
		for _, n := range []int{1, 700, 1, 2500, 1300} {
			s.more(n)
			p.Kill()
			p = s.active(settings...)
			for _, line := range p.Lines() {
				if strings.Contains(line.Text, "going on with a later one") {
					amid++
				}
			}
		}
		s.end(l)
		if amid < 3 {
			t.Errorf("only %d of the kills fell into the snapshot", amid)
		}
		s.finish(p, "exactly once, a snapshot killed", 0)
	})
}
