package mysql

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

// gtid is what we read of a MySQL transaction's first event.
type gtid struct {
	uuid      uuid.UUID
	tag       mysql.Tag
	number    int64
	committed uint64 // microseconds since 1970 on this server; 0: not told (before 8.0)
	original  uint64 // where it was committed first
}

func (g gtid) String() string {
	text := g.uuid.String() + ":"
	if g.tag != (mysql.Tag{}) {
		text += g.tag.String() + ":"
	}
	return text + strconv.FormatInt(g.number, 10)
}

// parseGTIDText reads one GTID as String gives it.
func parseGTIDText(text string) (g gtid, err error) {
	parts := strings.Split(text, ":")
	if len(parts) == 3 {
		g.tag, parts = mysql.NewTag(parts[1]), []string{parts[0], parts[2]}
	}
	if len(parts) != 2 {
		return g, fmt.Errorf("%q is no GTID", text)
	}
	if g.uuid, err = uuid.Parse(parts[0]); err == nil {
		g.number, err = strconv.ParseInt(parts[1], 10, 64)
	}
	if err != nil {
		return g, fmt.Errorf("%q is no GTID: %w", text, err)
	}
	return g, nil
}

// parseGTID reads a Gtid_event (libs/mysql/binlog/event/control_events.h). A
// bit above the commit time says that the original server's follows.
func parseGTID(b []byte) (g gtid, err error) {
	c := cutter{b: b}
	c.skip(1)
	copy(g.uuid[:], c.bytes(16))
	g.number = int64(c.fixed(8))
	if c.short {
		return g, errShort
	}
	const logicalClock = 2
	if c.fixed(1) == logicalClock {
		c.skip(8 + 8)
		g.committed = c.fixed(7)
		const differs = 1 << 55
		if g.original = g.committed; g.committed&differs != 0 {
			g.committed, g.original = g.committed&^differs, c.fixed(7)
		}
		if c.short { // a server that tells no time
			g.committed, g.original = 0, 0
		}
	}
	return g, nil
}

// parseTaggedGTID reads a Gtid_tagged_event: fields with their numbers in front, in the format of
// mysql::serialization ("PageLibsMysqlSerialization" in the server's source documentation).
func parseTaggedGTID(b []byte) (g gtid, err error) {
	c := cutter{b: b}
	version := c.varint()
	c.varint() // size
	needed := c.varint()
	if version != 1 && version != 0 || needed > 11 {
		return g, fmt.Errorf("decode a tagged GTID: version %d with field %d is not known", version, needed)
	}
	for len(c.b) > 0 && !c.short {
		switch field := c.varint(); field {
		case 0:
			c.varint() // flags
		case 1:
			for i := range g.uuid {
				g.uuid[i] = byte(c.varint())
			}
		case 2:
			g.number = int64(c.varint() >> 1) // signed, never negative
		case 3:
			g.tag = mysql.NewTag(string(c.bytes(int(c.varint()))))
		case 4, 5:
			c.varint() // logical clock
		case 6:
			g.committed = c.varint()
			g.original = g.committed
			if err := c.err(); err != nil {
				return g, err
			}
			if c.varint() == 7 {
				g.original = c.varint()
			}
			return g, nil
		default:
			return g, fmt.Errorf("decode a tagged GTID: field %d is not known", field)
		}
	}
	return g, errShort
}

// varint reads a number whose first byte tells by its trailing ones how many bytes follow.
func (c *cutter) varint() uint64 {
	first := byte(c.fixed(1))
	n := bits.TrailingZeros8(^first)
	rest := c.fixed(n)
	if n == 8 {
		return rest
	}
	return rest<<(7-n) | uint64(first>>(n+1))
}

// Flags of MariaDB's GTID event (Gtid_log_event in sql/log_event.h).
const (
	mariaStandalone = 1
	mariaPrepared   = 64 // of an XA transaction
)

func parseMariaGTID(e event) (g mysql.MariadbGTID, standalone, isXA bool, err error) {
	c := cutter{b: e.body}
	g = mysql.MariadbGTID{SequenceNumber: c.fixed(8), DomainID: uint32(c.fixed(4)), ServerID: e.server}
	flags := c.fixed(1)
	return g, flags&mariaStandalone != 0, flags&mariaPrepared != 0, c.err()
}
