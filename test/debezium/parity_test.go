package debezium

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/transform"
)

// deviations are all the ways in which outboxd's record may differ from
// Debezium's, each with the reason; docs/debezium.md tells them to users.
var deviations = map[string]string{
	"null payload":       "NULL without the tombstone option is a tombstone by accident with StringConverter and the text null with JsonConverter; ours is refused",
	"null key":           "a NULL aggregate id has no key; JsonConverter makes the text null of it, one partition for all. Ours is refused, keyed by id, or has no key, as OUTBOXD_ON_NULL_KEY says",
	"lost bytes":         "StringConverter prints the Java object of a bytes payload; ours is the bytes",
	"no such converter":  "BinaryDataConverter and ByteArrayConverter fail on text; ours is the text's bytes",
	"timestamp":          "only three of the time types are taken; ours takes every one and numbers",
	"no point in time":   "a time before 1970 has the timestamp -1, which the producer refuses; ours has the time, which the sink refuses",
	"partition":          "only 32-bit integers are taken; ours takes every integer",
	"negative partition": "is found by the producer, which fails; ours is refused, and named",
	"route type":         "only strings are taken as a route; ours takes every column's text",
	"null route":         "a NullPointerException; ours is refused, and named",
	"empty route":        "gives the topic outbox.event. ; ours is refused",
	"missing column":     "fails with the first event; ours at the start, with the columns there are",
	"two headers":        "a name twice makes two headers; ours is one when it is the same column, else refused at the start",
	"expanded":           "expanding parses, infers a schema and prints anew, or fails; ours is the text as the server prints it",
	"schema name":        "the second aggregate type gets the schema name of the first; ours has its own",
	"bad placement":      "a NullPointerException with the first event; ours is refused at the start",
	"run id":             "a random id of the connector's run is in a fourth header; ours is the three that stay the same",
}

// parity is one row, with what Debezium and outboxd are told about it.
type parity struct {
	name     string
	question question
	// deviates names the deviation; "" means that nothing differs. Then instead is what outboxd
	// gives: the record, or what a refusal says.
	deviates, instead string
}

const committed = 1700000000123

// kinds are the columns' types: the server's names, and in Router.java's words.
var kinds = map[string]string{
	"varchar": "string", "text": "string", "smallint": "int16", "integer": "int32", "bigint": "int64", "real": "float32", "double precision": "float64",
	"boolean": "boolean", "bytea": "bytes", "jsonb": "json", "uuid": "uuid", "numeric(10,2)": "decimal:10:2", "numeric(20,0)": "decimal:20:0", "date": "date", "time without time zone": "time",
	"timestamp(3) without time zone": "timestamp", "timestamp without time zone": "microtimestamp", "timestamp with time zone": "zoned",
}

func kindOf(server string) source.Kind {
	switch base, _, _ := strings.Cut(server, "("); base {
	case "jsonb":
		return source.JSON
	case "bytea":
		return source.Bytes
	case "boolean":
		return source.Boolean
	case "smallint", "integer", "bigint", "real", "double precision", "numeric":
		return source.Number
	case "date", "time without time zone", "timestamp", "timestamp without time zone", "timestamp with time zone":
		return source.Time
	}
	return source.Text
}

// col makes a column; null is NULL, and a type with ! is NOT NULL.
func col(name, server, value string) column {
	server, notNull := strings.CutSuffix(server, "!")
	c := column{Name: name, Type: kinds[server], NotNull: notNull, server: server}
	if value != null {
		c.Value = []byte(value)
	}
	return c
}

const null = "\x00null"

// row is a question with the usual columns, which columns of the same name replace.
func row(options string, columns ...column) question {
	q := question{
		Options: map[string]string{}, Key: "string", Value: "string", Header: "simple", Schema: "public", Table: "outbox", At: committed, Context: [][2]string{},
		Columns: []column{
			col("id", "uuid!", "406c07f3-26f0-4eea-a50c-109940064b8f"), col("aggregatetype", "varchar!", "Order"), col("aggregateid", "varchar!", "1"),
			col("type", "varchar!", "OrderCreated"), col("payload", "jsonb", `{"id": 1, "amount": 10.50}`),
		},
	}
	for o := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(o, "=")
		q.Options[name] = value
	}
	for _, c := range columns {
		if i := slices.IndexFunc(q.Columns, func(o column) bool { return o.Name == c.Name }); i >= 0 {
			q.Columns[i] = c
		} else {
			q.Columns = append(q.Columns, c)
		}
	}
	return q
}

func (q question) with(key, value, header string) question {
	q.Key, q.Value, q.Header = key, value, header
	return q
}

