package transform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

func newPath(t testing.TB, text string) *path {
	t.Helper()
	p, err := parsePath(text)
	if err != nil {
		t.Fatal(text, err)
	}
	return p
}

func TestParsePath(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"$.order_id":            {"order_id"},
		"$.a.b2._c":             {"a", "b2", "_c"},
		"$.größe":               {"größe"},
		"$['odd name']":         {"odd name"},
		`$["odd.name"]['b']`:    {"odd.name", "b"},
		`$['it\'s "so"'].x`:     {`it's "so"`, "x"},
		`$["a\"b"]`:             {`a"b`},
		`$['\u00fc\\\n']`:       {"ü\\\n"},
		"$['']":                 {""},
		"$.a['b'].c['d[0].e'] ": nil,
		"$.a['b'].c['d[0].e']":  {"a", "b", "c", "d[0].e"},
		"":                      nil,
		"$":                     nil,
		"order_id":              nil,
		"$.":                    nil,
		"$..a":                  nil,
		"$.a.":                  nil,
		"$.0":                   nil,
		"$.a b":                 nil,
		"$.a-b":                 nil,
		"$.*":                   nil,
		"$[0]":                  nil,
		"$[*]":                  nil,
		"$['a','b']":            nil,
		"$['a":                  nil,
		"$['a'":                 nil,
		`$['a\']`:               nil,
		`$['a\x']`:              nil,
		"$['a\nb']":             nil,
		"$.a\xff":               nil,
	} {
		p, err := parsePath(text)
		if (err == nil) != (want != nil) || err == nil && !slices.Equal(p.names, want) {
			t.Errorf("%q: %v, %v; want %q", text, p, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, text, want, instead string }{
		{"$.a", `{"a":"x"}`, "x", ""},
		{"$.a", ` { "b" : [1,{"a":2}] , "a" : "x" } `, "x", ""},
		{"$.a", `{"a":""}`, "", ""},
		{"$.a", `{"a":-12.50e+3}`, "-12.50e+3", ""},
		{"$.a", `{"a":12345678901234567890123}`, "12345678901234567890123", ""},
		{"$.a", `{"a":true}`, "true", ""},
		{"$.a", `{"a":false}`, "false", ""},
		{"$.a", `{"a":"q\"\\\/\n\u00e4\ud83d\ude00\ud83d"}`, "q\"\\/\nä😀�", ""},
		{"$.a", `{"\u0061":"x"}`, "x", ""},
		{"$.a.b", `{"a":{"c":1,"b":"x"},"b":2}`, "x", ""},
		{"$['odd name']", `{"odd name":7}`, "7", ""},
		{"$.a", `{"a":1,"a":2}`, "2", ""},
		{"$.a.b", `{"a":{"b":1},"a":{"b":2,"b":3}}`, "3", ""},
		{"$.a.b", `{"a":{"b":1},"a":{"c":2}}`, "", isMissing},
		{"$.a", `{"a":1,"a":null}`, "", isNull},
		{"$.a", `{}`, "", isMissing},
		{"$.a", `{"A":1,"b":{"a":1}}`, "", isMissing},
		{"$.a", `{"a":null}`, "", isNull},
		{"$.a", `{"a":{"b":1}}`, "", isObject},
		{"$.a", `{"a":[1]}`, "", isArray},
		{"$.a.b", `{"a":[{"b":1}]}`, "", isMissing},
		{"$.a.b", `{"a":"b"}`, "", isMissing},
		{"$.a.b", `{"a":null}`, "", isMissing},
		{"$.a", `[{"a":1}]`, "", isMissing},
		{"$.a", `"a"`, "", isMissing},
		{"$.a", `null`, "", isMissing},
		{"$.a", ``, "", isBroken},
		{"$.a", `{"a":1`, "", isBroken},
		{"$.a", `{"a":1}x`, "", isBroken},
		{"$.a", `{"a":01}`, "", isBroken},
		{"$.a", `{"a":"x","b":"` + "\n" + `"}`, "", isBroken},
		{"$.a", `{"a":"\u12"}`, "", isBroken},
		{"$.a", `{"a":"\`, "", isBroken},
		{"$.a", `plain text`, "", isBroken},
		{"$.a", strings.Repeat("[", 1<<20), "", isBroken},
		{"$.a", `{"a":1,"b":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + "}", "1", ""},
		{"$.a", `{"a":1,"b":` + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth) + "}", "", isBroken},
	} {
		got, instead := newPath(t, c.path).find([]byte(c.text))
		if string(got) != c.want || instead != c.instead || (got == nil) != (instead != "") {
			t.Errorf("%s in %.60s: %q, %q", c.path, c.text, got, instead)
		}
	}
}

// A key is the payload's own bytes.
func TestFindDoesNotAllocate(t *testing.T) {
	text := []byte(`{"id":17,"items":[{"sku":"a\u0062"},null,true],"order":{"id":"o-4711"}}`)
	p := newPath(t, "$.order.id")
	var got []byte
	if n := testing.AllocsPerRun(100, func() { got, _ = p.find(text) }); n != 0 || string(got) != "o-4711" {
		t.Errorf("%.1f allocations, %q", n, got)
	}
}

func BenchmarkFind(b *testing.B) {
	text := []byte(`{"id":17,"note":"` + strings.Repeat("x", 400) + `","order":{"id":"o-4711"}}`)
	p := newPath(b, "$.order.id")
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		p.find(text)
	}
}

