package harness

import (
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// Ctl stops, kills, starts or moves a service: "kill", "postgres17". What was stopped
// or killed answers no more when it returns. A start right after a kill may
// find a port that is not free yet, so it is tried again.
func Ctl(t testing.TB, action, service string) {
	t.Helper()
	tries := 1
	if action == "start" {
		tries = 3
	}
	for {
		tries--
		out, err := exec.Command(Need(t, "OUTBOXD_TEST_CTL"), action, service).CombinedOutput()
		if err == nil {
			break
		}
		if tries == 0 {
			t.Fatalf("ctl %s %s: %v\n%s", action, service, err, out)
		}
		t.Logf("ctl %s %s, once more: %v\n%s", action, service, err, out)
	}
	if action == "start" || action == "move" {
		return
	}
	// The kernel closes the ports of a killed process last.
	addr := address(t, service)
	Eventually(t, "nobody listens at "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// ServerLog is what a service has logged since its start; nothing when its
// address was given from outside.
func ServerLog(t testing.TB, service string) []string {
	t.Helper()
	out, err := exec.Command(Need(t, "OUTBOXD_TEST_CTL"), "log", service).Output()
	if err != nil {
		t.Fatalf("ctl log %s: %v", service, err)
	}
	return strings.Split(string(out), "\n")
}

// address is the host:port of a service.
func address(t testing.TB, service string) string {
	t.Helper()
	if strings.HasPrefix(service, "kafka") && !strings.HasPrefix(service, "kafka3-") {
		return Brokers(t)[0]
	}
	if n, ok := strings.CutPrefix(service, "kafka3-"); ok { // the n-th of the cluster, unless it was moved
		i, err := strconv.Atoi(n)
		all := strings.Split(Need(t, "OUTBOXD_TEST_KAFKA3"), ",")
		if err != nil || i < 1 || i > len(all) {
			t.Fatalf("%s is no broker of the cluster", service)
		}
		return all[i-1]
	}
	u, err := url.Parse(Need(t, variable(service)))
	if err != nil {
		t.Fatalf("address of %s: %v", service, err)
	}
	return u.Host
}

// variable is the name in the environment that holds a database's address.
func variable(service string) string {
	if strings.HasSuffix(service, "-replica") {
		service = "postgres-replica"
	}
	return "OUTBOXD_TEST_" + strings.ToUpper(strings.ReplaceAll(service, "-", "_"))
}

// Disturb promises that the service runs again at the end of the test, however it ends.
func Disturb(t testing.TB, service string) {
	t.Helper()
	t.Cleanup(func() { Ctl(t, "start", service) })
}
