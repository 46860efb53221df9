package postgres

import (
	"testing"

	"github.com/outboxd/outboxd/source"
)

func TestPositionRoundTrip(t *testing.T) {
	t.Parallel()
	for _, p := range []place{
		{system: "7301", timeline: 1, database: "shop", slot: "shop_outbox", publication: 16400, lsn: 0x16B3748},
		{system: "1", timeline: 2147483647, database: `odd & name=?;%/`, slot: "s", publication: 4294967295, lsn: 1<<64 - 1},
	} {
		got, err := parsePlace(p.position())
		if err != nil || got != p {
			t.Errorf("%+v became %+v, %v", p, got, err)
		}
	}
}

func TestPositionRefusesWhatItDidNotWrite(t *testing.T) {
	t.Parallel()
	good := string(place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: 3}.position())
	for _, text := range []string{
		"", "pg1", "pg1?", "pg2" + good[3:], "fake:3", good[:len(good)-3],
		"pg1?system=7&timeline=x&database=d&slot=s&publication=2&lsn=0/3",
		"pg1?system=7&timeline=1&database=d&slot=s&publication=-2&lsn=0/3",
		"pg1?system=7&timeline=1&database=d&slot=s&publication=2&lsn=0/0",
		"pg1?system=&timeline=1&database=d&slot=s&publication=2&lsn=0/3",
		"pg1?%zz",
	} {
		if p, err := parsePlace(source.Position(text)); err == nil {
			t.Errorf("%q was taken as %+v", text, p)
		}
	}
}

func FuzzPosition(f *testing.F) {
	f.Add(string(place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: 3}.position()))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(source.Position(text))
		if err != nil {
			return
		}
		again, err := parsePlace(p.position())
		if err != nil || again != p {
			t.Errorf("%q became %+v, then %+v, %v", text, p, again, err)
		}
	})
}
