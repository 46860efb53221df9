package postgres

import (
	"context"

	"github.com/jackc/pglogrepl"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Locate gives the position that text names, which is one as `checkpoint show`
// prints it, or an LSN of this server with the publication as it is now. It is
// judged as Open would judge it, and nothing is read. The lease must be held.
func (s *Source) Locate(ctx context.Context, text string) (source.Position, error) {
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
	}
	if at, err = s.judge(ctx, conn, rep, at); err != nil {
		return "", err
	}
	return at.position(), nil
}
