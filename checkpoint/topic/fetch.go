package topic

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/IBM/sarama"
)

// offset gives the offset at a time: sarama.OffsetNewest is the end of the log
// (what every replica has), OffsetOldest its start, 0 the first record that is
// there, or -1.
func (t *session) offset(time int64) (int64, error) {
	request := sarama.NewOffsetRequest(t.conf.Version)
	request.AddBlock(t.cfg.Topic, 0, time, 1)
	answer, err := t.leader.GetAvailableOffsets(request)
	if err != nil {
		return 0, fmt.Errorf("list offsets: %w", err)
	}
	block := answer.GetBlock(t.cfg.Topic, 0)
	if block == nil {
		return 0, fmt.Errorf("list offsets: %w", sarama.ErrIncompleteResponse)
	}
	if block.Err != sarama.ErrNoError {
		return 0, fmt.Errorf("list offsets: %w", block.Err)
	}
	return block.Offset, nil
}

// fetch reads some bytes, and at least one batch, of a log that reaches to end.
func (t *session) fetch(end int64) func(from int64, bytes int32) (piece, error) {
	return func(from int64, bytes int32) (piece, error) {
		request := &sarama.FetchRequest{Version: 11, MaxBytes: bytes, SessionEpoch: -1} // at once, and no fetch session
		request.AddBlock(t.cfg.Topic, 0, from, bytes, t.epoch)
		answer, err := t.leader.Fetch(request)
		if err != nil {
			return piece{}, fmt.Errorf("fetch at offset %d: %w", from, err)
		}
		p, err := t.piece(answer, end)
		if err != nil {
			return piece{}, fmt.Errorf("fetch at offset %d: %w", from, err)
		}
		return p, nil
	}
}

func (t *session) piece(answer *sarama.FetchResponse, end int64) (p piece, err error) {
	if answer.ErrorCode != 0 {
		return p, sarama.KError(answer.ErrorCode)
	}
	block := answer.GetBlock(t.cfg.Topic, 0)
	switch {
	case block == nil: // a throttled answer is empty
		return p, sarama.ErrIncompleteResponse
	case block.Err != sarama.ErrNoError:
		return p, block.Err
	case block.HighWaterMarkOffset < end:
		return p, fmt.Errorf("the log ends at offset %d, where it reached to %d before", block.HighWaterMarkOffset, end)
	}
	for _, r := range block.RecordsSet {
		b := r.RecordBatch
		switch {
		case b == nil:
			return p, errors.New("the topic holds records in the format before Kafka 0.11")
		case b.PartialTrailingRecord: // cut off by the size; nothing but empty batches came before
			p.next = b.FirstOffset
		default:
			p.batches = append(p.batches, b)
			p.next = b.LastOffset() + 1
		}
	}
	if len(block.RecordsSet) > 0 {
		return p, nil
	}
	p.next, p.blank, err = behindEmpty(block)
	if p.blank {
		p.next = block.HighWaterMarkOffset
	}
	return p, err
}

// behindEmpty gives the end of the last batch in an answer without records.
// Compaction leaves such batches behind: they keep their producer's sequence
// number. sarama drops them, and keeps to itself how far they reached; without that the
// next offset to ask for would be anybody's guess. none is true when there was
// no batch at all.
func behindEmpty(block *sarama.FetchResponseBlock) (next int64, none bool, err error) {
	field := reflect.ValueOf(block).Elem().FieldByName("recordsNextOffset")
	switch {
	case !field.IsValid() || field.Type() != reflect.TypeFor[*int64]():
		return 0, false, errors.New("this version of sarama does not tell how far an answer without records reaches")
	case !field.IsNil():
		return field.Elem().Int(), false, nil
	case block.Partial:
		return 0, false, errors.New("the answer is cut off in its first batch")
	}
	return 0, true, nil
}
