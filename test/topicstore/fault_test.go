package topicstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/source"
)

// Whatever goes wrong on the way to the answer, Load does not say that nothing
// was ever saved, and finds the place again when it is over.
func TestNoAnswerIsNotNone(t *testing.T) {
	for _, c := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.Metadata, kerr.LeaderNotAvailable},
		{kmsg.Metadata, kerr.UnknownServerError},
		{kmsg.DescribeConfigs, kerr.UnknownServerError},
		{kmsg.ListOffsets, kerr.NotLeaderForPartition},
		{kmsg.ListOffsets, kerr.OffsetNotAvailable},
		{kmsg.ListOffsets, kerr.UnknownTopicOrPartition},
		{kmsg.Fetch, kerr.NotLeaderForPartition},
		{kmsg.Fetch, kerr.OffsetOutOfRange},
		{kmsg.Fetch, kerr.UnknownTopicOrPartition},
		{kmsg.Fetch, kerr.CorruptMessage},
		{kmsg.Fetch, kerr.KafkaStorageError},
	} {
		t.Run(c.key.Name()+" "+c.err.Message, func(t *testing.T) {
			p := onFake(t)
			kept := p.open(t, name)
			save(t, kept, at("1"))
			f := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{c.key}, Err: c.err, Count: -1})
			fresh := p.open(t, name)
			for range 2 {
				_, err := fresh.Load(limited(t))
				expectPlain(t, err)
				expectPlain(t, fresh.Save(limited(t), at("2")))
				expectPlain(t, fresh.Delete(limited(t)))
			}
			if _, err := kept.Load(limited(t)); c.key != kmsg.Metadata && c.key != kmsg.DescribeConfigs { // it need not ask these
				expectPlain(t, err)
			}
			f.Remove()
			expect(t, fresh, at("1"))
			expect(t, kept, at("1"))
		})
	}
}

func TestLostConnections(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.DescribeConfigs, kmsg.ListOffsets, kmsg.Fetch} {
		t.Run(key.Name(), func(t *testing.T) {
			p := onFake(t)
			save(t, p.open(t, name), at("1"))
			var down atomic.Bool
			down.Store(true)
			p.fake.ControlKey(int16(key), func(kmsg.Request) (kmsg.Response, error, bool) {
				p.fake.KeepControl()
				return nil, errors.New("drop"), down.Load()
			})
			s := p.open(t, name)
			_, err := s.Load(limited(t))
			expectPlain(t, err)
			down.Store(false)
			expect(t, s, at("1"))
		})
	}
}

func TestNoBroker(t *testing.T) {
	p := onFake(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	_ = l.Close()

	cfg := p.config(name)
	cfg.Conn = kafkaconn.Config{Brokers: []string{dead}}
	s := open(t, cfg)
	_, err = s.Load(limited(t))
	for _, err := range []error{err, s.Save(limited(t), at("1")), s.Check(limited(t)), s.Delete(limited(t))} {
		expectPlain(t, err)
		if !strings.Contains(err.Error(), dead) {
			t.Errorf("%v does not name %s", err, dead)
		}
	}

	cfg.Conn = kafkaconn.Config{Brokers: append([]string{dead}, p.brokers...)}
	for range 5 {
		expectNone(t, open(t, cfg))
	}
	cfg.Conn = kafkaconn.Config{}
	_, err = open(t, cfg).Load(limited(t))
	expectFault(t, err, fault.CodeConfig, fault.ExitConfig)
}

// silent takes connections and says nothing. It calls asked at each request.
func silent(t *testing.T, asked func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1<<16))
			asked()
			_, _ = c.Read(make([]byte, 1)) // until it hangs up
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// A silent broker is waited for no longer than the caller wants, and does not
// come first every time.
func TestSilentBroker(t *testing.T) {
	cancelled := make(chan struct{})
	address := silent(t, func() { cancelled <- struct{}{} })
	try := func(s *topic.Store) error {
		ctx, cancel := context.WithCancel(limited(t))
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-cancelled:
				cancel()
			case <-over:
			}
		}()
		_, err := s.Load(ctx)
		return err
	}
	p := onFake(t)
	cfg := p.config(name)
	cfg.Conn.Brokers = []string{address}
	if err := try(open(t, cfg)); !errors.Is(err, context.Canceled) {
		t.Fatalf("Load: %v", err)
	}
	cfg.Conn.Brokers = []string{address, p.brokers[0]}
	s := open(t, cfg)
	for i := 0; ; i++ {
		err := try(s)
		if errors.Is(err, checkpoint.ErrNone) {
			return
		}
		if !errors.Is(err, context.Canceled) || i == 50 {
			t.Fatalf("Load: %v", err)
		}
	}
}

