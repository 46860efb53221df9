package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// database is a Postgres of our own, in a folder of our own.
type database struct {
	url    string
	server *embeddedpostgres.EmbeddedPostgres
}

// startPostgres unpacks a Postgres into work and starts it. The archive is
// kept in cache; repository is where it is downloaded from, empty for the
// usual place. The log goes to a file in work.
func startPostgres(ctx context.Context, work, cache, repository string) (*database, error) {
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
	db := &database{
		url:    fmt.Sprintf("postgres://postgres:postgres@localhost:%d/shop?sslmode=disable", port),
		server: embeddedpostgres.NewDatabase(config),
	}
	started := make(chan error, 1)
	go func() { started <- db.server.Start() }()
	select {
	case err := <-started:
		return db, err
	case <-ctx.Done():
	}
	// A download or unpacking can be left behind, a server that starts can't.
	if _, err := os.Stat(filepath.Join(work, "postgres", "bin", "pg_ctl")); err == nil && <-started == nil {
		return nil, errors.Join(context.Cause(ctx), db.stop())
	}
	return nil, context.Cause(ctx)
}

// stop ends the server and closes all connections to it.
func (d *database) stop() error {
	if err := d.server.Stop(); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	return nil
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
