package main

import (
	"slices"
	"strings"
	"testing"
)

// Two orders: events 1, 2, 5 of a and 3, 6 of b; 4 was rolled back.
var (
	committed = []row{
		{1, "a", "OrderPlaced", "{}"}, {2, "a", "OrderPaid", "{}"}, {3, "b", "OrderPlaced", "{}"},
		{5, "a", "OrderShipped", "{}"}, {6, "b", "OrderCancelled", "{}"},
	}
	rolledBack = []int64{4}
)

func recordsOf(ids ...int64) []record {
	var records []record
	for _, id := range ids {
		i := slices.IndexFunc(committed, func(r row) bool { return r.ID == id })
		if i < 0 {
			records = append(records, record{ID: id, Key: "a"})
			continue
		}
		r := committed[i]
		records = append(records, record{ID: id, Key: r.AggregateID, EventType: r.EventType, Value: r.Payload})
	}
	return records
}

func TestJudge(t *testing.T) {
	t.Parallel()
	other := func(change func(r *record)) []record {
		records := recordsOf(1, 2, 3, 5, 6)
		change(&records[3])
		return records
	}
	tests := []struct {
		name      string
		records   []record
		confirmed []int64
		killedAt  int
		want      verdict // the counts that are always the same are filled in below
		ok        bool
	}{
		{name: "all once", records: recordsOf(1, 2, 3, 5, 6), want: verdict{delivered: 5}, ok: true},
		{name: "orders interleave otherwise", records: recordsOf(3, 1, 2, 6, 5), want: verdict{delivered: 5}, ok: true},
		{name: "re-run inside the window", records: recordsOf(1, 2, 3, 2, 3, 5, 6), confirmed: []int64{1}, killedAt: 3,
			want: verdict{delivered: 5, repeated: 2, window: 2}, ok: true},
		{name: "re-run of a confirmed event", records: recordsOf(1, 2, 3, 1, 2, 5, 6), confirmed: []int64{1}, killedAt: 3,
			want: verdict{delivered: 5, repeated: 2, window: 2, outside: 1}},
		{name: "repeat without a kill", records: recordsOf(1, 2, 2, 3, 5, 6), killedAt: 6,
			want: verdict{delivered: 5, repeated: 1, window: 5, outside: 1}},
		{name: "third copy", records: recordsOf(1, 1, 1, 2, 3, 5, 6), killedAt: 1,
			want: verdict{delivered: 5, repeated: 2, window: 1, outside: 1}},
		{name: "missing in the middle", records: recordsOf(1, 3, 5, 6), want: verdict{delivered: 4, missing: 1, outOfOrder: 1}},
		{name: "missing at the end", records: recordsOf(1, 2, 3, 6), want: verdict{delivered: 4, missing: 1, outOfOrder: 1}},
		{name: "whole order missing", records: recordsOf(1, 2, 5), want: verdict{delivered: 3, missing: 2}},
		{name: "swapped", records: recordsOf(1, 5, 2, 3, 6), want: verdict{delivered: 5, outOfOrder: 2}},
		{name: "re-run that does not reach the end", records: recordsOf(1, 2, 5, 3, 6, 2), killedAt: 5,
			want: verdict{delivered: 5, repeated: 1, window: 5, outOfOrder: 1}},
		{name: "rolled back event", records: recordsOf(1, 2, 3, 4, 5, 6), want: verdict{delivered: 5, phantoms: 1}},
		{name: "record without an id", records: recordsOf(0, 1, 2, 3, 5, 6), want: verdict{delivered: 5, phantoms: 1}},
		{name: "other payload", records: other(func(r *record) { r.Value = "{ }" }), want: verdict{delivered: 5, altered: 1}},
		{name: "other type", records: other(func(r *record) { r.EventType = "" }), want: verdict{delivered: 5, altered: 1}},
		{name: "other key", records: other(func(r *record) { r.Key = "b" }), want: verdict{delivered: 5, altered: 1, outOfOrder: 2}},
		{name: "other partition", records: other(func(r *record) { r.Partition = 1 }), want: verdict{delivered: 5, outOfOrder: 1}},
		{name: "nothing came", want: verdict{missing: 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			confirmed := map[int64]bool{}
			for _, id := range tt.confirmed {
				confirmed[id] = true
			}
			tt.want.orders, tt.want.committed, tt.want.rolledBack = 2, 5, 1
			got := judge(truth{committed, rolledBack, confirmed, tt.killedAt}, tt.records)
			if got != tt.want || got.ok() != tt.ok {
				t.Errorf("judge = %+v, ok %v\nwant    %+v, ok %v", got, got.ok(), tt.want, tt.ok)
			}
		})
	}
}

// A run in which nothing was committed or rolled back proves nothing.
func TestJudgeWantsAProof(t *testing.T) {
	t.Parallel()
	if judge(truth{rolledBack: rolledBack}, nil).ok() {
		t.Error("a run without an event is ok")
	}
	if judge(truth{committed: committed}, recordsOf(1, 2, 3, 5, 6)).ok() {
		t.Error("a run without a rollback is ok")
	}
}

func TestSabotageIsFound(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"drop", "swap", "alter", "repeat", "invent"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			facts := truth{committed: committed, rolledBack: rolledBack, confirmed: map[int64]bool{1: true}}
			records, err := sabotage(kind, recordsOf(1, 2, 3, 5, 6), facts)
			if err != nil {
				t.Fatal(err)
			}
			if v := judge(facts, records); v.ok() {
				t.Errorf("judge = %+v, ok", v)
			}
		})
	}
	if _, err := sabotage("other", recordsOf(1), truth{}); err == nil {
		t.Error("an unknown kind is accepted")
	}
}

func TestVerdictNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	verdict{committed: 5, delivered: 4, missing: 1, repeated: 3, outside: 2, rolledBack: 1, phantoms: 1}.print(&text, paint(true))
	for _, want := range []string{"\x1b[31m  missing            1", "2 of them outside the window", "1 records of events that were never committed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, text.String())
		}
	}
}