// FuzzFind compares with encoding/json: what is JSON, and what a member holds.
func FuzzFind(f *testing.F) {
	for _, s := range []string{
		`{"a":{"b":"x"}}`, `{"a":{"b":-0.1e5},"a":{"b":[]}}`, ` {"a" : {"\u0062":"\ud83d\ude00\ud800"}} `, `{"a":1,"b":{"a":{"b":true}}}`,
		`[{"a":1},null,"",0]`, `{"a":{"b":00}}`, `{"a":{"b":"`, `{"a":{"b":nul}}`, `{"a":{"b":1,}}`, `{"a":{"b":"\x"}}`, "\xef\xbb\xbf{}", `{"":{"b":1}}`,
	} {
		f.Add([]byte(s))
	}
	p := newPath(f, "$.a.b")
	f.Fuzz(func(t *testing.T, text []byte) {
		if !utf8.Valid(text) {
			p.find(text) // must not panic; encoding/json alters such text
			return
		}
		got, instead := p.find(text)
		if valid := json.Valid(text); valid == (instead == isBroken) {
			t.Fatalf("%q is JSON: %t; found %q, %q", text, valid, got, instead)
		} else if !valid {
			return
		}
		want, wantInstead := lookUp(t, text, p.names)
		if instead != wantInstead || want != string(got) || (got == nil) != (instead != "") {
			t.Fatalf("%q: found %q, %q; want %q, %q", text, got, instead, want, wantInstead)
		}
	})
}

// lookUp is find by way of maps.
func lookUp(t *testing.T, text []byte, names []string) (value, instead string) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var at any
	if err := d.Decode(&at); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		object, _ := at.(map[string]any)
		inner, there := object[name]
		if !there {
			return "", isMissing
		}
		at = inner
	}
	switch v := at.(type) {
	case nil:
		return "", isNull
	case map[string]any:
		return "", isObject
	case []any:
		return "", isArray
	default:
		return fmt.Sprint(v), ""
	}
}

func FuzzParsePath(f *testing.F) {
	for _, s := range []string{"$.a.b", `$['a\'b']["c"]`, "$['", "$[0]", "$.a["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePath(s)
		if err != nil {
			return
		}
		var again strings.Builder
		again.WriteString("$")
		for _, name := range p.names {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&again, "[%s]", quoted)
		}
		if p2, err := parsePath(again.String()); err != nil || !slices.Equal(p2.names, p.names) {
			t.Fatalf("%q: %q, written %s and read %v, %v", s, p.names, &again, p2, err)
		}
	})
}

