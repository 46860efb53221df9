package kafkasink

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

// ledger is a cluster with a topic of events and one of checkpoints.
type ledger struct {
	t             *testing.T
	brokers       []string
	events, place string
	id            string
}

func onKafka(t *testing.T) *ledger {
	l := &ledger{t: t, brokers: harness.Brokers(t), events: harness.Unique("once-"), place: harness.Unique("place-"), id: harness.Unique("id-")}
	harness.CreateTopics(t, 6, l.events)
	harness.CreateTopics(t, 1, l.place)
	return l
}

func onFake(t *testing.T) (*ledger, *kfake.Cluster) {
	c := fake(t, kfake.SeedTopics(1, "place"))
	return &ledger{t: t, brokers: c.ListenAddrs(), events: topic, place: "place", id: "id"}, c
}

func (l *ledger) open(timeout time.Duration) *kafka.Sink {
	l.t.Helper()
	return open(l.t, kafka.Config{Brokers: l.brokers, TransactionalID: l.id, TransactionTimeout: timeout}, zap.NewNop())
}

func (l *ledger) commit(s *kafka.Sink, place string) error {
	return s.Commit(limited(l.t), func() sink.Message {
		return sink.Message{Topic: l.place, Key: []byte("name"), Value: []byte(place)}
	})
}

// visible gives what readers of committed records see, as value -> times. It
// does not wait for transactions that are open.
func (l *ledger) visible(topic string) map[string]int {
	l.t.Helper()
	ctx := limited(l.t)
	client, err := kgo.NewClient(kgo.SeedBrokers(l.brokers...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err != nil {
		l.t.Fatal(err)
	}
	from, left := map[int32]kgo.Offset{}, map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			from[o.Partition], left[o.Partition] = kgo.NewOffset().AtStart(), o.Offset
		}
	})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: from})
	seen := map[string]int{}
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			l.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				seen[string(r.Value)]++
			}
			if r.Offset >= left[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
	return seen
}

// wantVisible checks that readers see numbered events 0 to n once each, and the place.
func (l *ledger) wantVisible(n int, place string) {
	l.t.Helper()
	// A commit is decided when it returns; the brokers show it a moment later.
	harness.Eventually(l.t, "what is committed is visible", func() bool {
		return len(l.visible(l.events)) >= n && (place == "" || l.visible(l.place)[place] > 0)
	})
	seen := l.visible(l.events)
	for i := range n {
		if times := seen[fmt.Sprintf("%08d", i)]; times != 1 {
			l.t.Errorf("event %d is visible %d times", i, times)
		}
	}
	if len(seen) != n {
		l.t.Errorf("%d events are visible, want %d", len(seen), n)
	}
	if places := l.visible(l.place); place != "" && places[place] != 1 || place == "" && len(places) != 0 {
		l.t.Errorf("places %v are visible, want %q", places, place)
	}
}

// each runs a test on both brokers.
func eachBroker(t *testing.T, test func(t *testing.T, l *ledger)) {
	t.Run("in process", func(t *testing.T) {
		l, _ := onFake(t)
		test(t, l)
	})
	t.Run("real", func(t *testing.T) { test(t, onKafka(t)) })
}

func TestCommitShowsEventsAndPlaceTogether(t *testing.T) {
	eachBroker(t, func(t *testing.T, l *ledger) {
		s := l.open(0)
		a := newAnswers()
		a.publish(t.Context(), s, numbered(l.events, 0, 100))
		a.wantDelivered(t)
		l.wantVisible(0, "")
		for i := range 5 {
			a.publish(t.Context(), s, numbered(l.events, 100+i*100, 100))
			place := fmt.Sprintf("place %d", i)
			if err := l.commit(s, place); err != nil {
				t.Fatal(err)
			}
			l.wantVisible(200+i*100, place)
		}
		if err := l.commit(s, "nothing new"); err != nil {
			t.Fatal(err)
		}
		l.wantVisible(600, "nothing new")
	})
}

// Opening a sink of the same id ends what the last one left open, and keeps it from ever sending or committing again.
func TestNewSinkFencesTheOldOne(t *testing.T) {
	eachBroker(t, func(t *testing.T, l *ledger) {
		old := l.open(0)
		a := newAnswers()
		a.publish(t.Context(), old, numbered(l.events, 0, 100))
		if err := l.commit(old, "first"); err != nil {
			t.Fatal(err)
		}
		a.publish(t.Context(), old, numbered(l.events, 900, 50)) // left open
		a.wantDelivered(t)

		s := l.open(0)
		b := newAnswers()
		b.publish(t.Context(), s, numbered(l.events, 100, 100))
		if err := l.commit(s, "second"); err != nil {
			t.Fatal(err)
		}
		if err := l.commit(old, "of a zombie"); err == nil {
			t.Error("the old sink committed")
		}
		a.publish(t.Context(), old, numbered(l.events, 950, 10))
		if got := a.all(t); got[len(got)-1] == nil {
			t.Error("the old sink published")
		}
		if err := l.commit(s, "third"); err != nil {
			t.Fatal(err)
		}
		l.wantVisible(200, "third")
	})
}

