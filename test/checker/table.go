package checker

// Table says how an outbox table is read and where its events belong. The
// payload's member "seq" is the commit order within the aggregate.
type Table struct {
	Name          string // as SQL has it
	ID            string
	AggregateType string // empty: there is none, all events belong to Topic
	AggregateID   string // any expression
	EventType     string
	Payload       string
	Topic         string // with AggregateType: what stands before it in the topic's name
}

// The tables of the tests: the plain one of application teams, the one of
// Debezium's Outbox Event Router, and one that knows no aggregates.
var (
	Outbox = Table{
		Name: "outbox", ID: "id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "event_type",
		Payload: "payload", Topic: "outbox.event.",
	}
	Debezium = Table{
		Name: "outbox", ID: "id", AggregateType: "aggregatetype", AggregateID: "aggregateid", EventType: "type",
		Payload: "payload", Topic: "outbox.event.",
	}
	Laravel = Table{
		Name: "outbox", ID: "id", AggregateID: "id", EventType: "event_type", Payload: "payload", Topic: "outbox.event.outbox",
	}
)

// row is one row as the server prints it; nil is NULL.
type row struct {
	id, aggregateType, aggregateID, eventType, payload []byte
	seq                                                int64
}

// event is what the row must become.
func (t Table) event(r row) Event {
	e := Event{
		Topic: t.Topic + string(r.aggregateType), Key: r.aggregateID, Seq: r.seq, ID: r.id, Value: r.payload,
		Headers: []Header{{"id", r.id}, {"eventType", r.eventType}},
	}
	if t.AggregateType != "" {
		e.Headers = append(e.Headers, Header{"aggregateType", r.aggregateType})
	}
	return e
}
