package transform

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// wide is an outbox with a column of each kind.
func wide(payload string) *source.Table {
	t := newTable("shop", "my outbox", "id uuid", "aggregate_type text", "aggregate_id text", "event_type text", "payload "+payload,
		"n integer", "doc json", "raw bytea", "note text", "made timestamp")
	t.Columns = append(t.Columns, source.Column{Name: "flag", Type: "boolean", Kind: source.Boolean})
	return t
}

func wideRow(payload string, value any) source.Row {
	return newRow(wide(payload), "7", "order", "k \"1\"", "made", value, "42", `{"a": 1}`, []byte{1, 0xff}, "say \"hé\"", "2026-11-30 12:34:56.5", "t")
}

var formatPlacement = []Placement{
	{"n", PlaceEnvelope, ""}, {"doc", PlaceEnvelope, "d"}, {"raw", PlaceEnvelope, ""}, {"note", PlaceEnvelope, ""}, {"flag", PlaceEnvelope, ""},
}

func TestFormats(t *testing.T) {
	t.Parallel()
	const jsonText = `{"x": 1.50}`
	const placed = `,"n":42,"d":{"a": 1},"raw":"Af8=","note":"say \"hé\"","flag":true`
	ce := func(content string) string {
		return `ce_specversion=1.0 ce_id=7 ce_source=/orders/shop.my%20outbox ce_type=made ce_subject=k "1" ce_time=2026-11-30T12:34:56.500000Z ce_partitionkey=k "1" content-type=` + content
	}
	structured := func(data string) string {
		return `{"specversion":"1.0","source":"/orders/shop.my%20outbox","id":"7","type":"made","time":"2026-11-30T12:34:56.500000Z"` + placed + `,"subject":"k \"1\"","partitionkey":"k \"1\"",` + data + `}`
	}
	envelope := func(payload string) string {
		return `{"id":"7","aggregateType":"order","aggregateId":"k \"1\"","type":"made","occurredAt":"2026-11-30T12:34:56.500000Z","payload":` + payload + placed + `}`
	}
	const structuredHeader = "content-type=application/cloudevents+json; charset=UTF-8"
	for _, c := range []struct {
		name    string
		format  Format
		expand  bool
		column  string
		payload any
		value   string // "-": tombstone
		headers string
	}{
		{"raw", FormatRaw, false, "jsonb", jsonText, jsonText, ""},
		{"envelope of JSON", FormatEnvelope, false, "jsonb", jsonText, envelope(jsonText), ""},
		{"envelope of text", FormatEnvelope, false, "text", jsonText, envelope(`"{\"x\": 1.50}"`), ""},
		{"envelope of text expanded", FormatEnvelope, true, "text", jsonText, envelope(jsonText), ""},
		{"envelope of text that is no JSON", FormatEnvelope, true, "text", "{x", envelope(`"{x"`), ""},
		{"envelope of bytes", FormatEnvelope, false, "bytea", []byte{0, 1}, envelope(`"AAE=","payloadEncoding":"base64"`), ""},
		{"envelope of a tombstone", FormatEnvelope, false, "jsonb", nil, "-", ""},
		{"binary mode of JSON", FormatCloudEvents, false, "jsonb", jsonText, jsonText, ce("application/json")},
		{"binary mode of text", FormatCloudEvents, false, "text", "hé", "hé", ce("text/plain")},
		{"binary mode of text that is JSON", FormatCloudEvents, true, "text", jsonText, jsonText, ce("application/json")},
		{"binary mode of bytes", FormatCloudEvents, false, "bytea", []byte{0, 1}, "\x00\x01", ce("application/octet-stream")},
		{"binary mode of a tombstone", FormatCloudEvents, false, "jsonb", nil, "-", strings.TrimSuffix(ce(""), " content-type=")},
		{"structured mode of JSON", FormatCloudEventsJSON, false, "jsonb", jsonText, structured(`"datacontenttype":"application/json","data":` + jsonText), structuredHeader},
		{"structured mode of text", FormatCloudEventsJSON, false, "text", "a\nb", structured(`"datacontenttype":"text/plain","data":"a\nb"`), structuredHeader},
		{"structured mode of bytes", FormatCloudEventsJSON, false, "bytea", []byte{0, 1}, structured(`"datacontenttype":"application/octet-stream","data_base64":"AAE="`), structuredHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := Config{Headers: []Header{{Name: None}}, PayloadFormat: c.format, ExpandJSON: c.expand, TombstoneOnEmpty: true, Name: "orders", Columns: Columns{Timestamp: "made"}}
			if c.format.hasEnvelope() {
				cfg.Placement = formatPlacement
			}
			got, err := newRouter(t, cfg).Route([]source.Row{wideRow(c.column, c.payload)}, nil)
			if err != nil {
				t.Fatal(describe(err))
			}
			if value := string(got[0].Value); value != c.value && !(c.value == "-" && got[0].Value == nil) {
				t.Errorf("value %s\nwant  %s", value, c.value)
			}
			if headersOf(got[0]) != c.headers {
				t.Errorf("headers %s\nwant    %s", headersOf(got[0]), c.headers)
			}
			if c.format.hasEnvelope() && got[0].Value != nil && !json.Valid(got[0].Value) {
				t.Error("the value is no JSON")
			}
		})
	}
}

