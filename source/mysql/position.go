package mysql

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// place is what a source.Position of this package says.
//
// Its text is "my1?" (MySQL) or "maria1?" (MariaDB) and query-escaped fields in
// a fixed order; the number is the version, and an unknown one is refused. Version 2
// is a place within a first snapshot: who would overlook its cursor would leave out
// the rest of the rows.
//
// MySQL has GTIDs with a server's uuid in them, or the uuid beside file and
// position. MariaDB's GTIDs name no server (unrelated ones share 0-1-n), so
// file and position stand beside them.
//
// Names and numbers come again after a server was reset or built anew. So the last
// transaction before the place is told with the time of its commit: before anything is
// read behind it, the server must show that very transaction.
type place struct {
	mariadb bool
	uuid    string // MySQL, in file mode: of the server file and pos belong to
	gtids   string // canonical text; MySQL in file mode: not set
	byGTID  bool   // GTIDs are the coordinates; else file and pos
	file    string // binary log …
	pos     uint64 // … and the offset behind the last transaction

	last string    // GTID of the last transaction; "" when it has none, or none was seen
	from uint64    // offset of its first event in file; 0: not known
	at   time.Time // its commit, where it was committed first; zero: not known. MariaDB tells seconds, MySQL microseconds

	heldFile string // where the oldest prepared XA transaction with rows of ours begins; "" when there is none,
	heldPos  uint64 // and where MySQL's GTIDs tell it

	snapshot *snapshot.Cursor // what is to be read before the log; nil: nothing
}

func (p place) version() string {
	version := "1"
	if p.snapshot != nil {
		version = "2"
	}
	if p.mariadb {
		return "maria" + version
	}
	return "my" + version
}

func (p place) position() source.Position {
	e := url.QueryEscape
	mode := "file"
	if p.byGTID {
		mode = "gtid"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s?by=%s&file=%s&pos=%d", p.version(), mode, e(p.file), p.pos)
	if p.uuid != "" {
		b.WriteString("&uuid=" + e(p.uuid))
	}
	if !p.at.IsZero() {
		b.WriteString("&at=" + strconv.FormatInt(p.at.UnixMicro(), 10))
	}
	if p.from > 0 {
		b.WriteString("&from=" + strconv.FormatUint(p.from, 10))
	}
	if p.heldFile != "" {
		fmt.Fprintf(&b, "&held=%s&heldpos=%d", e(p.heldFile), p.heldPos)
	}
	if p.last != "" {
		b.WriteString("&last=" + e(p.last))
	}
	if p.gtids != "" {
		b.WriteString("&gtids=" + e(p.gtids))
	}
	if p.snapshot != nil {
		b.WriteString("&snapshot=" + e(p.snapshot.Text()))
	}
	return source.Position(b.String())
}

// reading is the same place with another cursor.
func (p place) reading(c *snapshot.Cursor) place {
	p.snapshot = c
	return p
}

func parsePlace(pos source.Position) (place, error) {
	version, rest, ok := strings.Cut(string(pos), "?")
	p := place{mariadb: strings.HasPrefix(version, "maria")}
	q, err := url.ParseQuery(rest)
	if err != nil {
		return place{}, fmt.Errorf("parse position: %w", err)
	}
	if strings.HasSuffix(version, "2") {
		if p.snapshot, err = snapshot.Parse(q.Get("snapshot")); err != nil {
			return place{}, fmt.Errorf("parse position: %w", err)
		}
	}
	if !ok || version != p.version() {
		return place{}, fmt.Errorf("parse position: %q is not a MySQL or MariaDB position of a known version", version)
	}
	p.file, p.uuid, p.gtids, p.last = q.Get("file"), q.Get("uuid"), q.Get("gtids"), q.Get("last")
	if p.pos, err = strconv.ParseUint(q.Get("pos"), 10, 64); err != nil {
		return place{}, fmt.Errorf("parse position: pos: %w", err)
	}
	if at := q.Get("at"); at != "" {
		us, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return place{}, fmt.Errorf("parse position: at: %w", err)
		}
		p.at = time.UnixMicro(us).UTC()
	}
	if from := q.Get("from"); from != "" {
		if p.from, err = strconv.ParseUint(from, 10, 64); err != nil {
			return place{}, fmt.Errorf("parse position: from: %w", err)
		}
	}
	if p.heldFile = q.Get("held"); p.heldFile != "" {
		if p.heldPos, err = strconv.ParseUint(q.Get("heldpos"), 10, 64); err != nil {
			return place{}, fmt.Errorf("parse position: heldpos: %w", err)
		}
	}
	switch q.Get("by") {
	case "gtid":
		p.byGTID = true
	case "file":
	default:
		return place{}, fmt.Errorf("parse position: by: neither gtid nor file")
	}
	if !p.byGTID && (p.file == "" || (!p.mariadb && p.uuid == "")) {
		return place{}, fmt.Errorf("parse position: a field is missing")
	}
	if _, err := p.set(); err != nil {
		return place{}, fmt.Errorf("parse position: gtids: %w", err)
	}
	if _, err := (place{mariadb: p.mariadb, gtids: p.last}).set(); err != nil {
		return place{}, fmt.Errorf("parse position: last: %w", err)
	}
	return p, nil
}

func (p place) set() (mysql.GTIDSet, error) {
	flavor := mysql.MySQLFlavor
	if p.mariadb {
		flavor = mysql.MariaDBFlavor
	}
	return mysql.ParseGTIDSet(flavor, p.gtids)
}
