package e2e

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// SIGKILL after counted records and right after counted saves: only what was
// delivered since the last save comes again.
func TestKilled(t *testing.T) {
	eachParallel(t, append(families(0), families(1)...), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics().smallWindow()
		p := s.active()
		l := s.committing(1500)
		counts := []int{1, 250, 97, 600, 333}
		kills := harness.Times(8, 40)
		for i := range kills {
			if i%2 == 0 {
				s.more(counts[i%len(counts)])
			} else {
				s.saved(1 + i%3)
			}
			p.Kill()
			p = s.active()
		}
		s.end(l)
		s.finish(p, "killed", kills*window)
	})
}

// An administrator ends the connection that reads the log: it goes on by itself and repeats nothing.
func TestReaderEnded(t *testing.T) {
	eachParallel(t, everywhere(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		p := s.active()
		l := s.committing(500)
		for range harness.Times(4, 20) {
			s.more(50)
			harness.Eventually(t, "the log is read", func() bool { return s.db.EndReaders(t) > 0 })
		}
		s.end(l)
		s.finish(p, "reader ended", 0)
	})
}

// E21: the database is killed and comes back, again and again; the process stays.
func TestDatabaseKilled(t *testing.T) {
	each(t, everywhere(1), func(t *testing.T, at stage) {
		harness.Disturb(t, at.service)
		s := newScene(t, at).withTopics()
		p := s.active()
		l := s.committing(1000)
		for range harness.Times(2, 5) {
			s.more(200)
			harness.Ctl(t, "kill", at.service)
			harness.Ctl(t, "start", at.service)
		}
		s.more(200)
		s.end(l)
		s.finish(p, "database killed", 0)
	})
}

// A clean restart of the database: Postgres waits for its readers, so the connector must let go.
func TestDatabaseRestarted(t *testing.T) {
	each(t, families(0), func(t *testing.T, at stage) {
		harness.Disturb(t, at.service)
		s := newScene(t, at).withTopics()
		p := s.active()
		l := s.committing(1000)
		s.more(200)
		harness.Ctl(t, "stop", at.service)
		harness.Eventually(t, "not ready without a database", func() bool {
			code, _ := p.Get("/readyz")
			return code == 503
		})
		harness.Ctl(t, "start", at.service)
		s.more(200)
		s.end(l)
		s.finish(p, "database restarted", 0)
	})
}

// The broker is killed and comes back: it knows what it was sent before.
func TestBrokerKilled(t *testing.T) {
	each(t, families(1), func(t *testing.T, at stage) { brokerFault(t, at, "kill") })
}

func TestBrokerRestarted(t *testing.T) {
	each(t, families(0), func(t *testing.T, at stage) { brokerFault(t, at, "stop") })
}

func brokerFault(t *testing.T, at stage, action string) {
	harness.Disturb(t, "kafka")
	s := newScene(t, at).withTopics()
	p := s.active()
	l := s.committing(1000)
	for range harness.Times(1, 4) {
		s.more(300)
		harness.Ctl(t, action, "kafka")
		harness.Ctl(t, "start", "kafka")
	}
	s.more(300)
	s.end(l)
	s.delivered()
	p.Stop(t)
	checker.Require(t, s.judge("broker "+action), 0)
}

// proxied puts a proxy between the connector and its database.
func (s *scene) proxied() *faultproxy.Proxy {
	s.t.Helper()
	addr := s.db.Addr()
	proxy, err := faultproxy.New(addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(proxy.Close)
	s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], addr, proxy.Addr(), 1)
	return proxy
}

// The network to the database breaks, in mid-message too: nothing is lost or repeated.
func TestDatabaseConnectionCut(t *testing.T) {
	eachParallel(t, families(3), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		proxy := s.proxied()
		p := s.active()
		l := s.committing(1000)
		for i := range harness.Times(6, 30) {
			s.more(100)
			if i%2 == 0 {
				proxy.Cut()
			} else {
				proxy.CutAfter(faultproxy.ToClient, int64(1000+777*i))
			}
		}
		s.more(100)
		s.end(l)
		s.finish(p, "connection cut", 0)
	})
}

// The database goes silent without closing a connection: the connector
// notices, is not ready, and goes on when it is back.
func TestDatabaseSilent(t *testing.T) {
	eachParallel(t, families(2), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		proxy := s.proxied()
		p := s.active()
		l := s.committing(200)
		s.more(100)
		proxy.Stall(faultproxy.Both)
		p.WaitCode(t, "/readyz", 503)
		p.WaitCode(t, "/livez", 200)
		proxy.Heal()
		p.WaitActive(t)
		s.more(100)
		s.end(l)
		s.finish(p, "database silent", 0)
	})
}