// What a row lacks is null in an envelope, and left out of a CloudEvent.
func TestFormatsWithoutValues(t *testing.T) {
	t.Parallel()
	table := newTable("public", "bills", "id bytea", "order_id text", "type text", "payload text", "price numeric")
	table.Columns[4].Kind = source.Number
	row := newRow(table, []byte{0xff}, nil, nil, "x", "NaN")
	row.Tx = &source.Tx{ID: "0/10"}
	cfg := Config{Columns: Columns{AggregateID: "order_id"}, Headers: []Header{{Name: None}}, NullKey: NullKeyNull, Name: "b"}
	for format, want := range map[Format]string{
		FormatEnvelope:        `{"id":"/w==","aggregateId":null,"type":null,"occurredAt":"0001-01-01T00:00:00.000000Z","payload":"x","price":"NaN"} `,
		FormatCloudEventsJSON: `{"specversion":"1.0","source":"/b/public.bills","id":"/w==","type":"bills","time":"0001-01-01T00:00:00.000000Z","price":"NaN","datacontenttype":"text/plain","data":"x"} content-type=application/cloudevents+json; charset=UTF-8`,
		FormatCloudEvents:     "x ce_specversion=1.0 ce_id=/w== ce_source=/b/public.bills ce_type=bills ce_time=0001-01-01T00:00:00.000000Z content-type=text/plain",
	} {
		c := cfg
		if c.PayloadFormat = format; format.hasEnvelope() {
			c.Placement = []Placement{{"price", PlaceEnvelope, ""}}
		}
		got, err := newRouter(t, c).Route([]source.Row{row}, nil)
		if err != nil {
			t.Errorf("%s: %s", format, describe(err))
		} else if s := string(got[0].Value) + " " + headersOf(got[0]); s != want {
			t.Errorf("%s:\n%s\nwant\n%s", format, s, want)
		}
	}
}

// The key within the payload is the subject, too.
func TestFormatsWithAMemberAsKey(t *testing.T) {
	t.Parallel()
	cfg := Config{Columns: Columns{AggregateID: "payload:$.k"}, Headers: []Header{{Name: None}}, PayloadFormat: FormatCloudEvents, Name: "b", KeyFormat: FormatConnectJSONSchema}
	row := newRow(outbox(), "7", "order", "other", "made", `{"k":"a"}`)
	row.Tx = &source.Tx{}
	got, err := newRouter(t, cfg).Route([]source.Row{row}, nil)
	if err != nil || !strings.Contains(headersOf(got[0]), "ce_subject=a ce_time") || !strings.Contains(headersOf(got[0]), "ce_partitionkey=a ") {
		t.Errorf("%s %s", describe(err), headersOf(got[0]))
	}
	if want := `{"schema":{"type":"string","optional":false},"payload":"a"}`; string(got[0].Key) != want {
		t.Errorf("key %s, want %s", got[0].Key, want)
	}
	cfg.PayloadFormat = FormatEnvelope
	got, err = newRouter(t, cfg).Route([]source.Row{row}, nil)
	if err != nil || !strings.Contains(string(got[0].Value), `"aggregateId":"a"`) {
		t.Errorf("%s %s", describe(err), got[0].Value)
	}
}

