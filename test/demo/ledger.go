package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// row is one committed row of the outbox, as the database has it.
type row struct {
	ID          int64
	AggregateID string
	EventType   string
	Payload     string // as the server prints it
}

// ledger asks the database what is true. Of outboxd it knows only that the one
// replication slot of this server is outboxd's.
type ledger struct{ db *pgxpool.Pool }

// committed returns all rows of the outbox by id. Within one order that is
// commit order, since the service locks the order before it writes.
func (l ledger) committed(ctx context.Context) ([]row, error) {
	rows, err := l.db.Query(ctx, `SELECT id, aggregate_id, event_type, payload::text FROM outbox ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("read the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[row])
}

// rolledBack returns the ids that were given out and are not in the table:
// a sequence does not take part in a rollback.
func (l ledger) rolledBack(ctx context.Context) ([]int64, error) {
	rows, err := l.db.Query(ctx, `
		SELECT given FROM outbox_id_seq, generate_series(1, last_value) AS given
		WHERE NOT EXISTS (SELECT FROM outbox WHERE id = given)`)
	if err != nil {
		return nil, fmt.Errorf("read the sequence of the outbox: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// sighting says which rows were committed when the log had reached lsn.
type sighting struct {
	lsn int64
	ids []int64
}

// watch notes what is committed, ten times a second, until ctx ends. The end
// of the log is read after the rows are, so each of them lies before it.
func (l ledger) watch(ctx context.Context, saw func(sighting)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		var s sighting
		err := l.db.QueryRow(ctx, `
			WITH seen AS MATERIALIZED (SELECT array_agg(id) AS ids FROM outbox)
			SELECT coalesce(ids, '{}'), (pg_current_wal_insert_lsn() - '0/0')::bigint FROM seen`).Scan(&s.ids, &s.lsn)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read the end of the log: %w", err)
		}
		saw(s)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// confirmed waits until the slot is left by its reader and returns how far
// that reader had confirmed. What lies before must never come again.
func (l ledger) confirmed(ctx context.Context) (int64, error) {
	for {
		var active bool
		var lsn int64
		err := l.db.QueryRow(ctx, `
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
