package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// silentBroker is a Kafka that takes events and never answers.
func silentBroker(t *testing.T, topics ...string) (brokers string, asked <-chan struct{}) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		t.Fatal(err)
	}
	release, produced := make(chan struct{}), make(chan struct{}, 1)
	t.Cleanup(func() { close(release); cluster.Close() })
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case produced <- struct{}{}:
		default:
		}
		cluster.SleepControl(func() { <-release })
		return nil, nil, true
	})
	return strings.Join(cluster.ListenAddrs(), ","), produced
}

// A drain that can't be finished says so, and loses nothing.
func TestDrainIncomplete(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		at      stage
		timeout string
		signals int
	}{
		{"time limit", stage{"postgres18", inFile, harness.Debezium}, "1s", 1},
		{"second signal", stage{"mysql", inFile, harness.Binary}, "1h", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c.at).withTopics()
			brokers, asked := silentBroker(t, s.topics...)
			p := s.active("OUTBOXD_KAFKA_BROKERS="+brokers, "OUTBOXD_DRAIN_TIMEOUT="+c.timeout)
			s.commit(100)
			<-asked
			p.Signal(syscall.SIGTERM)
			if c.signals > 1 {
				harness.Eventually(t, "it drains", func() bool {
					_, status := p.Get("/status")
					return strings.Contains(status, "draining")
				})
				p.Signal(syscall.SIGTERM)
			}
			refused(t, p, 1, "drain_incomplete")
			s.finish(s.active(), "drain cut by "+c.name, 0) // the real broker never got them
		})
	}
}

// A stop during the start is a clean stop.
func TestStoppedDuringStart(t *testing.T) {
	eachParallel(t, families(2), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		for range harness.Times(5, 30) {
			p := s.start()
			p.WaitLog(t, "", 0) // the first line, whichever it is
			p.Stop(t)
		}
		p := s.active()
		s.commit(100)
		s.finish(p, "stopped during start", 0)
	})
}

// SIGKILL in the middle of a first start: the next one takes it up, and it is no lost place.
func TestKilledDuringFirstStart(t *testing.T) {
	eachParallel(t, append(families(2), families(1)...), func(t *testing.T, at stage) {
		at.shape = harness.Plain // of insertOne
		for i := range harness.Times(3, 30) {
			t.Run(strconv.Itoa(i), func(t *testing.T) { killedDuringFirstStart(t, at, i) })
		}
	})
}

// killedDuringFirstStart kills at one of three moments, which i chooses.
func killedDuringFirstStart(t *testing.T, at stage, i int) {
	s := newScene(t, at).withTopics()
	proxy := s.proxied()
	release := func() {}
	if i%3 == 0 { // an open transaction holds the place up: nothing but the intent is saved
		tx := s.insertOne()
		release = func() { _ = tx.Rollback() }
	}
	if at.store == inTopic { // made before, so that it can be followed
		harness.CreateTopic(t, s.checkpoints(), 1, map[string]string{"cleanup.policy": "compact"})
	}
	p := s.start()
	switch i % 3 {
	case 0:
		s.intended()
	case 1: // somewhere in its questions to the server
		before := proxy.Passed(faultproxy.ToClient)
		harness.Eventually(t, "it asks the server", func() bool { return proxy.Passed(faultproxy.ToClient) > before+int64(500*i) })
	case 2: // at its end
		p.WaitLog(t, "first start", 0)
	}
	p.Kill()
	if i%3 == 0 && !strings.Contains(s.run(0, "checkpoint", "show"), "none") {
		t.Error("it was killed past its intent")
	}
	release()
	p = s.active()
	s.commit(20)
	s.finish(p, "killed during the first start", 0)
}

// intended waits until there is any checkpoint.
func (s *scene) intended() {
	s.t.Helper()
	if s.store == inFile {
		harness.Eventually(s.t, "the intent is saved", func() bool {
			_, err := os.Stat(filepath.Join(s.dir, checkpointFile))
			return err == nil
		})
		return
	}
	harness.Follow(s.t, s.checkpoints()).WaitRecords(s.t, 1)
}

// A broker that isn't there at the start is waited for; nothing is ready meanwhile.
func TestBrokerAbsentAtStart(t *testing.T) {
	eachParallel(t, families(1), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		proxy, err := faultproxy.New(harness.Brokers(t)[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		proxy.Refuse()
		p := s.start("OUTBOXD_KAFKA_BROKERS=" + proxy.Addr())
		harness.Eventually(t, "it tries more than once", func() bool { return proxy.Connects() > 2 })
		p.WaitCode(t, "/readyz", 503)
		p.WaitCode(t, "/livez", 200)
		proxy.Heal()
		p.WaitActive(t)
		s.commit(100)
		s.finish(p, "broker absent at start", 0)
	})
}
