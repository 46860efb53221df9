package postgres

import (
	"testing"

	"github.com/jackc/pglogrepl"
)

func TestSwitchPoint(t *testing.T) {
	t.Parallel()
	const history = "1\t0/3000148\tno recovery target specified\n\n# a comment\n3\t16/B374D848\tbefore 2026-11-30 12:00:00+00\n"
	for timeline, want := range map[int32]pglogrepl.LSN{1: 0x3000148, 3: 0x16B374D848, 2: 0, 4: 0} {
		if got, err := switchPoint(history, timeline); got != want || err != nil {
			t.Errorf("timeline %d was left at %s, %v; want %s", timeline, got, err, want)
		}
	}
	if _, err := switchPoint("one\t0/3000148\n", 1); err == nil {
		t.Error("a line that is none was passed over")
	}
	if _, err := switchPoint("1\tthere\n", 1); err == nil {
		t.Error("a place that is none was taken")
	}
}
