package mysql

import (
	"testing"
	"time"

	"github.com/outboxd/outboxd/source"
)

func TestPlaceRoundTrip(t *testing.T) {
	t.Parallel()
	tagged := byGTID
	tagged.gtids = serverA.String() + ":1-10:tag:5-7," + serverB.String() + ":3"
	odd := inFile
	odd.file, odd.pos = "log &=?.000001", 1<<40
	dated := mariadb
	dated.gtids, dated.last, dated.from, dated.at = "0-1-10,5-2-7", "5-2-7", 1000, time.Unix(1_796_042_096, 0).UTC()
	tagged.last, tagged.at = serverA.String()+":tag:7", time.UnixMicro(commitMicros).UTC()
	empty := mariadb
	empty.gtids = ""
	for _, p := range []place{inFile, byGTID, mariadb, tagged, odd, dated, empty} {
		got, err := parsePlace(p.position())
		if err != nil || got != p {
			t.Errorf("%+v became %+v (%v) by %q", p, got, err, p.position())
		}
	}
}

func TestPlaceRefuses(t *testing.T) {
	t.Parallel()
	for _, p := range []source.Position{
		"", "x", "my1", "my2?by=file&file=f&pos=4&uuid=u", "pg1?by=file", "my1?by=file&file=f&uuid=u", "my1?by=file&file=f&pos=-1&uuid=u", "my1?by=file&file=f&pos=4",
		"my1?by=file&file=&pos=4&uuid=u", "my1?by=x&file=f&pos=4", "my1?by=gtid&file=f&pos=4&gtids=x:1", "my1?by=gtid&file=f&pos=4&gtids=" + source.Position(serverA.String()),
		"maria1?by=gtid&file=f&pos=4&gtids=0-1", "maria1?by=gtid&file=f&pos=4&gtids=0-1-2&at=x", "maria1?by=gtid&file=f&pos=4&gtids=0-1-2&last=x", "maria1?by=gtid&file=f&pos=4&gtids=0-1-2&from=x", "my1?%zz",
	} {
		if got, err := parsePlace(p); err == nil {
			t.Errorf("%q passes as %+v", p, got)
		}
	}
}
