package kafkasink

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

// A leader that moves and a connection that drops are the sink's to mend:
// nothing is lost, repeated or reordered, and nobody is told.
func TestFaultsThatMend(t *testing.T) {
	drop := func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("drop"), true }
	for _, c := range []struct {
		name string
		do   func(c *kfake.Cluster)
	}{
		{"leaders move", (*kfake.Cluster).ShufflePartitionLeaders},
		{"connections drop", func(c *kfake.Cluster) { c.ControlKey(int16(kmsg.Produce), drop) }},
		{"brokers gone for a while", func(c *kfake.Cluster) {
			left := 15
			c.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
				left--
				c.KeepControl()
				if left < 0 {
					return nil, nil, false
				}
				return drop(r)
			})
		}},
		{"timed out", produceFault(kerr.RequestTimedOut)},
		{"leader's epoch is old", produceFault(kerr.FencedLeaderEpoch)},
		{"leader's disk", produceFault(kerr.KafkaStorageError)},
		{"topic not known to the leader", produceFault(kerr.UnknownTopicOrPartition)},
		{"records damaged on the way", produceFault(kerr.CorruptMessage)},
		{"server's own fault", produceFault(kerr.UnknownServerError)},
		{"code nobody expects", produceFault(kerr.GroupIDNotFound)},
		{"rights taken for a moment", produceFault(kerr.TopicAuthorizationFailed)},
		{"policy for a moment", produceFault(kerr.PolicyViolation)},
		{"batch too large", func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1})
		}},
		{"producer's state expired", produceFault(kerr.UnknownProducerID)},
		{"sequence unknown", produceFault(kerr.OutOfOrderSequenceNumber)},
		{"producer's epoch is old", produceFault(kerr.InvalidProducerEpoch)},
		{"too few replicas", func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: 3})
		}},
		{"answer lost", func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const batches, size = 40, 500
			cluster := fake(t)
			s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
			a := newAnswers()
			for i := range batches {
				if i%10 == 5 {
					c.do(cluster)
				}
				a.publish(t.Context(), s, numbered(topic, i*size, size))
			}
			a.wantDelivered(t)
			if err := s.Close(limited(t)); err != nil {
				t.Fatal(err)
			}
			wantExact(t, read(t, cluster.ListenAddrs(), topic), batches*size, 12)
		})
	}
}

// produceFault answers three requests with err, and takes nothing of them.
func produceFault(err *kerr.Error) func(*kfake.Cluster) {
	return func(c *kfake.Cluster) { c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: 3}) }
}

// A broker that has just started answers without a producer id. Nothing may be
// sent without one: the brokers would know no copy of it.
func TestNoProducerID(t *testing.T) {
	cluster := fake(t)
	loading := 0
	cluster.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if loading == 3 {
			return nil, nil, false
		}
		loading++
		cluster.KeepControl()
		answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		answer.ErrorCode, answer.ProducerID, answer.ProducerEpoch = kerr.CoordinatorLoadInProgress.Code, -1, -1
		return answer, nil, true
	})
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 100))
	a.wantDelivered(t)
	for _, r := range read(t, cluster.ListenAddrs(), topic) {
		if r.producer < 0 {
			t.Fatalf("%s was sent without a producer id", r.Value)
		}
	}
}

// A broker goes by the timestamps of what it was sent to tell when to forget a
// producer. What is in doubt and that old is sent again and counted, once.
func TestOldEventsInDoubtAreCounted(t *testing.T) {
	for _, c := range []struct {
		name string
		age  time.Duration
		want int64
	}{{"of today", time.Hour, 0}, {"of yesterday", 25 * time.Hour, 100}} {
		t.Run(c.name, func(t *testing.T) {
			cluster := fake(t, kfake.NumBrokers(1))
			drops := 3
			cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				drops--
				if drops < 0 {
					return nil, nil, false
				}
				cluster.KeepControl()
				return nil, errors.New("drop"), true
			})
			var counted atomic.Int64
			cfg := kafka.Config{Brokers: cluster.ListenAddrs(), PossibleRepeat: func(n int) { counted.Add(int64(n)) }}
			s := open(t, cfg, zap.NewNop())
			a := newAnswers()
			batch := numbered(topic, 0, 100)
			for i := range batch {
				batch[i].Timestamp = time.Now().Add(-c.age)
			}
			a.publish(t.Context(), s, batch)
			a.wantDelivered(t)
			if n := counted.Load(); n != c.want {
				t.Fatalf("%d possible repeats counted, want %d", n, c.want)
			}
		})
	}
}