func TestMissingRights(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets, kmsg.Fetch, kmsg.Produce, kmsg.CreateTopics} {
		t.Run(key.Name(), func(t *testing.T) {
			p := onFake(t)
			if key != kmsg.CreateTopics {
				save(t, p.open(t, name), at("1"))
			}
			p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.TopicAuthorizationFailed, Count: -1})
			expectFault(t, p.open(t, name).Save(limited(t), at("2")), fault.CodeGrantMissing, fault.ExitConfig, p.topic, "--operation Read --operation Write")
		})
	}
}

// Whoever made the topic is trusted where its settings can't be seen.
func TestSettingsThatCannotBeSeen(t *testing.T) {
	p := onFake(t)
	save(t, p.open(t, name), at("1"))
	f := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	save(t, p.open(t, name), at("2"))
	if f.Hits() == 0 {
		t.Error("the settings were not asked for")
	}
}

// A broker that has just started may not know a topic yet. A first start on
// that ground is stopped before it saves anything.
func TestTopicThatABrokerForgot(t *testing.T) {
	p := onFake(t)
	save(t, p.open(t, name), at("1"))
	f := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.UnknownTopicOrPartition, Count: 3})
	s := p.open(t, name)
	expectNone(t, s)
	expectPlain(t, s.Save(limited(t), at("")))
	if f.Hits() < 3 {
		t.Fatalf("the broker was asked %d times", f.Hits())
	}
	expect(t, s, at("1"))
}

// persist saves until it works, as the engine does.
func persist(t *testing.T, s checkpoint.Store, c checkpoint.Checkpoint) (failed int) {
	t.Helper()
	for ; ; failed++ {
		err := s.Save(limited(t), c)
		if err == nil {
			return failed
		}
		expectPlain(t, err)
		if failed == 20 {
			t.Fatalf("Save: %v", err)
		}
	}
}

// Brokers fail, and what was saved last is what the next process finds. No
// older place comes behind a newer one.
func TestSavesThroughFaults(t *testing.T) {
	produce := []kmsg.Key{kmsg.Produce}
	drop := func(kmsg.Request) (kmsg.Response, error, bool) { return nil, errors.New("drop"), true }
	for _, c := range []struct {
		name string
		do   func(c *kfake.Cluster)
		most int // failed saves a fault may cost
	}{
		{"leader moves", (*kfake.Cluster).ShufflePartitionLeaders, 0},
		{"connection lost", func(c *kfake.Cluster) { c.ControlKey(int16(kmsg.Produce), drop) }, 0},
		{"too few replicas", func(c *kfake.Cluster) { c.Fault(kfake.Fault{Keys: produce, Err: kerr.NotEnoughReplicas, Count: 3}) }, 2},
		{"written and timed out", func(c *kfake.Cluster) { c.Fault(kfake.Fault{Keys: produce, Err: kerr.RequestTimedOut, Count: 3}) }, 2},
		{"written to too few replicas", func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: produce, Err: kerr.NotEnoughReplicasAfterAppend, Count: 3})
		}, 2},
		{"producer forgotten", func(c *kfake.Cluster) {
			forgotten := int64(-1)
			c.Fault(kfake.Fault{Keys: produce, Err: kerr.OutOfOrderSequenceNumber, Count: -1, When: func(r kmsg.Request) bool {
				id := producerID(r.(*kmsg.ProduceRequest))
				if forgotten < 0 {
					forgotten = id
				}
				return id == forgotten
			}})
		}, 0},
		{"no producer id yet", func(c *kfake.Cluster) {
			c.Fault(kfake.Fault{Keys: produce, Err: kerr.UnknownProducerID, Count: 1},
				kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 1, TopLevel: true})
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := onFake(t)
			s := p.open(t, name)
			for i := range 30 {
				if i%5 == 3 {
					c.do(p.fake)
				}
				place := at(source.Position(rune('A' + i)))
				if failed := persist(t, s, place); failed > c.most {
					t.Errorf("save %d failed %d times", i, failed)
				}
				expect(t, p.open(t, name), place)
			}
			p.wantOrder(t)
		})
	}
}

