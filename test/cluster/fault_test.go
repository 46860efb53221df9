package cluster

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// Faults of a cluster that stays able to elect leaders: the sink goes on by
// itself, and every event stands in its topic once and in order.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(t *testing.T, f *feed)
	}{
		{"leader killed", func(t *testing.T, f *feed) {
			victim := leader(t, f.topic)
			harness.Ctl(t, "kill", victim)
			f.more(50)
			harness.Ctl(t, "start", victim)
		}},
		{"rolling restart", func(t *testing.T, f *feed) {
			for _, m := range members {
				harness.Ctl(t, "stop", m)
				f.more(20)
				harness.Ctl(t, "start", m)
				inSync(t, f.topic)
			}
		}},
		{"leaders moved", func(t *testing.T, f *feed) {
			for range 3 {
				moveLeaders(t, f.topic)
				f.more(10)
			}
		}},
		{"too few in sync", func(t *testing.T, f *feed) {
			harness.SetTopic(t, f.topic, "min.insync.replicas", "3")
			victim := leader(t, f.topic)
			harness.Ctl(t, "kill", victim)
			f.stalled()
			harness.Ctl(t, "start", victim)
		}},
		{"two of three killed", func(t *testing.T, f *feed) {
			harness.Ctl(t, "kill", "kafka3-1")
			harness.Ctl(t, "kill", "kafka3-2")
			f.stalled()
			harness.Ctl(t, "start", "kafka3-2")
			f.more(20)
			harness.Ctl(t, "start", "kafka3-1")
		}},
		{"all killed", func(t *testing.T, f *feed) {
			harness.Ctl(t, "kill", "kafka3")
			f.stalled()
			harness.Ctl(t, "start", "kafka3")
		}},
		{"brokers at other addresses", func(t *testing.T, f *feed) {
			for _, m := range members[:harness.Times(2, 3)] { // one at a time, or nobody would find them
				for range 2 { // there and back
					harness.Ctl(t, "move", m)
					inSync(t, f.topic)
					f.more(20)
				}
			}
		}},
		{"throttled", func(t *testing.T, f *feed) {
			throttle(t, 20_000)
			f.more(50)
			throttle(t, 0)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			repaired(t)
			f := feeding(t, plain(t))
			f.more(20)
			c.do(t, f)
			f.more(50)
			f.finish(c.name, 0)
		})
	}
}

// moveLeaders has each partition led by another of its replicas.
func moveLeaders(t *testing.T, topic string) {
	t.Helper()
	var moves kadm.AlterPartitionAssignmentsReq
	var which kadm.TopicsSet
	for _, p := range describe(t, topic).Partitions {
		moves.Assign(topic, p.Partition, append(p.Replicas[1:len(p.Replicas):len(p.Replicas)], p.Replicas[0]))
		which.Add(topic, p.Partition)
	}
	admin(t, func(ctx context.Context, c *kadm.Client) error {
		_, err := c.AlterPartitionAssignments(ctx, moves)
		return err
	})
	inSync(t, topic)
	admin(t, func(ctx context.Context, c *kadm.Client) error {
		_, err := c.ElectLeaders(ctx, kadm.ElectPreferredReplica, which)
		return err
	})
}

// throttle limits what our client may write to each broker, in bytes a second; 0 ends it.
func throttle(t *testing.T, bytes float64) {
	t.Helper()
	id := "outboxd"
	admin(t, func(ctx context.Context, c *kadm.Client) error {
		answers, err := c.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &id}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: bytes, Remove: bytes == 0}},
		}})
		for _, a := range answers {
			if err == nil {
				err = a.Err
			}
		}
		return err
	})
}

// Connections break in mid request: requests that never arrived, and requests
// that did while their answers are lost.
func TestConnectionsCut(t *testing.T) {
	for _, c := range []struct {
		name string
		way  faultproxy.Direction
	}{
		{"requests lost", faultproxy.ToServer},
		{"answers lost", faultproxy.ToClient},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, proxies := proxied(t)
			f := feeding(t, cfg)
			f.more(20)
			for i := range harness.Times(20, 200) {
				before := connects(proxies)
				for _, p := range proxies {
					p.CutAfter(c.way, int64(1+211*i%1999)) // within a request or an answer
				}
				harness.Eventually(t, "a connection is cut, and made again", func() bool { return connects(proxies) > before })
				f.more(2)
			}
			f.finish(c.name, 0)
		})
	}
}

func connects(proxies []*faultproxy.Proxy) (n int) {
	for _, p := range proxies {
		n += p.Connects()
	}
	return n
}

// Brokers that take what is sent and say nothing: the requests time out, and are known when they come again.
func TestBrokersSilent(t *testing.T) {
	cfg, proxies := proxied(t)
	f := feeding(t, cfg)
	f.more(20)
	for _, p := range proxies {
		p.Stall(faultproxy.ToClient)
	}
	f.stalled()
	for _, p := range proxies {
		p.Cut()
		p.Heal()
	}
	f.more(20)
	f.finish("answers held back, connections cut", 0)
}

func TestBrokersDownAtStart(t *testing.T) {
	repaired(t)
	topic := harness.Unique("cluster-")
	harness.CreateTopics(t, partitions, topic)
	inSync(t, topic)
	harness.Ctl(t, "stop", "kafka3")
	f := feedingTopic(t, plain(t), topic)
	harness.Never(t, "something is settled", func() bool { n, _ := f.sinks(); return n > 0 })
	harness.Ctl(t, "start", "kafka3")
	f.more(20)
	f.finish("brokers down at start", 0)
}

func TestTopicAppears(t *testing.T) {
	topic := harness.Unique("cluster-")
	f := feedingTopic(t, plain(t), topic)
	harness.Eventually(t, "the sink waits for its topic", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.batches) == 1
	})
	harness.CreateTopics(t, partitions, topic)
	f.more(20)
	f.finish("topic appears later", 0)
}
