package mysql

import (
	"testing"

	"github.com/outboxd/outboxd/internal/snapshot"
)

func TestRowsLeft(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		table snapshot.Table
		where string
		want  string
	}{
		{"from the start", snapshot.Table{Order: []string{"`id`"}, Through: []string{"9"}}, "", "(`id`) <= 9"},
		{"behind a row", snapshot.Table{Order: []string{"`id`"}, After: []string{"5"}, Through: []string{"9"}}, "a = 1 -- one",
			"(`id`) <= 9 AND (`id`) > 5 AND (a = 1 -- one\n)"},
		{"by three", snapshot.Table{Order: []string{"a", "b", "c"}, After: []string{"1", "2", "3"}, Through: []string{"7", "8", "9"}}, "",
			"(a) <= 7 AND ((a) < 7 OR ((a) = 7 AND ((b) < 8 OR ((b) = 8 AND ((c) <= 9))))) AND " +
				"(a) >= 1 AND ((a) > 1 OR ((a) = 1 AND ((b) > 2 OR ((b) = 2 AND ((c) > 3)))))"},
	} {
		if got := rowsLeft(c.table, c.where); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// A value is written so that a comparison takes it for what it is.
func TestLiterals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		column resultColumn
		value  string
		want   string // empty: refused
	}{
		{"a number", resultColumn{kind: typeLongLong, charset: binaryCharset}, "18446744073709551615", "18446744073709551615"},
		{"text", resultColumn{kind: typeVarString, charset: 45}, "it's\\ \x00ü", `'it\'s\\ \0ü'`},
		{"bytes", resultColumn{kind: typeString, charset: binaryCharset}, "\x00\xff'", "x'00ff27'"},
		{"JSON", resultColumn{kind: typeJSON, charset: binaryCharset}, `{"a": 1}`, `CAST('{"a": 1}' AS JSON)`},
		{"a time", resultColumn{kind: resultDatetime, charset: binaryCharset}, "0000-00-00 00:00:00", "'0000-00-00 00:00:00'"},
		{"an ENUM", resultColumn{kind: typeString, charset: 45, flags: flagEnum}, "a", ""},
		{"a FLOAT", resultColumn{kind: typeFloat, charset: binaryCharset}, "0.1", ""},
		{"bits", resultColumn{kind: typeBit, charset: binaryCharset}, "\x01", ""},
		{"long text", resultColumn{kind: typeBlob, charset: 45}, string(make([]byte, sortedBytes+1)), ""},
	} {
		got, err := c.column.literal([]byte(c.value))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %s, %v", c.name, got, err)
		}
	}
}
