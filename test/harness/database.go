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

// The two shapes.
const (
	Plain    Shape = iota // serial id, aggregate_type, …, published_at, retry_count
	Debezium              // uuid, aggregatetype, aggregateid, type, payload
)

func (s Shape) String() string { return [...]string{"plain", "debezium"}[s] }

// Load is the table as the load writes it.
func (s Shape) Load() load.Table { return [...]load.Table{load.Outbox, load.Debezium}[s] }

// Checker is the table as the checker reads it.
func (s Shape) Checker() checker.Table {
	return [...]checker.Table{checker.Outbox, checker.Debezium}[s]
}

// Database is a fresh database of one server, for one test. What was made in it,
// and what was made on the server for it, is removed at the test's end.
type Database interface {
	// Service is the server's name for Ctl: postgres17.
	Service() string
	// URL is what the product is given. user is "cdc", which may do all the
	// product needs, or "norights".
	URL(user string) string
	// SQL is the application's access.
	SQL() *sql.DB
	// CreateOutbox makes the table "outbox" of that shape.
	CreateOutbox(t testing.TB, s Shape)
	// Truth reads the committed events of the table "outbox".
	Truth(t testing.TB, s Shape) []checker.Event
	// EndReaders ends the connections that read the log of this database, as an administrator would, and
	// returns how many there were.
	EndReaders(t testing.TB) int
	// Retained is how many bytes of log the server keeps for readers of this database.
	Retained(t testing.TB) int64
}

// NewDatabase makes a database on a service: postgres15 to postgres18, postgres15-replica.
func NewDatabase(t testing.TB, service string) Database {
	t.Helper()
	if strings.HasPrefix(service, "postgres") {
		return NewPostgres(t, service)
	}
	t.Fatalf("no such kind of database: %s", service)
	return nil
}
