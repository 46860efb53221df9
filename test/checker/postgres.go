package checker

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Table says how an outbox table is read and where its events belong.
type Table struct {
	Name          string // as SQL has it
	ID            string
	AggregateType string
	AggregateID   string
	EventType     string
	Payload       string
	Seq           string // expression: commit order within the aggregate
	TopicPrefix   string // the topic is this and the aggregate type
}

// Outbox is the plain table of application teams, Debezium the one of its
// Outbox Event Router. Both carry the commit order as member "seq" of the payload.
var (
	Outbox = Table{
		Name: "outbox", ID: "id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Seq: "(payload->>'seq')::bigint", TopicPrefix: "outbox.event.",
	}
	Debezium = Table{
		Name: "outbox", ID: "id", AggregateType: "aggregatetype", AggregateID: "aggregateid", EventType: "type",
		Payload: "payload", Seq: "(payload->>'seq')::bigint", TopicPrefix: "outbox.event.",
	}
)

// ReadPostgres returns every row of the table as the event it must become, each
// column as the server's own output function writes it.
func ReadPostgres(ctx context.Context, conn *pgx.Conn, t Table) ([]Event, error) {
	query := fmt.Sprintf("SELECT %s::text, %s::text, %s::text, %s::text, %s::text, %s FROM %s",
		t.ID, t.AggregateType, t.AggregateID, t.EventType, t.Payload, t.Seq, t.Name)
	rows, err := conn.Query(ctx, query)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Event, error) {
		var (
			id, aggregateType, aggregateID, eventType string
			payload                                   *string
			seq                                       int64
		)
		if err := row.Scan(&id, &aggregateType, &aggregateID, &eventType, &payload, &seq); err != nil {
			return Event{}, err
		}
		e := Event{
			Topic: t.TopicPrefix + aggregateType, Key: []byte(aggregateID), Seq: seq, ID: []byte(id),
			Headers: []Header{{"id", []byte(id)}, {"eventType", []byte(eventType)}, {"aggregateType", []byte(aggregateType)}},
		}
		if payload != nil {
			e.Value = []byte(*payload)
		}
		return e, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Name, err)
	}
	return events, nil
}