// A transaction that outlasts its timeout is ended by the brokers: it can't be
// committed, and the next sink goes on.
func TestTransactionTimesOut(t *testing.T) {
	l := onKafka(t)
	s := l.open(time.Second)
	a := newAnswers()
	a.publish(t.Context(), s, numbered(l.events, 500, 100))
	a.wantDelivered(t)
	harness.Eventually(t, "the end of the transaction", func() bool { return l.transaction() != "Ongoing" })
	if err := l.commit(s, "too late"); err == nil {
		t.Fatal("committed")
	}
	s = l.open(0)
	a.publish(t.Context(), s, numbered(l.events, 0, 100))
	if err := l.commit(s, "second try"); err != nil {
		t.Fatal(err)
	}
	l.wantVisible(100, "second try")
}

// transaction is the state of the last one.
func (l *ledger) transaction() string {
	client, err := kgo.NewClient(kgo.SeedBrokers(l.brokers...))
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	all, err := kadm.NewClient(client).DescribeTransactions(limited(l.t), l.id)
	if err != nil {
		l.t.Fatal(err)
	}
	return all[l.id].State
}

// The answer to a commit is lost, after it was carried out and without: the sink
// says that it doesn't know, is finished, and the next one finds out.
func TestCommitWithoutAnAnswer(t *testing.T) {
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("carried out %t", applied), func(t *testing.T) {
			l, c := onFake(t)
			s := l.open(0)
			a := newAnswers()
			a.publish(t.Context(), s, numbered(l.events, 0, 100))
			a.wantDelivered(t)
			var seen atomic.Bool
			c.ControlKey(int16(kmsg.EndTxn), func(r kmsg.Request) (kmsg.Response, error, bool) {
				if seen.Swap(true) {
					return nil, nil, false
				}
				if applied {
					direct, err := kgo.NewClient(kgo.SeedBrokers(l.brokers...))
					if err != nil {
						t.Error(err)
						return nil, err, true
					}
					c.SleepControl(func() { // another request is answered while this one waits
						if _, err := r.(*kmsg.EndTxnRequest).RequestWith(context.Background(), direct); err != nil {
							t.Error(err)
						}
						direct.Close()
					})
				}
				return nil, errors.New("drop"), true
			})
			if err := l.commit(s, "in doubt"); err == nil {
				t.Fatal("committed without an answer")
			}
			a.publish(t.Context(), s, numbered(l.events, 900, 1))
			if got := a.all(t); got[len(got)-1] == nil {
				t.Error("the sink is not finished")
			}
			s = l.open(0)
			first := 0
			if applied {
				first = 100
				l.wantVisible(100, "in doubt")
			} else {
				l.wantVisible(0, "")
			}
			a.publish(t.Context(), s, numbered(l.events, first, 100))
			if err := l.commit(s, "known"); err != nil {
				t.Fatal(err)
			}
			l.wantVisible(first+100, "known")
		})
	}
}

// What the coordinator answers while it is busy, moves, or doesn't know, is asked again.
func TestCoordinatorFaultsThatMend(t *testing.T) {
	for _, c := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.InitProducerID, kerr.ConcurrentTransactions},
		{kmsg.InitProducerID, kerr.CoordinatorLoadInProgress},
		{kmsg.InitProducerID, kerr.NotCoordinator},
		{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions},
		{kmsg.AddPartitionsToTxn, kerr.CoordinatorNotAvailable},
		{kmsg.AddPartitionsToTxn, kerr.NotCoordinator},
		{kmsg.EndTxn, kerr.CoordinatorLoadInProgress},
		{kmsg.EndTxn, kerr.NotCoordinator},
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
		{kmsg.Produce, kerr.NotLeaderForPartition},
		{kmsg.Produce, kerr.RequestTimedOut},
	} {
		t.Run(c.key.Name()+" "+c.err.Message, func(t *testing.T) {
			l, cluster := onFake(t)
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: 2})
			s := l.open(0)
			a := newAnswers()
			for i := range 3 {
				a.publish(t.Context(), s, numbered(l.events, i*100, 100))
				if err := l.commit(s, fmt.Sprint("place ", i)); err != nil {
					t.Fatal(err)
				}
			}
			l.wantVisible(300, "place 2")
		})
	}
}

// What makes a transaction void finishes the sink, so that all of it is sent anew.
func TestWhatMakesATransactionVoid(t *testing.T) {
	for _, c := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.Produce, kerr.OutOfOrderSequenceNumber},
		{kmsg.Produce, kerr.UnknownProducerID},
		{kmsg.Produce, kerr.InvalidProducerEpoch},
		{kmsg.Produce, kerr.ProducerFenced},
		{kmsg.Produce, kerr.InvalidTxnState},
		{kmsg.Produce, kerr.TransactionAbortable},
		{kmsg.AddPartitionsToTxn, kerr.ProducerFenced},
		{kmsg.AddPartitionsToTxn, kerr.InvalidProducerEpoch},
		{kmsg.EndTxn, kerr.InvalidTxnState},
		{kmsg.EndTxn, kerr.ProducerFenced},
	} {
		t.Run(c.key.Name()+" "+c.err.Message, func(t *testing.T) {
			l, cluster := onFake(t)
			s := l.open(0)
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: 1})
			a := newAnswers()
			a.publish(t.Context(), s, numbered(l.events, 500, 100))
			err := l.commit(s, "void")
			if err == nil {
				t.Fatal("committed")
			}
			if fault.As(err) != nil {
				t.Fatalf("worth no other try: %v", err)
			}
			s = l.open(0)
			a.publish(t.Context(), s, numbered(l.events, 0, 100))
			if err := l.commit(s, "anew"); err != nil {
				t.Fatal(err)
			}
			l.wantVisible(100, "anew")
		})
	}
}

