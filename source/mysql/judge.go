package mysql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxd/outboxd/internal/fault"
)

// start says how a dump is asked for, so that it gives what stands behind a place.
type start struct {
	at     place  // what is read follows it
	byGTID bool   // ask by gtids; else by file and pos
	gtids  string // the server sends all others
	file   string
	pos    uint64 // of an event
	// witness tells that the transaction before the place comes first. It is passed
	// over when it is the one that was saved, and else nothing is read.
	witness bool
	ends    bool // the server ends the dump at its log's end, instead of waiting for more
}

// flags of the dump command.
func (st start) flags() uint16 {
	if st.ends {
		return 1 // BINLOG_DUMP_NON_BLOCK
	}
	return 0
}

// fromGTIDs asks for what stands behind at.
func fromGTIDs(at place) start { return start{at: at, byGTID: true, gtids: at.gtids} }

// fromFile asks for what stands behind at, one transaction earlier where that can tell the place.
func fromFile(at place) start {
	st := start{at: at, file: at.file, pos: at.pos}
	switch {
	case at.from > 0 && at.from <= math.MaxUint32 && !at.at.IsZero():
		st.pos, st.witness = at.from, true
	case at.heldFile == "" && at.pos > math.MaxUint32: // no server can be asked for that, so all before it is passed over
		st.pos = 4
	}
	if at.heldFile != "" {
		if st.file, st.pos = at.heldFile, at.heldPos; st.pos > math.MaxUint32 {
			st.pos = 4
		}
	}
	return st
}

// judge decides whether this server can go on from at without a gap, before a dump is asked for.
func (s *Source) judge(ctx context.Context, q *session, at place) (start, error) {
	if at.mariadb != s.server.mariadb {
		return start{}, fault.Position(fault.CodeForeign, otherServer, nil, "the checkpoint is of %s, the server is %s", flavorName(at.mariadb), flavorName(s.server.mariadb))
	}
	if at.mariadb {
		return s.judgeMariaDB(ctx, q, at)
	}
	if at.byGTID {
		return s.judgeGTIDs(ctx, q, at)
	}
	if at.uuid != s.server.uuid {
		return start{}, fault.Position(fault.CodeForeign, otherServer+"; if this server took over from it, file and position mean nothing here: "+anew+", and turn GTIDs on, which can follow", nil,
			"the checkpoint's file and position belong to server %s, this is %s: either the address now leads to another server, or the name is reused", at.uuid, s.server.uuid)
	}
	return fromFile(at), s.judgeFile(ctx, q, at)
}

// Ways out.
const (
	otherServer = "point OUTBOXD_SOURCE_URL at the server this connector has been reading; or, if this is meant to be a new connector, give it another OUTBOXD_NAME and its own checkpoint"
	compare     = "rows committed since the last saved place may be missing in Kafka: compare first; then "
	anew        = compare + "run `outboxd checkpoint delete` and start with OUTBOXD_START=now"
	fromOldest  = compare + "`outboxd checkpoint set --to oldest` goes on with all that the server's log still has, which may repeat events; or leave it all out with `outboxd checkpoint delete` and OUTBOXD_START=now"
)

// setTo is the command that goes on from a place, told as Locate takes it.
func setTo(text string) string { return "`outboxd checkpoint set --to '" + text + "'`" }

func flavorName(mariadb bool) string {
	if mariadb {
		return "MariaDB"
	}
	return "MySQL"
}

