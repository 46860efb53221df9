// Package mysqlsource runs the MySQL source against real servers: the contract
// every source must pass, and what only a server can show.
package mysqlsource

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/source/sourcetest"
	"github.com/outboxd/outboxd/test/harness"
)

var servers = []string{"mysql", "mysql-nogtid", "mariadb1011", "mariadb118"}

// eachServer runs test on every server.
func eachServer(t *testing.T, test func(t *testing.T, server string)) {
	for _, server := range servers {
		t.Run(server, func(t *testing.T) { test(t, server) })
	}
}

const patience = 30 * time.Second

// database is a database of the test's own.
type database struct {
	name string
	addr string
	db   *sql.DB
}

func newDatabase(t testing.TB, server, table string) database {
	t.Helper()
	address := harness.Need(t, "OUTBOXD_TEST_"+strings.ToUpper(strings.ReplaceAll(server, "-", "_")))
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	d := database{name: harness.Unique("test_"), addr: u.Host}
	admin, err := sql.Open("mysql", u.User.Username()+"@tcp("+u.Host+")/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Exec("CREATE DATABASE " + d.name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = admin.Exec("DROP DATABASE " + d.name)
		_ = admin.Close()
	})
	d.db, err = sql.Open("mysql", u.User.Username()+"@tcp("+u.Host+")/"+d.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.db.Close() })
	d.exec(t, table)
	return d
}

func (d database) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := d.db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (d database) config() mysql.Config {
	return mysql.Config{
		URL: fmt.Sprintf("mysql://cdc:cdc-pw@%s/%s", d.addr, d.name), Name: strings.ReplaceAll(d.name, "_", "-"),
		Tables: []mysql.TableName{{Name: "outbox"}},
	}
}

func newSource(t testing.TB, c mysql.Config) *mysql.Source {
	t.Helper()
	s, err := mysql.New(c, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d database) write(t *testing.T, commit bool, ids ...string) {
	t.Helper()
	tx, err := d.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := tx.Exec(`INSERT INTO outbox VALUES (?, 'a', '{"n": 1}')`, id); err != nil {
			t.Fatal(err)
		}
	}
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}

const small = `CREATE TABLE outbox (id BIGINT, aggregate_id VARCHAR(255), payload JSON)`

func TestContract(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Subject {
			d := newDatabase(t, server, small)
			return sourcetest.Subject{
				New:      func(t *testing.T) source.Source { return newSource(t, d.config()) },
				Commit:   func(t *testing.T, ids ...string) { d.write(t, true, ids...) },
				Rollback: func(t *testing.T, ids ...string) { d.write(t, false, ids...) },
			}
		})
	})
}

// take takes the lease for the rest of the test.
func take(t testing.TB, s *mysql.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
}

// begin takes the lease for the rest of the test and makes the first place.
func begin(t testing.TB, s *mysql.Source) source.Position {
	t.Helper()
	take(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	at, err := s.Begin(ctx, source.First{Mode: source.StartAuto})
	if err != nil {
		t.Fatal(err)
	}
	return at
}
