package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// A second instance is ready as a standby, publishes nothing, and takes over.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		signal syscall.Signal
		window int
	}{{"after a clean stop", syscall.SIGTERM, 0}, {"after a crash", syscall.SIGKILL, window}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, "postgres16", harness.Plain).withTopics().smallWindow()
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
			first.Signal(c.signal)
			first.Wait(t)
			second.WaitActive(t)
			records, _ := s.tail.Counts()
			s.tail.WaitRecords(t, records+200)
			s.end(l)
			s.finish(second, "taken over "+c.name, c.window)
		})
	}
}
