package topicstore

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/test/harness"
)

// cost is what one Load read.
type cost struct{ fetches, records int64 }

// load reads the checkpoint as a new process would, and tells at what cost.
func (p *place) load(t *testing.T) (checkpoint.Checkpoint, cost, error) {
	t.Helper()
	core, lines := observer.New(zap.DebugLevel)
	s := topic.Open(p.config(name), zap.New(core))
	defer s.Close()
	c, err := s.Load(limited(t))
	all := lines.FilterMessage("checkpoint topic read").All()
	if len(all) != 1 {
		t.Fatalf("%d lines tell what was read; %v", len(all), err)
	}
	fields := all[0].ContextMap()
	return c, cost{fields["fetches"].(int64), fields["records"].(int64)}, err
}

// filled is a topic with older records of others, one of ours, and newer ones of others.
func filled(t *testing.T, p *place, older, newer int) *place {
	t.Helper()
	if _, err := p.open(t, "first").Create(limited(t)); err != nil {
		t.Fatal(err)
	}
	if older > 0 {
		p.foreign(t, older)
	}
	save(t, p.open(t, name), at("1"))
	if newer > 0 {
		p.foreign(t, newer)
	}
	return p
}

// The cost of a start does not grow with what others saved before.
func TestOlderRecordsAreNotRead(t *testing.T) {
	const older = 100_000
	everywhere(t, func(t *testing.T, p *place) {
		empty := onFake(t)
		if p.fake == nil {
			empty = onReal(t)
		}
		_, alone, err := filled(t, empty, 0, 0).load(t)
		if err != nil {
			t.Fatal(err)
		}
		c, behind, err := filled(t, p, older, 0).load(t)
		if err != nil || !c.Equal(at("1")) {
			t.Fatalf("%+v, %v", c, err)
		}
		t.Logf("alone %+v, behind %d records %+v", alone, older, behind)
		if behind != alone {
			t.Errorf("behind %d records %+v, alone %+v", older, behind, alone)
		}
	})
}

// The same as the broker sees it: requests, and bytes that leave it.
func TestOlderRecordsAreNotSent(t *testing.T) {
	const older = 100_000
	measure := func(older int) (fetches int, bytes int64) {
		var sent atomic.Int64
		p := onFake(t, kfake.NumBrokers(1), kfake.ListenFn(counting(&sent)))
		filled(t, p, older, 0)
		hits := p.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Observe: true, Count: -1})
		s := topic.Open(p.config(name), zap.NewNop())
		defer s.Close()
		before := sent.Load()
		expect(t, s, at("1"))
		return hits.Hits(), sent.Load() - before
	}
	fetches, bytes := measure(0)
	fetchesBehind, bytesBehind := measure(older)
	t.Logf("alone %d fetches, %d bytes; behind %d records %d, %d", fetches, bytes, older, fetchesBehind, bytesBehind)
	if fetchesBehind != fetches || float64(bytesBehind) > 1.1*float64(bytes) {
		t.Errorf("alone %d fetches and %d bytes, behind %d records %d and %d", fetches, bytes, older, fetchesBehind, bytesBehind)
	}
}

// counting counts what the broker writes.
func counting(sent *atomic.Int64) func(network, address string) (net.Listener, error) {
	return func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return countingListener{l, sent}, err
	}
}

type countingListener struct {
	net.Listener
	sent *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countingConn{c, l.sent}, err
}

type countingConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.sent.Add(int64(len(b)))
	return c.Conn.Write(b)
}

func TestNewerRecordsAreReadOnce(t *testing.T) {
	const newer = 20_000
	everywhere(t, func(t *testing.T, p *place) {
		// As connectors save: each record is a batch.
		one, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.DefaultProduceTopic(p.topic), kgo.ProducerBatchMaxBytes(512))
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		p.client.Close()
		p.client = one

		filled(t, p, 1000, newer)
		c, got, err := p.load(t)
		if err != nil || !c.Equal(at("1")) {
			t.Fatalf("%+v, %v", c, err)
		}
		t.Logf("%d newer records: %+v", newer, got)
		if got.records > newer*11/10+1000 {
			t.Errorf("%d newer and 1000 older records, and %d were read", newer, got.records)
		}
	})
}

// None is said only behind a log that was read whole.
func TestNoneIsSaidAtTheStart(t *testing.T) {
	const others = 5000
	everywhere(t, func(t *testing.T, p *place) {
		if _, err := p.open(t, "first").Create(limited(t)); err != nil {
			t.Fatal(err)
		}
		p.foreign(t, others)
		if _, got, err := p.load(t); !errors.Is(err, checkpoint.ErrNone) || got.records < others {
			t.Fatalf("%v after %d of %d records", err, got.records, others)
		}
	})
}

// A place that was saved in a transaction counts when that was committed.
func TestTransactions(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		filled(t, p, 0, 0)
		client, err := kgo.NewClient(kgo.SeedBrokers(p.brokers...), kgo.DefaultProduceTopic(p.topic), kgo.TransactionalID(p.topic))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		begin := func(c checkpoint.Checkpoint) {
			t.Helper()
			key, value := topic.Encode(c)
			err := client.BeginTransaction()
			if err == nil {
				err = client.ProduceSync(limited(t), &kgo.Record{Key: key, Value: value}).FirstErr()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		finish := func(how kgo.TransactionEndTry) {
			t.Helper()
			before := p.end(t)
			if err := client.EndTransaction(limited(t), how); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, "the marker is written", func() bool { return p.end(t) > before })
		}
		s := p.open(t, name)
		begin(at("2"))
		finish(kgo.TryCommit)
		p.foreign(t, 3)
		expect(t, s, at("2"))

		begin(at("3"))
		p.foreign(t, 3)
		_, err = s.Load(limited(t))
		expectPlain(t, err) // not 2: it may be committed any moment
		finish(kgo.TryAbort)
		expect(t, s, at("2"))

		// Somebody else's open transaction is no reason to wait.
		theirs := at("9")
		theirs.Name = "somebody-else"
		begin(theirs)
		expect(t, s, at("2"))
		save(t, s, at("4"))
		expect(t, p.open(t, name), at("4"))
		finish(kgo.TryCommit)
		expect(t, p.open(t, name), at("4"))
	})
}
