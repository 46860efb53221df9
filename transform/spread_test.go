package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// headersOf writes headers as name=value, <null> for a null one.
func headersOf(m sink.Message) string {
	var all []string
	for _, h := range m.Headers {
		value := string(h.Value)
		if h.Value == nil {
			value = "<null>"
		}
		all = append(all, h.Name+"="+value)
	}
	return strings.Join(all, " ")
}

func TestSpread(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "payload jsonb", "headers jsonb")
	for _, c := range []struct {
		value any
		want  string // or what the refusal says
	}{
		{`{}`, "id=7"},
		{nil, "id=7"},
		{` { "tenant" : "a\"b\u00e4" , "n":1.50,"t":true,"z":null,"o":{"a": [1]},"l":[ ] } `, `id=7 tenant=a"bä n=1.50 t=true z=<null> o={"a": [1]} l=[ ]`},
		{`{"id":"other","a":1,"a":"2"}`, "id=7 a=2"},
		{`{"":""}`, "id=7 ="},
		{`["a"]`, "JSON, but no object"},
		{`"x"`, "JSON, but no object"},
		{`{"a":1`, "no whole JSON"},
		{`{"a":1} x`, "no whole JSON"},
		{`{a:1}`, "no whole JSON"},
		{``, "no whole JSON"},
	} {
		r := newRouter(t, Config{Columns: Columns{AggregateID: None, Headers: "headers"}})
		got, err := r.Route([]source.Row{newRow(table, "7", "{}", c.value)}, nil)
		switch {
		case err != nil:
			if !strings.Contains(describe(err), c.want) || !strings.Contains(describe(err), "OUTBOXD_COLUMN_HEADERS") || !strings.Contains(err.Error(), ReasonBadHeaders) {
				t.Errorf("%v: %s, want %q", c.value, describe(err), c.want)
			}
		case headersOf(got[0]) != c.want:
			t.Errorf("%v: %s, want %s", c.value, headersOf(got[0]), c.want)
		}
	}
	for _, typ := range []string{"bytea", "bigint", "timestamp"} {
		_, err := newRouter(t, Config{Columns: Columns{Headers: "headers"}}).Describe(newTable("public", "outbox", "id bigint", "payload jsonb", "headers "+typ))
		if !fault.Is(err, fault.CodeTableUnusable) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

// Rows of different numbers of headers do not write over each other's.
func TestSpreadKeepsHeadersApart(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "payload jsonb", "headers jsonb")
	r := newRouter(t, Config{Columns: Columns{AggregateID: None, Headers: "headers"}, HeaderFormat: FormatConnectJSON})
	var rows []source.Row
	var want []string
	for i := range 200 {
		var members, expect []string
		for j := range i * 7 % 13 {
			members = append(members, fmt.Sprintf(`"h%d":%d`, j, i))
			expect = append(expect, fmt.Sprintf(" h%d=%d", j, i))
		}
		rows = append(rows, newRow(table, fmt.Sprint(i), "{}", "{"+strings.Join(members, ",")+"}"))
		want = append(want, fmt.Sprintf("id=%d%s", i, strings.Join(expect, "")))
	}
	for i := range rows {
		rows[i].Table = rows[0].Table
	}
	for range 2 {
		got, err := r.Route(rows, nil)
		if err != nil {
			t.Fatal(describe(err))
		}
		for i := range got {
			if headersOf(got[i]) != want[i] {
				t.Fatalf("row %d: %s, want %s", i, headersOf(got[i]), want[i])
			}
		}
	}
}

// FuzzMembers compares with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":{"c":[]}}`, `{"a":1,"a":2}`, ` { } `, `{"a":}`, `{"a":1,}`, `[]`, `{"\u00`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := map[string]string{}
		instead := members(text, func(name, value []byte) { got[string(name)] = string(value) })
		if !utf8.Valid(text) {
			return
		}
		var want map[string]json.RawMessage
		isObject := json.Unmarshal(text, &want) == nil && bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
		if isObject != (instead == "") {
			t.Fatalf("%q is an object: %t, instead %q", text, isObject, instead)
		}
		if !isObject {
			return
		}
		same := map[string]string{}
		for name, value := range want {
			same[name] = string(value)
		}
		if fmt.Sprint(got) != fmt.Sprint(same) {
			t.Fatalf("%q: %v, want %v", text, got, same)
		}
	})
}

