package verify

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// wanted and found are the two sides of one event.
type wanted struct {
	digest, key []byte
	spread      int64
	at          int64
	exact       bool
	tx, place   string
}

type found struct {
	digest, key       []byte
	partition, offset int64
	at                int64
	place             string
}

// group is all that has one topic and id.
type group struct {
	topic  int64
	id     []byte
	wanted []wanted
	found  []found
	parked bool
}

// absentee is an event without a record.
type absentee struct {
	topic int64
	id    []byte
	wanted
}

// Judge compares what was added. Nothing is added any more.
func (c *Comparison) Judge() (Report, error) {
	absent := newSpill(c.dir, "absent")
	defer absent.close()
	for n := range parts {
		if err := c.join(n, absent); err != nil {
			return c.report, err
		}
	}
	for n := range parts {
		if err := absent.each(n, c.absence); err != nil {
			return c.report, err
		}
	}
	for n := range parts {
		if err := c.order(n); err != nil {
			return c.report, err
		}
	}
	return c.report, nil
}

func (c *Comparison) join(n int, absent *spill) error {
	groups := map[string]*group{}
	err := c.joins.each(n, func(b []byte) error {
		r := entry{b}
		kind, topic := r.readInt(), r.readInt()
		id := r.readBytes()
		key := string(c.joinKey(c.names[topic], id))
		g := groups[key]
		if g == nil {
			g = &group{topic: topic, id: id}
			groups[key] = g
		}
		switch kind {
		case isEvent:
			g.wanted = append(g.wanted, readWanted(&r))
		case isRecord:
			g.found = append(g.found, found{digest: r.readBytes(), key: r.readBytes(), partition: r.readInt(), offset: r.readInt(), at: r.readInt(), place: string(r.readBytes())})
		case isParked:
			g.parked = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := c.judge(g, absent); err != nil {
			return err
		}
	}
	return nil
}

func readWanted(r *entry) wanted {
	return wanted{digest: r.readBytes(), key: r.readBytes(), spread: r.readInt(), at: r.readInt(), exact: r.readInt() == 1, tx: string(r.readBytes()), place: string(r.readBytes())}
}

func (w *wanted) write(e *entry) {
	exact := int64(0)
	if w.exact {
		exact = 1
	}
	e.bytes(w.digest)
	e.bytes(w.key)
	e.int(w.spread)
	e.int(w.at)
	e.int(exact)
	e.string(w.tx)
	e.string(w.place)
}

func (c *Comparison) judge(g *group, absent *spill) error {
	slices.SortFunc(g.found, func(a, b found) int {
		if a.partition != b.partition {
			return int(a.partition - b.partition)
		}
		return int(min(max(a.offset-b.offset, -1), 1))
	})
	topic := c.names[g.topic]
	example := func(kind Kind, f *found, detail string) error {
		return c.tell(Example{Kind: kind, Topic: topic, ID: printable(g.id), Partition: int32(f.partition), Offset: f.offset, Detail: detail})
	}
	if len(g.wanted) == 0 {
		return c.spare(g, absent)
	}
	matched := min(len(g.wanted), len(g.found))
	c.report.Matched += int64(matched)
	for i := range g.found {
		f := &g.found[i]
		if !slices.ContainsFunc(g.wanted, func(w wanted) bool { return bytes.Equal(w.digest, f.digest) }) {
			what := "the value is another one"
			if !slices.ContainsFunc(g.wanted, func(w wanted) bool { return bytes.Equal(w.key, f.key) }) {
				what = "the key is another one"
			}
			if err := example(Altered, f, what); err != nil {
				return err
			}
		}
		if i >= len(g.wanted) {
			first := g.found[0]
			if err := example(Repeated, f, fmt.Sprintf("first at %d/%d", first.partition, first.offset)); err != nil {
				return err
			}
		}
		if err := c.arrange(g, f, i == 0); err != nil {
			return err
		}
	}
	if matched > 0 {
		c.reached(g)
	}
	if matched > 0 && c.opts.Against {
		if p, ok := parsePlace(g.wanted[0].place); ok {
			c.spanned(ofEvents, g.topic, g.wanted[0].spread, int64(p.n[1]))
		}
		c.spanned(ofRecords, g.topic, g.found[0].partition, g.found[0].offset)
	}
	for _, w := range g.wanted[matched:] {
		if g.parked {
			if err := c.tell(Example{Kind: Parked, Topic: topic, ID: printable(g.id), Partition: -1, Offset: -1}); err != nil {
				return err
			}
			continue
		}
		e := entry{}
		e.int(isEvent)
		e.int(g.topic)
		e.bytes(g.id)
		w.write(&e)
		if err := absent.add(g.id, e.b); err != nil {
			return err
		}
	}
	return nil
}

// reached keeps the newest event that has a record.
func (c *Comparison) reached(g *group) {
	for _, w := range g.wanted {
		if w.at == 0 {
			continue
		}
		at := time.UnixMicro(w.at)
		if at.After(c.newest) {
			c.newest = at
		}
		if c.oldest.IsZero() || at.Before(c.oldest) {
			c.oldest = at
		}
	}
	if n, ok := number(g.id); ok {
		c.newestN = max(c.newestN, n)
	}
}

// arrange sends a record on to where its key's order is judged.
func (c *Comparison) arrange(g *group, f *found, first bool) error {
	w := g.wanted[0]
	e := entry{}
	e.int(g.topic)
	e.int(f.partition)
	e.bytes(f.key)
	key := slices.Clone(e.b)
	if len(f.key) == 0 { // each event is an aggregate of its own
		return nil
	}
	e.int(f.offset)
	isFirst := int64(0)
	if first {
		isFirst = 1
	}
	e.int(isFirst)
	e.bytes(g.id)
	e.string(orElse(w.place, f.place))
	e.int(w.at)
	exact := int64(0)
	if w.exact && w.at <= f.at+int64(time.Millisecond/time.Microsecond) { // a row that was updated later shows that commit
		exact = 1
	}
	e.int(exact)
	e.string(w.tx)
	return c.orders.add(key, e.b)
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// overlap is how long two transactions are taken to have run side by side at most, where
// only the time is known at which their rows were made.
const overlap = time.Minute

// spare keeps records that no event asks for, until it is known how far both sides reach.
func (c *Comparison) spare(g *group, absent *spill) error {
	if !c.opts.Whole {
		return nil
	}
	for _, f := range g.found {
		e := entry{}
		e.int(isRecord)
		e.int(g.topic)
		e.bytes(g.id)
		e.int(f.partition)
		e.int(f.offset)
		e.int(f.at)
		if err := absent.add(g.id, e.b); err != nil {
			return err
		}
	}
	return nil
}

// spanOf names what both relays have of a partition, by the offsets of one of them.
type spanOf struct {
	side             int
	topic, partition int64
}

// The sides of a spanOf.
const (
	ofEvents = iota
	ofRecords
)

type span struct{ first, last int64 }

func (c *Comparison) spanned(side int, topic, partition, offset int64) {
	key := spanOf{side, topic, partition}
	s, ok := c.spans[key]
	if !ok {
		s = span{offset, offset}
	}
	c.spans[key] = span{min(s.first, offset), max(s.last, offset)}
}

// beside judges what only one of two relays has: the other may have begun later, or be behind.
func (c *Comparison) beside(kind Kind, side int, topic, partition, offset, at int64) Kind {
	s, ok := c.spans[spanOf{side, topic, partition}]
	when := time.UnixMicro(at)
	switch {
	case ok && offset < s.first, !ok && when.Before(c.oldest):
		return Expired
	case ok && offset > s.last, !ok && when.After(c.newest) && !c.newest.IsZero():
		return Pending
	}
	return kind
}

// absence says why an event has no record.
func (c *Comparison) absence(b []byte) error {
	r := entry{b}
	kind := r.readInt()
	a := absentee{topic: r.readInt(), id: r.readBytes()}
	topic := c.names[a.topic]
	e := Example{Kind: Missing, Topic: topic, ID: printable(a.id), Partition: -1, Offset: -1}
	if kind == isRecord {
		partition, offset, at := r.readInt(), r.readInt(), r.readInt()
		e.Kind, e.Partition, e.Offset = Extra, int32(partition), offset
		if c.opts.Against {
			e.Kind = c.beside(Extra, ofRecords, a.topic, partition, offset, at)
		}
		return c.tell(e)
	}
	a.wanted = readWanted(&r)
	switch {
	case c.opts.Against:
		p, _ := parsePlace(a.place)
		e.Kind = c.beside(Missing, ofEvents, a.topic, a.spread, int64(p.n[1]), a.at)
	case c.expired(&a):
		e.Kind = Expired
	case c.pending(&a):
		e.Kind = Pending
	case slices.Contains(c.report.NoTopic, topic):
		e.Detail = "the topic does not exist"
	}
	return c.tell(e)
}

// expired tells whether the partition begins behind the event.
func (c *Comparison) expired(a *absentee) bool {
	all := c.extents[c.names[a.topic]]
	n, isNumber := number(a.id)
	for i := range all {
		e := &all[i]
		if e.Start == 0 || a.spread >= 0 && int64(e.Partition) != a.spread%int64(len(all)) {
			continue
		}
		switch {
		case !e.any: // all of it was deleted
			return true
		case a.at != 0:
			if time.UnixMicro(a.at).Before(e.oldest) {
				return true
			}
		case isNumber && e.num && n < e.smallest:
			return true
		}
	}
	return false
}

// pending tells whether the event may be on its way.
func (c *Comparison) pending(a *absentee) bool {
	for _, e := range c.extents[c.names[a.topic]] {
		if e.Open && (a.spread < 0 || int64(e.Partition) == a.spread%int64(len(c.extents[c.names[a.topic]]))) {
			return true
		}
	}
	if c.report.CaughtUp {
		return false
	}
	if a.at != 0 {
		limit := c.newest
		if !a.exact {
			limit = limit.Add(-overlap)
		}
		if n, ok := number(a.id); ok && !a.exact && c.newestN != minInt && n < c.newestN && !c.newest.IsZero() {
			return false
		}
		return time.UnixMicro(a.at).After(limit)
	}
	n, ok := number(a.id)
	return ok && n > c.newestN
}
