package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

const (
	partitions = 12
	batchSize  = 20
	inFlight   = 50                    // batches without an answer, at most
	pace       = 10 * time.Millisecond // between two batches
)

// feed is a load through the sink itself: events of 97 keys, which go on until
// finish. A sink that ends is opened anew and rewound, as the engine does.
type feed struct {
	t     *testing.T
	cfg   kafka.Config
	topic string

	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	batches [][]sink.Message
	settled []bool
	first   int           // batches before it are settled
	moved   chan struct{} // closed and replaced when first grew
	opened  int           // sinks that were opened
	ended   []error       // why sinks ended
}

// feeding starts a load into a new topic.
func feeding(t *testing.T, cfg kafka.Config) *feed {
	t.Helper()
	topic := harness.Unique("cluster-")
	harness.CreateTopics(t, partitions, topic)
	inSync(t, topic)
	return feedingTopic(t, cfg, topic)
}

func feedingTopic(t *testing.T, cfg kafka.Config, topic string) *feed {
	t.Helper()
	f := &feed{t: t, cfg: cfg, topic: topic, stop: make(chan struct{}), done: make(chan struct{}), moved: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(f.done)
		f.run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}

// run opens one sink after the other until everything is settled.
func (f *feed) run(ctx context.Context) {
	log := zaptest.NewLogger(f.t)
	for ctx.Err() == nil {
		s, err := kafka.Open(ctx, f.cfg, log)
		if err != nil {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		f.mu.Lock()
		f.opened++
		f.mu.Unlock()
		err = f.session(ctx, s)
		_ = s.Close(ctx)
		if err == nil {
			return
		}
		f.mu.Lock()
		f.ended = append(f.ended, err)
		f.mu.Unlock()
	}
}

// session publishes through one sink. It returns nil once all is settled.
func (f *feed) session(ctx context.Context, s sink.Sink) error {
	failed := make(chan error, 2*inFlight)
	room := make(chan struct{}, inFlight)
	f.mu.Lock()
	next := f.first
	f.mu.Unlock()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for more := true; more; next++ {
		select {
		case <-tick.C:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case room <- struct{}{}:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
		batch := f.batch(next)
		if batch == nil {
			break
		}
		at := next
		s.Publish(ctx, batch, func(err error) {
			if err != nil {
				failed <- err
				return
			}
			f.settle(at)
			<-room
		})
	}
	for { // the rest
		f.mu.Lock()
		moved, all := f.moved, f.first == len(f.batches)
		f.mu.Unlock()
		if all {
			return nil
		}
		select {
		case <-moved:
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// batch gives the i-th batch, which is made unless it is there already; nil when no more are to be made.
func (f *feed) batch(i int) []sink.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i < len(f.batches) {
		return f.batches[i]
	}
	select {
	case <-f.stop:
		return nil
	default:
	}
	batch := make([]sink.Message, batchSize)
	for j := range batch {
		n := i*batchSize + j
		id := fmt.Appendf(nil, "%08d", n)
		batch[j] = sink.Message{
			Topic: f.topic, Key: fmt.Appendf(nil, "key-%d", n%97), Value: id, ID: id, Table: "public.outbox",
			Headers: []sink.Header{{Name: "id", Value: id}},
		}
	}
	f.batches, f.settled = append(f.batches, batch), append(f.settled, false)
	return batch
}

func (f *feed) settle(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled[i] = true
	for f.first < len(f.settled) && f.settled[f.first] {
		f.first++
	}
	close(f.moved)
	f.moved = make(chan struct{})
}

// more waits until n more batches in a row are settled.
func (f *feed) more(n int) {
	f.t.Helper()
	f.mu.Lock()
	want := f.first + n
	f.mu.Unlock()
	late := time.After(harness.Patience)
	for {
		f.mu.Lock()
		first, moved := f.first, f.moved
		f.mu.Unlock()
		if first >= want {
			return
		}
		select {
		case <-moved:
		case <-late:
			f.t.Fatalf("%d batches are settled, want %d, and no more come", first, want)
		}
	}
}

// stalled waits until the window is full: nothing is settled any more.
func (f *feed) stalled() {
	f.t.Helper()
	harness.Eventually(f.t, "the sink takes no more", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.batches)-f.first >= inFlight
	})
}

// sinks is how many sinks were opened, and why they ended.
func (f *feed) sinks() (opened int, ended error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened, errors.Join(f.ended...)
}

// drain ends the load once all of it is settled.
func (f *feed) drain() {
	f.t.Helper()
	close(f.stop)
	select {
	case <-f.done:
	case <-time.After(harness.Patience):
		f.t.Fatal("the rest is not settled")
	}
}

// end drains, and compares what was published with the topic.
func (f *feed) end(what string) *checker.Report {
	f.t.Helper()
	f.drain()
	report := checker.Check(f.truth(), harness.Records(f.t, f.topic))
	f.t.Logf("%s: %s", what, report.Summary())
	return report
}

// truth is what was published, in order.
func (f *feed) truth() (all []checker.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, batch := range f.batches {
		for j, m := range batch {
			all = append(all, checker.Event{
				Topic: m.Topic, Key: m.Key, Seq: int64(i*batchSize + j), ID: m.ID, Value: m.Value,
				Headers: []checker.Header{{Name: "id", Value: m.ID}},
			})
		}
	}
	return all
}

// finish is end, and requires a sound report with at most that many repeats, and that one sink sufficed.
func (f *feed) finish(what string, repeats int) {
	f.t.Helper()
	checker.Require(f.t, f.end(what), repeats)
	if opened, ended := f.sinks(); opened != 1 {
		f.t.Errorf("%d sinks were opened: %v", opened, ended)
	}
}
