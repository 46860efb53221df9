// Package pgsource runs the Postgres source against real servers: the contract
// every source must pass, and what only a server can show.
package pgsource

import (
	"database/sql"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/source/sourcetest"
	"github.com/outboxd/outboxd/test/harness"
)

var servers = []string{"postgres15", "postgres16", "postgres17", "postgres18"}

// eachServer runs test on every version.
func eachServer(t *testing.T, test func(t *testing.T, server string)) {
	for _, server := range servers {
		t.Run(server, func(t *testing.T) { test(t, server) })
	}
}

// database is a database of the test's own with a small outbox table, owned by
// the role the source logs in with.
type database struct {
	*harness.Postgres
	slot string
}

func newDatabase(t *testing.T, server string) database {
	p := harness.NewPostgres(t, server)
	d := database{p, harness.Unique("slot")}
	p.Exec(t, `CREATE TABLE outbox (id bigint, aggregate_id text, payload jsonb)`)
	p.Exec(t, `ALTER TABLE outbox OWNER TO cdc`)
	return d
}

func (d database) config() postgres.Config {
	return postgres.Config{
		URL: d.URL("cdc"), Name: d.slot, Tables: []postgres.TableName{{Name: "outbox"}},
		Slot: d.slot, Publication: d.slot, AutoSetup: true,
	}
}

func newSource(t *testing.T, c postgres.Config) *postgres.Source {
	t.Helper()
	s, err := postgres.New(c, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d database) write(t *testing.T, commit bool, ids ...string) {
	t.Helper()
	tx, err := d.SQL().BeginTx(t.Context(), &sql.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := tx.Exec(`INSERT INTO outbox VALUES ($1::text::bigint, 'a', '{"n": 1}')`, id); err != nil {
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

func TestContract(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		sourcetest.Run(t, func(t *testing.T) sourcetest.Subject {
			d := newDatabase(t, server)
			return sourcetest.Subject{
				KeepsPlace: true,
				New:        func(t *testing.T) source.Source { return newSource(t, d.config()) },
				Commit:     func(t *testing.T, ids ...string) { d.write(t, true, ids...) },
				Rollback:   func(t *testing.T, ids ...string) { d.write(t, false, ids...) },
			}
		})
	})
}
