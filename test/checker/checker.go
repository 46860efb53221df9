// Package checker judges a run of the connector from the outside. It compares
// what the database says was committed with what the topics hold, and shares
// no code with the product: its own reads, its own murmur2, its own idea of order.
//
//	events,  _ := checker.ReadPostgres(ctx, conn, table)
//	records, _ := checker.ReadTopics(ctx, brokers, checker.Uncommitted, topics...)
//	report    := checker.Check(events, records)
//	checker.Require(t, report, window)
package checker

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Event is one committed outbox row, as the server prints it.
type Event struct {
	Topic   string
	Key     []byte
	Seq     int64 // commit order among the events of this topic and key
	ID      []byte
	Value   []byte
	Headers []Header // all the record must carry; ID is one of them
}

// Header is one record header. A nil Value is a null header.
type Header struct {
	Name  string
	Value []byte
}

// Record is one record of a topic.
type Record struct {
	Topic      string
	Partition  int32
	Partitions int32 // how many the topic has
	Offset     int64
	Key        []byte
	Value      []byte
	Headers    []Header
	Timestamp  time.Time
}

// Check compares committed events with the records of their topics.
func Check(events []Event, records []Record) *Report {
	r := &Report{Committed: len(events), Records: len(records)}
	byID := index(events, r)
	records = slices.Clone(records)
	slices.SortStableFunc(records, inLogOrder)

	copies := make(map[*Event]int, len(events))
	logs := make(map[place][]*Event)
	for i := range records {
		rec := &records[i]
		r.checkPartition(rec)
		e := byID[eventID{rec.Topic, string(rec.id())}]
		if e == nil {
			r.Phantom.add("%s: no committed row has this id", rec)
			continue
		}
		r.checkBytes(rec, e)
		copies[e]++
		if copies[e] > 1 {
			r.Repeated.add("%s: copy %d", rec, copies[e])
		}
		at := place{e.Topic, string(e.Key)}
		logs[at] = append(logs[at], e)
	}
	r.Delivered = len(copies)
	for i := range events {
		if copies[&events[i]] == 0 {
			r.Missing.add("%s", &events[i])
		}
	}
	r.checkOrder(logs)
	return r
}

type eventID struct{ topic, id string }

type place struct{ topic, key string }

func index(events []Event, r *Report) map[eventID]*Event {
	byID := make(map[eventID]*Event, len(events))
	seqs := make(map[place]map[int64]bool)
	for i := range events {
		e := &events[i]
		id, at := eventID{e.Topic, string(e.ID)}, place{e.Topic, string(e.Key)}
		if byID[id] != nil {
			r.Truth.add("%s: two rows have this id", e)
		}
		if seqs[at] == nil {
			seqs[at] = make(map[int64]bool)
		}
		if seqs[at][e.Seq] {
			r.Truth.add("%s: two rows have this sequence number", e)
		}
		byID[id], seqs[at][e.Seq] = e, true
	}
	return byID
}

func inLogOrder(a, b Record) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// checkOrder applies one rule to each key: the log begins with the key's first
// event, after event n comes n+1 or an earlier one, and it ends with the last.
// So first copies stand in commit order, and a repeat is a re-run. Events that are
// missing altogether are counted as missing, not here.
func (r *Report) checkOrder(logs map[place][]*Event) {
	for at, log := range logs {
		want := slices.Clone(log)
		slices.SortFunc(want, func(a, b *Event) int { return cmp.Compare(a.Seq, b.Seq) })
		want = slices.Compact(want)
		rank := make(map[*Event]int, len(want))
		for i, e := range want {
			rank[e] = i
		}
		last := -1
		for _, e := range log {
			if rank[e] > last+1 {
				r.Inversions.add("%s: stands before seq %d", e, want[last+1].Seq)
			}
			last = rank[e]
		}
		if last != len(want)-1 {
			r.Inversions.add("topic %s key %q: ends with seq %d, not with %d", at.topic, at.key, want[last].Seq, want[len(want)-1].Seq)
		}
	}
}

func (r *Report) checkPartition(rec *Record) {
	if rec.Key == nil || rec.Partitions == 0 {
		return
	}
	if want := Partition(rec.Key, rec.Partitions); want != rec.Partition {
		r.WrongPartition.add("%s: belongs on partition %d of %d", rec, want, rec.Partitions)
	}
}

func (r *Report) checkBytes(rec *Record, e *Event) {
	switch {
	case !same(rec.Key, e.Key):
		r.WrongBytes.add("%s: key is %q, committed %q", rec, rec.Key, e.Key)
	case !same(rec.Value, e.Value):
		r.WrongBytes.add("%s: value is %.120q, committed %.120q", rec, rec.Value, e.Value)
	case !slices.EqualFunc(sorted(rec.Headers), sorted(e.Headers), sameHeader):
		r.WrongBytes.add("%s: headers are %s, committed %s", rec, print(rec.Headers), print(e.Headers))
	}
}

// same tells null from empty.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func sameHeader(a, b Header) bool { return a.Name == b.Name && same(a.Value, b.Value) }

func sorted(hs []Header) []Header {
	hs = slices.Clone(hs)
	slices.SortStableFunc(hs, func(a, b Header) int { return cmp.Compare(a.Name, b.Name) })
	return hs
}

func print(hs []Header) string {
	s := ""
	for _, h := range hs {
		s += fmt.Sprintf("[%s=%q]", h.Name, h.Value)
	}
	return s
}

// id is the record's event id: its header "id", or "ce_id".
func (rec *Record) id() []byte {
	for _, h := range rec.Headers {
		if h.Name == "id" || h.Name == "ce_id" {
			return h.Value
		}
	}
	return nil
}

func (rec *Record) String() string {
	return fmt.Sprintf("%s/%d@%d key %q id %q", rec.Topic, rec.Partition, rec.Offset, rec.Key, rec.id())
}

func (e *Event) String() string {
	return fmt.Sprintf("topic %s key %q seq %d id %q", e.Topic, e.Key, e.Seq, e.ID)
}
