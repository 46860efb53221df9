package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/internal/fault"
)

// connConfig is the configuration common to all our connections.
func (s *Source) connConfig() (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(s.cfg.URL)
	if err != nil { // pgx masks the password in this error
		return nil, fault.Config(fault.CodeConfig, "OUTBOXD_SOURCE_URL is postgres://user@host:5432/database with libpq's parameters", err, "the source URL can't be used")
	}
	if s.cfg.User != "" {
		c.User = s.cfg.User
	}
	if s.cfg.Password != nil {
		password, err := s.cfg.Password()
		if err != nil {
			return nil, fmt.Errorf("read the source password: %w", err)
		}
		if password != "" {
			c.Password = password
		}
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	c.RuntimeParams["application_name"] = s.applicationName()
	if err := onlyPrimary(c, s.cfg.URL); err != nil {
		return nil, err
	}
	s.pin(c)
	return c, nil
}

func (s *Source) applicationName() string { return "outboxd/" + s.cfg.Name }

// connect opens a session for SQL.
func (s *Source) connect(ctx context.Context, params map[string]string) (*pgx.Conn, error) {
	c, err := s.connConfig()
	if err != nil {
		return nil, err
	}
	for k, v := range params {
		c.RuntimeParams[k] = v
	}
	conn, err := pgx.ConnectConfig(ctx, c)
	if hasCode(err, "42501") {
		return nil, fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT CONNECT ON DATABASE %s TO %s", quote(c.Database), quote(c.User)), err,
			"role %q may not connect to database %q", c.User, c.Database)
	}
	if err != nil {
		return nil, s.explainConnect(&c.Config, fmt.Errorf("connect: %w", err))
	}
	return conn, nil
}

// connectReplication opens a replication session. The text of values is fixed
// by this session's settings, not by the writer's.
func (s *Source) connectReplication(ctx context.Context) (*pgconn.PgConn, error) {
	c, err := s.connConfig()
	if err != nil {
		return nil, err
	}
	for k, v := range textSettings() {
		c.RuntimeParams[k] = v
	}
	c.RuntimeParams["replication"] = "database"
	// PostgreSQL 18 tells of rows it skips by a warning alone, and a role may have silenced those.
	c.RuntimeParams["client_min_messages"] = "notice"
	c.RuntimeParams["wal_sender_timeout"] = fmt.Sprintf("%dms", senderTimeout.Milliseconds())
	conn, err := pgconn.ConnectConfig(ctx, &c.Config)
	if err != nil {
		if hasCode(err, "42501") {
			return nil, fault.Config(fault.CodeGrantMissing,
				fmt.Sprintf("as a superuser: ALTER ROLE %s REPLICATION", quote(c.User)),
				err, "role %q may not replicate", c.User)
		}
		return nil, s.explainConnect(&c.Config, fmt.Errorf("connect for replication: %w", err))
	}
	return conn, nil
}

// textSettings fix the text of values, for the log and for a first snapshot alike.
func textSettings() map[string]string {
	return map[string]string{
		"datestyle":          "ISO",
		"intervalstyle":      "postgres",
		"extra_float_digits": "3",
		"bytea_output":       "hex",
		"timezone":           "UTC",
		"client_encoding":    "UTF8",
	}
}

// identity tells one cluster and its history from another.
type identity struct {
	system   string // system identifier
	timeline int32
	database string
}

func (s *Source) identify(ctx context.Context, conn *pgconn.PgConn) (identity, error) {
	r, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return identity{}, s.explain(fmt.Errorf("identify system: %w", err))
	}
	return identity{system: r.SystemID, timeline: r.Timeline, database: r.DBName}, nil
}

// inFull adds what the server tells beside the message: for a slot that is where
// the cause stands. Any other error stays as it is.
func inFull(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Detail == "" {
		return err
	}
	return fmt.Errorf("%w: %s", pg, pg.Detail)
}

// hasCode reports whether err is the server's error with that SQLSTATE.
func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
}