// A wire format of Confluent's is bytes like any others.
func TestBytesPassUntouched(t *testing.T) {
	t.Parallel()
	avro := []byte{0, 0, 0, 0, 42, 2, 'a', 0xff, 0xfe}
	for _, format := range []Format{FormatRaw, FormatCloudEvents} {
		got, err := newRouter(t, Config{PayloadFormat: format}).Route([]source.Row{wideRow("bytea", avro)}, nil)
		if err != nil || string(got[0].Value) != string(avro) {
			t.Errorf("%s: %v, %v", format, got, err)
		}
	}
}

func TestFormatsRefuse(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "aggregate_id text", "payload jsonb", "price numeric", "list text[]")
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{PayloadFormat: FormatConnectJSON, Placement: []Placement{{"price", PlaceEnvelope, ""}}}, `column "price" of table public.outbox is numeric, of which`},
		{Config{PayloadFormat: FormatConnectJSONSchema, Placement: []Placement{{"list", PlaceEnvelope, ""}}}, `column "list" of table public.outbox is text[], of which`},
		{Config{HeaderFormat: FormatConnectJSONSchema, Placement: []Placement{{"list", PlaceHeader, ""}}}, `column "list"`},
		{Config{KeyFormat: FormatConnectJSON, Columns: Columns{AggregateID: "price"}}, `column "price"`},
		{Config{PayloadFormat: FormatConnectJSONSchema, ExpandJSON: true}, "OUTBOXD_EXPAND_JSON"},
		{Config{Columns: Columns{SchemaVersion: "list"}}, "OUTBOXD_COLUMN_SCHEMA_VERSION"},
	} {
		r, err := New(c.cfg)
		if err == nil {
			_, err = r.Describe(table)
		}
		if !strings.Contains(describe(err), c.want) {
			t.Errorf("%+v: %s, want %q", c.cfg, describe(err), c.want)
		}
	}
	made := newTable("public", "outbox", "id bigint", "aggregate_id text", "payload jsonb", "made timestamp")
	for _, cfg := range []Config{
		{PayloadFormat: FormatConnectJSON, Placement: []Placement{{"made", PlaceEnvelope, ""}}},
		{HeaderFormat: FormatConnect, Placement: []Placement{{"made", PlaceHeader, ""}}},
		{KeyFormat: FormatConnectJSON, Columns: Columns{AggregateID: "made"}},
	} {
		_, err := newRouter(t, cfg).Route([]source.Row{newRow(made, "7", "k", "{}", "infinity")}, nil)
		if !strings.Contains(describe(err), ReasonBadValue) || !strings.Contains(describe(err), `"made"`) || strings.Contains(describe(err), "infinity") {
			t.Errorf("%+v: %s", cfg, describe(err))
		}
	}
}

func TestConnectTypesOfMySQL(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]string{
		"tinyint": `{"type":"int16","optional":true} 1`, "smallint unsigned": `{"type":"int32","optional":true} 1`, "int unsigned": `{"type":"int64","optional":true} 1`,
		"mediumint": `{"type":"int32","optional":true} 1`, "bigint unsigned": `{"type":"int64","optional":true} 1`, "year": `{"type":"int32","optional":true,"name":"io.debezium.time.Year","version":1} 1`,
		"decimal(4,1)": `{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"1","connect.decimal.precision":"4"}} "Cg=="`,
	} {
		c, ok := connectTypeOf(&source.Column{Name: "x", Type: typ, Kind: source.Number}, true)
		b, good := c.appendJSON(nil, &source.Value{State: source.Present, Data: []byte("1")})
		if got := c.schema(true, "") + " " + string(b); !ok || !good || got != want {
			t.Errorf("%s: %s, want %s", typ, got, want)
		}
	}
	for typ, want := range map[string]string{
		"datetime": "io.debezium.time.Timestamp 1780149296000", "datetime(6)": "io.debezium.time.MicroTimestamp 1780149296000000", "timestamp(3)": `io.debezium.time.ZonedTimestamp "2026-05-30T13:54:56.000Z"`,
		"timestamp": `io.debezium.time.ZonedTimestamp "2026-05-30T13:54:56Z"`, "date": "io.debezium.time.Date 20603",
	} {
		c, _ := connectTypeOf(&source.Column{Name: "x", Type: typ, Kind: source.Time}, true)
		b, _ := c.appendJSON(nil, &source.Value{State: source.Present, Data: []byte("2026-05-30 13:54:56")})
		if got := c.name + " " + string(b); got != want {
			t.Errorf("%s: %s, want %s", typ, got, want)
		}
	}
}

