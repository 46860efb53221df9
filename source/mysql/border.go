package mysql

import "github.com/outboxd/outboxd/source"

// border is the end of a transaction within a batch.
type border struct {
	rows int    // of the batch, up to it
	at   place  // without GTIDs
	gtid string // what it counts, or where it begins
	last string // its GTID
}

// gtids is the text of what was counted so far.
func (d *decoder) gtids() string {
	switch {
	case d.at.mariadb:
		return d.maria.String()
	case d.at.byGTID:
		return d.mysql.String()
	}
	return ""
}

// borders gives the resume points inside a batch. It is asked when a row can't
// be published, so it counts GTIDs anew rather than keep a set for each.
func (d *decoder) borders() func(int) source.Position {
	ends, base, mariadb := d.ends, d.base, d.at.mariadb
	return func(rows int) source.Position {
		set, err := place{mariadb: mariadb, gtids: base}.set()
		if err != nil {
			return ""
		}
		var found source.Position
		for _, e := range ends {
			if e.rows > rows {
				break
			}
			if counted := e.at.mariadb || e.at.byGTID; counted && set.Update(e.gtid) != nil {
				return ""
			}
			if e.rows == rows {
				p := e.at
				p.gtids, p.last = "", e.last
				if p.mariadb || p.byGTID {
					p.gtids = set.String()
				}
				found = p.position()
			}
		}
		return found
	}
}
