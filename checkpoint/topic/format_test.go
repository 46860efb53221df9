package topic

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/source"
)

const name = "orders"

func at(position source.Position) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{Name: name, Position: position, SavedAt: time.Unix(1, 5)}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, position := range []source.Position{"", "0/10", `tab	and ü"; <>&`, source.Position(make([]byte, 9))} {
		key, value := Encode(at(position))
		if string(key) != "orders/place" {
			t.Fatalf("key %q", key)
		}
		if got, err := decode(place, value); err != nil || !got.Equal(at(position)) {
			t.Fatalf("%q came back as %+v, %v", position, got, err)
		}
	}
}

func TestDamagedRecordIsRefused(t *testing.T) {
	t.Parallel()
	_, good := Encode(at("0/10"))
	_, born := encode(birth, at(""))
	swap := func(from, to string) []byte { return []byte(strings.Replace(string(good), from, to, 1)) }
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"empty", []byte{}, "no whole JSON object"},
		{"half", good[:len(good)/2], "no whole JSON object"},
		{"two of them", append(append([]byte(nil), good...), good...), "no whole JSON object"},
		{"another object", []byte(`{}`), "its version is 0"},
		{"a later version", swap(`"version":1`, `"version":2`), "its version is 2"},
		{"a changed position", swap("0/10", "0/11"), "its checksum does not fit"},
		{"a changed name", swap("orders", "orderz"), "its checksum does not fit"},
		{"a changed time", swap("1970", "1971"), "its checksum does not fit"},
		{"a changed kind", swap(`"place"`, `"birth"`), "its checksum does not fit"},
		{"no checksum", swap(`"checksum"`, `"checksun"`), "its checksum does not fit"},
		{"another kind", born, "it is a birth record"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if _, err := decode(place, c.data); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v; want it to say %q", err, c.says)
			}
		})
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	t.Parallel()
	want := at("0/10")
	_, good := Encode(want)
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			if c, err := decode(place, bad); err == nil && !c.Equal(want) {
				t.Fatalf("byte %d bit %d: %q was taken for %+v", i, bit, bad, c)
			}
		}
	}
}
