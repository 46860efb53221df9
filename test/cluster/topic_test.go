package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// A topic is deleted under load, and made again. What was acknowledged went
// down with the old topic; all else is in the new one. Made again at once, the sink goes on
// with what has no answer yet; a sink that gave the topic up is followed by one
// that begins with the first batch that was not acknowledged as a whole.
func TestTopicMadeAgain(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(f *feed)
	}{
		{"at once", func(*feed) {}},
		{"after a while", func(f *feed) {
			harness.Eventually(t, "another sink is opened", func() bool { n, _ := f.sinks(); return n == 2 })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := feeding(t, plain(t))
			f.more(20)
			harness.DeleteTopic(t, f.topic)
			f.stalled()
			forgotten(t, f.topic)
			c.wait(f)
			f.mu.Lock()
			lost := append([]bool(nil), f.settled...)
			if f.opened == 1 { // some records of each batch may have been acknowledged
				lost = slices.Repeat([]bool{true}, len(lost))
			}
			f.mu.Unlock()
			harness.CreateTopic(t, f.topic, partitions, nil)
			f.more(50)
			f.drain()
			var truth []checker.Event
			for _, e := range f.truth() {
				if i := int(e.Seq) / batchSize; i >= len(lost) || !lost[i] {
					truth = append(truth, e)
				}
			}
			// A batch that was acknowledged behind one that was not comes again, as the engine rewinds to the latter.
			var records []checker.Record
			for _, r := range harness.Records(t, f.topic) {
				if i := number(r.Value) / batchSize; i >= len(lost) || !lost[i] {
					records = append(records, r)
				}
			}
			report := checker.Check(truth, records)
			t.Logf("topic made again %s: %s", c.name, report.Summary())
			checker.Require(t, report, inFlight*batchSize)
		})
	}
}

// forgotten waits until no broker knows the topic, so that none takes anything for it.
func forgotten(t *testing.T, topic string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(harness.Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	harness.Eventually(t, "all brokers have forgotten "+topic, func() bool {
		for id := range int32(len(members)) {
			answer, err := client.Broker(int(id+1)).Request(t.Context(), ask)
			if err != nil || answer.(*kmsg.MetadataResponse).Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
				return false
			}
		}
		return true
	})
}

// Partitions are added under load: they are used, nothing is missing or comes
// twice, and per key what went to the old partition is before what went to the new one.
func TestPartitionsAdded(t *testing.T) {
	const added = 6
	cfg := plain(t)
	cfg.Refresh = 100 * time.Millisecond
	f := feeding(t, cfg)
	harness.SetTopic(t, f.topic, "message.timestamp.type", "LogAppendTime")
	f.more(20)
	admin(t, func(ctx context.Context, c *kadm.Client) error {
		answers, err := c.CreatePartitions(ctx, added, f.topic)
		if err == nil {
			err = answers.Error()
		}
		return err
	})
	harness.Eventually(t, "a new partition is used", func() bool {
		used := false
		err := try(t, func(ctx context.Context, c *kadm.Client) error {
			ends, err := c.ListEndOffsets(ctx, f.topic)
			ends.Each(func(o kadm.ListedOffset) { used = used || o.Partition >= partitions && o.Offset > 0 })
			return err
		})
		return err == nil && used
	})
	f.more(20)
	f.drain()
	records := harness.Records(t, f.topic)
	report := checker.Check(f.truth(), records) // its idea of order and partitions is that of one number of them
	t.Logf("partitions added: produced %d, missing %d, repeated %d", report.Committed, report.Missing.Count, report.Repeated.Count)
	if report.Missing.Count != 0 || report.Repeated.Count != 0 || report.Phantom.Count != 0 {
		t.Errorf("%s", report)
	}
	first := 1 << 30 // batch that was the first to use the new partitions
	for _, r := range records {
		if r.Partition >= partitions {
			first = min(first, number(r.Value)/batchSize)
		}
	}
	newest := make(map[int32]int)
	var before, after time.Time // when the last of the old and the first of the new was taken
	for _, r := range records {
		n := number(r.Value)
		if n < newest[r.Partition] {
			t.Errorf("partition %d: %d stands behind %d", r.Partition, n, newest[r.Partition])
		}
		count := int32(partitions)
		if n/batchSize >= first {
			count += added
			if after.IsZero() || r.Timestamp.Before(after) {
				after = r.Timestamp
			}
		} else if r.Timestamp.After(before) {
			before = r.Timestamp
		}
		if want := checker.Partition(r.Key, count); r.Partition != want {
			t.Errorf("event %d is on partition %d, want %d of %d", n, r.Partition, want, count)
		}
		newest[r.Partition] = n
	}
	if before.After(after) {
		t.Errorf("the new count was used %s before the last event of the old one was taken", before.Sub(after))
	}
}

func number(value []byte) (n int) {
	for _, digit := range value {
		n = 10*n + int(digit-'0')
	}
	return n
}
