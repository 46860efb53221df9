package transform

import (
	"strings"
	"testing"
)

func TestParseTemplate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in    string
		parts int // 0: refused
	}{
		{"orders", 1},
		{"outbox.event.{aggregate_type}", 2},
		{"{schema}.{table}", 3},
		{"{event_type}{aggregate_type}", 2},
		{"a-b_{column:Tenant Id}.v1", 3},
		{"{column:naïve}", 1},
		{"", 0},
		{"{", 0},
		{"}", 0},
		{"a.{}", 0},
		{"{column:}", 0},
		{"{Table}", 0},
		{"{{table}}", 0},
		{"a b", 0},
		{"naïve", 0},
		{"a.{table", 0},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			got, err := parseTemplate(tt.in)
			if (err == nil) != (tt.parts > 0) || len(got) != tt.parts {
				t.Errorf("got %v, %v; want %d parts", got, err, tt.parts)
			}
			if err == nil && got.String() != tt.in {
				t.Errorf("prints as %q", got.String())
			}
		})
	}
}

// A topic without columns costs nothing per row.
func TestTopicOfTableIsFixed(t *testing.T) {
	t.Parallel()
	p, err := newRouter(t, Config{Topic: "a.{schema}.{table}.v1"}).general.compile(outbox())
	if err != nil {
		t.Fatal(err)
	}
	if p.fixed != "a.public.outbox.v1" {
		t.Errorf("fixed topic is %q", p.fixed)
	}
}

func FuzzParseTemplate(f *testing.F) {
	for _, s := range []string{"", "a", "outbox.event.{aggregate_type}", "{column:x}{schema}.{table}", "{", "}", "{}", "{column:}", "a{b}c", "{column:{}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTemplate(s)
		if err != nil {
			return
		}
		if got.String() != s {
			t.Errorf("%q prints as %q", s, got.String())
		}
		for _, p := range got {
			if (p.literal == "") == (p.placeholder == "") {
				t.Errorf("part %+v of %q is neither one nor the other", p, s)
			}
			if strings.ContainsAny(p.literal, "{} /\x00") {
				t.Errorf("literal %q of %q is no topic text", p.literal, s)
			}
		}
	})
}