// A batch that may stand in the log twice, because it is older than brokers
// remember a producer, makes its transaction void.
func TestOldEventsInDoubtMakeATransactionVoid(t *testing.T) {
	l, cluster := onFake(t)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("drop"), true })
	s := l.open(0)
	a := newAnswers()
	old := numbered(l.events, 0, 10)
	for i := range old {
		old[i].Timestamp = time.Now().Add(-25 * time.Hour)
	}
	a.publish(t.Context(), s, old)
	if err := l.commit(s, "void"); err == nil {
		t.Fatal("committed")
	}
	s = l.open(0)
	a.publish(t.Context(), s, old)
	if err := l.commit(s, "anew"); err != nil {
		t.Fatal(err)
	}
	l.wantVisible(10, "anew")
}

// What no other try mends is a fault for the operator.
func TestTransactionsRefused(t *testing.T) {
	l, cluster := onFake(t)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.TransactionalIDAuthorizationFailed, Count: -1})
	_, err := kafka.Open(limited(t), kafka.Config{Brokers: l.brokers, TransactionalID: l.id}, zap.NewNop())
	if f := fault.As(err); f == nil || f.Exit != fault.ExitConfig {
		t.Errorf("without the right: %v", err)
	}
	real := onKafka(t)
	_, err = kafka.Open(limited(t), kafka.Config{Brokers: real.brokers, TransactionalID: real.id, TransactionTimeout: 24 * time.Hour}, zap.NewNop())
	if f := fault.As(err); f == nil || f.Exit != fault.ExitConfig {
		t.Errorf("with a timeout beyond the brokers': %v", err)
	}
}

func TestCheckTransactions(t *testing.T) {
	l, cluster := onFake(t)
	status := func(cfg kafka.Config) (found string, s preflight.Status) {
		for _, r := range kafka.Check(limited(t), cfg) {
			if r.ID == "kafka.transactional_id" {
				return r.Found, r.Status
			}
		}
		return "", ""
	}
	with := kafka.Config{Brokers: l.brokers, TransactionalID: l.id}
	if found, s := status(with); s != preflight.OK || !strings.Contains(found, l.id) {
		t.Errorf("%s %s", s, found)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.TransactionalIDAuthorizationFailed, Count: 1})
	if found, s := status(with); s != preflight.Fail {
		t.Errorf("%s %s", s, found)
	}
	if found, _ := status(kafka.Config{Brokers: l.brokers}); found != "" {
		t.Errorf("checked without transactions: %s", found)
	}
}

// I9: while the guard says no nothing is sent, however often the brokers come and
// go; when it says yes again, or another guard does, all goes on in order.
func TestGuardedSinkWaits(t *testing.T) {
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	allowed := make(chan struct{})
	s.Guard(func() bool {
		select {
		case <-allowed:
			return true
		default:
			return false
		}
	})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case <-allowed:
		default:
			t.Error("something was sent")
		}
		return nil, nil, false
	})
	a := newAnswers()
	for i := range 10 {
		a.publish(t.Context(), s, numbered(topic, i*100, 100))
		cluster.ShufflePartitionLeaders()
	}
	harness.Never(t, "something in the log", func() bool { return len(read(t, cluster.ListenAddrs(), topic)) > 0 })
	close(allowed)
	a.wantDelivered(t)
	wantExact(t, read(t, cluster.ListenAddrs(), topic), 1000, 12)

	s.Guard(func() bool { return false })
	a.publish(t.Context(), s, numbered(topic, 1000, 100))
	s.Guard(func() bool { return true })
	a.wantDelivered(t)
}

// What was sent and not answered when the guard says no is not sent again.
func TestGuardedSinkRetriesNothing(t *testing.T) {
	cluster := fake(t, kfake.NumBrokers(1))
	guard := make(chan struct{})
	requests := make(chan struct{}, 100)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		requests <- struct{}{}
		return nil, errors.New("drop"), true
	})
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	s.Guard(func() bool {
		select {
		case <-guard:
			return false
		default:
			return true
		}
	})
	newAnswers().publish(t.Context(), s, numbered(topic, 0, 1))
	<-requests
	<-requests // it is sent again and again
	close(guard)
	for len(requests) > 0 { // what was on its way
		<-requests
	}
	harness.Never(t, "another try", func() bool { return len(requests) > 1 })
}
