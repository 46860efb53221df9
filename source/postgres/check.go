package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/source"
)

// Check tries what a run needs without changing anything or taking the lease;
// it is safe beside a running instance. start is what a first start would be told.
func (s *Source) Check(ctx context.Context, start source.Start) []preflight.Result {
	var results []preflight.Result
	add := func(id, found string, err error) bool {
		r := preflight.Result{Status: preflight.OK, ID: id, Found: found}
		if err != nil {
			r.Status, r.Found = preflight.Fail, err.Error()
			if f := fault.As(err); f != nil && f.Fix != "" {
				r.Fix = []string{f.Fix}
			}
		}
		results = append(results, r)
		return err == nil
	}
	conn, err := s.connect(ctx, leaseParams())
	if err == nil {
		defer closeConn(conn)
		err = s.mustBeDirect(ctx, conn)
	}
	if !add("pg.reachable", "connected and logged in", err) {
		return results
	}
	if !add("pg.server", "wal_level is logical, the tables exist and fit", s.examine(ctx, conn)) {
		return results
	}
	add("pg.replication", "the role may replicate", s.mayReplicate(ctx, conn))
	found, err := s.checkPublication(ctx, conn)
	add("pg.publication", found, err)
	found, err = s.checkSlot(ctx, conn)
	add("pg.slot", found, err)
	st, err := s.slot(ctx, conn)
	if err == nil && st == nil && start == source.StartAuto { // with a slot nobody looks
		add("pg.select", "the role may look whether the tables are empty", s.mayRead(ctx, conn))
	}
	return results
}

func (s *Source) checkPublication(ctx context.Context, conn *pgx.Conn) (string, error) {
	st, err := s.slot(ctx, conn)
	if err != nil {
		return "", err
	}
	p, err := s.publication(ctx, conn)
	switch {
	case err != nil:
		return "", err
	case p == nil && st != nil:
		return "", s.slotNeedsPublication(ctx, conn, st)
	case p == nil && s.cfg.AutoSetup:
		return fmt.Sprintf("%q is absent; run will create it", s.cfg.Publication), s.mayPublish(ctx, conn)
	case p == nil:
		return "", s.setupNeeded("publication", s.cfg.Publication, s.publicationSQL(s.tables))
	case s.lacks(p) != "":
		return "", fault.Config(fault.CodeNameTaken, "set another OUTBOXD_NAME or OUTBOXD_POSTGRES_PUBLICATION"+s.rootFix(p), nil,
			"publication %q carries no %s", s.cfg.Publication, s.lacks(p))
	}
	return fmt.Sprintf("%q carries the outbox tables", s.cfg.Publication), nil
}

// mayPublish judges the rights that CREATE PUBLICATION needs.
func (s *Source) mayPublish(ctx context.Context, conn *pgx.Conn) error {
	for _, t := range s.tables {
		var ok bool
		err := conn.QueryRow(ctx, `SELECT has_database_privilege(current_database(), 'CREATE') AND pg_has_role(c.relowner, 'USAGE')
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, t.Schema, t.Name).Scan(&ok)
		if err != nil {
			return s.explain(fmt.Errorf("look at the rights on %s: %w", t, err))
		}
		if !ok {
			return fault.Config(fault.CodeGrantMissing, "as the owner of the tables, with CREATE on the database: "+s.publicationSQL(s.tables), nil,
				"role %q may not create publication %q: it must own %s and have CREATE on the database", conn.Config().User, s.cfg.Publication, t)
		}
	}
	return nil
}

func (s *Source) checkSlot(ctx context.Context, conn *pgx.Conn) (string, error) {
	st, err := s.slot(ctx, conn)
	switch {
	case err != nil:
		return "", err
	case st == nil && s.cfg.AutoSetup:
		return fmt.Sprintf("%q is absent; a first start will create it", s.cfg.Slot), nil
	case st == nil:
		return "", s.setupNeeded("slot", s.cfg.Slot, s.slotSQL())
	case st.lost:
		return "", s.slotLost(st, nil)
	}
	if err := s.ours(st, conn.Config().Database); err != nil {
		return "", err
	}
	return fmt.Sprintf("%q is there, confirmed at %s", s.cfg.Slot, st.confirmed), nil
}

func (s *Source) setupNeeded(what, name, statement string) error {
	return fault.Config(fault.CodeSetupNeeded, statement, nil, "%s %q does not exist and OUTBOXD_AUTO_SETUP is false", what, name)
}

// Statements is the SQL that Setup runs. It needs no connection and no rights.
// A bare table name stays as it was configured.
func (s *Source) Statements() []string {
	return []string{s.publicationSQL(s.cfg.Tables)}
}

// Setup makes the publication if it is absent, and reports whether it did.
// The slot belongs to the first start: it pins the log from its creation on.
func (s *Source) Setup(ctx context.Context) (made bool, err error) {
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	if err := s.examine(ctx, conn); err != nil {
		return false, err
	}
	before, err := s.publication(ctx, conn)
	if err != nil {
		return false, err
	}
	st, err := s.slot(ctx, conn)
	if err != nil {
		return false, err
	}
	if err := s.slotNeedsPublication(ctx, conn, st); err != nil {
		return false, err
	}
	_, err = s.ensurePublication(ctx, conn)
	return err == nil && before == nil, err
}
