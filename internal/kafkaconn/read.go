package kafkaconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// Record is one record of a topic, as a reader of committed records sees it.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp time.Time
	Key       []byte // nil: a null key
	Value     []byte // nil: a tombstone
	Headers   []Header
}

// Header is one header of a Record. A nil Value is a null header.
type Header struct {
	Name  string
	Value []byte
}

// Header gives the value of the last header of that name.
func (r *Record) Header(name string) (value []byte, found bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Name == name {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// Extent is how far a partition reaches.
type Extent struct {
	Topic     string
	Partition int32
	Start     int64 // oldest offset that is there; above 0 some were deleted
	Stable    int64 // end of what is committed or was rolled back
	End       int64 // end of all; above Stable a transaction is open
	from      int64 // to be read
}

const (
	readTimeout = 30 * time.Second
	readBytes   = 4 << 20 // of one answer
)

// Extents gives the partitions of the topics, and the topics that do not exist. Records
// before since are not to be read; the zero time: all are. It needs the right to read
// (or describe) the topics and no other.
func (c Config) Extents(ctx context.Context, topics []string, since time.Time) (extents []Extent, missing []string, err error) {
	err = c.reading(ctx, func(client sarama.Client) error {
		for _, topic := range topics {
			partitions, err := client.Partitions(topic)
			if errors.Is(err, sarama.ErrUnknownTopicOrPartition) {
				missing = append(missing, topic)
				continue
			}
			if err != nil {
				return fmt.Errorf("look for topic %q: %w", topic, err)
			}
			for _, p := range partitions {
				e, err := extent(client, topic, p, since)
				if err != nil {
					return fmt.Errorf("look at topic %q, partition %d: %w", topic, p, err)
				}
				extents = append(extents, e)
			}
		}
		return nil
	})
	return extents, missing, err
}

// Topics lists the topics whose description we may read.
func (c Config) Topics(ctx context.Context) (topics []string, err error) {
	err = c.reading(ctx, func(client sarama.Client) error {
		if err := client.RefreshMetadata(); err != nil {
			return fmt.Errorf("list the topics: %w", err)
		}
		topics, err = client.Topics()
		return err
	})
	return topics, err
}

// Read hands each committed record of the extents to take, partition by partition,
// in the order of offsets, up to where the extents end. A record is good until take returns.
func (c Config) Read(ctx context.Context, extents []Extent, take func(*Record) error) error {
	return c.reading(ctx, func(client sarama.Client) error {
		for _, e := range extents {
			r := partitionReader{client: client, extent: e, aborted: map[int64]bool{}, take: take}
			if err := r.run(ctx); err != nil {
				return fmt.Errorf("read topic %q, partition %d: %w", e.Topic, e.Partition, err)
			}
		}
		return nil
	})
}

func (c Config) reading(ctx context.Context, do func(sarama.Client) error) error {
	if err := c.Validate(); err != nil {
		return err
	}
	conf := c.Base(ctx)
	conf.Net.ReadTimeout = readTimeout
	client, err := sarama.NewClient(c.Brokers, conf)
	if err != nil {
		return fmt.Errorf("connect to the brokers: %w", err)
	}
	defer func() { _ = client.Close() }()
	if err := do(client); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

func extent(client sarama.Client, topic string, partition int32, since time.Time) (e Extent, err error) {
	e = Extent{Topic: topic, Partition: partition}
	leader, err := client.Leader(topic, partition)
	if err != nil {
		return e, err
	}
	conf := client.Config()
	ask := func(at int64, level sarama.IsolationLevel) (int64, error) {
		request := sarama.NewOffsetRequest(conf.Version)
		request.IsolationLevel = level
		request.AddBlock(topic, partition, at, 1)
		answer, err := leader.GetAvailableOffsets(request)
		if err != nil {
			return 0, err
		}
		block := answer.GetBlock(topic, partition)
		if block == nil {
			return 0, sarama.ErrIncompleteResponse
		}
		if block.Err != sarama.ErrNoError {
			return 0, block.Err
		}
		return block.Offset, nil
	}
	if e.Start, err = ask(sarama.OffsetOldest, sarama.ReadUncommitted); err != nil {
		return e, err
	}
	if e.End, err = ask(sarama.OffsetNewest, sarama.ReadUncommitted); err != nil {
		return e, err
	}
	if e.Stable, err = ask(sarama.OffsetNewest, sarama.ReadCommitted); err != nil {
		return e, err
	}
	if e.from = e.Start; !since.IsZero() {
		at, err := ask(since.UnixMilli(), sarama.ReadUncommitted)
		if err != nil {
			return e, err
		}
		if at < 0 { // all are older
			at = e.Stable
		}
		e.from = max(e.from, at)
	}
	return e, nil
}

// Later reports whether older records than are to be read are there.
func (e Extent) Later() bool { return e.from > e.Start }

// Records is how many offsets are to be read.
func (e Extent) Records() int64 { return max(0, e.Stable-e.from) }

// partitionReader reads one partition.
type partitionReader struct {
	client  sarama.Client
	extent  Extent
	aborted map[int64]bool // producers within a transaction that was rolled back
	take    func(*Record) error
}

func (r *partitionReader) run(ctx context.Context) error {
	bytes := int32(readBytes)
	for at := r.extent.from; at < r.extent.Stable; {
		if err := ctx.Err(); err != nil {
			return err
		}
		block, err := r.fetch(at, bytes)
		if err != nil {
			return err
		}
		next, partial, err := r.hand(block, at)
		if err != nil {
			return err
		}
		switch {
		case partial && next <= at: // the first batch is larger
			if bytes >= 1<<30 {
				return fmt.Errorf("a batch at offset %d is larger than 1 GiB", at)
			}
			bytes *= 2
		case next <= at: // compaction left empty batches, or a throttled answer
			at++
		default:
			at, bytes = next, readBytes
		}
	}
	return nil
}

func (r *partitionReader) fetch(at int64, bytes int32) (*sarama.FetchResponseBlock, error) {
	const tries = 5
	for n := 1; ; n++ {
		block, err := r.fetchOnce(at, bytes)
		if err == nil || n == tries || errors.Is(err, sarama.ErrOffsetOutOfRange) || errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			return block, err
		}
		if rerr := r.client.RefreshMetadata(r.extent.Topic); rerr != nil { // it waits between its own tries
			return nil, errors.Join(err, rerr)
		}
	}
}

func (r *partitionReader) fetchOnce(at int64, bytes int32) (*sarama.FetchResponseBlock, error) {
	leader, epoch, err := r.client.LeaderAndEpoch(r.extent.Topic, r.extent.Partition)
	if err != nil {
		return nil, err
	}
	request := &sarama.FetchRequest{Version: 11, MaxBytes: bytes, MinBytes: 1, MaxWaitTime: 500, SessionEpoch: -1, Isolation: sarama.ReadCommitted}
	request.AddBlock(r.extent.Topic, r.extent.Partition, at, bytes, epoch)
	answer, err := leader.Fetch(request)
	if err != nil {
		return nil, err
	}
	if answer.ErrorCode != 0 {
		return nil, sarama.KError(answer.ErrorCode)
	}
	block := answer.GetBlock(r.extent.Topic, r.extent.Partition)
	if block == nil {
		return nil, sarama.ErrIncompleteResponse
	}
	if block.Err != sarama.ErrNoError {
		return nil, block.Err
	}
	return block, nil
}

// hand gives the committed records of an answer to take, and the offset behind the answer.
func (r *partitionReader) hand(block *sarama.FetchResponseBlock, at int64) (next int64, partial bool, err error) {
	next = at
	rest := slices.SortedFunc(slices.Values(block.AbortedTransactions), func(a, b *sarama.AbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return next, false, errors.New("it holds records in the format before Kafka 0.11")
		}
		if b.PartialTrailingRecord {
			partial = true
			break
		}
		for len(rest) > 0 && rest[0].FirstOffset <= b.LastOffset() {
			r.aborted[rest[0].ProducerID] = true
			rest = rest[1:]
		}
		next = max(next, b.LastOffset()+1)
		if b.Control {
			delete(r.aborted, b.ProducerID)
			continue
		}
		if b.IsTransactional && r.aborted[b.ProducerID] {
			continue
		}
		if err := r.batch(b, at); err != nil {
			return next, false, err
		}
	}
	return next, partial || block.Partial, nil
}

func (r *partitionReader) batch(b *sarama.RecordBatch, at int64) error {
	out := Record{Topic: r.extent.Topic, Partition: r.extent.Partition}
	for _, record := range b.Records {
		out.Offset = b.FirstOffset + record.OffsetDelta
		if out.Offset < at || out.Offset >= r.extent.Stable {
			continue
		}
		out.Timestamp = b.FirstTimestamp.Add(record.TimestampDelta)
		if b.LogAppendTime {
			out.Timestamp = b.MaxTimestamp
		}
		out.Key, out.Value, out.Headers = record.Key, record.Value, out.Headers[:0]
		for _, h := range record.Headers {
			out.Headers = append(out.Headers, Header{Name: string(h.Key), Value: h.Value})
		}
		if err := r.take(&out); err != nil {
			return err
		}
	}
	return nil
}