func TestOwnHeaders(t *testing.T) {
	t.Parallel()
	table := newTable("shop", "My Outbox", "id bigint", "type text", "payload jsonb", "tracingspancontext text", "flag bool")
	row := newRow(table, "7", "made", "{}", "#Fri\ntraceparent=00-a-b-01\ntracestate=x\\=1\n", "t")
	row.Tx = &source.Tx{ID: "0/16B3748"}
	row.Index = 4
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"position and source", Config{Headers: []Header{{Name: "position", Alias: "at"}, {Name: "source"}}}, "at=0/16B3748#4 source=/orders/shop.My%20Outbox"},
		{"none", Config{Headers: []Header{{Name: None}}}, ""},
		{"Debezium's context", Config{Headers: []Header{{Name: "id"}, {Name: "debezium-context"}}, TopicPrefix: "srv"},
			"id=7 __debezium.context.connectorLogicalName=srv __debezium.context.taskId=0 __debezium.context.connectorName=postgresql"},
		{"Debezium's trace", Config{Headers: []Header{{Name: "traceparent"}}}, "traceparent=00-a-b-01 tracestate=x=1"},
		{"a column's trace", Config{Headers: []Header{{Name: "traceparent"}}, Columns: Columns{Trace: "type"}}, "traceparent=made"},
		{"placed", Config{Headers: []Header{{Name: "id"}}, Placement: []Placement{{"type", PlaceHeader, "eventType"}, {"flag", PlaceHeader, ""}}}, "id=7 eventType=made flag=t"},
		{"placed under the name it has", Config{Placement: []Placement{{"type", PlaceHeader, "eventType"}}}, "id=7 eventType=made"},
		{"a missing one ignored", Config{Headers: []Header{{Name: "id"}}, Placement: []Placement{{"zz", PlaceHeader, ""}}, IgnoreMissing: true}, "id=7"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Name, c.cfg.Connector, c.cfg.Columns.AggregateID = "orders", "postgres", None
			got, err := newRouter(t, c.cfg).Route([]source.Row{row}, nil)
			if err != nil || headersOf(got[0]) != c.want {
				t.Errorf("%v %v, want %s", got, describe(err), c.want)
			}
		})
	}
}

func TestPlacementRefuses(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "type text", "payload jsonb", "p integer")
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Placement: []Placement{{"zz", PlaceHeader, ""}}}, `no column "zz", which is placed as header; its columns are id, type, payload, p | Correct OUTBOXD_COLUMN_PLACEMENT, or set OUTBOXD_ON_MISSING_COLUMN to ignore`},
		{Config{Placement: []Placement{{"type", PlaceEnvelope, ""}}}, "there is none in the format"},
		{Config{Placement: []Placement{{"type", PlacePartition, ""}}}, "is no integer but text"},
		{Config{Placement: []Placement{{"p", PlacePartition, ""}, {"id", PlacePartition, ""}}}, "two columns are placed as the partition"},
		{Config{Placement: []Placement{{"p", PlaceHeader, "id"}}}, `two headers "id"`},
		{Config{Placement: []Placement{{"p", "body", ""}}}, `"body" is no place`},
		{Config{Placement: []Placement{{"p", PlaceEnvelope, "payload"}}, PayloadFormat: FormatEnvelope}, `two members "payload"`},
		{Config{Placement: []Placement{{"p", PlaceEnvelope, "data"}}, PayloadFormat: FormatCloudEventsJSON}, `"data" is an attribute of CloudEvents already`},
		{Config{Placement: []Placement{{"p", PlaceEnvelope, "my_p"}}, PayloadFormat: FormatCloudEventsJSON}, "can't be the name of a CloudEvents attribute"},
	} {
		r, err := New(c.cfg)
		if err == nil {
			_, err = r.Describe(table)
		}
		if fault.As(err) == nil || !strings.Contains(describe(err), c.want) {
			t.Errorf("%+v: %s, want %q", c.cfg.Placement, describe(err), c.want)
		}
	}
}

func TestPartition(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "payload jsonb", "p integer")
	r := newRouter(t, Config{Columns: Columns{AggregateID: None}, Placement: []Placement{{"p", PlacePartition, ""}}})
	for _, c := range []struct {
		value  any
		pinned bool
		want   int32
		bad    bool
	}{{"3", true, 3, false}, {nil, false, 0, false}, {"0", true, 0, false}, {"-1", false, 0, true}, {"2147483648", false, 0, true}, {"1.5", false, 0, true}} {
		got, err := r.Route([]source.Row{newRow(table, "7", "{}", c.value)}, nil)
		if c.bad {
			if !strings.Contains(describe(err), ReasonBadPartition) {
				t.Errorf("%v: %v", c.value, err)
			}
		} else if err != nil || got[0].Pinned != c.pinned || got[0].Partition != c.want {
			t.Errorf("%v: %+v, %v", c.value, got, err)
		}
	}
}

