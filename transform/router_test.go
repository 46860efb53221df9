package transform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// newTable makes a table of "name type" columns.
func newTable(schema, name string, columns ...string) *source.Table {
	table := &source.Table{Schema: schema, Name: name}
	for _, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		kind := source.Text
		switch typ {
		case "json", "jsonb":
			kind = source.JSON
		case "bytea":
			kind = source.Bytes
		case "integer", "bigint":
			kind = source.Number
		case "timestamp":
			kind = source.Time
		}
		table.Columns = append(table.Columns, source.Column{Name: name, Type: typ, Kind: kind})
	}
	return table
}

func outbox() *source.Table {
	return newTable("public", "outbox", "id bigint", "aggregate_type varchar", "aggregate_id varchar", "event_type varchar", "payload jsonb")
}

// newRow makes a row; nil is NULL, a string or []byte a value, anything else is absent.
func newRow(table *source.Table, values ...any) source.Row {
	row := source.Row{Table: table, Tx: &source.Tx{ID: "0/10", CommitAt: time.Unix(1700000000, 0)}}
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			row.Values = append(row.Values, source.Value{State: source.Null})
		case string:
			row.Values = append(row.Values, source.Value{State: source.Present, Data: []byte(v)})
		case []byte:
			row.Values = append(row.Values, source.Value{State: source.Present, Data: v})
		default:
			row.Values = append(row.Values, source.Value{})
		}
	}
	return row
}

