package checker

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchWait is how long the broker may hold an empty answer back.
const fetchWait = 100 * time.Millisecond

// Isolation says which records a reader sees.
type Isolation bool

// The isolation levels of a Kafka consumer.
const (
	Uncommitted Isolation = false
	Committed   Isolation = true // call it when no transaction is open
)

// ReadTopics returns every record of the topics, up to the ends they have when
// it is called, in log order per partition.
func ReadTopics(ctx context.Context, brokers []string, level Isolation, topics ...string) ([]Record, error) {
	seen := kgo.ReadUncommitted()
	if level == Committed {
		seen = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.FetchIsolationLevel(seen), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(fetchWait))
	if err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	defer client.Close()

	left, partitions, err := ends(ctx, kadm.NewClient(client), topics)
	if err != nil {
		return nil, err
	}
	from := make(map[string]map[int32]kgo.Offset)
	for p := range left {
		if from[p.topic] == nil {
			from[p.topic] = make(map[int32]kgo.Offset)
		}
		from[p.topic][p.partition] = kgo.NewOffset().AtStart()
	}
	client.AddConsumePartitions(from)

	var records []Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read topics, %d partitions left: %w", len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			p := partition{r.Topic, r.Partition}
			if end, ok := left[p]; !ok || r.Offset >= end {
				return
			} else if r.Offset == end-1 {
				delete(left, p)
			}
			if !r.Attrs.IsControl() {
				records = append(records, record(r, partitions[r.Topic]))
			}
		})
	}
	return records, nil
}

type partition struct {
	topic     string
	partition int32
}

// ends gives the end offset of each partition that holds anything, and the number of partitions by topic.
func ends(ctx context.Context, admin *kadm.Client, topics []string) (map[partition]int64, map[string]int32, error) {
	first, err := admin.ListStartOffsets(ctx, topics...)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list first offsets: %w", err)
	}
	last, err := admin.ListEndOffsets(ctx, topics...)
	if err == nil {
		err = last.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list end offsets: %w", err)
	}
	left, count := make(map[partition]int64), make(map[string]int32)
	last.Each(func(o kadm.ListedOffset) {
		count[o.Topic]++
		if begin, ok := first.Lookup(o.Topic, o.Partition); ok && begin.Offset < o.Offset {
			left[partition{o.Topic, o.Partition}] = o.Offset
		}
	})
	return left, count, nil
}

func record(r *kgo.Record, partitions int32) Record {
	rec := Record{
		Topic: r.Topic, Partition: r.Partition, Partitions: partitions, Offset: r.Offset,
		Key: r.Key, Value: r.Value, Timestamp: r.Timestamp,
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, Header{Name: h.Key, Value: h.Value})
	}
	return rec
}
