package verify

import (
	"fmt"
	"maps"
	"os"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// side makes events and records of one topic, an aggregate "k", in a short form.
type event struct {
	id    string
	value string
	at    time.Duration // after noon; 0: not known
	exact bool
	tx    string
}

type record struct {
	offset int64
	id     string
	value  string
	place  string
}

func TestComparison(t *testing.T) {
	t.Parallel()
	e := func(id string) event { return event{id: id, value: "v" + id} }
	r := func(offset int64, id string) record { return record{offset: offset, id: id, value: "v" + id} }
	at := func(id string, after time.Duration) event { return event{id: id, value: "v" + id, at: after} }
	commit := func(id string, after time.Duration) event {
		return event{id: id, value: "v" + id, at: after, exact: true}
	}
	placed := func(offset int64, id, place string) record { return record{offset, id, "v" + id, place} }
	for _, tc := range []struct {
		name    string
		events  []event
		records []record
		extent  Extent
		behind  bool // the relay is not known to have caught up
		parked  []string
		whole   bool
		want    map[Kind]int64
	}{
		{name: "clean", events: []event{e("1"), e("2")}, records: []record{r(0, "1"), r(1, "2")}},
		{name: "missing", events: []event{e("1"), e("2"), e("3")}, records: []record{r(0, "1"), r(1, "3")}, want: map[Kind]int64{Missing: 1}},
		{name: "missing at the end, caught up", events: []event{e("1"), e("2")}, records: []record{r(0, "1")}, want: map[Kind]int64{Missing: 1}},
		{name: "pending at the end", events: []event{e("1"), e("2")}, records: []record{r(0, "1")}, behind: true, want: map[Kind]int64{Pending: 1}},
		{name: "missing in the middle, not caught up", events: []event{e("1"), e("2"), e("3")}, records: []record{r(0, "1"), r(1, "3")}, behind: true, want: map[Kind]int64{Missing: 1}},
		{name: "pending by time", events: []event{at("a", 0), commit("b", time.Hour), commit("c", 2*time.Hour)}, records: []record{r(0, "a"), r(1, "b")}, behind: true, want: map[Kind]int64{Pending: 1}},
		{name: "altered", events: []event{e("1")}, records: []record{{0, "1", "other", ""}}, want: map[Kind]int64{Altered: 1}},
		{name: "re-run of two", events: []event{e("1"), e("2")}, records: []record{r(0, "1"), r(1, "2"), r(2, "1"), r(3, "2")}, want: map[Kind]int64{Repeated: 2}},
		{name: "an earlier event is the last", events: []event{{id: "1", value: "v1", tx: "7"}, {id: "2", value: "v2", tx: "7"}},
			records: []record{r(0, "1"), r(1, "2"), r(2, "1")}, want: map[Kind]int64{Repeated: 1, Disordered: 1}},
		{name: "out of order by position", events: []event{e("1"), e("2")}, records: []record{placed(0, "2", "0/20#0"), placed(1, "1", "0/10#3")}, want: map[Kind]int64{Disordered: 1}},
		{name: "in order by position, not by id", events: []event{e("1"), e("2")}, records: []record{placed(0, "2", "0/FF#0"), placed(1, "1", "1/0#0")}},
		{name: "out of order by row of one transaction", events: []event{e("1"), e("2")}, records: []record{placed(0, "2", "u:9#1"), placed(1, "1", "u:9#0")}, want: map[Kind]int64{Disordered: 1}},
		{name: "across binary logs", events: []event{e("1"), e("2")}, records: []record{placed(0, "1", "bin.000009:900#0"), placed(1, "2", "bin.000010:4#0")}},
		{name: "out of order by commit time", events: []event{commit("a", time.Minute), commit("b", 2*time.Minute)}, records: []record{r(0, "b"), r(1, "a")}, want: map[Kind]int64{Disordered: 1}},
		{name: "commits side by side", events: []event{commit("a", time.Minute), commit("b", time.Minute+time.Millisecond)}, records: []record{r(0, "b"), r(1, "a")}, want: map[Kind]int64{Suspect: 1}},
		{name: "ids of overlapping transactions", events: []event{e("1"), e("2")}, records: []record{r(0, "2"), r(1, "1")}, want: map[Kind]int64{Suspect: 1}},
		{name: "ids of one transaction", events: []event{{id: "1", value: "v1", tx: "7"}, {id: "2", value: "v2", tx: "7"}}, records: []record{r(0, "2"), r(1, "1")}, want: map[Kind]int64{Disordered: 1}},
		{name: "ids made an hour apart", events: []event{at("1", time.Minute), at("2", time.Hour)}, records: []record{r(0, "2"), r(1, "1")}, want: map[Kind]int64{Disordered: 1}},
		{name: "expired by id", events: []event{e("1"), e("2"), e("3")}, records: []record{r(5, "2"), r(6, "3")}, extent: Extent{Start: 5}, want: map[Kind]int64{Expired: 1}},
		{name: "expired, all of it", events: []event{e("1")}, extent: Extent{Start: 5}, want: map[Kind]int64{Expired: 1}},
		{name: "missing in a topic that begins later", events: []event{e("1"), e("2"), e("3")}, records: []record{r(5, "1"), r(6, "3")}, extent: Extent{Start: 5}, want: map[Kind]int64{Missing: 1}},
		{name: "behind an open transaction", events: []event{e("1"), e("2")}, records: []record{r(0, "1")}, extent: Extent{Open: true}, want: map[Kind]int64{Pending: 1}},
		{name: "parked", events: []event{e("1"), e("2")}, records: []record{r(0, "2")}, parked: []string{"1"}, want: map[Kind]int64{Parked: 1}},
		{name: "a row that was deleted", events: []event{e("2")}, records: []record{r(0, "1"), r(1, "2")}, whole: true, want: map[Kind]int64{Extra: 1}},
		{name: "a record outside of the range", events: []event{e("2")}, records: []record{r(0, "1"), r(1, "2")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, err := New(Options{Dir: t.TempDir(), Whole: tc.whole})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, e := range tc.events {
				x := Event{Topic: "t", ID: []byte(e.id), Key: []byte("k"), Value: []byte(e.value), Spread: 0, Exact: e.exact, Tx: e.tx}
				if e.at != 0 {
					x.At = noon.Add(e.at)
				}
				must(t, c.Expect(&x))
			}
			tc.extent.Topic = "t"
			c.Extents([]Extent{tc.extent}, nil)
			c.CaughtUp(!tc.behind)
			for _, r := range tc.records {
				must(t, c.Find(&Record{Topic: "t", Offset: r.offset, ID: []byte(r.id), Key: []byte("k"), Value: []byte(r.value), Place: r.place, At: noon.Add(24 * time.Hour)}))
			}
			for _, id := range tc.parked {
				must(t, c.Parked("t", []byte(id)))
			}
			report, err := c.Judge()
			must(t, err)
			if !maps.Equal(report.Counts, tc.want) && len(report.Counts)+len(tc.want) > 0 {
				t.Errorf("found %v, want %v", report.Counts, tc.want)
			}
		})
	}
}

// Of two relays one began later and is behind; between, each has one that the other lacks.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	c, err := New(Options{Dir: t.TempDir(), Whole: true, Against: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	record := func(id string, offset int64) *Record {
		return &Record{Topic: "t", Offset: offset, ID: []byte(id), Key: []byte("k"), Value: []byte(id), At: noon}
	}
	for i, id := range []string{"before", "1", "2", "lost", "4", "behind"} {
		must(t, c.Published(record(id, int64(i))))
	}
	c.Extents([]Extent{{Topic: "t"}}, nil)
	for i, id := range []string{"1", "more", "2", "4"} {
		must(t, c.Find(record(id, int64(i))))
	}
	report, err := c.Judge()
	must(t, err)
	want := map[Kind]int64{Expired: 1, Pending: 1, Missing: 1, Extra: 1}
	if !maps.Equal(report.Counts, want) || report.Matched != 3 {
		t.Errorf("found %v, %d matched", report.Counts, report.Matched)
	}
}

