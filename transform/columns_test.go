package transform

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

func TestDescribeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		cfg     Config
		columns []string
		want    []string // in found and fix
	}{
		{"no id", Config{}, []string{"key text", "payload jsonb"}, []string{"public.outbox", "event id", "key, payload", "OUTBOXD_COLUMN_ID"}},
		{"no payload", Config{}, []string{"id bigint", "body jsonb"}, []string{"payload", "id, body", "OUTBOXD_COLUMN_PAYLOAD"}},
		{"neither", Config{}, []string{"x text"}, []string{"OUTBOXD_COLUMN_ID", "OUTBOXD_COLUMN_PAYLOAD"}},
		{"two ids", Config{}, []string{"id bigint", "event_id uuid", "payload jsonb"}, []string{"id and event_id", "OUTBOXD_COLUMN_ID"}},
		{"two event types", Config{}, []string{"id bigint", "type text", "event_type text", "payload jsonb"}, []string{"type and event_type", "OUTBOXD_COLUMN_EVENT_TYPE"}},
		{"two cases of one name", Config{}, []string{"id bigint", "payload json", "Payload json"}, []string{"payload and Payload", "OUTBOXD_COLUMN_PAYLOAD"}},
		{"asked for, missing", Config{Columns: Columns{AggregateID: "order"}}, []string{"id bigint", "payload jsonb"}, []string{`"order"`, "id, payload", "OUTBOXD_COLUMN_AGGREGATE_ID"}},
		{"asked for in another case", Config{Columns: Columns{Payload: "PAYLOAD"}}, []string{"id bigint", "payload jsonb"}, []string{`"PAYLOAD"`, "OUTBOXD_COLUMN_PAYLOAD"}},
		{"header without column", Config{Headers: []Header{{Name: "id"}, {Name: "eventType"}}}, []string{"id bigint", "payload jsonb"}, []string{"eventType", "OUTBOXD_COLUMN_EVENT_TYPE", "OUTBOXD_HEADERS"}},
		{"topic without column", Config{Topic: "x.{aggregate_type}"}, []string{"id bigint", "payload jsonb"}, []string{"{aggregate_type}", "x.{aggregate_type}", "OUTBOXD_COLUMN_AGGREGATE_TYPE"}},
		{"topic with unknown column", Config{Topic: "x.{column:tenant}"}, []string{"id bigint", "payload jsonb"}, []string{"{column:tenant}", "id, payload", "OUTBOXD_TOPIC"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := newRouter(t, tt.cfg).Describe(newTable("public", "outbox", tt.columns...))
			f := fault.As(err)
			if f == nil || f.Code != fault.CodeTableUnusable || f.Exit != fault.ExitConfig {
				t.Fatalf("error %v, want a fault %s", err, fault.CodeTableUnusable)
			}
			for _, want := range tt.want {
				if !strings.Contains(describe(err), want) {
					t.Errorf("%q lacks %q", describe(err), want)
				}
			}
		})
	}
}

func TestDescribeSchemaOfNoSchema(t *testing.T) {
	t.Parallel()
	_, err := newRouter(t, Config{Topic: "{schema}.x"}).Describe(newTable("", "outbox", "id bigint", "payload jsonb"))
	if !fault.Is(err, fault.CodeTableUnusable) {
		t.Errorf("error %v, want one about {schema}", err)
	}
}

func TestWarningWithoutAggregateID(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "order_ref text", "payload jsonb")
	m, err := newRouter(t, Config{}).Describe(table)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"public.outbox", "id, order_ref, payload", "OUTBOXD_COLUMN_AGGREGATE_ID"} {
		if !strings.Contains(m.Warning, want) {
			t.Errorf("warning %q lacks %q", m.Warning, want)
		}
	}
	m, err = newRouter(t, Config{Columns: Columns{AggregateID: None}}).Describe(table)
	if err != nil || m.Warning != "" || m.AggregateID != "" {
		t.Errorf("with none: %+v, %v", m, err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cfg  Config
		want []string
	}{
		{"topic", Config{Topic: "orders of {table}"}, []string{"OUTBOXD_TOPIC", `" "`}},
		{"placeholder", Config{Topic: "{aggregatetype}"}, []string{"OUTBOXD_TOPIC", "{aggregatetype}"}},
		{"header", Config{Headers: []Header{{Name: "tenant"}}}, []string{"OUTBOXD_HEADERS", `"tenant"`}},
		{"headers renamed as one", Config{Headers: []Header{{Name: "traceparent", Alias: "tp"}}}, []string{"OUTBOXD_HEADERS", "can't be renamed"}},
		{"two headers of one name", Config{Headers: []Header{{Name: "id"}, {Name: "eventType", Alias: "id"}}}, []string{"OUTBOXD_HEADERS", `"id"`}},
		{"null key", Config{NullKey: "drop"}, []string{"OUTBOXD_ON_NULL_KEY", "drop", "reject, id or null"}},
		{"member of the payload", Config{Columns: Columns{AggregateID: "payload:$[0]"}}, []string{"OUTBOXD_COLUMN_AGGREGATE_ID", "payload:$[0]", "only .name and ['name']"}},
		{"all at once", Config{Topic: "{", Headers: []Header{{Name: "x"}}, NullKey: "y"}, []string{"OUTBOXD_TOPIC", "OUTBOXD_HEADERS", "OUTBOXD_ON_NULL_KEY"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := New(tt.cfg)
			if !fault.Is(err, fault.CodeConfig) {
				t.Fatalf("error %v, want a fault %s", err, fault.CodeConfig)
			}
			for _, want := range tt.want {
				if !strings.Contains(describe(err), want) {
					t.Errorf("%q lacks %q", describe(err), want)
				}
			}
		})
	}
}

// A default that is written out is still the default.
func TestDefaultsWrittenOut(t *testing.T) {
	t.Parallel()
	cfg := Config{Topic: defaultTopic, Headers: []Header{{"id", "id"}, {"eventType", "eventType"}, {"aggregateType", "aggregateType"}}}
	m, err := newRouter(t, cfg).Describe(newTable("public", "outbox", "id bigint", "aggregate_id text", "payload jsonb"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Topic != "outbox.event.{table}" || strings.Join(m.Headers, ",") != "id" {
		t.Errorf("got topic %s and headers %s", m.Topic, m.Headers)
	}
}
