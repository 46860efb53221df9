package harness

import (
	"os/exec"
	"testing"
)

// Ctl stops, kills or starts a service: "kill", "postgres17".
func Ctl(t testing.TB, action, service string) {
	t.Helper()
	out, err := exec.Command(Need(t, "OUTBOXD_TEST_CTL"), action, service).CombinedOutput()
	if err != nil {
		t.Fatalf("ctl %s %s: %v\n%s", action, service, err, out)
	}
}

// Disturb promises that the service runs again at the end of the test, however it ends.
func Disturb(t testing.TB, service string) {
	t.Helper()
	t.Cleanup(func() { Ctl(t, "start", service) })
}
