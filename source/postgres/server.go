package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// errStandby mends itself by a promotion, or when the address leads elsewhere.
var errStandby = errors.New("the server is a standby: waiting for a primary")

// examine checks what the server must offer before anything is made or read,
// and resolves the tables. It changes nothing.
func (s *Source) examine(ctx context.Context, conn *pgx.Conn) error {
	var version int
	var walLevel string
	var standby bool
	err := conn.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery()`).
		Scan(&version, &walLevel, &standby)
	if err != nil {
		return s.explain(fmt.Errorf("ask the server's settings: %w", err))
	}
	if version < 150000 {
		return fault.Config(fault.CodeServerSetting, "use PostgreSQL 15 or newer", nil, "the server is PostgreSQL %d", version/10000)
	}
	if s.cfg.Failover && version < 170000 {
		return fault.Config(fault.CodeServerSetting, "leave OUTBOXD_POSTGRES_FAILOVER_SLOT unset", nil, "the server is PostgreSQL %d, failover slots came with 17", version/10000)
	}
	if standby {
		return errStandby
	}
	if walLevel != "logical" {
		return fault.Config(fault.CodeServerSetting, "ALTER SYSTEM SET wal_level = 'logical', then restart the server (managed services: the parameter rds.logical_replication, cloudsql.logical_decoding or their like)",
			nil, "wal_level is %q, logical decoding needs \"logical\"", walLevel)
	}
	tables, err := s.resolve(ctx, conn)
	if err != nil {
		return err
	}
	s.tables = tables
	for _, t := range tables {
		if err := s.validate(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

// resolve finds each configured table and gives a bare name its schema.
func (s *Source) resolve(ctx context.Context, conn *pgx.Conn) ([]TableName, error) {
	found := make([]TableName, 0, len(s.cfg.Tables))
	for _, t := range s.cfg.Tables {
		rows, err := conn.Query(ctx, `
			SELECT n.nspname, c.relkind::text, c.relpersistence = 'u' FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relname = $1 AND ($2 = '' OR n.nspname = $2) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
			  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND c.relpersistence <> 't'
			ORDER BY 1`, t.Name, t.Schema)
		if err != nil {
			return nil, s.explain(fmt.Errorf("look for table %s: %w", t, err))
		}
		type hit struct {
			Schema, Kind string
			Unlogged     bool
		}
		hits, err := pgx.CollectRows(rows, pgx.RowToStructByPos[hit])
		if err != nil {
			return nil, s.explain(fmt.Errorf("look for table %s: %w", t, err))
		}
		switch {
		case len(hits) == 0:
			return nil, fault.Config(fault.CodeTableMissing, "create the table, or correct OUTBOXD_TABLES (quote a name with capitals or dots: \"My Outbox\")",
				nil, "table %s does not exist in database %q", t, conn.Config().Database)
		case len(hits) > 1:
			names := make([]string, len(hits))
			for i, h := range hits {
				names[i] = TableName{h.Schema, t.Name}.String()
			}
			return nil, fault.Config(fault.CodeConfig, "name the schema in OUTBOXD_TABLES", nil, "table %s is ambiguous: there are %s", t, strings.Join(names, " and "))
		case hits[0].Kind != "r" && hits[0].Kind != "p":
			return nil, fault.Config(fault.CodeTableUnusable, "name a table in OUTBOXD_TABLES", nil, "%s is a view or a foreign table; only tables have a log", t)
		case hits[0].Unlogged:
			return nil, fault.Config(fault.CodeTableUnusable, fmt.Sprintf("ALTER TABLE %s SET LOGGED", t), nil, "table %s is unlogged: its rows are not in the log", t)
		}
		found = append(found, TableName{hits[0].Schema, t.Name})
	}
	return found, nil
}

// validate shows the table's shape to Config.Validate.
func (s *Source) validate(ctx context.Context, conn *pgx.Conn, t TableName) error {
	if s.cfg.Validate == nil {
		return nil
	}
	table, hidden, err := s.describe(ctx, conn, t)
	if err != nil {
		return err
	}
	return s.explainHidden(s.misfit(table, s.cfg.Validate(table)), hidden)
}

func (s *Source) misfit(table *source.Table, err error) error {
	if err == nil || fault.As(err) != nil {
		return err // it says already what to do
	}
	return fault.Config(fault.CodeTableUnusable, "see the OUTBOXD_COLUMN_… variables", err, "the columns of %s don't fit", table)
}

// hasRows reports whether any outbox table holds a row in the session's snapshot, and which.
func (s *Source) hasRows(ctx context.Context, conn *pgx.Conn) (TableName, bool, error) {
	if err := s.mayRead(ctx, conn); err != nil {
		return TableName{}, false, err
	}
	for _, t := range s.tables {
		var any bool
		if err := conn.QueryRow(ctx, fmt.Sprintf("SELECT EXISTS (SELECT FROM %s)", t)).Scan(&any); err != nil {
			return t, false, s.explain(fmt.Errorf("look for rows in %s: %w", t, err))
		}
		if any {
			return t, true, nil
		}
	}
	return TableName{}, false, nil
}

// mayRead judges the rights that hasRows needs.
func (s *Source) mayRead(ctx context.Context, conn *pgx.Conn) error {
	role := quote(conn.Config().User)
	for _, t := range s.tables {
		var schema, table bool
		err := conn.QueryRow(ctx, `SELECT has_schema_privilege(n.oid, 'USAGE'), has_any_column_privilege(c.oid, 'SELECT')
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, t.Schema, t.Name).Scan(&schema, &table)
		if err != nil {
			return s.explain(fmt.Errorf("look at the rights on %s: %w", t, err))
		}
		var grants []string
		if !schema {
			grants = append(grants, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s;", quote(t.Schema), role))
		}
		if !table {
			grants = append(grants, fmt.Sprintf("GRANT SELECT ON %s TO %s;", t, role))
		}
		if len(grants) > 0 {
			return fault.Config(fault.CodeGrantMissing, strings.Join(grants, " "), nil,
				"OUTBOXD_START=auto looks whether %s is empty, and role %q may not read it", t, conn.Config().User)
		}
	}
	return nil
}
