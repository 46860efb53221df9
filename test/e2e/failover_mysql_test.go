package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// replicated are servers whose standby follows by GTID. No id is given twice, whoever is the primary.
func replicated() []stage {
	return []stage{{"mysql", inFile, harness.Debezium}, {"mariadb118", inTopic, harness.Debezium}}
}

// withReplica gives the scene a replica, and the connector a proxy before the primary, then the replica.
func (s *scene) withReplica() (primary, replica *harness.MySQL, proxy *faultproxy.Proxy) {
	s.t.Helper()
	primary = s.db.(*harness.MySQL)
	harness.Disturb(s.t, primary.Service())
	replica = primary.Standby(s.t)
	proxy = s.proxied()
	s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], proxy.Addr(), proxy.Addr()+","+replica.Addr(), 1)
	return primary, replica, proxy
}

// The primary is killed under load and the replica is promoted. By GTID the connector goes on there by itself, at the
// next host of its list: nothing that the new primary has is missing, and nothing is repeated or inverted.
func TestFailoverByGTID(t *testing.T) {
	each(t, replicated(), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		primary, replica, proxy := s.withReplica()
		p := s.active()
		l := s.committing(1000)
		s.more(300)
		proxy.Stall(faultproxy.ToClient) // what was published is on the replica, as semi-synchronous replication would have it
		primary.Follow(t, replica)
		harness.Ctl(t, "kill", at.service)
		_, _ = l.Stop() // its database is gone
		proxy.Heal()
		replica.Promote(t)
		s.db = replica
		l = s.committing(1000)
		s.more(300)
		s.end(l)
		s.finish(p, "failover", 0)
	})
}

var setCommand = regexp.MustCompile("checkpoint set --to '?([^`']+)'?`")

// A replica that lacks what was published is not followed. That is told with the way out, which works.
func TestFailoverThatLosesTransactions(t *testing.T) {
	each(t, replicated(), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		primary, replica, proxy := s.withReplica()
		p := s.active()
		s.commit(100)
		s.delivered()
		primary.Follow(t, replica)
		replica.StopFollowing(t)
		s.commit(20)
		s.delivered()
		harness.Ctl(t, "kill", at.service)
		replica.Promote(t)
		proxy.Cut()
		code := "diverged"
		if at.service != "mysql" {
			code = "foreign"
		}
		refused(t, p, 3, code, "checkpoint set --to", "took over")
		lines := p.Lines()
		fix, _ := lines[len(lines)-1].Fields["fix"].(string)
		way := setCommand.FindStringSubmatch(fix)
		if way == nil {
			t.Fatalf("no way out in %s", fix)
		}
		s.db = replica
		s.commit(50)
		s.run(0, "checkpoint", "set", "--yes", "--to", way[1])
		p = s.active()
		s.commit(50)
		s.tail.WaitEvents(t, 220)
		p.Stop(t)
		r := s.compare("failover that loses transactions", s.truth())
		if r.Missing.Count != 0 || r.Phantom.Count != 20 {
			t.Errorf("20 events are of transactions that the new primary lacks\n%s", r)
		}
	})
}

// File and offset belong to one server.
func TestFailoverByFile(t *testing.T) {
	each(t, replicated(), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		primary, replica, _ := s.withReplica()
		p := s.active("OUTBOXD_MYSQL_POSITION=file")
		s.commit(100)
		s.delivered()
		primary.Follow(t, replica)
		harness.Ctl(t, "kill", at.service)
		replica.Promote(t)
		code := "foreign"
		if at.service != "mysql" {
			code = "position_lost"
		}
		refused(t, p, 3, code, "checkpoint delete")
	})
}