func newRouter(t testing.TB, cfg Config) *Router {
	t.Helper()
	r, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// describe gives an error's text with the way out.
func describe(err error) string {
	var refused *sink.Refusal
	switch f := fault.As(err); {
	case err == nil:
		return ""
	case f != nil:
		return f.Error() + " | " + f.Fix
	case errors.As(err, &refused):
		return err.Error() + " | " + refused.Fix
	}
	return err.Error()
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	const secret = "s3cret-payload"
	tests := []struct {
		name   string
		cfg    Config
		row    source.Row
		reason string
		detail []string
	}{
		{"null aggregate id", Config{}, newRow(outbox(), "7", "order", nil, "made", secret), ReasonNullKey, []string{"public.outbox", `"7"`, `"aggregate_id"`, "0/10"}},
		{"null event id as key", Config{Columns: Columns{AggregateID: None}}, newRow(outbox(), nil, "order", "1", "made", secret), ReasonNullKey, []string{"public.outbox", `"id"`}},
		{"null event id behind null aggregate id", Config{NullKey: NullKeyID}, newRow(outbox(), nil, "order", nil, "made", secret), ReasonNullKey, []string{`"aggregate_id"`}},
		{"null payload", Config{}, newRow(outbox(), "7", "order", "1", "made", nil), ReasonNullPayload, []string{`"7"`, `"payload"`}},
		{"null aggregate type", Config{}, newRow(outbox(), "7", nil, "1", "made", secret), ReasonUnroutable, []string{`"7"`, `"aggregate_type"`, "NULL"}},
		{"empty aggregate type", Config{}, newRow(outbox(), "7", "", "1", "made", secret), ReasonUnroutable, []string{`"aggregate_type"`, "empty"}},
		{"null placeholder", Config{Topic: "a.{column:event_type}"}, newRow(outbox(), "7", "order", "1", nil, secret), ReasonUnroutable, []string{`"event_type"`, "a.{column:event_type}"}},
		{"absent payload", Config{}, newRow(outbox(), "7", "order", "1", "made", 0), ReasonAbsentValue, []string{`"7"`, `"payload"`}},
		{"absent header", Config{}, newRow(outbox(), "7", "order", "1", 0, secret), ReasonAbsentValue, []string{`"event_type"`}},
		{"absent id", Config{}, newRow(outbox(), 0, "order", "1", "made", secret), ReasonAbsentValue, []string{"public.outbox", `"id"`}},
		{"too few values", Config{}, newRow(outbox(), "7", "order", "1", "made"), ReasonShapeMismatch, []string{"4 values", "5 columns"}},
		{"table without payload", Config{}, newRow(newTable("public", "outbox", "id bigint"), "7"), ReasonMissingColumn, []string{"public.outbox", "payload", "0/10"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRouter(t, tt.cfg)
			good := newRow(outbox(), "6", "order", "1", "made", "{}")
			got, err := r.Route([]source.Row{good, tt.row, good}, nil)
			var refused *sink.Refusal
			if !errors.As(err, &refused) {
				t.Fatalf("error is %v, want a refusal", err)
			}
			if len(got) != 1 || string(got[0].ID) != "6" {
				t.Errorf("messages before the refusal: %v, want the first row's", got)
			}
			if refused.Reason != tt.reason {
				t.Errorf("reason %q, want %q", refused.Reason, tt.reason)
			}
			for _, want := range tt.detail {
				if !strings.Contains(refused.Detail, want) {
					t.Errorf("detail %q lacks %q", refused.Detail, want)
				}
			}
			if all := describe(err); strings.Contains(all, secret) || refused.Fix == "" {
				t.Errorf("refusal shows the payload or has no way out: %s", all)
			}
		})
	}
}

func TestLongIDIsCutInMessages(t *testing.T) {
	t.Parallel()
	_, err := newRouter(t, Config{}).Route([]source.Row{newRow(outbox(), strings.Repeat("x", 10_000), "order", "1", "made", nil)}, nil)
	if err == nil || len(err.Error()) > 400 {
		t.Errorf("error %v, want a short one", err)
	}
}

// Rows of several tables and versions in one batch, with header lists of different length.
func TestTablesInOneBatch(t *testing.T) {
	t.Parallel()
	full, bare := outbox(), newTable("", "plain", "event_id text", "payload bytea")
	wider := newTable("public", "outbox", "id bigint", "note text", "aggregate_type varchar", "aggregate_id varchar", "event_type varchar", "payload jsonb")
	var rows []source.Row
	for range 3 {
		rows = append(rows,
			newRow(bare, "e1", "\x00\xff"),
			newRow(full, "1", "order", "a", "made", "{}"),
			newRow(wider, "2", "n", "order", "b", "paid", "[]"))
	}
	got, err := newRouter(t, Config{}).Route(rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range got {
		fmt.Fprintf(&b, "%s %s %s", m.Table, m.Topic, m.Key)
		for _, h := range m.Headers {
			fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
		}
		b.WriteString("\n")
	}
	want := strings.Repeat("plain outbox.event.plain e1 id=e1\n"+
		"public.outbox outbox.event.order a id=1 eventType=made aggregateType=order\n"+
		"public.outbox outbox.event.order b id=2 eventType=paid aggregateType=order\n", 3)
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// Messages of one batch and of two keep their own headers.
func TestHeadersAreNotShared(t *testing.T) {
	t.Parallel()
	r, table := newRouter(t, Config{}), outbox()
	rows := []source.Row{newRow(table, "1", "order", "a", "made", "{}"), newRow(table, "2", "invoice", "b", "paid", "[]")}
	first, err := r.Route(rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Route(rows[1:], first)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(all[0].Headers, sink.Header{Name: "more"}) // must not reach into the next message
	for i, want := range []string{"1", "2", "2"} {
		if h := all[i].Headers[0]; h.Name != "id" || string(h.Value) != want {
			t.Errorf("message %d has header %s=%s, want id=%s", i, h.Name, h.Value, want)
		}
	}
}

func TestPayloadIsNotCopied(t *testing.T) {
	t.Parallel()
	row := newRow(outbox(), "1", "order", "a", "made", `{"a":1}`)
	got, err := newRouter(t, Config{}).Route([]source.Row{row}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if &got[0].Value[0] != &row.Values[4].Data[0] || &got[0].Key[0] != &row.Values[2].Data[0] {
		t.Error("key or value was copied")
	}
}

func TestNilIsOnlyForNull(t *testing.T) {
	t.Parallel()
	row := newRow(outbox(), []byte(nil), "order", []byte(nil), []byte(nil), []byte(nil))
	got, err := newRouter(t, Config{}).Route([]source.Row{row}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := got[0]
	for name, b := range map[string][]byte{"key": m.Key, "value": m.Value, "id": m.ID, "header": m.Headers[1].Value} {
		if b == nil || len(b) != 0 {
			t.Errorf("%s is %#v, want an empty non-nil slice", name, b)
		}
	}
}

func TestTopicsAndPlansStayBounded(t *testing.T) {
	t.Parallel()
	r, table := newRouter(t, Config{}), outbox()
	for i := range 3 * maxTopics {
		name := fmt.Sprint("t", i)
		got, err := r.Route([]source.Row{newRow(table, "1", name, "a", "made", "{}")}, nil)
		if err != nil || got[0].Topic != "outbox.event."+name {
			t.Fatalf("topic of %s: %v, %v", name, got, err)
		}
	}
	long := strings.Repeat("x", 1000)
	got, err := r.Route([]source.Row{newRow(table, "1", long, "a", "made", "{}")}, nil)
	if err != nil || got[0].Topic != "outbox.event."+long {
		t.Errorf("long topic: %v, %v", got, err)
	}
	for name := range r.topics {
		if len(name) > maxTopicBytes {
			t.Errorf("a name of %d bytes is kept", len(name))
		}
	}
	for range 3 * maxPlans {
		if _, err := r.Route([]source.Row{newRow(outbox(), "1", "order", "a", "made", "{}")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.topics) > maxTopics || len(r.plans) > maxPlans {
		t.Errorf("%d topics and %d plans are kept", len(r.topics), len(r.plans))
	}
}

func batch(n int) []source.Row {
	table := outbox()
	payload := bytes.Repeat([]byte("x"), 300)
	rows := make([]source.Row, n)
	for i := range rows {
		rows[i] = newRow(table, fmt.Sprint(i), fmt.Sprint("type", i%5), fmt.Sprint("aggregate-", i%50), "made", payload)
	}
	return rows
}

// The budget: the messages and the slab of headers, whatever the number of rows.
func TestAllocationsPerBatch(t *testing.T) {
	r, rows := newRouter(t, Config{}), batch(100)
	route := func(dst []sink.Message) {
		if _, err := r.Route(rows, dst); err != nil {
			t.Fatal(err)
		}
	}
	route(nil) // interns the topics
	if n := testing.AllocsPerRun(100, func() { route(nil) }); n > 4 {
		t.Errorf("%.1f allocations for a batch of 100 rows, want a handful", n)
	}
	dst := make([]sink.Message, 0, 100)
	if n := testing.AllocsPerRun(100, func() { route(dst[:0]) }); n > 1 {
		t.Errorf("%.1f allocations with room in dst, want 1", n)
	}
}

func BenchmarkRoute(b *testing.B) {
	r, rows := newRouter(b, Config{}), batch(100)
	dst := make([]sink.Message, 0, len(rows))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Route(rows, dst[:0]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
}

func TestReasonsAreDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{ReasonNullKey, ReasonNullPayload, ReasonUnroutable, ReasonAbsentValue, ReasonMissingColumn, ReasonShapeMismatch} {
		if !bytes.Contains(docs, []byte("| `"+reason+"` |")) {
			t.Errorf("docs/metrics.md lacks %s", reason)
		}
	}
}
