package checker

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
)

// ReadMySQL returns every row of the table as the event it must become: text and
// numbers as MySQL or MariaDB prints them in utf8mb4, BINARY as its bytes.
func ReadMySQL(ctx context.Context, db *sql.DB, t Table) ([]Event, error) {
	query := fmt.Sprintf("SELECT %s, %s, %s, %s, CAST(%s AS CHAR CHARACTER SET utf8mb4), CAST(JSON_VALUE(%s, '$.seq') AS SIGNED) FROM %s",
		t.ID, cmp.Or(t.AggregateType, "''"), t.AggregateID, t.EventType, t.Payload, t.Payload, t.Name)
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	defer func() { _ = rows.Close() }()
	var events []Event
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.aggregateType, &r.aggregateID, &r.eventType, &r.payload, &r.seq); err != nil {
			return nil, fmt.Errorf("read %s: %w", t.Name, err)
		}
		events = append(events, t.event(r))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	return events, nil
}
