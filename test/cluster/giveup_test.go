package cluster

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// Cut off from the database while Kafka stalls, an instance has events that it
// would send again and again. It gives that up: another one takes over, and nothing of
// the first comes behind what the second has sent.
func TestGivesUpWithoutTheLease(t *testing.T) {
	for _, service := range []string{"postgres17", "mysql"} {
		t.Run(service, func(t *testing.T) {
			cfg, brokers := proxied(t)
			o := harness.NewOutbox(t, service, partitions)
			o.Env["OUTBOXD_CHECKPOINT_MAX_EVENTS"] = "100"
			o.Env["OUTBOXD_BUFFER_EVENTS"] = "400"
			direct, kafka := o.Env["OUTBOXD_SOURCE_URL"], o.Env["OUTBOXD_KAFKA_BROKERS"]
			database, err := faultproxy.New(o.DB.Addr())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(database.Close)

			o.Env["OUTBOXD_SOURCE_URL"] = strings.Replace(direct, o.DB.Addr(), database.Addr(), 1)
			o.Env["OUTBOXD_KAFKA_BROKERS"] = strings.Join(cfg.Brokers, ",")
			first := harness.Start(t, harness.Command{Env: o.Env})
			first.WaitActive(t)
			o.Commit(t, 200)
			o.Tail.WaitEvents(t, 200)
			for _, p := range brokers {
				p.Stall(faultproxy.ToServer)
			}
			o.Commit(t, 300)

			o.Env["OUTBOXD_SOURCE_URL"], o.Env["OUTBOXD_KAFKA_BROKERS"] = direct, kafka
			second := harness.Start(t, harness.Command{Env: o.Env})
			second.WaitReady(t)
			database.Cut()
			database.Refuse()
			second.WaitActive(t)
			o.Tail.WaitEvents(t, 500)
			records, _ := o.Tail.Counts()

			for _, p := range brokers { // what was on the wire is gone with the connections
				p.Cut()
				p.Heal()
			}
			harness.Never(t, "something of the first behind the second", func() bool {
				now, _ := o.Tail.Counts()
				return now > records
			})
			database.Heal()
			first.WaitCode(t, "/readyz?role=active", 503)
			first.WaitReady(t)
			o.Commit(t, 100)
			o.Tail.WaitEvents(t, 600)
			if now, _ := o.Tail.Counts(); now != records+100 {
				t.Errorf("%d records came for 100 events", now-records)
			}
			first.Stop(t)
			o.Finish(t, second, "cut off from the database while Kafka stalled", 100+400)
		})
	}
}