func TestRefusalThatStaysFinishesTheSink(t *testing.T) {
	const size = 200
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs(), RejectAfter: time.Millisecond}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, size))
	a.wantDelivered(t)

	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	failed := 0
	for i := 1; i < 50 && failed == 0; i++ {
		a.publish(t.Context(), s, numbered(topic, i*size, size))
		for _, err := range a.when(t, func([][]error) bool { return true }) {
			if err != nil {
				failed = i
			}
		}
	}
	// From here on a failure is known, so nothing may succeed any more.
	first := a.when(t, func(got [][]error) bool {
		return slices.ContainsFunc(got, func(e []error) bool { return len(e) > 0 && e[0] != nil })
	})
	known := len(first)
	for i := range 10 {
		a.publish(t.Context(), s, numbered(topic, (known+i)*size, size))
	}
	if err := s.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	got := a.all(t)
	var refusal *sink.Refusal
	for _, err := range got[known:] {
		if !errors.As(err, &refusal) || refusal.Reason != kafka.ReasonNotAuthorized {
			t.Fatalf("a batch published after the failure: done(%v)", err)
		}
	}

	// Whatever was settled with nil is there, whole.
	stored := map[string]bool{}
	for _, r := range read(t, cluster.ListenAddrs(), topic) {
		stored[string(r.Value)] = true
	}
	for i, err := range got {
		for _, m := range numbered(topic, i*size, size) {
			if err == nil && !stored[string(m.Value)] {
				t.Fatalf("batch %d was settled with nil and %s is missing", i, m.Value)
			}
		}
	}
}

// A sink that lost the lease must not send what waits in it, not even when it
// is closed and the brokers would take it; what they have taken counts.
func TestClosedSinkSendsNothing(t *testing.T) {
	cluster := fake(t)
	// The answer to the first request is held back until the sink is halted.
	held, wire := make(chan func(), 1), make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		release := make(chan struct{})
		held <- func() { close(release) }
		close(wire)
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	onWire := numbered(topic, 0, 1)
	a.publish(t.Context(), s, onWire)
	<-wire
	// One request a broker is on its way, so the same key has to wait behind it.
	for range 5 {
		waiting := numbered(topic, 97, 1)
		a.publish(t.Context(), s, waiting)
	}
	closed := make(chan error)
	go func() { closed <- s.Close(limited(t)) }()
	harness.Eventually(t, "the end of sending", func() bool {
		var err error
		s.Publish(t.Context(), nil, func(e error) { err = e })
		return err != nil
	})
	(<-held)()
	if err := <-closed; err != nil {
		t.Fatalf("Close: %v", err)
	}
	got := a.all(t)
	if got[0] != nil {
		t.Fatalf("what was on the wire: done(%v)", got[0])
	}
	for _, err := range got[1:] {
		if err == nil {
			t.Fatal("what waited was settled with nil")
		}
	}
	if stored := read(t, cluster.ListenAddrs(), topic); len(stored) != 1 {
		t.Fatalf("%d records are stored, want the one that was on the wire", len(stored))
	}
}

// With its brokers dead nothing is on the wire, so Close need not wait. Then
// nothing is left that could send what was given up.
func TestCloseWithDeadBrokers(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(12, topic))
	if err != nil {
		t.Fatal(err)
	}
	s, err := kafka.Open(limited(t), kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 100))
	a.wantDelivered(t)

	cluster.Close()
	for i := range 5 {
		a.publish(t.Context(), s, numbered(topic, 100+i*100, 100))
	}
	if err := s.Close(limited(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	for i, err := range a.all(t)[1:] {
		if err == nil {
			t.Fatalf("batch %d was settled with nil", i)
		}
	}
	a.all(t)
	harness.Eventually(t, "the producer's end", func() bool {
		stacks := make([]byte, 1<<22)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("sarama."))
	})
}

