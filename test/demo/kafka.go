package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/test/demo/orders"
)

const (
	topic      = "outbox.event." + orders.AggregateType
	partitions = 6
)

// startKafka runs a Kafka inside this process, with the topic of the orders
// made, as outboxd makes none unless it is told to.
func startKafka() (*kfake.Cluster, error) {
	kafka, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topic))
	if err != nil {
		return nil, fmt.Errorf("start kafka: %w", err)
	}
	return kafka, nil
}

// record is one consumed event. ID is 0 when the record has no readable id.
type record struct {
	ID        int64
	Key       string
	EventType string
	Value     string
	Partition int32
	Offset    int64
}

// consumer reads the topic from its beginning and keeps all it saw.
type consumer struct {
	client *kgo.Client
	saw    func(r record, again bool)

	mu      sync.Mutex
	records []record
	ids     map[int64]bool
	next    map[int32]int64 // offset after the last record of each partition
	news    chan struct{}   // closed and made anew at each record
}

// newConsumer makes a consumer. saw is called for each record, by run alone.
func newConsumer(brokers []string, saw func(r record, again bool)) (*consumer, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	return &consumer{client: client, saw: saw, ids: map[int64]bool{}, next: map[int32]int64{}, news: make(chan struct{})}, nil
}

// run consumes until ctx ends.
func (c *consumer) run(ctx context.Context) error {
	for {
		fetches := c.client.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) { c.take(parse(r)) })
	}
}

func parse(r *kgo.Record) record {
	rec := record{Key: string(r.Key), Value: string(r.Value), Partition: r.Partition, Offset: r.Offset}
	for _, h := range r.Headers {
		switch h.Key {
		case "id":
			rec.ID, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0 is judged as never committed
		case "eventType":
			rec.EventType = string(h.Value)
		}
	}
	return rec
}

func (c *consumer) take(r record) {
	c.mu.Lock()
	again := c.ids[r.ID]
	c.ids[r.ID] = true
	c.records = append(c.records, r)
	c.next[r.Partition] = r.Offset + 1
	close(c.news)
	c.news = make(chan struct{})
	c.mu.Unlock()
	c.saw(r, again)
}

// await blocks until done says so. It is asked again after each record.
func (c *consumer) await(ctx context.Context, done func(c *consumer) bool) error {
	for {
		c.mu.Lock()
		ok, news := done(c), c.news
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// drain consumes up to the end that the topic has now and returns all records.
func (c *consumer) drain(ctx context.Context) ([]record, error) {
	ends, err := kadm.NewClient(c.client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %q: %w", topic, err)
	}
	err = c.await(ctx, func(c *consumer) bool {
		all := true
		ends.Each(func(end kadm.ListedOffset) { all = all && c.next[end.Partition] >= end.Offset })
		return all
	})
	if err != nil {
		return nil, fmt.Errorf("consume to the end: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records, nil
}

// hasAll is true when each of these events was consumed. It is for await.
func (c *consumer) hasAll(rows []row) bool {
	return !slices.ContainsFunc(rows, func(r row) bool { return !c.ids[r.ID] })
}