// FuzzString compares with encoding/json.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a\"\\\n\x01\x7f", "é😀\u2028", "\xff\xc0"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, pairs := range []bool{false, true} {
			var got string
			b := appendString(nil, text, pairs)
			if err := json.Unmarshal(b, &got); err != nil || !utf8.Valid(b) {
				t.Fatalf("%q: %s: %v", text, b, err)
			}
			if want := strings.ToValidUTF8(string(text), "\uFFFD"); utf8.Valid(text) && got != want {
				t.Fatalf("%q: %s is read as %q", text, b, got)
			}
		}
	})
}

var formatBudgets = []struct {
	name   string
	budget float64 // allocations of a batch of 100 rows, with room in dst
	cfg    Config
}{
	{"raw", 1, Config{}}, // the headers
	{"envelope", 2, Config{PayloadFormat: FormatEnvelope}},       // and one chunk for the values
	{"cloudevents", 2, Config{PayloadFormat: FormatCloudEvents}}, // of which times take little
	{"cloudevents-json", 3, Config{PayloadFormat: FormatCloudEventsJSON}},
	{"connect-json", 2, Config{PayloadFormat: FormatConnectJSON}},
	{"connect-json-schema", 3, Config{PayloadFormat: FormatConnectJSONSchema}},
	{"connect-json placed", 3, Config{PayloadFormat: FormatConnectJSON, Placement: formatPlacement}},
	{"keys connect-json-schema", 2, Config{KeyFormat: FormatConnectJSONSchema}},
	{"headers connect-json", 2, Config{HeaderFormat: FormatConnectJSON}},
	{"position", 2, Config{Headers: []Header{{Name: "position"}}}},
	{"timestamp", 1, Config{Columns: Columns{Timestamp: "made"}}},
	{"headers from JSON", 1, Config{Columns: Columns{Headers: "doc"}}},
	{"placed", 1, Config{Placement: []Placement{{"n", PlaceHeader, ""}, {"n", PlacePartition, ""}}}},
}

func formatRows() []source.Row {
	rows := make([]source.Row, 100)
	for i := range rows {
		rows[i] = wideRow("jsonb", `{"id": 1, "amount": 10.50, "lines": [{"sku": "a-1", "n": 2}, {"sku": "b-2", "n": 1}], "note": "`+strings.Repeat("x", 300)+`"}`)
		rows[i].Table = rows[0].Table
	}
	return rows
}

// A format costs the memory its bytes take, and a bounded number of allocations for a whole batch.
func TestFormatAllocations(t *testing.T) {
	rows := formatRows()
	for _, c := range formatBudgets {
		r := newRouter(t, c.cfg)
		dst := make([]sink.Message, 0, len(rows))
		route := func() {
			if _, err := r.Route(rows, dst[:0]); err != nil {
				t.Fatal(describe(err))
			}
		}
		route()
		if n := testing.AllocsPerRun(50, route); n > c.budget {
			t.Errorf("%s: %.1f allocations for 100 rows, the budget is %.0f", c.name, n, c.budget)
		}
	}
}

func BenchmarkFormats(b *testing.B) {
	rows := formatRows()
	for _, c := range formatBudgets {
		b.Run(strings.ReplaceAll(c.name, " ", "_"), func(b *testing.B) {
			r := newRouter(b, c.cfg)
			dst := make([]sink.Message, 0, len(rows))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Route(rows, dst[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(rows)), "ns/row")
		})
	}
}
