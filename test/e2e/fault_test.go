package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// SIGKILL after counted records and right after counted saves: only what was
// delivered since the last save comes again.
func TestKilled(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres17", harness.Plain).withTopics().smallWindow()
	p := s.active()
	l := s.committing(1500)
	counts := []int{1, 250, 97, 600, 333}
	kills := harness.Times(20, 100)
	for i := range kills {
		if i%2 == 0 {
			records, _ := s.tail.Counts()
			s.tail.WaitRecords(t, records+counts[i%len(counts)])
		} else {
			waitSaves(t, filepath.Join(s.dir, "outboxd.checkpoint"), 1+i%3)
		}
		p.Kill()
		p = s.active()
	}
	s.end(l)
	s.finish(p, "killed", kills*window)
}

// waitSaves waits until the checkpoint was replaced n times and returns at once.
func waitSaves(t *testing.T, path string, n int) {
	t.Helper()
	saved := func() time.Time {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.ModTime()
	}
	late := time.Now().Add(harness.Patience)
	for last := saved(); n > 0; {
		if at := saved(); !at.Equal(last) {
			last = at
			n--
		}
		if time.Now().After(late) {
			t.Fatalf("%s is not saved any more", path)
		}
	}
}

// An administrator ends the connection that reads the log: it goes on by itself and repeats nothing.
func TestReaderEnded(t *testing.T) {
	t.Parallel()
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, service, harness.Plain).withTopics()
			p := s.active()
			l := s.committing(500)
			for range harness.Times(5, 20) {
				records, _ := s.tail.Counts()
				s.tail.WaitRecords(t, records+50)
				harness.Eventually(t, "the log is read", func() bool { return s.db.EndReaders(t) > 0 })
			}
			s.end(l)
			s.finish(p, "reader ended", 0)
		})
	}
}

// E21: the database is killed and comes back, again and again; the process stays.
func TestDatabaseKilled(t *testing.T) {
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			harness.Disturb(t, service)
			s := newScene(t, service, harness.Debezium).withTopics()
			p := s.active()
			l := s.committing(1000)
			for range harness.Times(3, 10) {
				records, _ := s.tail.Counts()
				s.tail.WaitRecords(t, records+200)
				harness.Ctl(t, "kill", service)
				harness.Ctl(t, "start", service)
			}
			records, _ := s.tail.Counts()
			s.tail.WaitRecords(t, records+200)
			s.end(l)
			s.finish(p, "database killed", 0)
		})
	}
}

// A clean restart of the database: it waits for its readers, so the connector must let go.
func TestDatabaseRestarted(t *testing.T) {
	const service = "postgres15"
	harness.Disturb(t, service)
	s := newScene(t, service, harness.Plain).withTopics()
	p := s.active()
	l := s.committing(1000)
	s.tail.WaitRecords(t, 200)
	harness.Ctl(t, "stop", service)
	harness.Eventually(t, "not ready without a database", func() bool {
		code, _ := p.Get("/readyz")
		return code == 503
	})
	harness.Ctl(t, "start", service)
	records, _ := s.tail.Counts()
	s.tail.WaitRecords(t, records+200)
	s.end(l)
	s.finish(p, "database restarted", 0)
}

// The broker is killed and comes back. Repeats and broken order are possible
// only where the producer reported an error; both are printed.
func TestBrokerKilled(t *testing.T)    { brokerFault(t, "kill") }
func TestBrokerRestarted(t *testing.T) { brokerFault(t, "stop") }

func brokerFault(t *testing.T, action string) {
	harness.Disturb(t, "kafka")
	s := newScene(t, "postgres17", harness.Plain).withTopics()
	p := s.active()
	l := s.committing(1000)
	for range harness.Times(2, 5) {
		records, _ := s.tail.Counts()
		s.tail.WaitRecords(t, records+300)
		harness.Ctl(t, action, "kafka")
		harness.Ctl(t, "start", "kafka")
	}
	records, _ := s.tail.Counts()
	s.tail.WaitRecords(t, records+300)
	s.end(l)
	s.delivered()
	restarts, _ := p.Metric("outboxd_restarts_total")
	p.Stop(t)
	report := s.judge("broker " + action)
	t.Logf("sessions ended by an error: %v", restarts)
	if restarts == 0 {
		checker.Require(t, report, 0)
		return
	}
	report.Inversions = checker.Finding{}
	checker.Require(t, report, report.Records)
}

// proxied puts a proxy between the connector and its database.
func (s *scene) proxied() *faultproxy.Proxy {
	s.t.Helper()
	addr := s.db.(interface{ Addr() string }).Addr()
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
	t.Parallel()
	s := newScene(t, "postgres16", harness.Debezium).withTopics()
	proxy := s.proxied()
	p := s.active()
	l := s.committing(1000)
	for i := range harness.Times(6, 30) {
		records, _ := s.tail.Counts()
		s.tail.WaitRecords(t, records+100)
		if i%2 == 0 {
			proxy.Cut()
		} else {
			proxy.CutAfter(faultproxy.ToClient, int64(1000+777*i))
		}
	}
	records, _ := s.tail.Counts()
	s.tail.WaitRecords(t, records+100)
	s.end(l)
	s.finish(p, "connection cut", 0)
}

// The database goes silent without closing a connection: the connector
// notices, is not ready, and goes on when it is back.
func TestDatabaseSilent(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres15", harness.Plain).withTopics()
	proxy := s.proxied()
	p := s.active()
	l := s.committing(200)
	s.tail.WaitRecords(t, 100)
	proxy.Stall(faultproxy.Both)
	p.WaitCode(t, "/readyz", 503)
	p.WaitCode(t, "/livez", 200)
	proxy.Heal()
	p.WaitActive(t)
	records, _ := s.tail.Counts()
	s.tail.WaitRecords(t, records+100)
	s.end(l)
	s.finish(p, "database silent", 0)
}
