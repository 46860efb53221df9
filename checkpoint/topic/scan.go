package topic

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/checkpoint"
)

// piece is what one fetch gave: the batches that hold anything, and the offset
// before which nothing else is in the log.
type piece struct {
	batches []*sarama.RecordBatch
	next    int64
	blank   bool // the log holds nothing from the offset asked for to its end
}

// cost counts what was read.
type cost struct {
	fetches, records int
}

const (
	firstWindow    = 2   // offsets: our newest record, and a marker behind it
	guessedRecord  = 512 // bytes a record takes, until some were seen
	maxFetch       = 256 << 10
	batchOverhead  = 61 // bytes of a batch beside its records
	recordOverhead = 12
)

// scan looks for the newest record of some keys, backwards from the end of a
// log. Kafka gives records forwards only, so it reads windows of offsets that double
// in size: what is older than the newest record looked for is read for as many
// offsets as lie behind that record, at most.
type scan struct {
	fetch func(from int64, bytes int32) (piece, error)
	// newest holds the value of each key's newest record, nil for a tombstone.
	// Its keys are those looked for; a missing record is a nil entry.
	newest map[string]*[]byte

	// committed tells how the transaction ended in which the producer wrote
	// what lies before, as far as was read: its marker comes behind its records.
	committed map[int64]bool

	lowest        int64 // offset of the first record seen
	blank         bool  // see piece
	bytes, widths int64 // of the answers, to guess what others take
	cost          cost
}

func newScan(fetch func(int64, int32) (piece, error), keys ...string) *scan {
	s := &scan{fetch: fetch, newest: map[string]*[]byte{}, committed: map[int64]bool{}}
	for _, k := range keys {
		s.newest[k] = nil
	}
	return s
}

// has reports whether the newest record of key was found and holds a value.
func (s *scan) has(key string) bool { return s.newest[key] != nil && *s.newest[key] != nil }

// backwards reads from end towards start until a value of key was found.
func (s *scan) backwards(start, end int64, key string) error {
	s.lowest = end
	for size := int64(firstWindow); end > start && !s.has(key); size *= 2 {
		from := max(start, end-size)
		if err := s.window(from, end); err != nil {
			return err
		}
		end = from
	}
	return nil
}

// item is a record that matters: one looked for, or the end of a transaction.
type item struct {
	batch *sarama.RecordBatch
	*sarama.Record
}

// window reads the offsets from one to before another. All behind it was read.
func (s *scan) window(from, to int64) error {
	var items []item
	for at := from; at < to; {
		budget := s.budget(to - at)
		p, err := s.fetch(at, budget)
		if err != nil {
			return err
		}
		if p.next <= at {
			return fmt.Errorf("read at offset %d: the answer leads no further", at)
		}
		s.count(p, at, int64(budget))
		for _, b := range p.batches {
			if b.FirstOffset < to {
				items = s.pick(items, b, from, to)
			}
		}
		at = p.next
	}
	for _, i := range slices.Backward(items) {
		if err := s.take(i); err != nil {
			return err
		}
	}
	return nil
}

// budget is how many bytes that many offsets may take: more would be read
// again, since what lies behind was read before.
func (s *scan) budget(offsets int64) int32 {
	n := (offsets + 1) * guessedRecord
	if s.widths > 0 {
		n = (offsets + 1) * s.bytes / s.widths
	}
	return int32(min(max(n, 1), maxFetch))
}

func (s *scan) count(p piece, at, budget int64) {
	var bytes int64
	for _, b := range p.batches {
		s.cost.records += len(b.Records)
		bytes += batchOverhead
		for _, r := range b.Records {
			bytes += int64(len(r.Key) + len(r.Value) + recordOverhead)
		}
	}
	if len(p.batches) > 1 { // they were compressed, if they seem to be more than was asked for
		bytes = min(bytes, budget)
	}
	s.cost.fetches++
	s.blank = s.blank || p.blank
	s.bytes += bytes
	s.widths += p.next - at
}

func (s *scan) pick(items []item, b *sarama.RecordBatch, from, to int64) []item {
	for _, r := range b.Records {
		offset := b.FirstOffset + r.OffsetDelta
		if offset < from || offset >= to { // a batch may reach over the border
			continue
		}
		s.lowest = min(s.lowest, offset)
		if _, wanted := s.newest[string(r.Key)]; wanted || b.Control {
			items = append(items, item{b, r})
		}
	}
	return items
}

// take is called for the newest item first.
func (s *scan) take(i item) error {
	if i.batch.Control {
		commit, err := isCommit(i.Key)
		s.committed[i.batch.ProducerID] = commit
		return err
	}
	k := string(i.Key)
	if s.newest[k] != nil {
		return nil
	}
	if i.batch.IsTransactional {
		commit, ended := s.committed[i.batch.ProducerID]
		if !ended {
			return checkpoint.ErrOpen
		}
		if !commit {
			return nil
		}
	}
	s.newest[k] = &i.Value
	return nil
}

// isCommit reads the key of a transaction's marker: version and type.
func isCommit(key []byte) (bool, error) {
	if len(key) < 4 {
		return false, fmt.Errorf("a control record has a key of %d bytes", len(key))
	}
	return binary.BigEndian.Uint16(key[2:]) == 1, nil
}
