package checker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// ReadPostgres returns every row of the table as the event it must become, each
// column as the server's own output function writes it.
func ReadPostgres(ctx context.Context, conn *pgx.Conn, t Table) ([]Event, error) {
	query := fmt.Sprintf("SELECT %s::text, %s::text, %s::text, %s::text, %s::text, (%s->>'seq')::bigint FROM %s",
		t.ID, t.AggregateType, t.AggregateID, t.EventType, t.Payload, t.Payload, t.Name)
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	events, err := pgx.CollectRows(rows, func(found pgx.CollectableRow) (Event, error) {
		var r row
		err := found.Scan(&r.id, &r.aggregateType, &r.aggregateID, &r.eventType, &r.payload, &r.seq)
		return t.event(r), err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	return events, nil
}
