package postgres

import (
	"context"

	"github.com/jackc/pglogrepl"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Locate gives the position that text names, which is one as `checkpoint show`
// prints it, or an LSN of this server with the publication as it is now. It is
// judged as Open would judge it, and nothing is read. held is the position that is stored
// now, or "": what a first snapshot has left at that LSN stays left. The lease must be held.
func (s *Source) Locate(ctx context.Context, text string, held source.Position) (source.Position, error) {
	lsn, err := pglogrepl.ParseLSN(text)
	at, perr := parsePlace(source.Position(text))
	if err != nil && perr != nil {
		return "", fault.Config(fault.CodeConfig, "Give it as outboxd checkpoint show prints it, or as an LSN: 16/B374D848.", nil, "%q is no position", text)
	}
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	rep, err := s.connectReplication(ctx)
	if err != nil {
		return "", err
	}
	defer closePgConn(rep)
	if perr != nil {
		id, err := s.identify(ctx, rep)
		if err != nil {
			return "", err
		}
		at = place{system: id.system, timeline: id.timeline, database: id.database, slot: s.cfg.Slot, lsn: lsn}
		p, err := s.publication(ctx, conn)
		if err != nil {
			return "", err
		}
		if p != nil {
			at.publication, at.marks = p.oid, p.marks.String()
		}
		if now, err := parsePlace(held); err == nil && now.snapshot != nil {
			if now.lsn != lsn {
				return "", fault.Config(fault.CodeStartChoice, "let the snapshot end first; or, to leave out its rest, run `outboxd checkpoint delete` before", nil,
					"a first snapshot is under way, and goes with the slot's place %s", now.lsn)
			}
			at.snapshot = now.snapshot
		}
	}
	if at, err = s.judge(ctx, conn, rep, at); err != nil {
		return "", err
	}
	return at.position(), nil
}
