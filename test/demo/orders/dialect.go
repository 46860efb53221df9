package orders

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// Dialect is what the service says differently to each database.
type Dialect struct {
	// Schema makes the tables orders and outbox in an empty database.
	Schema string

	numbered bool // parameters are $1, $2, … instead of ?
	insert   func(ctx context.Context, tx *sql.Tx, statement string, args ...any) (id int64, err error)
}

//go:embed postgres.sql
var postgresSchema string

//go:embed mysql.sql
var mysqlSchema string

// The databases that the service knows; MariaDB is spoken to as MySQL is.
var (
	Postgres = Dialect{Schema: postgresSchema, numbered: true, insert: insertReturning}
	MySQL    = Dialect{Schema: mysqlSchema, insert: insertLast}
)

func insertReturning(ctx context.Context, tx *sql.Tx, statement string, args ...any) (id int64, err error) {
	err = tx.QueryRowContext(ctx, statement+" RETURNING id", args...).Scan(&id)
	return id, err
}

func insertLast(ctx context.Context, tx *sql.Tx, statement string, args ...any) (int64, error) {
	done, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return done.LastInsertId()
}

// bind gives a statement's parameters, which are written as ?, their form.
func (d Dialect) bind(statement string) string {
	for n := 1; d.numbered && strings.Contains(statement, "?"); n++ {
		statement = strings.Replace(statement, "?", "$"+strconv.Itoa(n), 1)
	}
	return statement
}

// transaction runs do in a transaction, which is committed only if do returns nil.
func transaction(ctx context.Context, db *sql.DB, do func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // of no effect after a commit
	if err := do(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
