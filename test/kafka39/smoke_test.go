// Package kafka39 is a smoke test with the oldest Kafka that is supported.
package kafka39

import (
	"os"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

func TestMain(m *testing.M) {
	if brokers := os.Getenv("OUTBOXD_TEST_KAFKA39"); brokers != "" {
		_ = os.Setenv("OUTBOXD_TEST_KAFKA", brokers) // the harness makes and reads topics there; no NUL is in it
	}
	harness.Main(m)
}

// Events and checkpoints go to Kafka 3.9, through a restart and a SIGKILL of the connector.
func TestDelivers(t *testing.T) {
	o := harness.NewOutbox(t, "postgres17", 6)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	o.Commit(t, 2000)
	o.Tail.WaitEvents(t, 2000)
	p.Stop(t)
	for _, line := range p.Lines() {
		if strings.Contains(line.Text, "not tested") {
			t.Errorf("3.9 is warned of: %s", line.Text)
		}
	}
	o.Commit(t, 500)
	p = harness.Start(t, harness.Command{Env: o.Env})
	o.Tail.WaitEvents(t, 2500)
	o.Commit(t, 500)
	o.Finish(t, p, "restart with Kafka 3.9", 0)
}

// A broker is killed under load and comes back.
func TestBrokerKilled(t *testing.T) {
	harness.Disturb(t, "kafka39")
	o := harness.NewOutbox(t, "postgres17", 6)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	o.Commit(t, 500)
	harness.Ctl(t, "kill", "kafka39")
	o.Commit(t, 500)
	harness.Ctl(t, "start", "kafka39")
	o.Finish(t, p, "Kafka 3.9 killed", 200)
}
