package kafkasink

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

const (
	benchBatch      = 1000
	benchPartitions = 12
)

// BenchmarkProduce compares our produce path with sarama's AsyncProducer on
// the same broker, with the settings both would run with: events/s, CPU
// seconds per million events, and allocations per event.
//
//	go test -run - -bench Produce -benchtime 500000x ./kafkasink
func BenchmarkProduce(b *testing.B) {
	b.Run("own", func(b *testing.B) { produce(b, ownSink) })
	b.Run("async", func(b *testing.B) { produce(b, asyncProducer) })
}

// produce publishes b.N events in batches and waits for all answers.
func produce(b *testing.B, open func(testing.TB, string) (publish func([]sink.Message, func()), stop func())) {
	name := harness.Unique("bench-")
	harness.CreateTopics(b, benchPartitions, name)
	publish, stop := open(b, name)
	defer stop()
	batches := make([][]sink.Message, (b.N+benchBatch-1)/benchBatch)
	for i := range batches {
		batches[i] = events(name, i*benchBatch, min(benchBatch, b.N-i*benchBatch))
	}
	inFlight := make(chan struct{}, 50) // the engine's OUTBOXD_BUFFER_EVENTS
	var left sync.WaitGroup
	before := cpu()
	b.ReportAllocs()
	b.ResetTimer()
	for _, batch := range batches {
		inFlight <- struct{}{}
		left.Add(1)
		publish(batch, func() { <-inFlight; left.Done() })
	}
	left.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((cpu()-before).Seconds()/float64(b.N)*1e6, "cpu-s/M")
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for SELF
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// events are of 300 bytes of JSON with three headers, as a router makes them.
func events(topic string, from, n int) []sink.Message {
	batch := make([]sink.Message, n)
	for i := range batch {
		id := fmt.Appendf(nil, "%d", from+i)
		batch[i] = sink.Message{
			Topic: topic, Key: fmt.Appendf(nil, "customer-%d", (from+i)%10000), ID: id, Table: "public.outbox", Timestamp: time.UnixMilli(1764500000000),
			Value:   fmt.Appendf(nil, `{"order": %d, "state": "paid", "amount": "%d.50", "note": "%0200d"}`, from+i, i, i),
			Headers: []sink.Header{{Name: "id", Value: id}, {Name: "eventType", Value: []byte("OrderPaid")}, {Name: "aggregateType", Value: []byte("order")}},
		}
	}
	return batch
}

func ownSink(b testing.TB, _ string) (func([]sink.Message, func()), func()) {
	s, err := kafka.Open(context.Background(), kafka.Config{Brokers: harness.Brokers(b), Linger: 5 * time.Millisecond}, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	return func(batch []sink.Message, done func()) {
		s.Publish(context.Background(), batch, func(err error) {
			if err != nil {
				b.Error(err)
			}
			done()
		})
	}, func() { _ = s.Close(context.Background()) }
}

// asyncProducer has the settings that bear faults (patient
// retries, idempotence, one request in flight) and the same compression and linger.
func asyncProducer(b testing.TB, _ string) (func([]sink.Message, func()), func()) {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	c.Producer.Idempotent, c.Producer.RequiredAcks, c.Net.MaxOpenRequests = true, sarama.WaitForAll, 1
	c.Producer.Retry.Max, c.Metadata.Retry.Max = 1000, 5000
	c.Producer.Return.Successes, c.Producer.Return.Errors = true, true
	c.Producer.Partitioner = sarama.NewMurmur2Partitioner
	c.Producer.Compression = sarama.CompressionLZ4
	c.Producer.Flush.Frequency = 5 * time.Millisecond
	p, err := sarama.NewAsyncProducer(harness.Brokers(b), c)
	if err != nil {
		b.Fatal(err)
	}
	type batch struct {
		left int
		done func()
	}
	var collect sync.WaitGroup
	collect.Go(func() {
		for m := range p.Successes() {
			if t := m.Metadata.(*batch); t.left == 1 {
				t.done()
			} else {
				t.left--
			}
		}
	})
	collect.Go(func() {
		for e := range p.Errors() {
			b.Error(e)
		}
	})
	publish := func(msgs []sink.Message, done func()) {
		t := &batch{len(msgs), done}
		records := make([]sarama.ProducerMessage, len(msgs))
		headers := make([]sarama.RecordHeader, 0, 3*len(msgs))
		for i := range msgs {
			m, r := &msgs[i], &records[i]
			start := len(headers)
			for _, h := range m.Headers {
				headers = append(headers, sarama.RecordHeader{Key: []byte(h.Name), Value: h.Value})
			}
			r.Topic, r.Key, r.Value, r.Timestamp, r.Metadata = m.Topic, sarama.ByteEncoder(m.Key), sarama.ByteEncoder(m.Value), m.Timestamp, t
			r.Headers = headers[start:]
			p.Input() <- r
		}
	}
	return publish, func() { p.AsyncClose(); collect.Wait() }
}