func TestMemberAsKey(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	table := newTable("shop", "outbox", "id bigint", "payload json")
	for _, c := range []struct {
		name    string
		policy  NullKey
		payload any
		key     string // "-": none
		detail  string // of the refusal
	}{
		{"a string", "", `{"order_id":"o-1"}`, "o-1", ""},
		{"a number", "", `{"order_id":42}`, "42", ""},
		{"nothing", "", `{"note":"s3cret"}`, "", `$.order_id of column "payload", is missing`},
		{"null", "", `{"order_id":null}`, "", "is null"},
		{"an object", "", `{"order_id":{"s3cret":1}}`, "", "is an object"},
		{"an array", "", `{"order_id":["s3cret"]}`, "", "is an array"},
		{"no JSON", "", "s3cret", "", "no whole JSON"},
		{"nothing, keyed by id", NullKeyID, `{}`, "7", ""},
		{"no JSON, keyed by id", NullKeyID, "s3cret", "7", ""},
		{"nothing, without key", NullKeyNull, `{}`, "-", ""},
		{"a payload that is NULL", NullKeyID, nil, "", `column "payload", the payload, is NULL`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRouter(t, Config{Columns: Columns{AggregateID: "payload:$.order_id"}, NullKey: c.policy})
			got, err := r.Route([]source.Row{newRow(table, "7", c.payload)}, nil)
			if c.detail != "" {
				if err == nil || !strings.Contains(describe(err), c.detail) || strings.Contains(describe(err), secret) {
					t.Fatalf("%v, want %q", describe(err), c.detail)
				}
				return
			}
			if err != nil || len(got) != 1 {
				t.Fatal(got, describe(err))
			}
			if c.key == "-" && got[0].Key != nil || c.key != "-" && string(got[0].Key) != c.key {
				t.Errorf("key %q", got[0].Key)
			}
		})
	}
}

func TestMemberNeedsJSON(t *testing.T) {
	t.Parallel()
	r := newRouter(t, Config{Columns: Columns{AggregateID: "payload:$.a['b']"}})
	for typ, ok := range map[string]bool{"json": true, "jsonb": true, "text": true, "bytea": false, "integer": false, "timestamp": false} {
		m, err := r.Describe(newTable("public", "outbox", "id bigint", "aggregate_id text", "payload "+typ))
		switch {
		case ok && (err != nil || m.AggregateID != "payload:$.a['b']" || m.Warning != ""):
			t.Errorf("%s: %+v, %v", typ, m, err)
		case !ok && (!fault.Is(err, fault.CodeTableUnusable) || !strings.Contains(describe(err), typ) || !strings.Contains(describe(err), "OUTBOXD_COLUMN_AGGREGATE_ID")):
			t.Errorf("%s: %s", typ, describe(err))
		}
	}
	if _, err := r.Describe(newTable("public", "outbox", "id bigint")); !fault.Is(err, fault.CodeTableUnusable) {
		t.Errorf("a table without payload: %v", err)
	}
}

// A tombstone has no payload to find a key in.
func TestMemberOfATombstone(t *testing.T) {
	t.Parallel()
	r := newRouter(t, Config{Columns: Columns{AggregateID: "payload:$.k"}, TombstoneOnEmpty: true})
	_, err := r.Route([]source.Row{newRow(outbox(), "1", "order", "a", "made", nil)}, nil)
	if !strings.Contains(describe(err), `$.k of column "payload", is NULL`) {
		t.Error(describe(err))
	}
}

// The column is not looked for: a member is what was asked for.
func TestMemberGoesBeforeTheColumn(t *testing.T) {
	t.Parallel()
	r := newRouter(t, Config{Columns: Columns{AggregateID: "payload:$.k"}})
	got, err := r.Route([]source.Row{newRow(outbox(), "1", "order", "column", "made", `{"k":"member"}`)}, nil)
	if err != nil || string(got[0].Key) != "member" {
		t.Error(got, err)
	}
}

func TestMemberAllocations(t *testing.T) {
	table := outbox()
	rows := make([]source.Row, 100)
	for i := range rows {
		rows[i] = newRow(table, "1", "order", "a", "made", `{"items":[1,2,3],"order":{"id":4711}}`)
	}
	r := newRouter(t, Config{Columns: Columns{AggregateID: "payload:$.order.id"}})
	dst := make([]sink.Message, 0, 100)
	route := func() {
		if _, err := r.Route(rows, dst[:0]); err != nil {
			t.Fatal(err)
		}
	}
	route()
	if n := testing.AllocsPerRun(100, route); n > 1 {
		t.Errorf("%.1f allocations with room in dst, want 1", n)
	}
}
