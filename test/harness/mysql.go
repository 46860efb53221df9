package harness

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/load"
)

// MySQL is a database on a MySQL or MariaDB server, with an account of its own
// that has the rights of cdc: by it the readers of this database are known, and
// what a test takes away from it is missed by nobody else.
type MySQL struct {
	Name    string // of the database, and of its account
	service string
	addr    string
	admin   string // the administrator's user
	db      *sql.DB
}

var mysqlOutbox = [...]string{
	Plain: `CREATE TABLE outbox (
		id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(255) NOT NULL, aggregate_id VARCHAR(255) NOT NULL,
		event_type VARCHAR(255) NOT NULL, payload JSON NOT NULL, created_at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3),
		published_at DATETIME(3) NULL, retry_count INT DEFAULT 0)`,
	Debezium: `CREATE TABLE outbox (
		id CHAR(36) NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid VARCHAR(255) NOT NULL,
		type VARCHAR(255) NOT NULL, payload JSON)`,
	Binary: `CREATE TABLE outbox (
		id BINARY(16) NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL, aggregateid BINARY(16) NOT NULL,
		type VARCHAR(255) NOT NULL, payload JSON)`,
	Laravel: `CREATE TABLE outbox (
		id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, event_type VARCHAR(255) NOT NULL, payload JSON NOT NULL,
		status ENUM('pending','processing','processed','failed') DEFAULT 'pending' NOT NULL,
		attempts TINYINT UNSIGNED DEFAULT 0 NOT NULL, created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
		processed_at DATETIME(3) NULL)`,
}

// NewMySQL makes a database and its account.
func NewMySQL(t testing.TB, service string) *MySQL {
	t.Helper()
	admin, err := url.Parse(Need(t, variable(service)))
	if err != nil {
		t.Fatalf("address of %s: %v", service, err)
	}
	m := &MySQL{Name: Unique("test_"), service: service, addr: admin.Host, admin: admin.User.Username()}
	server := m.open(t, "")
	var up error
	if !within(30*time.Second, func() bool { up = server.PingContext(t.Context()); return up == nil }) {
		t.Fatalf("connect to %s: %v", service, up)
	}
	t.Cleanup(func() { m.remove(t) })
	m.exec(t, server, "CREATE DATABASE "+m.Name)
	for _, statement := range m.account() {
		m.exec(t, server, statement)
	}
	m.db = m.open(t, m.Name)
	return m
}

// account are the statements that make the account.
func (m *MySQL) account() []string {
	return []string{
		fmt.Sprintf("CREATE USER %s IDENTIFIED BY 'cdc-pw'", m.Name),
		fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO %s", m.Name),
		fmt.Sprintf("GRANT SELECT ON %s.* TO %s", m.Name, m.Name),
	}
}

// open gives access as the administrator. It connects to nothing yet.
func (m *MySQL) open(t testing.TB, database string) *sql.DB {
	t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = m.admin, "tcp", m.addr, database
	cfg.InterpolateParams = true // one round trip a statement
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatalf("open %s: %v", m.service, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (m *MySQL) exec(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%.80s: %v", statement, err)
	}
}

// Service implements Database.
func (m *MySQL) Service() string { return m.service }

// Addr implements Database.
func (m *MySQL) Addr() string { return m.addr }

// URL implements Database.
func (m *MySQL) URL(user string) string {
	if user == "cdc" {
		user = m.Name + ":cdc-pw"
	} else {
		user += ":" + user + "-pw"
	}
	scheme, _, _ := strings.Cut(strings.TrimRight(m.service, "0123456789"), "-")
	return fmt.Sprintf("%s://%s@%s/%s", scheme, user, m.addr, m.Name)
}

// SQL implements Database.
func (m *MySQL) SQL() *sql.DB { return m.db }

// Dialect implements Database.
func (m *MySQL) Dialect() load.Dialect { return load.MySQL }

// CreateOutbox implements Database.
func (m *MySQL) CreateOutbox(t testing.TB, s Shape) {
	t.Helper()
	m.Exec(t, mysqlOutbox[s])
}

// Exec runs a statement as the administrator.
func (m *MySQL) Exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	m.exec(t, m.db, statement, args...)
}

// Truth implements Database.
func (m *MySQL) Truth(t testing.TB, table checker.Table) []checker.Event {
	t.Helper()
	events, err := checker.ReadMySQL(t.Context(), m.db, table)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// EndReaders implements Database.
func (m *MySQL) EndReaders(t testing.TB) int {
	t.Helper()
	return m.endConnections(t, m.db, "Binlog Dump%")
}

func (m *MySQL) endConnections(t testing.TB, db *sql.DB, command string) (ended int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = ? AND command LIKE ?", m.Name, command)
	if err != nil {
		t.Errorf("list the connections of %s: %v", m.Name, err)
		return 0
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Errorf("list the connections of %s: %v", m.Name, err)
			return ended
		}
		if _, err := db.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err == nil { // else it ended by itself
			ended++
		}
	}
	return ended
}

// LogFiles are the oldest and the newest binary log.
func (m *MySQL) LogFiles(t testing.TB) (oldest, newest string) {
	t.Helper()
	rows, err := m.db.QueryContext(t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		t.Fatalf("list the binary logs: %v", err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	into := make([]any, len(columns)) // MySQL has one more than MariaDB
	for i := range into {
		into[i] = new(any)
	}
	into[0] = &newest
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		oldest = cmp.Or(oldest, newest)
	}
	return oldest, newest
}

// PurgeLogs throws away what is in the binary logs. Nobody else may read them now.
func (m *MySQL) PurgeLogs(t testing.TB) {
	t.Helper()
	m.Exec(t, "FLUSH BINARY LOGS")
	_, newest := m.LogFiles(t)
	m.PurgeLogsTo(t, newest)
}

// PurgeLogsTo throws away what is in the binary logs before file. A server keeps
// what it believes to be read, and notices late that a reader is gone.
func (m *MySQL) PurgeLogsTo(t testing.TB, file string) {
	t.Helper()
	Eventually(t, "the logs are purged", func() bool {
		m.EndReaders(t)
		m.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
		oldest, _ := m.LogFiles(t)
		return oldest == file
	})
}

// remove drops the account, what is connected with it, and the database.
func (m *MySQL) remove(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	db := m.open(t, "")
	for _, statement := range []string{"DROP USER IF EXISTS " + m.Name, "DROP DATABASE IF EXISTS " + m.Name} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Errorf("remove %s: %v", m.Name, err)
		}
	}
	m.endConnections(t, db, "%")
}
