package postgres

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// A place within a snapshot survives its text, and is no place for who does not know of snapshots.
func TestSnapshotPosition(t *testing.T) {
	t.Parallel()
	at := place{system: "1", timeline: 1, database: "d", slot: "s", publication: 7, lsn: 0x16B3748}
	at.snapshot = &snapshot.Cursor{At: time.UnixMilli(1234567890123).UTC(), Where: "a = 'x&y' -- %", Done: 5, Tables: []snapshot.Table{
		{Schema: "public", Name: "Out.box", Order: []string{"id"}, After: []string{"5"}, Through: []string{"日本 &=+"}},
		{Schema: "public", Name: "other", Order: []string{"a", "b"}, Through: []string{"1", ""}},
	}}
	text := at.position()
	if !strings.HasPrefix(string(text), "pg2?") || text.Kind() != "pg" {
		t.Errorf("position %s", text)
	}
	got, err := parsePlace(text)
	if err != nil || !reflect.DeepEqual(got, at) {
		t.Errorf("%+v, %v", got, err)
	}
	if plain := at.at(nil).position(); !strings.HasPrefix(string(plain), "pg1?") {
		t.Errorf("position %s", plain)
	}
	for name, damaged := range map[string]string{
		"no cursor":            strings.Split(string(text), "&snapshot=")[0],
		"cut":                  string(text[:len(text)-10]),
		"nothing left to read": strings.Split(string(text), "&snapshot=")[0] + `&snapshot={"at":"2026-11-30T00:00:00Z","tables":[]}`,
	} {
		if _, err := parsePlace(source.Position(damaged)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// What is surely behind the snapshot's end need not be kept; all else is.
func TestLateRowsBeyond(t *testing.T) {
	t.Parallel()
	integer, moment := keyColumn{OID: pgtype.Int8OID}, keyColumn{OID: pgtype.TimestamptzOID}
	for _, c := range []struct {
		name   string
		column keyColumn
		end    string
		value  string
		beyond bool
	}{
		{"a higher number", integer, "100", "1000", true},
		{"the last", integer, "100", "100", false},
		{"a lower one", integer, "100", "99", false},
		{"no number", keyColumn{OID: pgtype.NumericOID}, "100", "NaN", false},
		{"later", moment, "2026-11-30 12:00:00.1+00", "2026-11-30 12:00:00.12+00", true},
		{"earlier", moment, "2026-11-30 12:00:00.1+00", "2026-11-30 12:00:00.09+00", false},
		{"never", moment, "2026-11-30 12:00:00+00", "infinity", false},
		{"without a zone", keyColumn{OID: pgtype.TimestampOID}, "2026-11-30 12:00:00", "2026-12-01 00:00:00", true},
	} {
		f := beyond(c.column, c.end)
		if f == nil || f([]byte(c.value)) != c.beyond {
			t.Errorf("%s: want %t", c.name, c.beyond)
		}
	}
	if beyond(keyColumn{OID: pgtype.UUIDOID}, "a0000000-0000-0000-0000-000000000000") != nil {
		t.Error("a UUID was compared")
	}
}
