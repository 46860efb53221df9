package harness

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/load"
)

// Shape is one of the outbox tables that applications have.
type Shape int

// The shapes.
const (
	Plain    Shape = iota // serial id, aggregate_type, …, published_at, retry_count
	Debezium              // uuid, aggregatetype, aggregateid, type, payload
	Binary                // the same with BINARY(16) ids, not on Postgres
	Laravel               // event_type, payload, status, attempts, …: no aggregates, not on Postgres
)

func (s Shape) String() string { return [...]string{"plain", "debezium", "binary", "laravel"}[s] }

// Load is the table as the load writes it.
func (s Shape) Load() load.Table {
	return [...]load.Table{load.Outbox, load.Debezium, load.Binary, load.Laravel}[s]
}

// Checker is the table as the checker reads it.
func (s Shape) Checker() checker.Table {
	return [...]checker.Table{checker.Outbox, checker.Debezium, checker.Debezium, checker.Laravel}[s]
}

// Database is a fresh database of one server, for one test. What was made in it,
// and what was made on the server for it, is removed at the test's end.
type Database interface {
	// Service is the server's name for Ctl: postgres17.
	Service() string
	// Addr is the server's host:port.
	Addr() string
	// URL is what the product is given. user is "cdc", which may do all the
	// product needs, or "norights".
	URL(user string) string
	// SQL is the application's access.
	SQL() *sql.DB
	// Dialect is what SQL speaks.
	Dialect() load.Dialect
	// CreateOutbox makes the table "outbox" of that shape.
	CreateOutbox(t testing.TB, s Shape)
	// Truth reads the committed events of the outbox table.
	Truth(t testing.TB, table checker.Table) []checker.Event
	// EndReaders ends the connections that read the log of this database, as an administrator would, and
	// returns how many there were.
	EndReaders(t testing.TB) int
}

// NewDatabase makes a database on a service: postgres15 to postgres18, postgres15-replica, mysql,
// mysql-nogtid, mysql-nobinlog, mariadb1011, mariadb118.
func NewDatabase(t testing.TB, service string) Database {
	t.Helper()
	if strings.HasPrefix(service, "postgres") {
		return NewPostgres(t, service)
	}
	return NewMySQL(t, service)
}
