package postgres

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// place is what a source.Position of this package says.
//
// Its text is "pg1?" and query-escaped fields in a fixed order; the number is
// the version. A later version may add fields; an unknown version is refused.
// Version 2 is a place within a first snapshot: who would overlook its cursor
// would leave out the rest of the rows.
type place struct {
	system      string // system identifier of the cluster
	timeline    int32
	database    string
	slot        string
	publication uint32 // OID: a publication made anew is another one
	marks       string // of the publication when the place was made, see marks; "" in an older one
	lsn         pglogrepl.LSN
	snapshot    *snapshot.Cursor // what is to be read before the log; nil: nothing
}

const (
	placeVersion    = "pg1"
	snapshotVersion = "pg2"
)

// prefix is everything but the LSN; streams append to it.
func (p place) prefix() string {
	e := url.QueryEscape
	version := placeVersion
	if p.snapshot != nil {
		version = snapshotVersion
	}
	return fmt.Sprintf("%s?system=%s&timeline=%d&database=%s&slot=%s&publication=%d&marks=%s&lsn=", version,
		e(p.system), p.timeline, e(p.database), e(p.slot), p.publication, e(p.marks))
}

func (p place) position() source.Position {
	text := p.prefix() + p.lsn.String()
	if p.snapshot != nil {
		text += "&snapshot=" + url.QueryEscape(p.snapshot.Text())
	}
	return source.Position(text)
}

// at is the same place with another cursor.
func (p place) at(c *snapshot.Cursor) place {
	p.snapshot = c
	return p
}

func parsePlace(pos source.Position) (place, error) {
	version, rest, ok := strings.Cut(string(pos), "?")
	if !ok || (version != placeVersion && version != snapshotVersion) {
		return place{}, fmt.Errorf("parse position: %q is not a PostgreSQL position of version %s or %s", version, placeVersion, snapshotVersion)
	}
	q, err := url.ParseQuery(rest)
	if err != nil {
		return place{}, fmt.Errorf("parse position: %w", err)
	}
	p := place{system: q.Get("system"), database: q.Get("database"), slot: q.Get("slot")}
	timeline, err := strconv.ParseInt(q.Get("timeline"), 10, 32)
	if err != nil {
		return place{}, fmt.Errorf("parse position: timeline: %w", err)
	}
	publication, err := strconv.ParseUint(q.Get("publication"), 10, 32)
	if err != nil {
		return place{}, fmt.Errorf("parse position: publication: %w", err)
	}
	p.marks = q.Get("marks")
	if _, err := parseMarks(p.marks); err != nil {
		return place{}, fmt.Errorf("parse position: %w", err)
	}
	if p.lsn, err = pglogrepl.ParseLSN(q.Get("lsn")); err != nil {
		return place{}, fmt.Errorf("parse position: lsn: %w", err)
	}
	if version == snapshotVersion {
		if p.snapshot, err = snapshot.Parse(q.Get("snapshot")); err != nil {
			return place{}, fmt.Errorf("parse position: %w", err)
		}
	}
	p.timeline, p.publication = int32(timeline), uint32(publication)
	if p.system == "" || p.database == "" || p.slot == "" || p.lsn == 0 {
		return place{}, fmt.Errorf("parse position: a field is missing")
	}
	return p, nil
}
