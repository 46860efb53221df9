package cluster

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
	"github.com/outboxd/outboxd/test/load"
)

// Exactly once on three brokers: outboxd, brokers and the database are killed
// in turn, and connections are cut. Readers of what is committed see each event
// once, and Java's see what ours see.
func TestExactlyOnceThroughFaults(t *testing.T) {
	for _, service := range []string{"postgres17", "mysql"} {
		t.Run(service, func(t *testing.T) {
			cfg, proxies := proxied(t)
			harness.Disturb(t, service)
			o := harness.NewExactlyOnce(t, service, partitions)
			o.Env["OUTBOXD_KAFKA_BROKERS"] = strings.Join(cfg.Brokers, ",")
			p := harness.Start(t, harness.Command{Env: o.Env})
			p.WaitActive(t)
			load := o.Load()
			load.PerSecond, load.Faults = 500, true
			l := start(t, o, load)
			more := func() {
				records, _ := o.Tail.Counts()
				o.Tail.WaitRecords(t, records+200)
			}
			again := func() {
				p.Kill()
				p = harness.Start(t, harness.Command{Env: o.Env})
			}
			more()
			for range harness.Times(1, 3) {
				victim := leader(t, o.Topics[0])
				harness.Ctl(t, "kill", victim)
				again()
				more()
				harness.Ctl(t, "start", victim)
				for _, proxy := range proxies {
					proxy.Cut()
				}
				more()
				again()
				harness.Ctl(t, "kill", service)
				harness.Ctl(t, "start", service)
				more()
				for _, m := range members { // the coordinator is among them
					for _, topic := range o.Topics {
						inSync(t, topic)
					}
					harness.Ctl(t, "stop", m)
					more()
					harness.Ctl(t, "start", m)
				}
			}
			if _, err := l.Stop(); err != nil {
				t.Fatal(err)
			}
			o.Finish(t, p, "exactly once: outboxd, brokers and database killed, connections cut", 0)
			sameAsJava(t, o.Topics)
		})
	}
}

func start(t *testing.T, o *harness.Outbox, cfg load.Config) *load.Load {
	t.Helper()
	l, err := load.Start(t.Context(), o.DB.SQL(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Stop() })
	return l
}

// sameAsJava compares what the Java client's read_committed consumer sees.
func sameAsJava(t *testing.T, topics []string) {
	t.Helper()
	args := append([]string{
		"-cp", harness.Need(t, "OUTBOXD_TEST_KAFKA_LIBS") + "/*", "testdata/Committed.java", strings.Join(harness.Brokers(t), ","),
	}, topics...)
	out, err := exec.CommandContext(t.Context(), "java", args...).Output()
	if err != nil {
		t.Fatalf("the Java client (a JDK of 17 or later is needed): %v", err)
	}
	java := strings.Split(strings.TrimSpace(string(out)), "\n")
	var ours []string
	for _, r := range harness.RecordsAt(t, checker.Committed, topics...) {
		ours = append(ours, fmt.Sprint(r.Topic, " ", r.Partition, " ", r.Offset))
	}
	slices.Sort(java)
	slices.Sort(ours)
	t.Logf("Java's read_committed consumer sees %d records, ours %d", len(java), len(ours))
	if !slices.Equal(java, ours) {
		t.Error("they are not the same")
	}
}