// A broker that takes a request and never answers: Close waits as long as it may, and cuts.
func TestCloseWithASilentBroker(t *testing.T) {
	cluster := fake(t, kfake.NumBrokers(1))
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	arrived, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(arrived)
		cluster.SleepControl(func() { <-release })
		return nil, nil, false
	})
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 1))
	<-arrived
	ctx, cancel := context.WithCancel(t.Context())
	closed := make(chan error)
	go func() { closed <- s.Close(ctx) }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v with a request on the wire and time left", err)
	default:
	}
	cancel()
	if err := <-closed; !errors.Is(err, context.Canceled) {
		t.Fatalf("Close: %v", err)
	}
	if err := a.all(t)[0]; err == nil {
		t.Fatal("settled with nil without an answer")
	}
}

// A throttled request is held back by the client; nothing of it may be sent
// any more, and Close doesn't wait for the throttle.
func TestCloseWhileThrottled(t *testing.T) {
	cluster := fake(t, kfake.NumBrokers(1))
	var requests atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		requests.Add(1)
		answer := notEnoughReplicas(r.(*kmsg.ProduceRequest))
		answer.ThrottleMillis = 4000
		return answer, nil, true
	})
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 1))
	harness.Eventually(t, "the first request", func() bool { return requests.Load() == 1 })
	harness.Eventually(t, "sarama holding back the second try", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("waitIfThrottled"))
	})
	if err := s.Close(limited(t)); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := a.all(t)[0]; err == nil {
		t.Fatal("settled with nil")
	}
	harness.Eventually(t, "the end of the throttle", func() bool {
		stacks := make([]byte, 1<<22)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("waitIfThrottled"))
	})
	if n := requests.Load(); n != 1 {
		t.Fatalf("%d requests reached the broker, want the one before Close", n)
	}
}

// A topic that is deleted while events wait ends the sink, so that the next
// one names it or makes it; it is no silent wait.
func TestTopicDeletedUnderWay(t *testing.T) {
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 100))
	a.wantDelivered(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).DeleteTopics(limited(t), topic); err != nil {
		t.Fatal(err)
	}
	a.publish(t.Context(), s, numbered(topic, 100, 100))
	if err := a.all(t)[1]; err == nil || !strings.Contains(err.Error(), topic) {
		t.Fatalf("done(%v)", err)
	}
}

// Many partitions of a dead broker are looked for together: no storm of connections.
func TestDeadBrokersAreDialledSeldom(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(50, topic))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	a.publish(t.Context(), s, numbered(topic, 0, 500))
	a.wantDelivered(t)
	address := cluster.ListenAddrs()[0]
	cluster.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dials := make(chan time.Time, 10000)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dials <- time.Now()
			_ = c.Close()
		}
	}()
	a.publish(t.Context(), s, numbered(topic, 500, 500))
	// The pauses grow from 50 ms to 3 s: the 15th dial is a matter of seconds
	// for one search, and of none for fifty.
	first := <-dials
	var last time.Time
	for range 14 {
		last = <-dials
	}
	if took := last.Sub(first); took < time.Second {
		t.Errorf("15 dials within %s", took)
	}
}

func TestOpen(t *testing.T) {
	cluster := fake(t)
	dead := deadAddress(t)
	many := append(slices.Repeat([]string{dead}, 20), cluster.ListenAddrs()...)
	for range 3 { // the producer would begin with one of them at random, and stay with it
		s := open(t, kafka.Config{Brokers: many}, zap.NewNop())
		a := newAnswers()
		a.publish(t.Context(), s, numbered(topic, 0, 10))
		a.wantDelivered(t)
		if err := s.Close(limited(t)); err != nil {
			t.Fatal(err)
		}
	}

	_, err := kafka.Open(limited(t), kafka.Config{Brokers: []string{dead}}, zap.NewNop())
	if err == nil || !strings.Contains(err.Error(), dead) {
		t.Fatalf("Open with no broker: %v", err)
	}

	// A broker that takes the connection and says nothing.
	ctx, cancel := context.WithCancel(t.Context())
	silent := silentAddress(t, cancel)
	if _, err := kafka.Open(ctx, kafka.Config{Brokers: []string{silent}}, zap.NewNop()); err == nil {
		t.Fatal("opened a silent broker")
	}
}