func TestTimestamp(t *testing.T) {
	t.Parallel()
	at := time.Date(2018, 6, 20, 15, 13, 16, 945104000, time.UTC)
	for text, want := range map[string]time.Time{
		"2018-06-20 15:13:16.945104":          at,
		"2018-06-20 15:13:16.945104+00":       at,
		"2018-06-20 20:43:16.945104+05:30":    at,
		"2018-06-20 08:13:16.945104-07":       at,
		"2018-06-20 15:13:16.945104+00:00:00": at,
		"2018-06-20T15:13:16.945104Z":         at,
		"2018-06-20 15:13:16.945104999999":    at.Add(999),
		"2018-06-20 15:13:16":                 at.Truncate(time.Second),
		"2018-06-20":                          at.Truncate(24 * time.Hour),
		"1529507596":                          at.Truncate(time.Second),
		"1529507596945":                       at.Truncate(time.Millisecond),
		"1529507596945104":                    at,
		"1529507596945104000":                 at,
		"10000-01-01 00:00:00":                time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC),
		"infinity":                            {},
		"-infinity":                           {},
		"0000-00-00 00:00:00":                 {},
		"0044-03-15 00:00:00 BC":              {},
		"15:13:16":                            {},
		"2018-06-20 15:13:16 ":                {},
		"2018-06":                             {},
		"2018-06-20 15:13:16.":                {},
		"":                                    {},
		"1529507596.5":                        {},
	} {
		got, ok := parseTime([]byte(text))
		if ok == want.IsZero() || ok && !got.Equal(want) {
			t.Errorf("%q: %v, %t; want %v", text, got, ok, want)
		}
	}
	table := newTable("public", "outbox", "id bigint", "payload jsonb", "made timestamp")
	r := newRouter(t, Config{Columns: Columns{AggregateID: None, Timestamp: "made"}})
	rows := []source.Row{newRow(table, "7", "{}", "2018-06-20 15:13:16.945104"), newRow(table, "8", "{}", nil), newRow(table, "9", "{}", "infinity")}
	got, err := r.Route(rows, nil)
	if len(got) != 2 || !got[0].Timestamp.Equal(at) || !got[1].Timestamp.Equal(rows[1].Tx.CommitAt) {
		t.Error(got)
	}
	if !strings.Contains(describe(err), ReasonBadTimestamp) || !strings.Contains(describe(err), `"infinity"`) {
		t.Error(describe(err))
	}
}

// Each table by its own settings, which messages name.
func TestTablesOfTheirOwn(t *testing.T) {
	t.Parallel()
	r, err := New(Config{Columns: Columns{AggregateID: None}, Topic: "all"},
		Table{Schema: "shop", Name: "orders", Config: Config{Columns: Columns{ID: "uid", AggregateID: "order_id"}, Topic: "orders", Alias: "o", Variables: "OUTBOXD_TABLE_O_"}},
		Table{Name: "bills", Config: Config{Columns: Columns{AggregateID: None}, PayloadFormat: FormatConnectJSON, Alias: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	orders := newTable("shop", "orders", "uid text", "order_id text", "payload jsonb")
	bills := newTable("any", "bills", "id bigint", "payload jsonb")
	other := newTable("else", "orders", "id bigint", "payload jsonb")
	got, err := r.Route([]source.Row{newRow(orders, "u", "k", "{}"), newRow(bills, "1", "{}"), newRow(other, "2", "{}")}, nil)
	if err != nil || len(got) != 3 {
		t.Fatal(got, describe(err))
	}
	var all []string
	for _, m := range got {
		all = append(all, fmt.Sprintf("%s %s %s %s %s", m.Topic, m.Key, m.Value, m.Table, m.ID))
	}
	want := `orders k {} o u|outbox.event.bills 1 "{}" b 1|all 2 {} else.orders 2`
	if strings.Join(all, "|") != want {
		t.Errorf("%s, want %s", strings.Join(all, "|"), want)
	}
	_, err = r.Describe(newTable("shop", "orders", "id bigint"))
	if !strings.Contains(describe(err), "OUTBOXD_TABLE_O_COLUMN_ID") || strings.Contains(describe(err), "OUTBOXD_COLUMN") {
		t.Error(describe(err))
	}
}
