package transform

import (
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// What Java's replaceFirst gives, by hand from its documentation; test/debezium runs the real one.
func TestRewrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		route    Route
		in, want string
	}{
		{Route{By: "x"}, "Order", "outbox.event.Order"},
		{Route{By: "x"}, "My $1 Order", "outbox.event.My $1 Order"},
		{Route{Regex: `(.*)\.(.*)`, Replacement: "$1.events.$2"}, "shop.order", "shop.events.order"},
		{Route{Regex: `^x(.*)$`, Replacement: "evt.$1"}, "Order", "Order"},
		{Route{Regex: `rd`, Replacement: "x"}, "Order", "Order"}, // found, but it is not the whole
		{Route{Regex: `a|ab`, Replacement: "X"}, "ab", "Xb"},     // the whole matches, the first match is replaced
		{Route{Regex: `.*?`, Replacement: "X"}, "ab", "Xab"},
		{Route{Regex: `(a)(b)?(.*)`, Replacement: `$1-$2-$3`}, "ac", "a--c"},
		{Route{Regex: `(.)(.*)`, Replacement: `$11`}, "ab", "a1"}, // there is no group 11
		{Route{Regex: `(?<kind>[a-z]+)-\d+`, Replacement: `\${kind}.${kind}.$0`}, "bill-7", "${kind}.bill.bill-7"},
		{Route{Regex: `(?i)ORDER`, Replacement: `o`}, "Order", "o"},
		{Route{Regex: `\Q[&&\E`, Replacement: `o`}, "[&&", "o"},
		{Route{Regex: `[\[&]+`, Replacement: `o`}, "[&", "o"},
	} {
		w, err := compileRoute(c.route)
		if err != nil {
			t.Errorf("%+v: %v", c.route, err)
			continue
		}
		if got := w.topic(c.in); got != c.want {
			t.Errorf("%+v of %q: %q, want %q", c.route, c.in, got, c.want)
		}
	}
}

func TestRewriteRefuses(t *testing.T) {
	t.Parallel()
	for route, want := range map[Route]string{
		{Regex: "(?=a).*"}:                "a look-ahead",
		{Regex: "a(?!b)"}:                 "a look-ahead",
		{Regex: "(?<=a)b"}:                "a look-behind",
		{Regex: "(?<!a)b"}:                "a look-behind",
		{Regex: "(?>a)b"}:                 "an atomic group",
		{Regex: `(a)\1`}:                  `a back reference (\1)`,
		{Regex: "a++"}:                    "a possessive quantifier (++)",
		{Regex: "a{2}+"}:                  "a possessive quantifier (}+)",
		{Regex: "[a-z&&[^b]]"}:            "an intersection of classes",
		{Regex: "[a[b]]"}:                 "a class within a class",
		{Regex: "[[:alpha:]]"}:            "a class within a class",
		{Regex: `\h`}:                     `the escape \h`,
		{Regex: `a\Z`}:                    `the escape \Z`,
		{Regex: `\u0041`}:                 `the escape \u`,
		{Regex: "(?U)a"}:                  "the flags (?U)",
		{Regex: "(?x:a )"}:                "the flags (?x)",
		{Regex: "(a"}:                     "missing closing )",
		{Replacement: "a$"}:               "a $ before something other",
		{Replacement: "$2"}:               "a $ before something other",
		{Replacement: "${x}"}:             `a group "x" that the pattern does not have`,
		{Replacement: "${routedByValue"}:  "does not have",
		{Replacement: `a\`}:               `ends with a \`,
		{Regex: `\p{javaLowerCase}`}:      `invalid character class range`,
		{Regex: "a{2000}"}:                "invalid repeat count",
		{Regex: `[\p{L}&&[^\p{Lu}]]`}:     "an intersection of classes",
		{Regex: "(?<kind>a)", By: "type"}: `"routedByValue"`,
	} {
		_, err := New(Config{Route: route})
		if !fault.Is(err, fault.CodeConfig) || !strings.Contains(describe(err), want) || !strings.Contains(describe(err), "OUTBOXD_TOPIC_ROUTE_REGEX") {
			t.Errorf("%+v: %s, want %q", route, describe(err), want)
		}
	}
}

func FuzzRoute(f *testing.F) {
	f.Add("(.*)-([0-9]+)", "$2.${1}", "a-7")
	f.Add("[a&&b]", `\$1`, "a")
	f.Fuzz(func(t *testing.T, regex, replacement, value string) {
		if w, err := compileRoute(Route{Regex: regex, Replacement: replacement}); err == nil {
			w.topic(value) // must not panic
		}
	})
}

func TestRouteByColumn(t *testing.T) {
	t.Parallel()
	table := newTable("public", "outbox", "id bigint", "tenant integer", "aggregate_type text", "payload jsonb")
	cfg := Config{Columns: Columns{AggregateID: None}, Route: Route{By: "tenant", Regex: "(.*)", Replacement: "t$1"}}
	got, err := newRouter(t, cfg).Route([]source.Row{newRow(table, "1", "7", "order", "{}"), newRow(table, "2", "7", "order", "{}")}, nil)
	if err != nil || got[0].Topic != "t7" || got[1].Topic != "t7" {
		t.Error(got, err)
	}
	for _, value := range []any{nil, ""} {
		_, err = newRouter(t, cfg).Route([]source.Row{newRow(table, "1", value, "order", "{}")}, nil)
		if !strings.Contains(describe(err), `column "tenant"`) {
			t.Errorf("%v: %v", value, err)
		}
	}
	cfg.Route.By = "tennant"
	if _, err := newRouter(t, cfg).Describe(table); !strings.Contains(describe(err), `no column "tennant" for the route; its columns are id, tenant`) {
		t.Error(err)
	}
	cfg.Route.By = ""
	if _, err := newRouter(t, cfg).Describe(newTable("public", "outbox", "id bigint", "payload jsonb")); !strings.Contains(describe(err), "OUTBOXD_TOPIC_ROUTE_BY") {
		t.Error(err)
	}
}

// A rewritten topic costs its regular expression once.
func TestRouteAllocations(t *testing.T) {
	rows := []source.Row{newRow(outbox(), "1", "order", "a", "made", "{}"), newRow(outbox(), "1", "bill", "a", "made", "{}")}
	rows[1].Table = rows[0].Table
	r := newRouter(t, Config{Route: Route{Regex: "(.*)", Replacement: "x.$1"}})
	dst := make([]sink.Message, 0, 2)
	route := func() {
		if _, err := r.Route(rows, dst[:0]); err != nil {
			t.Fatal(err)
		}
	}
	route()
	if n := testing.AllocsPerRun(100, route); n > 1 {
		t.Errorf("%.1f allocations, want one slab of headers", n)
	}
}
