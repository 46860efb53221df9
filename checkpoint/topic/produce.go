package topic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/IBM/sarama"
)

// producer writes batches in an order that holds whatever happens to single
// requests. When a request got no answer, its batch may be in the log, or get
// there later: a broker works off what is in its buffers even when the
// connection is gone. Then
//
//	save A -> no answer;  save B -> durable;  A arrives
//
// would leave A as the newest. So each batch has a sequence number, of which
// the broker takes every one once, and that of a batch in doubt is used up
// before the next one is sent. One producer outlives many connections.
type producer struct {
	id       int64
	epoch    int16
	known    bool // the broker gave us id and epoch
	sequence int32
	doubt    int // records of the batch at sequence, if its fate is not known
}

// send appends the records to the log, all or none, behind all sent before.
// After an error they may be there or not.
func (p *producer) send(ctx context.Context, t *session, records ...*sarama.Record) error {
	if !p.known {
		if err := p.init(ctx, t); err != nil {
			return err
		}
	}
	if err := p.settle(t); err != nil {
		return fmt.Errorf("settle an earlier save: %w", err)
	}
	return p.produce(t, records)
}

// settle makes sure that a batch in doubt is in the log already or never gets
// there. It sends another one of its length with its sequence number: the broker
// takes it for a repeat in the first case, and the late one in the second. What was
// in doubt is not sent again: somebody else may have saved since.
func (p *producer) settle(t *session) error {
	if p.doubt == 0 {
		return nil
	}
	records := make([]*sarama.Record, p.doubt)
	for i := range records {
		records[i] = &sarama.Record{Key: []byte(key(t.cfg.Name, filler))}
	}
	return p.produce(t, records)
}

func (p *producer) init(ctx context.Context, t *session) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		answer, err := t.leader.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
		if err == nil {
			err = answer.Err
		}
		switch {
		case errors.Is(err, sarama.ErrNoError):
			*p = producer{id: answer.ProducerID, epoch: answer.ProducerEpoch, known: true}
			return nil
		case !errors.Is(err, sarama.ErrOffsetsLoadInProgress): // the broker is fetching ids from its controller
			return fmt.Errorf("ask for a producer id: %w", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("ask for a producer id: %w", err)
		}
	}
}

func (p *producer) produce(t *session, records []*sarama.Record) error {
	request := &sarama.ProduceRequest{Version: 8, RequiredAcks: sarama.WaitForAll, Timeout: int32(ackTimeout / time.Millisecond)}
	request.AddBatch(t.cfg.Topic, 0, p.batch(records))
	p.doubt = len(records)
	answer, err := t.leader.Produce(request)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	block := answer.GetBlock(t.cfg.Topic, 0)
	if block == nil {
		return fmt.Errorf("produce: %w", sarama.ErrIncompleteResponse)
	}
	switch block.Err {
	case sarama.ErrNoError, sarama.ErrDuplicateSequenceNumber:
		p.sequence = int32((int64(p.sequence) + int64(len(records))) & math.MaxInt32)
		p.doubt = 0
		return nil
	case sarama.ErrOutOfOrderSequenceNumber, sarama.ErrUnknownProducerID, sarama.ErrInvalidProducerEpoch:
		*p = producer{} // the broker forgot us: begin anew
	}
	return fmt.Errorf("produce: %w", withDetail(block))
}

func (p *producer) batch(records []*sarama.Record) *sarama.RecordBatch {
	for i, r := range records {
		r.OffsetDelta = int64(i)
	}
	now := time.Now()
	return &sarama.RecordBatch{
		Version: 2, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: p.id, ProducerEpoch: p.epoch, FirstSequence: p.sequence,
		Records: records, LastOffsetDelta: int32(len(records) - 1),
	}
}

func withDetail(block *sarama.ProduceResponseBlock) error {
	if block.ErrorMessage == nil || *block.ErrorMessage == "" {
		return block.Err
	}
	return fmt.Errorf("%w: %s", block.Err, *block.ErrorMessage)
}