func producerID(r *kmsg.ProduceRequest) int64 {
	var batch kmsg.RecordBatch
	_ = batch.ReadFrom(r.Topics[0].Partitions[0].Records)
	return batch.ProducerID
}

// A save that timed out and reaches the log later must not undo the one that
// came after it.
func TestLateSave(t *testing.T) {
	for _, c := range []struct {
		name  string
		first bool // the late one is the first save, with the birth record
	}{{"place", false}, {"birth and place", true}} {
		t.Run(c.name, func(t *testing.T) {
			p := onFake(t)
			s := p.open(t, name)
			if _, err := s.Create(limited(t)); err != nil {
				t.Fatal(err)
			}
			if !c.first {
				save(t, s, at("A"))
			}
			sent := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
			ctx, cancel := context.WithCancel(t.Context())
			release := make(chan struct{})
			var held atomic.Bool
			p.fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				p.fake.KeepControl()
				if held.CompareAndSwap(false, true) {
					cancel()
					p.fake.SleepControl(func() { <-release })
				}
				return nil, nil, false
			})
			if err := s.Save(ctx, at("B")); !errors.Is(err, context.Canceled) {
				t.Fatalf("Save: %v", err)
			}
			save(t, s, at("C"))
			expect(t, p.open(t, name), at("C"))
			before := sent.Hits()
			close(release)
			if err := sent.Wait(limited(t), before+1); err != nil {
				t.Fatalf("the late one never came: %v", err)
			}
			expect(t, p.open(t, name), at("C"))
			save(t, s, at("D"))
			p.wantOrder(t)
		})
	}
}

// A save in doubt is not taken for the next one.
func TestSaveAfterDoubt(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend} {
		t.Run(err.Message, func(t *testing.T) {
			p := onFake(t)
			s := p.open(t, name)
			save(t, s, at("A"))
			p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: 2})
			expectPlain(t, s.Save(limited(t), at("B")))
			save(t, s, at("C"))
			expect(t, p.open(t, name), at("C"))
		})
	}
}

// It is not written again over what somebody else saved meanwhile either.
func TestSaveInDoubt(t *testing.T) {
	for _, c := range []struct {
		name string
		err  *kerr.Error
		log  string
	}{
		{"not written", kerr.NotEnoughReplicas, "ACD"},
		{"written", kerr.NotEnoughReplicasAfterAppend, "ABCD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := onFake(t)
			s := p.open(t, name)
			save(t, s, at("A"))
			p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: c.err, Count: 2})
			expectPlain(t, s.Save(limited(t), at("B")))
			save(t, p.open(t, name), at("C"))
			expect(t, s, at("C"))
			save(t, s, at("D"))
			if got := strings.Join(p.places(t), ""); got != c.log {
				t.Fatalf("the log holds %s, want %s", got, c.log)
			}
		})
	}
}

// places gives the positions in the log, in order.
func (p *place) places(t *testing.T) (positions []string) {
	t.Helper()
	for _, r := range p.records(t) {
		if string(r.Key) == name+"/place" && r.Value != nil {
			_, after, _ := strings.Cut(string(r.Value), `"position":"`)
			position, _, _ := strings.Cut(after, `"`)
			positions = append(positions, position)
		}
	}
	return positions
}

func (p *place) wantOrder(t *testing.T) {
	t.Helper()
	newest := ""
	for _, position := range p.places(t) {
		if position < newest {
			t.Fatalf("%s came behind %s", position, newest)
		}
		newest = position
	}
}

