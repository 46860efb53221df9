package snapshot

import (
	"fmt"
	"slices"
	"strings"
)

// ParseOrderBy splits a list of SQL expressions at its commas. Keys are
// compared with > alone, so only the ascending order can be had. quotes are the bytes
// that begin and end a quoted piece.
func ParseOrderBy(text, quotes string) ([]string, error) {
	var by []string
	depth, start, quoted := 0, 0, byte(0)
	cut := func(end int) error {
		e := strings.TrimSpace(text[start:end])
		upper := strings.ToUpper(e)
		switch {
		case strings.HasSuffix(upper, " ASC"):
			e = strings.TrimSpace(e[:len(e)-len(" ASC")])
		case strings.HasSuffix(upper, " DESC"), strings.HasSuffix(upper, " NULLS FIRST"), strings.HasSuffix(upper, " NULLS LAST"):
			return fmt.Errorf("asks for another order than the ascending one: %q", e)
		}
		if e == "" {
			return fmt.Errorf("has an empty expression")
		}
		by = append(by, e)
		return nil
	}
	for i := range len(text) {
		switch c := text[i]; {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case strings.IndexByte(quotes, c) >= 0:
			quoted = c
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			if err := cut(i); err != nil {
				return nil, err
			}
			start = i + 1
		}
	}
	if quoted != 0 || depth != 0 {
		return nil, fmt.Errorf("has a quote or a bracket that is not closed")
	}
	err := cut(len(text))
	return by, err
}

// creation are the usual names of the column that says when a row was made, the best first.
var creation = []string{"createdat", "createdon", "created", "occurredat", "occurredon", "insertedat", "recordedat", "eventtime", "timestamp"}

// Creation finds the column that says when a row was made among the names of
// columns that hold a time; -1 when there is none.
func Creation(names []string) int {
	for _, usual := range creation {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.ReplaceAll(strings.ToLower(n), "_", "") == usual }); i >= 0 {
			return i
		}
	}
	return -1
}

// Parenthesized keeps each expression from reaching beyond its place.
func Parenthesized(expressions []string) []string {
	out := make([]string, len(expressions))
	for i, e := range expressions {
		out[i] = "(" + e + ")"
	}
	return out
}
