package e2e

import (
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// A second instance is ready as a standby, publishes nothing, and takes over.
func TestStandbyTakesOver(t *testing.T) {
	t.Run("after a clean stop", func(t *testing.T) {
		eachParallel(t, families(1), func(t *testing.T, at stage) { takeOver(t, at, syscall.SIGTERM, 0) })
	})
	t.Run("after a crash", func(t *testing.T) {
		eachParallel(t, families(0), func(t *testing.T, at stage) { takeOver(t, at, syscall.SIGKILL, window) })
	})
}

func takeOver(t *testing.T, at stage, end syscall.Signal, window int) {
	s := newScene(t, at).withTopics().smallWindow()
	first := s.active()
	second := s.start()
	second.WaitReady(t)
	if code, _ := second.Get("/readyz?role=active"); code != 503 {
		t.Errorf("strict readiness of a standby is %d, want 503", code)
	}
	if _, body := second.Get("/readyz"); !strings.Contains(body, "standby") {
		t.Errorf("readiness of a standby does not name its role: %s", body)
	}
	l := s.committing(500)
	s.tail.WaitRecords(t, 200)
	if code, _ := second.Get("/readyz?role=active"); code != 503 {
		t.Errorf("two instances are active")
	}
	first.Signal(end)
	first.Wait(t)
	second.WaitActive(t)
	s.more(200)
	s.end(l)
	s.finish(second, "taken over after "+end.String(), window)
}

// A standby asks for the lease once a second, and leaves no line in the server's log.
func TestStandbyIsQuiet(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		first := s.active()
		second := s.start()
		second.WaitReady(t)
		source, err := url.Parse(s.env["OUTBOXD_SOURCE_URL"])
		if err != nil {
			t.Fatal(err)
		}
		database := strings.TrimPrefix(source.Path, "/")
		before := len(harness.ServerLog(t, at.service))
		harness.Never(t, "a complaint about a standby in the server's log", func() bool {
			for _, line := range harness.ServerLog(t, at.service)[before-1:] {
				if strings.Contains(line, database) && !strings.Contains(line, "LOG:") {
					t.Log(line)
					return true
				}
			}
			return false
		})
		second.Stop(t)
		first.Stop(t)
	})
}

// An instance that was active, lost its lease with its connections, and finds another one active is a standby then.
func TestActiveAgainAsStandby(t *testing.T) {
	eachParallel(t, families(1), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics().smallWindow()
		direct := s.env["OUTBOXD_SOURCE_URL"]
		proxy := s.proxied()
		first := s.active()
		second := s.start("OUTBOXD_SOURCE_URL=" + direct)
		second.WaitReady(t)
		l := s.committing(500)
		s.tail.WaitRecords(t, 200)
		proxy.Cut()
		proxy.Refuse()
		second.WaitActive(t)
		s.more(200)
		proxy.Heal()
		first.WaitReady(t)
		if code, _ := first.Get("/readyz?role=active"); code != 503 {
			t.Errorf("two instances are active")
		}
		s.more(200)
		s.end(l)
		s.delivered()
		first.Stop(t)
		s.finish(second, "taken over from one that lost its lease", window)
	})
}
