package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/internal/fault"
)

// judgeHistory finds out whether the log up to our place is the log of this
// server. A promoted standby, a restored backup and a clone are all judged by
// the point where the server's timeline left ours: what lies before it is common.
func (s *Source) judgeHistory(ctx context.Context, rep *pgconn.PgConn, id identity, st *slotState, end pglogrepl.LSN, at place) error {
	if id.timeline == at.timeline {
		if end >= at.lsn {
			return nil
		}
		return fault.Position(fault.CodeDiverged, s.follow(st, 0), nil,
			"the checkpoint at %s is past the end of the server's log at %s: the server was restored to an earlier state", at.lsn, end)
	}
	if id.timeline < at.timeline {
		return fault.Position(fault.CodeDiverged, "point OUTBOXD_SOURCE_URL at the server that was promoted; if this one is meant to go on: "+s.anew(), nil,
			"the server is on timeline %d with its log's end at %s, the checkpoint on the newer timeline %d at %s: it is a former primary or an older backup", id.timeline, end, at.timeline, at.lsn)
	}
	h, err := pglogrepl.TimelineHistory(ctx, rep, id.timeline)
	if hasCode(err, "58P01") { // the history file was removed
		return fault.Position(fault.CodeDiverged, s.anew(), err,
			"the server is on timeline %d with its log's end at %s, the checkpoint on timeline %d at %s, and the server can't tell where it switched", id.timeline, end, at.timeline, at.lsn)
	}
	if err != nil {
		return fmt.Errorf("ask for the history of timeline %d: %w", id.timeline, err)
	}
	left, err := switchPoint(string(h.Content), at.timeline)
	switch {
	case err != nil:
		return fmt.Errorf("read the history of timeline %d: %w", id.timeline, err)
	case left == 0:
		return fault.Position(fault.CodeDiverged, s.anew(), nil,
			"the server is on timeline %d, which does not descend from timeline %d of the checkpoint at %s; its log ends at %s", id.timeline, at.timeline, at.lsn, end)
	case at.lsn > left:
		return fault.Position(fault.CodeDiverged, s.follow(st, left), nil,
			"the server left timeline %d at %s for timeline %d, and the checkpoint on timeline %d is past that, at %s: rows that were published are not in this server", at.timeline, left, id.timeline, at.timeline, at.lsn)
	}
	return nil
}

// follow tells how to go on in a history that lacks our place. All up to known is
// common to both, so it was published.
func (s *Source) follow(st *slotState, known pglogrepl.LSN) string {
	if st == nil || st.lost || st.confirmed == 0 {
		return s.anew()
	}
	return fmt.Sprintf("if this is the server to go on with: rows that were published and are not in it stay in Kafka, so compare; then `outboxd checkpoint set --to %s` goes on with what it committed since", max(known, st.confirmed))
}

// switchPoint reads the text of a timeline history: where timeline was left, or 0
// when the history does not hold it.
func switchPoint(history string, timeline int32) (pglogrepl.LSN, error) {
	for line := range strings.Lines(history) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil {
			return 0, fmt.Errorf("a line that begins with %q", fields[0])
		}
		if int32(n) != timeline {
			continue
		}
		return pglogrepl.ParseLSN(fields[1])
	}
	return 0, nil
}
