package topicstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// eager are settings that let the broker compact whatever it can at once.
func eager() map[string]string {
	return map[string]string{
		"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "100",
		"min.cleanable.dirty.ratio": "0.0001", "delete.retention.ms": "0",
	}
}

func (p *place) records(t *testing.T) []checker.Record {
	t.Helper()
	records, err := checker.ReadTopics(limited(t), p.brokers, checker.Uncommitted, p.topic)
	if err != nil {
		t.Fatal(err)
	}
	return records
}

// compact returns when everything that is in the log now was compacted.
func (p *place) compact(t *testing.T) {
	t.Helper()
	before := p.end(t)
	if p.fake != nil {
		p.put(t, "roller/place", []byte("x")) // the newest batch is left alone
		p.fake.Compact()
	} else {
		harness.Eventually(t, "compaction", func() bool {
			p.put(t, "roller/place", []byte("x")) // closes a segment
			keys := map[string]bool{}
			for _, r := range p.records(t) {
				if r.Offset >= before {
					break
				}
				if keys[string(r.Key)] || r.Value == nil {
					return false
				}
				keys[string(r.Key)] = true
			}
			return true
		})
	}
}

// quickly makes the cleaner of the real broker look for work all the time.
func quickly(t *testing.T, p *place) {
	t.Helper()
	if p.fake != nil {
		return
	}
	const key, value = "log.cleaner.backoff.ms", "50"
	alter := func(ctx context.Context, op kadm.IncrementalOp) error {
		v := value
		answers, err := p.admin.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Op: op, Name: key, Value: &v}})
		for _, a := range answers {
			err = errors.Join(err, a.Err)
		}
		return err
	}
	if err := alter(limited(t), kadm.SetConfig); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := alter(limited(t), kadm.DeleteConfig); err != nil {
			t.Errorf("set %s back: %v", key, err)
		}
	})
}

// Compaction leaves gaps, batches without records, and segments with nothing
// else. The place stays what it was, and so does its loss.
func TestCompactedLog(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		quickly(t, p)
		p.create(t, 1, eager())
		for i := range 20 { // each a producer of its own
			save(t, p.open(t, name), at(source.Position(fmt.Sprint(i))))
			save(t, p.open(t, "passing"), named("passing", i))
			p.foreign(t, 50)
		}
		p.compact(t)
		expect(t, p.open(t, name), at("19"))
		p.foreign(t, 5000)
		p.compact(t)
		expect(t, p.open(t, name), at("19"))
		expectNone(t, p.open(t, "nobody"))

		p.put(t, name+"/place", nil)
		_, err := p.open(t, name).Load(limited(t))
		expectFault(t, err, fault.CodePositionLost, fault.ExitPosition)
		p.compact(t) // the tombstone is gone too
		_, err = p.open(t, name).Load(limited(t))
		expectFault(t, err, fault.CodePositionLost, fault.ExitPosition)

		if err := p.open(t, name).Delete(limited(t)); err != nil {
			t.Fatal(err)
		}
		expectNone(t, p.open(t, name))
		p.compact(t)
		expectNone(t, p.open(t, name))
		for _, r := range p.records(t) {
			if string(r.Key) == name+"/birth" {
				t.Errorf("offset %d still holds the birth record", r.Offset)
			}
		}
	})
}

// Segments are closed and compacted while one process saves and others load.
func TestLoadDuringCompaction(t *testing.T) {
	p := onReal(t)
	quickly(t, p)
	p.create(t, 1, eager())
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	saver := p.open(t, name)
	save(t, saver, at("00000000"))
	saved := make(chan int)
	ended := make(chan error, 1)
	go func() {
		defer close(saved)
		for i := 1; ; i++ {
			if err := saver.Save(ctx, at(source.Position(fmt.Sprintf("%08d", i)))); err != nil {
				ended <- err
				return
			}
			select {
			case saved <- i:
			default:
			}
		}
	}()
	loads, compactions, held := 0, 0, 0
	for began := time.Now(); compactions < 3; loads++ {
		least := <-saved
		s := p.open(t, name)
		c, err := s.Load(limited(t))
		if err != nil || c.Position < source.Position(fmt.Sprintf("%08d", least)) {
			t.Fatalf("load %d gave %q, %v; %08d was saved before", loads, c.Position, err, least)
		}
		_ = s.Close()
		if loads%20 == 0 {
			if n := len(p.places(t)); n < held {
				compactions++
				held = 0
			} else {
				held = n
			}
		}
		if time.Since(began) > harness.Patience {
			t.Fatalf("%d compactions in %d loads", compactions, loads)
		}
	}
	stop()
	for range saved {
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("Save: %v", err)
	}
	t.Logf("%d loads during %d compactions", loads, compactions)
}
