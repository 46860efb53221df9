package mysql

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxd/outboxd/internal/fault"
)

// judgeMariaDB has no server uuid to go by. On the server that a place was
// saved on, the place in the file gives the stored GTIDs. On another one, which took over, the
// stored transaction is looked for in the log, and must have been committed at the stored time.
func (s *Source) judgeMariaDB(ctx context.Context, q *session, at place) (start, error) {
	here := s.judgeFile(ctx, q, at)
	if here == nil {
		if here = s.sameGTIDs(ctx, q, at); here == nil {
			return fromFile(at), nil
		}
	}
	if fault.As(here) == nil {
		return start{}, here
	}
	known, err := s.knows(ctx, q, at)
	if err != nil {
		return start{}, err
	}
	switch {
	case !known:
		return start{}, fault.Position(fault.CodeForeign, otherServer+"; if this one was reset, or took over and lost those transactions, "+fromOldest, here,
			"the server never logged the checkpoint's GTIDs %q: either the address now leads to another server, or this one was reset, or took over and lost some", at.gtids)
	case !at.byGTID || at.last == "" || at.at.IsZero() || at.heldFile != "": // a prepare can't be found by its GTID
		return start{}, here
	}
	committed, err := s.find(ctx, q, at)
	if err != nil {
		return start{}, err
	}
	if err := at.mustBe(committed); err != nil {
		return start{}, err
	}
	at.file, at.pos, at.from = "", 0, 0 // those of the server it was saved on
	return fromGTIDs(at), nil
}

// sameGTIDs compares the GTIDs that the server has at the stored place.
func (s *Source) sameGTIDs(ctx context.Context, q *session, at place) error {
	text, err := s.gtidsAt(ctx, q, at)
	if err != nil && !errors.Is(err, errNoSuchPlace) {
		return err
	}
	found, perr := place{mariadb: true, gtids: oneLine(text)}.set()
	stored, serr := at.set()
	if err != nil || perr != nil || serr != nil || !found.Equal(stored) {
		return fault.Position(fault.CodeForeign, otherServer+"; if this one was reset or built anew, "+fromOldest, nil,
			"the server has GTIDs %q at %s:%d, the checkpoint %q: either the address now leads to another server, or this one was reset", oneLine(text), at.file, at.pos, at.gtids)
	}
	return nil
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "") }

// origin is who numbers transactions in MariaDB.
type origin struct{ domain, server uint32 }

// knows reports whether the server's log ever held the stored GTIDs.
func (s *Source) knows(ctx context.Context, q *session, at place) (bool, error) {
	text, err := q.value(ctx, "SELECT @@global.gtid_binlog_state")
	if err != nil {
		return false, fmt.Errorf("ask for the server's GTIDs: %w", err)
	}
	logged := map[origin]uint64{} // the state has an entry per domain and server
	for entry := range strings.SplitSeq(oneLine(text), ",") {
		if g, err := mysql.ParseMariadbGTID(strings.TrimSpace(entry)); err == nil {
			logged[origin{g.DomainID, g.ServerID}] = g.SequenceNumber
		}
	}
	for entry := range strings.SplitSeq(at.gtids, ",") {
		g, err := mysql.ParseMariadbGTID(entry)
		if err != nil || logged[origin{g.DomainID, g.ServerID}] < g.SequenceNumber {
			return false, err
		}
	}
	return true, nil
}

// find gives the commit time of the stored transaction in this server's log, and
// refuses where the log does not reach back to all that stands behind the place.
func (s *Source) find(ctx context.Context, q *session, at place) (time.Time, error) {
	last, err := mysql.ParseMariadbGTID(at.last)
	if err != nil {
		return time.Time{}, err
	}
	logs, err := s.logs(ctx, q)
	if err != nil {
		return time.Time{}, err
	}
	// The first file that begins behind the transaction; it is in the one before.
	behind := sort.Search(len(logs), func(i int) bool {
		if err != nil {
			return true
		}
		var before map[origin]uint64
		before, err = s.logged(ctx, logs[i].name)
		return err == nil && before[origin{last.DomainID, last.ServerID}] >= last.SequenceNumber
	})
	if err != nil {
		return time.Time{}, err
	}
	if behind == 0 {
		return time.Time{}, fault.Position(fault.CodePositionLost, fromOldest, nil,
			"the transaction before the checkpoint (%s) was purged from the server's log (the oldest is %s)", at.last, logs[0].name)
	}
	var found time.Time
	err = s.scan(ctx, logs[behind-1].name, func(e event) (bool, error) {
		if e.kind != eventMariaGTID {
			return false, nil
		}
		g, _, _, err := parseMariaGTID(e)
		if err == nil && g == *last {
			found = time.Unix(int64(e.seconds), 0).UTC()
		}
		return !found.IsZero(), err
	})
	if err == nil && found.IsZero() {
		err = fault.Position(fault.CodeDiverged, otherServer+"; if this one took over and lost it, "+fromOldest, nil,
			"the last transaction before the checkpoint (%s) is not in %s, where this server's log would have it", at.last, logs[behind-1].name)
	}
	return found, err
}

// logged is what stands before a file, by the list of GTIDs at its beginning
// (Gtid_list_log_event in sql/log_event.h).
func (s *Source) logged(ctx context.Context, file string) (map[origin]uint64, error) {
	var list map[origin]uint64
	err := s.scan(ctx, file, func(e event) (bool, error) {
		if e.kind != eventMariaGTIDList {
			return false, nil
		}
		c := cutter{b: e.body}
		list = map[origin]uint64{}
		for range c.fixed(4) & (1<<28 - 1) {
			o := origin{uint32(c.fixed(4)), uint32(c.fixed(4))}
			if list[o] = c.fixed(8); c.short {
				return false, errShort
			}
		}
		return true, nil
	})
	if err == nil && list == nil {
		err = fmt.Errorf("read the beginning of %s: it has no list of GTIDs", file)
	}
	return list, err
}

// scan reads a file from its beginning, over a connection of its own, until each says that it has seen enough.
func (s *Source) scan(ctx context.Context, file string, each func(event) (bool, error)) error {
	q, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer q.close()
	at := start{at: place{mariadb: s.server.mariadb}, file: file, pos: 4}
	checksummed, err := s.dump(ctx, q, at)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = q.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		b, err := q.ReadPacket()
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if len(b) == 0 || b[0] != 0 {
			return fmt.Errorf("read %s: the server ended the dump", file)
		}
		e, err := parseEvent(b[1:], checksummed)
		if err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		switch {
		case e.kind == eventFormatDescription:
			if checksummed, err = describesChecksums(e.body); err != nil {
				return err
			}
		case e.kind == eventHeartbeat, e.kind == eventRotate && e.flags&flagArtificial == 0:
			return nil // the file's end
		case e.kind == eventRotate && len(e.body) > 8 && string(e.body[8:]) != file:
			return nil
		}
		if done, err := each(e); done || err != nil {
			return err
		}
	}
}