// Many go through the files, nothing is lost between them, and the files are gone behind.
func TestMany(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	const n = 50_000
	for i := range n {
		id, key := fmt.Appendf(nil, "%d", i), fmt.Appendf(nil, "k%d", i%100)
		must(t, c.Expect(&Event{Topic: "t", ID: id, Key: key, Value: id, Spread: -1}))
		if i%1000 != 7 {
			must(t, c.Find(&Record{Topic: "t", Offset: int64(i), ID: id, Key: key, Value: id}))
		}
	}
	c.CaughtUp(true)
	report, err := c.Judge()
	must(t, err)
	if report.Matched != n-n/1000 || report.Counts[Missing] != n/1000 || report.Order[byID] != 100 {
		t.Errorf("found %+v", report)
	}
	c.Close()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%d files are left", len(left))
	}
}

func TestID(t *testing.T) {
	t.Parallel()
	headers := map[string]string{"id": "7", "quoted": `"a\"b"`, "whole": `{"schema":{"type":"string"},"payload":"x"}`}
	header := func(name string) ([]byte, bool) {
		v, ok := headers[name]
		if !ok {
			return nil, false
		}
		return []byte(v), true
	}
	for _, tc := range []struct{ where, value, want string }{
		{"header:id", "", "7"},
		{"header:quoted", "", `a"b`},
		{"header:whole", "", "x"},
		{"header:none", "", ""},
		{"json:$.id", `{"id":12345678901234567890}`, "12345678901234567890"},
		{"json:$.after.id", `{"after":{"id":"q"}}`, "q"},
		{"json:$.id", `no JSON`, ""},
	} {
		id, err := ParseID(tc.where)
		if err != nil {
			t.Fatal(err)
		}
		if got := id.Of(header, []byte(tc.value)); string(got) != tc.want {
			t.Errorf("%s of %s: %q", tc.where, tc.value, got)
		}
	}
	for _, bad := range []string{"", "id", "header:", "json:$", "json:$.", "json:$.a[0]"} {
		if _, err := ParseID(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if got := string(Without([]byte(`{"id":"1","occurredAt":"2026","payload":{"occurredAt":"x"}}`), "occurredAt")); got != `{"id":"1",,"payload":{"occurredAt":"x"}}` {
		t.Error(got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
