package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// truth is what the database says once all is quiet.
type truth struct {
	committed  []row
	rolledBack []int64
	confirmed  map[int64]bool // events that outboxd had confirmed when it was killed: they must not come again
	killedAt   int            // how many records had been consumed by then
}

// verdict compares the truth with what was consumed.
type verdict struct {
	orders     int
	committed  int
	delivered  int // of these, at least once
	missing    int
	outOfOrder int // an event before its forerunner, or an order spread over partitions
	altered    int // key, type or payload differ from the row
	repeated   int // further copies
	window     int // events consumed and not yet confirmed when outboxd was killed
	outside    int // copies of an event that was confirmed, or beyond the second
	rolledBack int
	phantoms   int // records of a rolled back or otherwise never committed event
}

// place is where an event stands among the events of its order.
type place struct {
	row    row
	index  int
	copies int
}

// trail is how far the records of one order have come.
type trail struct {
	partition int32
	index     int // of the last record
}

// judge looks at the records of each partition in the order of their offsets.
func judge(t truth, records []record) verdict {
	v := verdict{committed: len(t.committed), rolledBack: len(t.rolledBack)}
	events := make(map[int64]*place, len(t.committed))
	length := map[string]int{}
	for _, r := range t.committed {
		events[r.ID] = &place{row: r, index: length[r.AggregateID]}
		length[r.AggregateID]++
	}
	v.orders = len(length)

	trails := map[string]*trail{}
	for i, rec := range records {
		event := events[rec.ID]
		if event == nil {
			v.phantoms++
			continue
		}
		v.count(t, event, i)
		if rec.Key != event.row.AggregateID || rec.EventType != event.row.EventType || rec.Value != event.row.Payload {
			v.altered++
		}
		tr := trails[rec.Key]
		if tr == nil {
			tr = &trail{partition: rec.Partition, index: -1}
			trails[rec.Key] = tr
		}
		// A repeat is a re-run: after event n comes n+1 or an earlier one.
		if event.index > tr.index+1 || rec.Partition != tr.partition {
			v.outOfOrder++
		}
		tr.index = event.index
	}
	for key, tr := range trails {
		if tr.index != length[key]-1 { // the last record of an order is its last event
			v.outOfOrder++
		}
	}
	v.missing = v.committed - v.delivered
	return v
}

// count books one copy of an event, the i-th record.
func (v *verdict) count(t truth, event *place, i int) {
	event.copies++
	if event.copies == 1 {
		v.delivered++
		if i < t.killedAt && !t.confirmed[event.row.ID] {
			v.window++
		}
		return
	}
	v.repeated++
	if t.confirmed[event.row.ID] || i < t.killedAt || event.copies > 2 {
		v.outside++
	}
}

// ok is true when outboxd kept its word, and the run put it to the test.
func (v verdict) ok() bool {
	return v.committed > 0 && v.rolledBack > 0 &&
		v.missing == 0 && v.outOfOrder == 0 && v.altered == 0 && v.outside == 0 && v.phantoms == 0
}

// print sums up for a reader.
func (v verdict) print(w io.Writer, p paint) {
	line := func(name string, n int, bad bool, note string) {
		colour := p.plain
		if bad {
			colour = p.red
		}
		text := fmt.Sprintf("  %-13s %6s  %s", name, strconv.Itoa(n), note)
		fmt.Fprintln(w, colour(strings.TrimRight(text, " ")))
	}
	line("committed", v.committed, v.committed == 0, fmt.Sprintf("events of %d orders", v.orders))
	line("delivered", v.delivered, v.missing != 0, "")
	line("missing", v.missing, v.missing != 0, "")
	line("out of order", v.outOfOrder, v.outOfOrder != 0, "")
	line("altered", v.altered, v.altered != 0, "")
	line("repeated", v.repeated, v.outside != 0, v.windowNote())
	line("rolled back", v.rolledBack, v.rolledBack == 0 || v.phantoms != 0, v.phantomNote())
}

func (v verdict) windowNote() string {
	if v.outside != 0 {
		return fmt.Sprintf("%d of them outside the window", v.outside)
	}
	return fmt.Sprintf("inside the window of %d not yet confirmed at the kill", v.window)
}

func (v verdict) phantomNote() string {
	if v.phantoms != 0 {
		return fmt.Sprintf("%d records of events that were never committed", v.phantoms)
	}
	return "never seen"
}
