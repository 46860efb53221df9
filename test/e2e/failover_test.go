package e2e

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// withStandby gives the scene a standby, and the connector both addresses. What
// is changed on the primary is set back at the end of the test, when it runs again.
func (s *scene) withStandby() (primary, standby *harness.Postgres) {
	s.t.Helper()
	primary = s.db.(*harness.Postgres)
	standby = primary.Standby(s.t)
	s.t.Cleanup(func() {
		_, _ = primary.SQL().Exec("ALTER SYSTEM RESET ALL")
		_, _ = primary.SQL().Exec("SELECT pg_reload_conf()")
	})
	harness.Disturb(s.t, primary.Service())
	s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], primary.Addr(), primary.Addr()+","+standby.Addr(), 1)
	return primary, standby
}

// The primary is killed under load and the standby is promoted. With a failover
// slot the connector goes on there by itself: nothing that the new primary has
// is missing, nothing is repeated or inverted, and nothing was sent that the new primary lacks.
func TestFailover(t *testing.T) {
	each(t, []stage{on("postgres17"), {"postgres18", inTopic, harness.Debezium}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		primary, standby := s.withStandby()
		s.exec("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
		s.exec("SELECT pg_reload_conf()")
		p := s.active("OUTBOXD_POSTGRES_FAILOVER_SLOT=true")
		s.commit(100)
		s.delivered()
		harness.Eventually(t, "the standby keeps the slot", func() bool {
			primary.Exec(t, "SELECT pg_log_standby_snapshot()")
			s.commit(1)
			return standby.Int(t, "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND to_jsonb(pg_replication_slots)->>'synced' = 'true' AND NOT temporary") == 1
		})
		l := s.committing(1000)
		s.more(300)
		harness.Ctl(t, "kill", at.service)
		_, _ = l.Stop() // its database is gone
		standby.Promote(t)
		s.db = standby
		l = s.committing(1000)
		s.more(300)
		s.end(l)
		s.finish(p, "failover", 0)
	})
}

// Before 17 a slot stays on the old primary. That is told with the way out, which works.
func TestFailoverWithoutTheSlot(t *testing.T) {
	each(t, []stage{on("postgres15"), {"postgres16", inTopic, harness.Plain}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		primary, standby := s.withStandby()
		p := s.active()
		s.commit(100)
		s.delivered()
		primary.Follow(t, standby)
		harness.Ctl(t, "kill", at.service)
		standby.Promote(t)
		s.db = standby
		refused(t, p, 3, "position_lost", "promoted", "outboxd checkpoint delete", "OUTBOXD_START=now")
		s.commit(50)
		s.run(0, "checkpoint", "delete", "--yes")
		p = s.active("OUTBOXD_START=now")
		s.commit(100)
		s.tail.WaitEvents(t, 200)
		p.Stop(t)
		if r := s.compare("failover without the slot", s.truth()); r.Missing.Count != 50 {
			t.Errorf("50 rows were committed while there was no slot, and %d are missing\n%s", r.Missing.Count, r)
		}
	})
}

// A failover slot is asked for where there are none yet.
func TestNoFailoverSlots(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres16"))
	refused(t, s.start("OUTBOXD_POSTGRES_FAILOVER_SLOT=true"), 2, "server_setting", "17")
}

// A slot that is there becomes a failover slot.
func TestSlotBecomesFailoverSlot(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres18")).withTopics()
	s.once(50)
	p := s.active("OUTBOXD_POSTGRES_FAILOVER_SLOT=true")
	if n := s.db.(*harness.Postgres).Int(t, "SELECT count(*) FROM pg_replication_slots WHERE database = current_database() AND failover"); n != 1 {
		t.Errorf("%d failover slots", n)
	}
	s.commit(50)
	s.finish(p, "slot becomes failover slot", 0)
}
