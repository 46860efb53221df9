package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxd/outboxd/test/demo/orders"
)

// postgres is a Postgres of our own, in a folder of our own.
type postgres struct {
	address string
	server  *embeddedpostgres.EmbeddedPostgres
	pool    *pgxpool.Pool
	db      *sql.DB
}

// startPostgres unpacks a Postgres into work, starts it and makes the tables. The
// archive is kept in cache; repository is where it is downloaded from, empty for
// the usual place. The log goes to a file in work.
func startPostgres(ctx context.Context, work, cache, repository string) (_ *postgres, err error) {
	forgetLibpq()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(work, "postgres.log"))
	if err != nil {
		return nil, err
	}
	config := embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.V18).
		Port(port).
		Database("shop").
		CachePath(cache).
		RuntimePath(filepath.Join(work, "postgres")).
		Locale("C").Encoding("UTF8").
		Logger(log).
		StartParameters(map[string]string{
			"wal_level":               "logical", // the one setting that outboxd needs
			"listen_addresses":        "localhost",
			"unix_socket_directories": "",
		})
	if repository != "" {
		config = config.BinaryRepositoryURL(repository)
	}
	p := &postgres{
		address: fmt.Sprintf("postgres://postgres:postgres@localhost:%d/shop?sslmode=disable", port),
		server:  embeddedpostgres.NewDatabase(config),
	}
	started := make(chan error, 1)
	go func() { started <- p.server.Start() }()
	select {
	case err := <-started:
		if err != nil {
			return nil, err
		}
		if err := p.open(ctx); err != nil {
			return nil, errors.Join(err, p.stop())
		}
		return p, nil
	case <-ctx.Done():
	}
	// A download or unpacking can be left behind, a server that starts can't.
	if _, err := os.Stat(filepath.Join(work, "postgres", "bin", "pg_ctl")); err == nil && <-started == nil {
		return nil, errors.Join(context.Cause(ctx), p.stop())
	}
	return nil, context.Cause(ctx)
}

func (p *postgres) open(ctx context.Context) (err error) {
	if p.pool, err = pgxpool.New(ctx, p.address); err != nil {
		return err
	}
	p.db = stdlib.OpenDBFromPool(p.pool)
	if _, err := p.db.ExecContext(ctx, orders.Postgres.Schema); err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

func (p *postgres) url() string           { return p.address }
func (p *postgres) shop() *orders.Service { return orders.New(p.db, orders.Postgres) }

func (p *postgres) stop() error {
	if p.db != nil {
		_ = p.db.Close()
	}
	if p.pool != nil {
		p.pool.Close()
	}
	if err := p.server.Stop(); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	return nil
}

func (p *postgres) committed(ctx context.Context) ([]row, error) {
	rows, err := p.pool.Query(ctx, `SELECT id, aggregate_id, event_type, payload::text FROM outbox ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
}

func (p *postgres) rolledBack(ctx context.Context) ([]int64, error) {
	rows, err := p.pool.Query(ctx, `
		SELECT given FROM outbox_id_seq, generate_series(1, last_value) AS given
		WHERE NOT EXISTS (SELECT FROM outbox WHERE id = given)`)
	if err != nil {
		return nil, fmt.Errorf("read the sequence of the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// sight reads the end of the log after the rows, so each of them lies before it.
func (p *postgres) sight(ctx context.Context) (s sighting, err error) {
	err = p.pool.QueryRow(ctx, `
		WITH seen AS MATERIALIZED (SELECT array_agg(id) AS ids FROM outbox)
		SELECT coalesce(ids, '{}'), (pg_current_wal_insert_lsn() - '0/0')::bigint FROM seen`).Scan(&s.ids, &s.place)
	if err != nil {
		return s, fmt.Errorf("read the end of the log: %w", err)
	}
	return s, nil
}

// confirmed asks the one replication slot of this server, once its reader has left it.
func (p *postgres) confirmed(ctx context.Context, _ func(context.Context) (string, error)) (int64, error) {
	for {
		var active bool
		var lsn int64
		err := p.pool.QueryRow(ctx, `
			SELECT active, (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots`).Scan(&active, &lsn)
		if err != nil {
			return 0, fmt.Errorf("read the replication slot: %w", err)
		}
		if !active {
			return lsn, nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
}

// forgetLibpq drops the settings by which clients would look for another server.
func forgetLibpq() {
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
}

// freePort finds a port on which nothing listens.
func freePort() (uint32, error) {
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return uint32(l.Addr().(*net.TCPAddr).Port), nil
}
