package harness

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
)

// Standby starts a replica of m's server, which follows it by GTID from here on, and gives m's
// database there: its account and its tables, without the rows that were in them.
// It is read-only until it is promoted, and thrown away at the end of the test.
func (m *MySQL) Standby(t testing.TB) *MySQL {
	t.Helper()
	service := m.service + "-standby"
	address, err := url.Parse(Need(t, variable(service)))
	if err != nil {
		t.Fatalf("address of %s: %v", service, err)
	}
	s := &MySQL{Name: m.Name, service: service, addr: address.Host, admin: address.User.Username()}
	t.Cleanup(func() {
		Ctl(t, "stop", service)
		Ctl(t, "wipe", service)
	})
	Ctl(t, "wipe", service)
	Ctl(t, "start", service)
	server := s.open(t, "")
	session := func(statements ...string) {
		t.Helper()
		c, err := server.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		for _, statement := range statements {
			if _, err := c.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%.200s: %v", statement, err)
			}
		}
	}
	session(append([]string{"SET SESSION sql_log_bin = 0", "CREATE DATABASE " + m.Name}, append(m.account(), m.tables(t)...)...)...)
	session(m.following(t)...)
	s.db = s.open(t, m.Name)
	return s
}

// tables are the statements that make m's tables.
func (m *MySQL) tables(t testing.TB) (statements []string) {
	t.Helper()
	statements = append(statements, "USE "+m.Name)
	rows, err := m.db.QueryContext(t.Context(), "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", m.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, statement string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if err := m.db.QueryRowContext(t.Context(), "SHOW CREATE TABLE `"+name+"`").Scan(&name, &statement); err != nil {
			t.Fatal(err)
		}
		statements = append(statements, statement)
	}
	return statements
}

// following are the statements by which a fresh server follows m's from its log's end.
func (m *MySQL) following(t testing.TB) []string {
	t.Helper()
	host, port, err := net.SplitHostPort(m.addr)
	if err != nil {
		t.Fatal(err)
	}
	if m.mariadb() {
		return []string{
			"RESET MASTER", fmt.Sprintf("SET GLOBAL gtid_slave_pos = '%s'", m.value(t, "SELECT @@global.gtid_binlog_pos")),
			fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = '%s', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, MASTER_SSL = 0", host, port, m.admin),
			"START SLAVE", "SET GLOBAL read_only = ON",
		}
	}
	return []string{
		"RESET BINARY LOGS AND GTIDS", fmt.Sprintf("SET GLOBAL gtid_purged = '%s'", m.value(t, "SELECT @@global.gtid_executed")),
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = '%s', SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1", host, port, m.admin),
		"START REPLICA", "SET GLOBAL read_only = ON",
	}
}

// Follow waits until the standby has all that m's server has committed so far.
func (m *MySQL) Follow(t testing.TB, standby *MySQL) {
	t.Helper()
	query := "SELECT @@global.gtid_executed"
	if m.mariadb() {
		query = "SELECT @@global.gtid_binlog_pos"
	}
	end := m.value(t, query)
	Eventually(t, "the standby follows", func() bool {
		if m.mariadb() {
			return standby.value(t, query) == end
		}
		var has bool
		return standby.db.QueryRow("SELECT GTID_SUBSET(?, @@global.gtid_executed)", end).Scan(&has) == nil && has
	})
}

// Promote makes a primary of a standby.
func (m *MySQL) Promote(t testing.TB) {
	t.Helper()
	if m.mariadb() {
		m.Exec(t, "STOP SLAVE")
		m.Exec(t, "RESET SLAVE ALL")
	} else {
		m.Exec(t, "STOP REPLICA")
		m.Exec(t, "RESET REPLICA ALL")
	}
	m.Exec(t, "SET GLOBAL read_only = OFF")
}

// StopFollowing lets a standby get no more of its primary's log.
func (m *MySQL) StopFollowing(t testing.TB) {
	t.Helper()
	if m.mariadb() {
		m.Exec(t, "STOP SLAVE")
		return
	}
	m.Exec(t, "STOP REPLICA")
}

func (m *MySQL) mariadb() bool { return strings.HasPrefix(m.service, "mariadb") }

// value is the text of a query's one field.
func (m *MySQL) value(t testing.TB, query string) string {
	t.Helper()
	var v sql.NullString
	if err := m.db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%.200s: %v", query, err)
	}
	return v.String
}
