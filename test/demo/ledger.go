package main

import (
	"context"
	"time"

	"github.com/outboxd/outboxd/test/demo/orders"
)

// database is a real database of our own that knows what is true.
type database interface {
	// url is what outboxd is given.
	url() string
	// shop is the order service on it.
	shop() *orders.Service
	// committed returns all rows of the outbox by id. Within one order that is
	// commit order, since the service locks the order before it writes.
	committed(ctx context.Context) ([]row, error)
	// rolledBack returns the ids that were given out and are not in the table:
	// a counter does not take part in a rollback.
	rolledBack(ctx context.Context) ([]int64, error)
	// sight returns the rows that are committed and a place in the log behind all of them.
	sight(ctx context.Context) (sighting, error)
	// confirmed returns the place up to which outboxd, which was killed, had
	// confirmed. What lies before must never come again. checkpoint tells its stored position.
	confirmed(ctx context.Context, checkpoint func(context.Context) (string, error)) (int64, error)
	// stop closes all connections, and ends the server if it was started here.
	stop() error
}

// row is one committed row of the outbox, as the database has it.
type row struct {
	ID          int64
	AggregateID string
	EventType   string
	Payload     string // as the server prints it
}

// sighting says which rows were committed when the log had reached a place.
type sighting struct {
	place int64
	ids   []int64
}

// watch notes what is committed, ten times a second, until ctx ends.
func watch(ctx context.Context, db database, saw func(sighting)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s, err := db.sight(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		saw(s)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
