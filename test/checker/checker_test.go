package checker

import (
	"fmt"
	"strings"
	"testing"
)

const topic = "outbox.event.order"

// event n of key; ids are "key-n".
func event(key string, n int) Event {
	id := fmt.Sprintf("%s-%d", key, n)
	return Event{
		Topic: topic, Key: []byte(key), Seq: int64(n), ID: []byte(id), Value: fmt.Appendf(nil, `{"seq": %d}`, n),
		Headers: []Header{{"id", []byte(id)}, {"eventType", []byte("created")}, {"aggregateType", []byte("order")}},
	}
}

// logOf gives the records a faultless sink would write for these events, in this order.
func logOf(events ...Event) []Record {
	var records []Record
	for i, e := range events {
		records = append(records, Record{
			Topic: e.Topic, Partition: Partition(e.Key, 3), Partitions: 3, Offset: int64(i),
			Key: e.Key, Value: e.Value, Headers: e.Headers,
		})
	}
	return records
}

func TestCheck(t *testing.T) {
	t.Parallel()
	a1, a2, a3, b1, b2 := event("a", 1), event("a", 2), event("a", 3), event("b", 1), event("b", 2)
	all := []Event{a1, a2, a3, b1, b2}
	// altered returns the faultless log with its record i changed.
	altered := func(i int, change func(*Record)) []Record {
		records := logOf(a1, b1, a2, b2, a3)
		change(&records[i])
		return records
	}
	type counts struct{ missing, phantom, repeated, inversions, bytes, partition int }
	for _, c := range []struct {
		name    string
		records []Record
		want    counts
	}{
		{"faultless", logOf(a1, b1, a2, b2, a3), counts{}},
		{"one missing in the middle", logOf(a1, b1, b2, a3), counts{missing: 1}},
		{"the first missing", logOf(a2, a3, b1, b2), counts{missing: 1}},
		{"the last missing", logOf(a1, a2, b1, b2), counts{missing: 1}},
		{"nothing delivered", nil, counts{missing: 5}},
		{"rolled back and delivered", logOf(a1, b1, a2, b2, a3, event("a", 4)), counts{phantom: 1}},
		{"no id header", altered(2, func(r *Record) { r.Headers = r.Headers[1:] }), counts{missing: 1, phantom: 1}},
		{"wrong topic", altered(2, func(r *Record) { r.Topic = "other" }), counts{missing: 1, phantom: 1}},
		{"two first copies swapped", logOf(a1, a3, a2, b1, b2), counts{inversions: 2}},
		{"begins with the second", logOf(a2, a1, a2, a3, b1, b2), counts{inversions: 1, repeated: 1}},
		{"one repeated at once", logOf(a1, a1, a2, a3, b1, b2), counts{repeated: 1}},
		{"a re-run", logOf(a1, a2, a3, a1, a2, a3, b1, b2), counts{repeated: 3}},
		{"a re-run that goes on", logOf(a1, a2, a1, a2, a3, b1, b2), counts{repeated: 2}},
		{"a re-run that skips", logOf(a1, a2, a3, a1, a3, b1, b2), counts{repeated: 2, inversions: 1}},
		{"a re-run that stops short", logOf(a1, a2, a3, a1, a2, b1, b2), counts{repeated: 2, inversions: 1}},
		{"an accepted one behind a failed one", logOf(a1, a3, a1, a2, a3, b1, b2), counts{repeated: 2, inversions: 1}},
		{"value altered", altered(1, func(r *Record) { r.Value = []byte(`{"seq":1}`) }), counts{bytes: 1}},
		{"value null", altered(1, func(r *Record) { r.Value = nil }), counts{bytes: 1}},
		{"header altered", altered(1, func(r *Record) { r.Headers = []Header{r.Headers[0], {"eventType", []byte("x")}, r.Headers[2]} }), counts{bytes: 1}},
		{"header null", altered(1, func(r *Record) { r.Headers = []Header{r.Headers[0], {"eventType", nil}, r.Headers[2]} }), counts{bytes: 1}},
		{"header missing", altered(1, func(r *Record) { r.Headers = r.Headers[:2] }), counts{bytes: 1}},
		{"header too many", altered(1, func(r *Record) { r.Headers = append(r.Headers[:3:3], Header{"x", nil}) }), counts{bytes: 1}},
		{"headers in another order", altered(1, func(r *Record) { r.Headers = []Header{r.Headers[2], r.Headers[0], r.Headers[1]} }), counts{}},
		{"wrong partition", altered(4, func(r *Record) { r.Partition = (r.Partition + 1) % 3 }), counts{partition: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := Check(all, c.records)
			got := counts{r.Missing.Count, r.Phantom.Count, r.Repeated.Count, r.Inversions.Count, r.WrongBytes.Count, r.WrongPartition.Count}
			if got != c.want {
				t.Errorf("found %+v, want %+v\n%s", got, c.want, r)
			}
			if want := c.want == (counts{repeated: c.want.repeated}); r.Sound() != want {
				t.Errorf("sound is %v, want %v", r.Sound(), want)
			}
		})
	}
}

func TestCheckKeyAltered(t *testing.T) {
	t.Parallel()
	e := event("a", 1)
	records := logOf(e)
	records[0].Key = []byte("A")
	records[0].Partition = Partition(records[0].Key, 3)
	if r := Check([]Event{e}, records); r.WrongBytes.Count != 1 || r.WrongPartition.Count != 0 {
		t.Errorf("want one record with wrong bytes:\n%s", r)
	}
}

func TestCheckRefusesUnusableTruth(t *testing.T) {
	t.Parallel()
	sameID, sameSeq := event("a", 1), event("a", 1)
	sameID.Seq = 2
	sameSeq.ID = []byte("other")
	for name, e := range map[string]Event{"id twice": sameID, "sequence number twice": sameSeq} {
		if r := Check([]Event{event("a", 1), e}, nil); r.Truth.Count != 1 || r.Sound() {
			t.Errorf("%s: not noticed:\n%s", name, r)
		}
	}
}

func TestReportLimitsExamples(t *testing.T) {
	t.Parallel()
	var events []Event
	for n := range 50 {
		events = append(events, event("a", n))
	}
	r := Check(events, nil)
	if r.Missing.Count != 50 || len(r.Missing.Examples) != maxExamples {
		t.Errorf("%d missing, %d examples", r.Missing.Count, len(r.Missing.Examples))
	}
	if s := r.String(); !strings.Contains(s, "missing: and 30 more") || !strings.Contains(s, "| missing |") {
		t.Errorf("table is\n%s", s)
	}
}

// failures is a testing.TB that only counts.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestRequire(t *testing.T) {
	t.Parallel()
	a1, a2 := event("a", 1), event("a", 2)
	for _, c := range []struct {
		name   string
		report *Report
		window int
		want   int
	}{
		{"sound", Check([]Event{a1, a2}, logOf(a1, a2)), 0, 0},
		{"repeats inside the window", Check([]Event{a1, a2}, logOf(a1, a2, a1, a2)), 2, 0},
		{"repeats beyond the window", Check([]Event{a1, a2}, logOf(a1, a2, a1, a2)), 1, 1},
		{"missing", Check([]Event{a1, a2}, logOf(a1)), 9, 1},
		{"nothing committed", Check(nil, nil), 0, 1},
	} {
		f := &failures{TB: t}
		if Require(f, c.report, c.window); f.n != c.want {
			t.Errorf("%s: %d failures, want %d", c.name, f.n, c.want)
		}
	}
}

// The vectors of the Java client's UtilsTest.
func TestMurmur2(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}