// config is outboxd's for the same.
func (q question) config() transform.Config {
	formats := map[string]transform.Format{"json": transform.FormatConnectJSON, "json-schema": transform.FormatConnectJSONSchema, "simple": transform.FormatConnect}
	option := func(name, otherwise string) string {
		if v, ok := q.Options[name]; ok {
			return v
		}
		return otherwise
	}
	c := transform.Config{
		Columns: transform.Columns{
			ID: option("table.field.event.id", "id"), AggregateID: option("table.field.event.key", "aggregateid"), AggregateType: "aggregatetype",
			Payload: option("table.field.event.payload", "payload"), Timestamp: option("table.field.event.timestamp", ""), SchemaVersion: option("table.field.event.schema.version", ""),
		},
		Headers:          []transform.Header{{Name: "id"}},
		IgnoreMissing:    option("table.field.additional.missing", "error") == "ignore",
		Route:            transform.Route{By: option("route.by.field", "aggregatetype"), Regex: option("route.topic.regex", ""), Replacement: option("route.topic.replacement", "")},
		TombstoneOnEmpty: option("route.tombstone.on.empty.payload", "false") == "true",
		ExpandJSON:       option("table.expand.json.payload", "false") == "true",
		KeyFormat:        formats[q.Key], PayloadFormat: formats[q.Value], HeaderFormat: formats[q.Header],
		Name: "orders", TopicPrefix: "srv", Connector: "postgres",
	}
	if len(q.Context) > 0 {
		c.Headers = []transform.Header{{Name: "debezium-context"}, {Name: "id"}}
	}
	if list := option("table.fields.additional.placement", ""); list != "" {
		for p := range strings.SplitSeq(list, ",") {
			parts := append(strings.Split(p, ":"), "")
			c.Placement = append(c.Placement, transform.Placement{Column: parts[0], Place: transform.Place(parts[1]), Alias: parts[2]})
		}
	}
	return c
}

// ours routes the row.
func (q question) ours() (sink.Message, error) {
	r, err := transform.New(q.config())
	if err != nil {
		return sink.Message{}, err
	}
	table := &source.Table{Schema: q.Schema, Name: q.Table}
	row := source.Row{Table: table, Tx: &source.Tx{ID: "0/10", CommitAt: time.UnixMilli(q.At)}}
	for _, c := range q.Columns {
		table.Columns = append(table.Columns, source.Column{Name: c.Name, Type: c.server, Kind: kindOf(c.server), NotNull: c.NotNull})
		v := source.Value{State: source.Null}
		if c.Value != nil {
			v = source.Value{State: source.Present, Data: c.Value}
		}
		row.Values = append(row.Values, v)
	}
	if _, err := r.Describe(table); err != nil {
		return sink.Message{}, err
	}
	got, err := r.Route([]source.Row{row}, nil)
	if err != nil {
		return sink.Message{}, err
	}
	return got[0], nil
}

// print writes a record so that each difference shows; null is not empty.
func print(topic string, pinned bool, partition int32, at int64, key, value []byte, headers []header) string {
	show := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return strconv.Quote(string(b))
	}
	s := fmt.Sprintf("topic %q at %d key %s value %s", topic, at, show(key), show(value))
	if pinned {
		s += fmt.Sprintf(" partition %d", partition)
	}
	for _, h := range headers {
		s += fmt.Sprintf(" %s:%s", h.Name, show(h.Value))
	}
	return s
}

func (a answer) String() string {
	if a.Error != "" {
		return "fails: " + a.Error
	}
	partition := int32(0)
	if a.Partition != nil {
		partition = *a.Partition
	}
	return print(a.Topic, a.Partition != nil, partition, a.Timestamp, a.Key, a.Value, a.Headers)
}

func printOurs(m sink.Message, err error) string {
	if err != nil {
		var refused *sink.Refusal
		if errors.As(err, &refused) {
			return "refused: " + refused.Reason + ": " + refused.Detail
		}
		return "refused: " + err.Error()
	}
	var headers []header
	for _, h := range m.Headers {
		headers = append(headers, header{h.Name, h.Value})
	}
	return print(m.Topic, m.Pinned, m.Partition, m.Timestamp.UnixMilli(), m.Key, m.Value, headers)
}

// TestRecordsAreDebeziums compares every record byte for byte. What differs must
// be a deviation that is listed, and every deviation must be seen.
func TestRecordsAreDebeziums(t *testing.T) {
	cases := slices.Concat(payloads(), keys(), headerCases(), envelopes(), timestamps(), partitions(), routes(), expansions(), others())
	questions := make([]question, len(cases))
	for i, c := range cases {
		questions[i] = c.question
	}
	answers := ask(t, questions)
	same, seen := 0, map[string]int{}
	for i, c := range cases {
		theirs, ours := answers[i].String(), printOurs(c.question.ours())
		switch _, known := deviations[c.deviates]; {
		case c.deviates == "" && theirs == ours:
			same++
		case c.deviates == "":
			t.Errorf("%s\n  Debezium %s\n  outboxd  %s", c.name, theirs, ours)
		case !known:
			t.Errorf("%s: %q is not among the deviations", c.name, c.deviates)
		case theirs == ours:
			t.Errorf("%s: no deviation (%s): both %s", c.name, c.deviates, ours)
		case !strings.Contains(ours, c.instead):
			t.Errorf("%s (%s)\n  Debezium %s\n  outboxd  %s\n  want     …%s…", c.name, c.deviates, theirs, ours, c.instead)
		default:
			seen[c.deviates]++
		}
	}
	for _, d := range slices.Sorted(maps.Keys(deviations)) {
		if seen[d] == 0 {
			t.Errorf("the deviation %q was not seen", d)
		}
	}
	t.Logf("%d rows: %d the same, %d in one of %d deviations", len(cases), same, len(cases)-same, len(seen))
}
