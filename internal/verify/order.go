package verify

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// copied is a record of an aggregate.
type copied struct {
	offset  int64
	first   bool
	id      []byte
	place   place
	placed  bool
	at      int64
	exact   bool
	tx      string
	n       int64
	numeric bool
}

// By what an order is judged.
const (
	byPosition = "position"
	byCommit   = "commit_time"
	byID       = "id"
	byTime     = "time"
	byNothing  = "none"
)

// close is how near two commit times may be and still be in the other order in the log.
const closeCommits = int64(100 * time.Millisecond / time.Microsecond)

func (c *Comparison) order(n int) error {
	aggregates := map[string][]copied{}
	err := c.orders.each(n, func(b []byte) error {
		r := entry{b}
		r.readInt()
		r.readInt()
		r.readBytes()
		key := string(b[:len(b)-len(r.b)])
		x := copied{offset: r.readInt(), first: r.readInt() == 1, id: r.readBytes()}
		x.place, x.placed = parsePlace(string(r.readBytes()))
		x.at, x.exact, x.tx = r.readInt(), r.readInt() == 1, string(r.readBytes())
		x.n, x.numeric = number(x.id)
		aggregates[key] = append(aggregates[key], x)
		return nil
	})
	if err != nil {
		return err
	}
	for key, all := range aggregates {
		r := entry{[]byte(key)}
		topic, partition := c.names[r.readInt()], int32(r.readInt())
		if err := c.orderOf(topic, partition, all); err != nil {
			return err
		}
	}
	return nil
}

// orderOf judges the records of one aggregate: first copies stand in the
// order of their events, and the last record is the last event.
func (c *Comparison) orderOf(topic string, partition int32, all []copied) error {
	slices.SortFunc(all, func(a, b copied) int { return cmp.Compare(a.offset, b.offset) })
	by := basis(all)
	c.report.Order[by]++
	if by == byNothing {
		return nil
	}
	last := 0 // the latest event so far
	for i := 1; i < len(all); i++ {
		if compare(by, &all[i], &all[last]) >= 0 {
			last = i
			continue
		}
		x, what := &all[i], "an event that was committed later is before it, at offset %d"
		if !x.first {
			if i < len(all)-1 {
				continue // a repeat, and what was behind it should come again
			}
			what = "it is the last record of its key, and the event at offset %d was committed later"
		}
		kind := Disordered
		if !certain(by, x, &all[last]) {
			kind = Suspect
		}
		err := c.tell(Example{Kind: kind, Topic: topic, ID: printable(x.id), Partition: partition, Offset: x.offset,
			Detail: fmt.Sprintf(what+", by "+by, all[last].offset)})
		if err != nil {
			return err
		}
	}
	return nil
}

// basis finds the best thing that all of them can be compared by.
func basis(all []copied) string {
	placed, exact, numeric, timed := true, true, true, true
	for i := range all {
		x := &all[i]
		placed = placed && x.placed && x.place.line == all[0].place.line
		exact = exact && x.exact
		numeric = numeric && x.numeric
		timed = timed && x.at != 0
	}
	switch {
	case placed:
		return byPosition
	case exact:
		return byCommit
	case numeric:
		return byID
	case timed:
		return byTime
	}
	return byNothing
}

func compare(by string, a, b *copied) int {
	switch by {
	case byPosition:
		return a.place.compare(b.place)
	case byID:
		return cmp.Compare(a.n, b.n)
	case byCommit:
		if a.at == b.at && a.numeric && b.numeric { // of one transaction
			return cmp.Compare(a.n, b.n)
		}
	}
	return cmp.Compare(a.at, b.at)
}

// certain tells whether a is surely older than b. Without the log's order that
// can't be said of what may have been written by transactions side by side.
func certain(by string, a, b *copied) bool {
	if by == byPosition || a.tx != "" && a.tx == b.tx && by != byTime {
		return true
	}
	if a.at == 0 || b.at == 0 {
		return false
	}
	if by == byCommit {
		return b.at-a.at > closeCommits
	}
	return b.at-a.at > int64(overlap/time.Microsecond)
}
