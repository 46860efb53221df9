package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"time"
	"unicode/utf8"
)

// Options say how to judge.
type Options struct {
	Dir string // for temporary files; "": the system's
	// Example is called with each thing found, in no order.
	Example func(Example) error
	// Whole tells that all events of the topics were added: a record without one is told.
	Whole bool
	// Against tells that the events are records of another relay, which may have begun
	// earlier or later: what one of them has before, or behind, all that the other has is no difference.
	Against bool
}

// Comparison takes both sides and then judges. One goroutine uses it.
type Comparison struct {
	opts   Options
	dir    string
	joins  *spill
	orders *spill
	topics map[string]int64
	names  []string
	report Report

	extents map[string][]extent // by topic
	newest  time.Time           // of the events that have a record
	oldest  time.Time           // the same
	newestN int64               // the same of ids that are numbers
	scratch entry
	spans   map[spanOf]span // with Against
}

type extent struct {
	Extent
	oldest   time.Time // of its records
	smallest int64     // of the ids of its records that are numbers
	any, num bool
}

// New begins a comparison. Close it.
func New(opts Options) (*Comparison, error) {
	dir, err := os.MkdirTemp(opts.Dir, "outboxd-verify-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	c := &Comparison{opts: opts, dir: dir, topics: map[string]int64{}, extents: map[string][]extent{}, newestN: minInt, spans: map[spanOf]span{}}
	c.report.Counts, c.report.Order = map[Kind]int64{}, map[string]int64{}
	c.joins, c.orders = newSpill(dir, "id"), newSpill(dir, "key")
	return c, nil
}

const minInt = -1 << 63

// Close removes the temporary files.
func (c *Comparison) Close() {
	c.joins.close()
	c.orders.close()
	_ = os.RemoveAll(c.dir)
}

// What an entry of the files by id is.
const (
	isEvent = iota
	isRecord
	isParked
)

// Expect adds an event.
func (c *Comparison) Expect(e *Event) error {
	c.report.Events++
	w := c.begin(isEvent, e.Topic, e.ID)
	w.bytes(digest(e.Key, e.Value))
	w.bytes(keyHash(e.Key))
	w.int(e.Spread)
	w.int(micros(e.At))
	exact := int64(0)
	if e.Exact {
		exact = 1
	}
	w.int(exact)
	w.string(e.Tx)
	w.string(e.Place)
	return c.joins.add(c.joinKey(e.Topic, e.ID), w.b)
}

// CaughtUp tells that all events were delivered or given up, so that none is pending.
func (c *Comparison) CaughtUp(yes bool) { c.report.CaughtUp = yes }

// Published adds a record of the relay that is compared with another, as an event. Its
// order is that of the offsets.
func (c *Comparison) Published(r *Record) error {
	if r.ID == nil {
		c.report.NoID++
		return nil
	}
	return c.Expect(&Event{Topic: r.Topic, ID: r.ID, Key: r.Key, Value: r.Value, Spread: int64(r.Partition),
		At: r.At, Place: fmt.Sprintf("partition%d.0:%d#0", r.Partition, r.Offset)})
}

// Find adds a record. One without an id is counted.
func (c *Comparison) Find(r *Record) error {
	c.report.Records++
	c.touch(r)
	if r.ID == nil {
		c.report.NoID++
		return nil
	}
	w := c.begin(isRecord, r.Topic, r.ID)
	w.bytes(digest(r.Key, r.Value))
	w.bytes(keyHash(r.Key))
	w.int(int64(r.Partition))
	w.int(r.Offset)
	w.int(micros(r.At))
	w.string(r.Place)
	return c.joins.add(c.joinKey(r.Topic, r.ID), w.b)
}

// Parked adds an event that is in the dead-letter topic.
func (c *Comparison) Parked(topic string, id []byte) error {
	w := c.begin(isParked, topic, id)
	return c.joins.add(c.joinKey(topic, id), w.b)
}

// Refused counts a row that is no event, for the mapping refuses it.
func (c *Comparison) Refused(table string, id []byte, why string) error {
	return c.tell(Example{Kind: Refused, Topic: "", ID: printable(id), Partition: -1, Offset: -1, Detail: "table " + table + ": " + why})
}

// Extents tells how far the topics reach; call it before Find.
func (c *Comparison) Extents(all []Extent, missing []string) {
	for _, e := range all {
		c.extents[e.Topic] = append(c.extents[e.Topic], extent{Extent: e})
		if e.Open {
			c.report.Open = append(c.report.Open, fmt.Sprintf("%s/%d", e.Topic, e.Partition))
		}
	}
	c.report.NoTopic = missing
}

// touch keeps the oldest record of each partition.
func (c *Comparison) touch(r *Record) {
	for i := range c.extents[r.Topic] {
		e := &c.extents[r.Topic][i]
		if e.Partition != r.Partition {
			continue
		}
		if !e.any || r.At.Before(e.oldest) {
			e.any, e.oldest = true, r.At
		}
		if n, ok := number(r.ID); ok && (!e.num || n < e.smallest) {
			e.num, e.smallest = true, n
		}
	}
}

func (c *Comparison) begin(kind int64, topic string, id []byte) *entry {
	w := &c.scratch
	w.b = w.b[:0]
	w.int(kind)
	w.int(c.topic(topic))
	w.bytes(id)
	return w
}

func (c *Comparison) topic(name string) int64 {
	n, ok := c.topics[name]
	if !ok {
		n = int64(len(c.names))
		c.topics[name] = n
		c.names = append(c.names, name)
	}
	return n
}

func (c *Comparison) joinKey(topic string, id []byte) []byte {
	return append(strconv.AppendInt(nil, c.topic(topic), 10), append([]byte{0}, id...)...)
}

func (c *Comparison) tell(e Example) error {
	c.report.Counts[e.Kind]++
	if c.opts.Example == nil {
		return nil
	}
	return c.opts.Example(e)
}

// digest tells key and value of one record from another's.
func digest(key, value []byte) []byte {
	h := sha256.New()
	for _, b := range [][]byte{key, value} {
		if b == nil {
			h.Write([]byte{0})
			continue
		}
		var head [9]byte
		head[0] = 1
		for i := range 8 {
			head[i+1] = byte(len(b) >> (8 * i))
		}
		h.Write(head[:])
		h.Write(b)
	}
	return h.Sum(nil)[:16]
}

// keyHash stands for the key in the temporary files.
func keyHash(key []byte) []byte {
	if key == nil {
		return nil
	}
	h := sha256.Sum256(key)
	return h[:12]
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func number(id []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(id), 10, 64)
	return n, err == nil
}

// printable is an id as it is shown.
func printable(id []byte) string {
	if utf8.Valid(id) && !bytes.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return string(id)
	}
	return "0x" + hex.EncodeToString(id)
}
