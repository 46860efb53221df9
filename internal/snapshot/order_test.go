package snapshot_test

import (
	"reflect"
	"testing"

	"github.com/outboxd/outboxd/internal/snapshot"
)

func TestParseOrderBy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"id":                       {"id"},
		" created_at ASC , id ":    {"created_at", "id"},
		`"a,b", coalesce(x, ')')`:  {`"a,b"`, `coalesce(x, ')')`},
		"(payload->>'n')::int asc": {"(payload->>'n')::int"},
		"v[1], v[2]":               {"v[1]", "v[2]"},
		"id DESC":                  nil,
		"id nulls last":            nil,
		"id,":                      nil,
		"":                         nil,
		"lower(id":                 nil,
		"'id":                      nil,
		"`a,b`, c":                 {"`a,b`", "c"},
	} {
		got, err := snapshot.ParseOrderBy(text, "'\"`")
		if (err == nil) != (want != nil) || (err == nil && !reflect.DeepEqual(got, want)) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
