package harness

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/load"
)

// Postgres is a database on a Postgres server.
type Postgres struct {
	Name    string
	service string
	admin   *url.URL // superuser, database postgres
	db      *sql.DB
}

var postgresOutbox = map[Shape]string{
	Plain: `CREATE TABLE outbox (
		id BIGSERIAL PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL,
		event_type VARCHAR(255) NOT NULL, payload JSONB NOT NULL, created_at TIMESTAMP DEFAULT NOW(),
		published_at TIMESTAMP, retry_count INT DEFAULT 0)`,
	Debezium: `CREATE TABLE outbox (
		id UUID NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
		type VARCHAR(255) NOT NULL, payload JSONB)`,
}

// NewPostgres makes a database that belongs to the role cdc.
func NewPostgres(t testing.TB, service string) *Postgres {
	t.Helper()
	address := Need(t, variable(service))
	admin, err := url.Parse(address)
	if err != nil {
		t.Fatalf("address of %s: %v", service, err)
	}
	p := &Postgres{Name: Unique("test_"), service: service, admin: admin}
	conn := p.connect(t, admin)
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+p.Name+" OWNER cdc"); err != nil {
		t.Fatalf("create database on %s: %v", service, err)
	}
	t.Cleanup(func() { p.remove(t) })
	if p.db, err = sql.Open("pgx", p.at(p.admin.User, p.Name)); err != nil {
		t.Fatal(err)
	}
	p.db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = p.db.Close() })
	return p
}

// at is the URL of a database for a user.
func (p *Postgres) at(user *url.Userinfo, database string) string {
	u := *p.admin
	u.User, u.Path = user, "/"+database
	return u.String()
}

// Service implements Database.
func (p *Postgres) Service() string { return p.service }

// URL implements Database.
func (p *Postgres) URL(user string) string { return p.at(url.UserPassword(user, user+"-pw"), p.Name) }

// Addr implements Database.
func (p *Postgres) Addr() string { return p.admin.Host }

// SQL implements Database.
func (p *Postgres) SQL() *sql.DB { return p.db }

// Dialect implements Database.
func (p *Postgres) Dialect() load.Dialect { return load.Postgres }

// CreateOutbox implements Database.
func (p *Postgres) CreateOutbox(t testing.TB, s Shape) {
	t.Helper()
	if postgresOutbox[s] == "" {
		t.Fatalf("there is no table of shape %s for Postgres", s)
	}
	p.Exec(t, postgresOutbox[s])
	p.Exec(t, "ALTER TABLE outbox OWNER TO cdc")
}

// Exec runs a statement as the superuser.
func (p *Postgres) Exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := p.db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%.80s: %v", statement, err)
	}
}

// Int runs a query that gives one number.
func (p *Postgres) Int(t testing.TB, query string, args ...any) int64 {
	t.Helper()
	var n sql.NullInt64
	if err := p.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%.80s: %v", query, err)
	}
	return n.Int64
}

// Truth implements Database.
func (p *Postgres) Truth(t testing.TB, table checker.Table) []checker.Event {
	t.Helper()
	u, err := url.Parse(p.at(p.admin.User, p.Name))
	if err != nil {
		t.Fatal(err)
	}
	events, err := checker.ReadPostgres(t.Context(), p.connect(t, u), table)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// EndReaders implements Database.
func (p *Postgres) EndReaders(t testing.TB) int {
	t.Helper()
	return int(p.Int(t, `SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots
		WHERE database = current_database() AND active_pid IS NOT NULL`))
}

// Retained is how many bytes of log the server keeps for readers of this database.
func (p *Postgres) Retained(t testing.TB) int64 {
	t.Helper()
	return p.Int(t, `SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn))::bigint
		FROM pg_replication_slots WHERE database = current_database()`)
}

// connect waits for a server that was just started.
func (p *Postgres) connect(t testing.TB, u *url.URL) *pgx.Conn {
	t.Helper()
	var conn *pgx.Conn
	var err error
	within(30*time.Second, func() bool {
		conn, err = pgx.Connect(context.Background(), u.String())
		return err == nil
	})
	if err != nil {
		t.Fatalf("connect to %s: %v", p.service, err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// remove drops the database's slots and the database.
func (p *Postgres) remove(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.admin.String())
	if err != nil {
		t.Errorf("remove %s: %v", p.Name, err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	const mine = "FROM pg_replication_slots WHERE database = $1"
	ok := within(Patience, func() bool {
		if _, err = conn.Exec(ctx, "SELECT pg_terminate_backend(active_pid) "+mine+" AND active_pid IS NOT NULL", p.Name); err != nil {
			return false
		}
		_, err = conn.Exec(ctx, "SELECT pg_drop_replication_slot(slot_name) "+mine, p.Name)
		return err == nil
	})
	if ok {
		_, err = conn.Exec(ctx, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", p.Name))
	}
	if err != nil {
		t.Errorf("remove %s: %v", p.Name, err)
	}
}
