package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// confirmedPlace is the word for the slot's own place.
const confirmedPlace = "slot"

// confirmed asks for the slot's own place.
func (s *Source) confirmed(ctx context.Context) (string, error) {
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return "", err
	}
	defer closeConn(conn)
	var lsn, plugin string
	err = conn.QueryRow(ctx, "SELECT coalesce(confirmed_flush_lsn::text, ''), plugin FROM pg_replication_slots WHERE slot_name = $1 AND database = current_database()", s.cfg.Slot).Scan(&lsn, &plugin)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || err == nil && lsn == "":
		return "", fault.Config(fault.CodeConfig, "Set OUTBOXD_POSTGRES_SLOT to the slot whose place is to be taken over.", nil, "there is no slot %q with a place in this database", s.cfg.Slot)
	case err != nil:
		return "", s.explain(fmt.Errorf("look at slot %q: %w", s.cfg.Slot, err))
	case plugin != "pgoutput":
		return "", fault.Config(fault.CodeNameTaken, "Stop the writers of the outbox for a moment, let the other relay publish the rest, stop it, and run `outboxd setup --start now` with another OUTBOXD_POSTGRES_SLOT before the writers go on.", nil,
			"slot %q has the plugin %q, and outboxd reads pgoutput alone", s.cfg.Slot, plugin)
	}
	return lsn, nil
}

// Locate gives the position that text names, which is one as `checkpoint show`
// prints it, an LSN of this server with the publication as it is now, or "slot": the
// place that the slot was confirmed up to, whoever read it before. It is
// judged as Open would judge it, and nothing is read. held is the position that is stored
// now, or "": what a first snapshot has left at that LSN stays left. The lease must be held.
func (s *Source) Locate(ctx context.Context, text string, held source.Position) (source.Position, error) {
	if text == confirmedPlace {
		var err error
		if text, err = s.confirmed(ctx); err != nil {
			return "", err
		}
	}
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