// judgeGTIDs compares sets on the server: it must have executed all of ours, and still have all others.
func (s *Source) judgeGTIDs(ctx context.Context, q *session, at place) (start, error) {
	r, err := q.query(ctx, "SELECT "+strings.Join([]string{
		"GTID_SUBSET(?, @@global.gtid_executed)", "GTID_SUBSET(@@global.gtid_purged, ?)", "@@global.gtid_executed", "@@global.gtid_purged",
		"GTID_SUBTRACT(?, GTID_SUBTRACT(?, @@global.gtid_executed))", //nolint:dupword // what both have
		"GTID_SUBTRACT(@@global.gtid_purged, ?)",
		"GTID_SUBSET(?, @@global.gtid_purged)", "GTID_SUBTRACT(?, ?)",
	}, ", "), at.gtids, at.gtids, at.gtids, at.gtids, at.gtids, at.last, at.gtids, at.last)
	if err != nil {
		return start{}, fmt.Errorf("compare GTIDs: %w", err)
	}
	text := func(i int) string { v, _ := r.GetString(0, i); return strings.ReplaceAll(v, "\n", "") }
	has, kept, executed, purged, common, gap := text(0) == "1", text(1) == "1", text(2), text(3), text(4), text(5)
	if !has {
		way := fromOldest
		if common != "" {
			way = compare + setTo(union(common, purged)) + " goes on with everything it committed since; what was published and is not in this server stays in Kafka"
		}
		return start{}, fault.Position(fault.CodeDiverged, otherServer+"; if this server took over from it and lost those transactions, "+way, nil,
			"the server (%s) has not executed all transactions up to the checkpoint (%s): it is another server, was reset, or took over and lost some; it has %s", s.server.uuid, at.gtids, executed)
	}
	if !kept {
		return start{}, fault.Position(fault.CodePositionLost, "rows of those transactions may be missing in Kafka: compare first; then "+setTo(union(at.gtids, purged))+" goes on with all that the server still has", nil,
			"the server has purged binary logs that hold transactions behind the checkpoint: %s are gone, the checkpoint is %s", gap, at.gtids)
	}
	st := fromGTIDs(at)
	if purgedLast := text(6) == "1"; at.last != "" && !at.at.IsZero() && !purgedLast {
		st.gtids, st.witness = text(7), true
	}
	return st, nil
}

// union of two sets of MySQL that a server has given or taken.
func union(a, b string) string {
	set, err := mysql.ParseMysqlGTIDSet(a)
	if err != nil || set.Update(b) != nil {
		return a
	}
	return set.String()
}

// judgeFile looks for the file and compares its size. That a place is a border
// of events is told by what is read first.
func (s *Source) judgeFile(ctx context.Context, q *session, at place) error {
	logs, err := s.logs(ctx, q)
	if err != nil {
		return err
	}
	if at.heldFile != "" && !slices.ContainsFunc(logs, func(l binaryLog) bool { return l.name == at.heldFile }) {
		without := at
		without.heldFile, without.heldPos = "", 0
		return fault.Position(fault.CodePositionLost, "the outbox rows of that transaction are not published: publish them by hand if it was committed; then "+setTo(string(without.position()))+" goes on without it", nil,
			"binary log %s is gone, with an XA transaction with outbox rows that was prepared at %d and not decided", at.heldFile, at.heldPos)
	}
	for _, l := range logs {
		switch {
		case l.name != at.file:
		case l.size < at.pos:
			return fault.Position(fault.CodeDiverged, fromOldest, nil, "the checkpoint is at %s:%d, the file ends at %d: the server lost the end of its log or was reset", at.file, at.pos, l.size)
		default:
			return nil
		}
	}
	return fault.Position(fault.CodePositionLost, fromOldest, nil, "binary log %s is gone (the oldest is %s): it was purged, or the server was reset", at.file, logs[0].name)
}

// binaryLog is one of the server's files.
type binaryLog struct {
	name string
	size uint64
}

// logs lists the server's files, the oldest first; there is always one.
func (s *Source) logs(ctx context.Context, q *session) ([]binaryLog, error) {
	r, err := q.query(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, s.missingGrant(fmt.Errorf("list the binary logs: %w", err), s.clientGrant())
	}
	logs := make([]binaryLog, r.RowNumber())
	for i := range logs {
		logs[i].name, _ = r.GetString(i, 0)
		logs[i].size, _ = r.GetUint(i, 1)
	}
	if len(logs) == 0 {
		return nil, errors.New("list the binary logs: there is none")
	}
	return logs, nil
}

// mustBe compares the transaction before a place with the one that stands there on this server.
func (p place) mustBe(found time.Time) error {
	if found.Equal(p.at) {
		return nil
	}
	name := p.last
	if name == "" {
		name = fmt.Sprintf("%s:%d", p.file, p.from)
	}
	return fault.Position(fault.CodeDiverged, otherServer+"; if this one was reset or built anew, "+fromOldest, nil,
		"the last transaction before the checkpoint (%s) was committed at %s, the one of that name on this server at %s: the server was reset or built anew, or it is another one",
		name, p.at.Format(time.RFC3339Nano), found.Format(time.RFC3339Nano))
}