func TestEndedContext(t *testing.T) {
	p := onFake(t)
	s := p.open(t, name)
	save(t, s, at("1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, load := s.Load(ctx)
	for _, err := range []error{load, s.Save(ctx, at("2")), s.Delete(ctx), s.Check(ctx)} {
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	expect(t, s, at("1"))
}

// A broker that gives no records though it has some must not be believed.
func TestBlankAnswers(t *testing.T) {
	p := onFake(t)
	save(t, p.open(t, name), at("1"))
	p.foreign(t, 10)
	end := p.end(t)
	var blank atomic.Bool
	blank.Store(true)
	p.fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		if !blank.Load() {
			return nil, nil, false
		}
		request := r.(*kmsg.FetchRequest)
		answer := request.ResponseKind().(*kmsg.FetchResponse)
		one, partition := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		one.Topic, partition.HighWatermark, partition.RecordBatches = p.topic, end, []byte{}
		one.Partitions = append(one.Partitions, partition)
		answer.Topics = append(answer.Topics, one)
		return answer, nil, true
	})
	s := p.open(t, name)
	_, err := s.Load(limited(t))
	expectPlain(t, err)
	blank.Store(false)
	expect(t, s, at("1"))
}

// While Load is on its way back through the log another instance saves, and
// compaction removes the place that Load was coming to.
func TestPlaceThatMovesBehindTheEnd(t *testing.T) {
	p := onFake(t)
	if _, err := p.open(t, name).Create(limited(t)); err != nil {
		t.Fatal(err)
	}
	p.put(t, "somebody-else/place", []byte("x")) // keeps the log's start where it is
	save(t, p.open(t, name), at("1"))
	p.put(t, name+"/birth", nil) // a loss would be an error, none is worse
	for i := range 10 {
		p.put(t, string(rune('a'+i))+"/place", []byte("x"))
	}
	reading, goOn := make(chan struct{}), make(chan struct{})
	var held atomic.Bool
	p.fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		p.fake.KeepControl()
		if held.CompareAndSwap(false, true) {
			close(reading)
			p.fake.SleepControl(func() { <-goOn })
		}
		return nil, nil, false
	})
	reader := p.open(t, name)
	result := make(chan error, 1)
	var c checkpoint.Checkpoint
	go func() {
		var err error
		c, err = reader.Load(limited(t))
		result <- err
	}()
	<-reading
	key, value := topic.Encode(at("2"))
	p.put(t, string(key), value)
	p.put(t, "z/place", []byte("x"))
	p.fake.Compact()
	if got := p.records(t); string(got[1].Key) == name+"/place" {
		t.Fatal("the old place was not removed")
	}
	close(goOn)
	if err := <-result; err != nil || !c.Equal(at("2")) {
		t.Fatalf("Load gave %+v, %v", c, err)
	}
}

// Brokers need a moment to learn of a topic that was just made.
func TestNewTopicIsAwaited(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.ListOffsets} {
		for _, err := range []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.LeaderNotAvailable} {
			if key == kmsg.Metadata && err == kerr.NotLeaderForPartition || key == kmsg.ListOffsets && err == kerr.LeaderNotAvailable {
				continue // no such answer
			}
			t.Run(key.Name()+" "+err.Message, func(t *testing.T) {
				p := onFake(t)
				s := p.open(t, name)
				expectNone(t, s)
				asked := false // in the cluster's goroutine
				p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, When: func(kmsg.Request) bool { asked = true; return false }})
				f := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: err, Count: 3, When: func(kmsg.Request) bool { return asked }})
				save(t, s, at("1"))
				if f.Hits() != 3 {
					t.Fatalf("%d answers were wrong", f.Hits())
				}
				expect(t, s, at("1"))
			})
		}
	}
}

// Many connectors begin at the same time, and no topic is there.
func TestStartsTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		const n = 8
		stores := make([]*topic.Store, n)
		for i := range stores {
			stores[i] = p.open(t, fmt.Sprint("n", i))
			expectNone(t, stores[i])
		}
		var all errgroup.Group
		for i, s := range stores {
			all.Go(func() error { return s.Save(limited(t), named(fmt.Sprint("n", i), i)) })
		}
		if err := all.Wait(); err != nil {
			t.Fatal(err)
		}
		for i := range stores {
			expect(t, p.open(t, fmt.Sprint("n", i)), named(fmt.Sprint("n", i), i))
		}
	})
}
