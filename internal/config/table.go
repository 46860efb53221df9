package config

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Prefix is what every variable's name begins with.
const Prefix = "OUTBOXD_"

// Variable is one row of the table.
type Variable struct {
	Name    string
	Default string // read as if it were set; empty: none, see Unset
	Unset   string // in words, what holds when there is no Default
	Meaning string // one line
	Secret  bool   // masked, and NAME_FILE may be given
	Alias   string // a second name for the same
	Later   bool   // not there yet: refused by name
	kind
}

// Legal says in words what may be set.
func (v *Variable) Legal() string { return v.legal }

// Section is a group of rows, for people who read the table.
type Section struct {
	Title string
	Rows  []Variable
}

// Sections is the table: every variable there is.
func Sections() []Section {
	return []Section{
		{"The connector", connectorRows()},
		{"The source", sourceRows()},
		{"The event", eventRows()},
		{"The sink", sinkRows()},
		{"TLS and login at Kafka", securityRows()},
		{"Checkpoint, buffers, time limits", runtimeRows()},
		{"HTTP and logs", outsideRows()},
		{"Not there yet", laterRows()},
	}
}

// Variables is Sections without the titles.
func Variables() []Variable {
	var rows []Variable
	for _, s := range Sections() {
		rows = append(rows, s.Rows...)
	}
	return rows
}

func connectorRows() []Variable {
	return []Variable{
		{Name: "OUTBOXD_NAME", Unset: "derived from database and first table",
			Meaning: "names this connector: slot and publication (`-` becomes `_`), lease, checkpoint, metric label",
			kind:    checked("1 to 40 of a-z, 0-9 and -", func(c *Config) *string { return &c.Name }, validName)},
		{Name: "OUTBOXD_START", Default: "auto",
			Meaning: "only when nothing was ever saved. `auto`: the table must be empty, else choose. `now`: follow the log from here, rows already in the table are not published. `snapshot`: publish the rows already there, then follow the log, without a gap. `resume`: a saved place must exist",
			kind:    choice(func(c *Config) *string { return &c.Start }, []string{"auto", "now", "snapshot", "resume"})},
		{Name: "OUTBOXD_SNAPSHOT_WHERE", Unset: "all rows", Meaning: "which rows the first snapshot publishes: an SQL condition on each outbox table",
			kind: text(func(c *Config) *string { return &c.Snapshot.Where })},
		{Name: "OUTBOXD_SNAPSHOT_ORDER_BY", Unset: "an integer key; else the time of creation and the key", Meaning: "the order in which the first snapshot publishes: SQL expressions, ascending, of which the events of one aggregate get their order. Without it a table whose order can't be told is refused",
			kind: text(func(c *Config) *string { return &c.Snapshot.OrderBy })},
		{Name: "OUTBOXD_DELIVERY", Default: "at-least-once", Meaning: "what is promised about repeats. `exactly-once`: events and checkpoint in one Kafka transaction, so a consumer with `isolation.level=read_committed` sees each once; needs the Kafka sink and a checkpoint in Kafka",
			kind: choice(func(c *Config) *string { return &c.Delivery }, []string{"at-least-once", ExactlyOnce})},
		{Name: "OUTBOXD_TRANSACTION_INTERVAL", Default: "100ms", Meaning: "exactly-once: how long what is published may wait for its commit; longer ones cost less and delay more",
			kind: duration(func(c *Config) *time.Duration { return &c.Transaction.Interval }, time.Millisecond)},
		{Name: "OUTBOXD_TRANSACTION_TIMEOUT", Default: "15s", Meaning: "exactly-once: how long a transaction may be open before the brokers end it; readers wait that long for one that a crash left open and nobody takes over",
			kind: duration(func(c *Config) *time.Duration { return &c.Transaction.Timeout }, time.Second)},
		{Name: "OUTBOXD_ON_REJECT", Default: "stop", Meaning: "what to do when an event can't be routed or Kafka refuses it for good. `stop`: with exit code 4, in front of it. `skip`: leave it out, counted and logged; what it told is not in Kafka, and later events of its aggregate are",
			kind: kind{"stop or skip", func(c *Config, v string) error {
				if v == "dead-letter" {
					return notYetError{v}
				}
				return choice(func(c *Config) *string { return &c.OnReject }, []string{"stop", "skip"}).set(c, v)
			}}},
		{Name: "OUTBOXD_REJECT_AFTER", Default: "1m", Meaning: "how long what may be mended (a missing right on a topic, a policy, an invalid record) is tried again before the event counts as refused; too large, bad timestamp and bad name count at once",
			kind: duration(func(c *Config) *time.Duration { return &c.Kafka.RejectAfter }, time.Millisecond)},
		{Name: "OUTBOXD_ON_STOP", Default: "exit", Meaning: "what to do after a failure that does not mend itself: end the process",
			kind: only([]string{"exit"}, "hold")},
		{Name: "OUTBOXD_STRICT_ENV", Default: "true", Meaning: "`false`: an unknown `OUTBOXD_` name is a warning, not an error",
			kind: boolean(func(*Config) *bool { return new(bool) })},
	}
}

func sourceRows() []Variable {
	return []Variable{
		{Name: "OUTBOXD_SOURCE_URL", Unset: "required", Secret: true,
			Meaning: "the database. `postgres://` takes libpq's parameters; `mysql://` and `mariadb://` (the same) take the mysql client's words: `ssl-mode` (`DISABLED`, `PREFERRED`, the default, `REQUIRED`, `VERIFY_CA`, the default with `ssl-ca`, `VERIFY_IDENTITY`), `ssl-ca`, `ssl-cert`, `ssl-key` (paths), `socket`",
			kind: kind{urlLegal, func(c *Config, v string) error {
				a, err := parseURL(v)
				c.Source.Scheme, c.Source.Database, c.Source.URL = a.scheme, a.database, a.String()
				return err
			}}},
		{Name: "OUTBOXD_SOURCE_USER", Unset: "the URL's", Meaning: "overrides the URL's user; raw text, no percent-encoding",
			kind: text(func(c *Config) *string { return &c.Source.User })},
		{Name: "OUTBOXD_SOURCE_PASSWORD", Unset: "the URL's", Secret: true, Meaning: "overrides the URL's password; raw text, no percent-encoding; asked for at each connect",
			kind: text(func(*Config) *string { return new(string) })},
		{Name: "OUTBOXD_TABLES", Default: "outbox", Meaning: "the outbox tables, or `none` with `OUTBOXD_POSTGRES_MESSAGE_PREFIX`. `alias=table` gives a table settings of its own, before the general ones, for everything under \"The event\" (`OUTBOXD_TABLE_ALIAS_COLUMN_ID`, …), and the alias is its label in metrics. On Postgres unquoted names are lower-cased, quoted ones taken literally; on MySQL all are taken as written, and a name without schema is in the URL's database",
			kind: kind{tablesLegal, func(c *Config, v string) (err error) { c.Tables, err = parseTables(v, namesOf(c.Source)); return err }}},
		{Name: "OUTBOXD_ON_UPDATE", Unset: "`ignore` when the table has columns a worker marks, such as `status`, else `warn`",
			Meaning: "what an UPDATE of an outbox row is, which is never an event: `ignore` it, `warn` (a log line at times), `stop` with exit code 4. MySQL and MariaDB; on Postgres the publication carries inserts only, so no update is ever seen and this has no effect",
			kind:    choice(func(c *Config) *string { return &c.OnUpdate }, []string{"ignore", "warn", "stop"})},
		{Name: "OUTBOXD_MYSQL_SERVER_ID", Unset: "derived from name and source", Meaning: "our id among the server's replicas; no other replica may have it",
			kind: wholeNumber(func(c *Config) *uint32 { return &c.MySQL.ServerID }, 1<<32-1)},
		{Name: "OUTBOXD_MYSQL_POSITION", Default: "auto", Meaning: "how a first place is written: `gtid`, `file` (and offset), or `auto`, GTIDs where they are on",
			kind: choice(func(c *Config) *string { return &c.MySQL.Position }, []string{"auto", "gtid", "file"})},
		{Name: "OUTBOXD_POSTGRES_SLOT", Unset: "from the name", Meaning: "the logical replication slot",
			kind: checked("1 to 63 of a-z, 0-9 and _", func(c *Config) *string { return &c.Postgres.Slot }, validSlot)},
		{Name: "OUTBOXD_POSTGRES_PUBLICATION", Unset: "from the name", Meaning: "the publication, taken literally",
			kind: checked("1 to 63 bytes", func(c *Config) *string { return &c.Postgres.Publication },
				func(s string) bool { return len(s) <= identifierBytes && !strings.ContainsRune(s, 0) })},
		{Name: "OUTBOXD_POSTGRES_MESSAGE_PREFIX", Unset: "none", Meaning: "takes events that are written with `pg_logical_emit_message(true, PREFIX, '{…}')`, beside the tables or, with `OUTBOXD_TABLES=none`, instead of them. The members of the JSON object are taken like columns: `id`, `aggregate_id`, `aggregate_type`, `event_type`, `payload`",
			kind: checked("1 to 200 bytes, none of them a control character", func(c *Config) *string { return &c.Postgres.MessagePrefix },
				func(s string) bool {
					return len(s) <= 200 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd })
				})},
		{Name: "OUTBOXD_POSTGRES_FAILOVER_SLOT", Default: "false", Meaning: "`true`: the slot is a failover slot, which standbys with `sync_replication_slots` keep, so that the log can be followed to a promoted one. PostgreSQL 17 and newer",
			kind: boolean(func(c *Config) *bool { return &c.Postgres.Failover })},
		{Name: "OUTBOXD_AUTO_SETUP", Default: "true", Meaning: "whether `run` may create publication, slot and checkpoint topic; `false`: it creates nothing and prints the SQL or the command",
			kind: boolean(func(c *Config) *bool { return &c.AutoSetup })},
		{Name: "OUTBOXD_SETUP_URL", Unset: "the source's", Secret: true, Meaning: "another login, for `setup` alone; Postgres only, for `setup` makes nothing in MySQL",
			kind: kind{postgresLegal, func(c *Config, v string) error {
				a, err := parseURL(v)
				c.SetupURL.URL = a.String()
				return err
			}}},
	}
}

func eventRows() []Variable {
	return []Variable{
		{Name: "OUTBOXD_COLUMN_ID", Unset: "`id` or `event_id`", Meaning: "column of the event id",
			kind: column(func(c *Config) *string { return &c.Columns.ID })},
		{Name: "OUTBOXD_COLUMN_AGGREGATE_ID", Unset: "`aggregate_id` or `aggregateid`",
			Meaning: "column of the record key, or a member of a JSON payload (a JSONPath of names: `payload:$.order_id`, `payload:$.order['the id']`): a string, a number, true or false; anything else counts as NULL. No such column: the key is the event id, with a warning that `none` silences",
			kind: kind{"a column's name, payload:$.member, or none", func(c *Config, v string) error {
				if strings.HasPrefix(v, "payload:") && !memberPath.MatchString(v) {
					return errors.New("has a path that is not made of .name and ['name']")
				}
				c.Columns.AggregateID = v
				return nil
			}}},
		{Name: "OUTBOXD_COLUMN_AGGREGATE_TYPE", Unset: "`aggregate_type` or `aggregatetype`", Meaning: "column of the aggregate type",
			kind: column(func(c *Config) *string { return &c.Columns.AggregateType })},
		{Name: "OUTBOXD_COLUMN_EVENT_TYPE", Unset: "`event_type` or `type`", Meaning: "column of the event type",
			kind: column(func(c *Config) *string { return &c.Columns.EventType })},
		{Name: "OUTBOXD_COLUMN_PAYLOAD", Unset: "`payload`", Meaning: "column of the record value",
			kind: column(func(c *Config) *string { return &c.Columns.Payload })},
		{Name: "OUTBOXD_COLUMN_TIMESTAMP", Unset: "none: the commit time", Meaning: "column of the record timestamp: a date or time (without a zone it is UTC), or a number since 1970, of which the size tells seconds, ms, µs and ns apart; NULL is the commit time",
			kind: optional(func(c *Config) *string { return &c.Columns.Timestamp })},
		{Name: "OUTBOXD_COLUMN_HEADERS", Unset: "none", Meaning: "column of a JSON object whose members become headers: a string's text, null as a null header, all else as it is written. A name that is an own header's already stays with that",
			kind: optional(func(c *Config) *string { return &c.Columns.Headers })},
		{Name: "OUTBOXD_COLUMN_TRACE", Unset: "`traceparent` or `tracingspancontext`", Meaning: "column of the trace, for the header `traceparent`: its text, or what Debezium's `tracingspancontext` holds, `java.util.Properties`, each entry a header",
			kind: column(func(c *Config) *string { return &c.Columns.Trace })},
		{Name: "OUTBOXD_COLUMN_SCHEMA_VERSION", Unset: "none", Meaning: "column of a whole number, the version of the value's schema; only with `connect-json-schema` and a column in the envelope, as in Debezium",
			kind: optional(func(c *Config) *string { return &c.Columns.SchemaVersion })},
		{Name: "OUTBOXD_COLUMN_PLACEMENT", Unset: "none", Meaning: "further columns: as a `header`; in the `envelope`, in formats whose value is an object; a whole number as the record's `partition`, where NULL leaves it to the key. As Debezium's `table.fields.additional.placement`",
			kind: kind{"column:header|envelope|partition[:alias][,…], or none", func(c *Config, v string) (err error) { c.Placement, err = parsePlacement(v); return err }}},
		{Name: "OUTBOXD_ON_MISSING_COLUMN", Default: "fail", Meaning: "what to do when a placed column is not in the table: `fail` with what there is, or `ignore` it",
			kind: choice(func(c *Config) *string { return &c.OnMissingColumn }, []string{"fail", "ignore"})},
		{Name: "OUTBOXD_HEADERS", Default: "id,eventType,aggregateType", Meaning: "record headers; `NAME:ALIAS` renames. The default sends those the table has columns for; in any other list each must have its column. `position`: the row's place in the log, `TRANSACTION#INDEX`; `source`: `/NAME/TABLE`; `traceparent`: see `OUTBOXD_COLUMN_TRACE`; `debezium-context`: the three that Debezium 3 adds to every record",
			kind: kind{"a list of id, eventType, aggregateType, position, source, each with an optional :ALIAS, and traceparent, debezium-context; or none",
				func(c *Config, v string) (err error) { c.Headers, err = parseHeaders(v); return err }}},
		{Name: "OUTBOXD_HEADER_FORMAT", Default: "raw", Meaning: "header values: `raw`, as the server prints the column; as Kafka Connect's SimpleHeaderConverter (`connect`) or JsonConverter (`connect-json`, `connect-json-schema`) writes what Debezium makes of it",
			kind: choice(func(c *Config) *string { return &c.HeaderFormat }, []string{"raw", "connect", "connect-json", "connect-json-schema"})},
		{Name: "OUTBOXD_TOPIC", Default: "outbox.event.{aggregate_type}",
			Meaning: "the topic; the default is `outbox.event.{table}` where the table has no aggregate type column",
			kind: kind{"text with {aggregate_type}, {event_type}, {schema}, {table}, {column:NAME}",
				func(c *Config, v string) error { c.Topic = v; return checkTopic(v) }}},
		{Name: "OUTBOXD_TOPIC_ROUTE_BY", Unset: "the aggregate type's", Meaning: "Debezium's way to the topic, instead of `OUTBOXD_TOPIC`, when this or one of the next two is set: the column whose value is rewritten",
			kind: column(func(c *Config) *string { return &c.Route.By })},
		{Name: "OUTBOXD_TOPIC_ROUTE_REGEX", Unset: "`(?<routedByValue>.*)`", Meaning: "what the whole value must match, else it is the topic as it stands. RE2; what only Java's patterns have is refused by name",
			kind: text(func(c *Config) *string { return &c.Route.Regex })},
		{Name: "OUTBOXD_TOPIC_ROUTE_REPLACEMENT", Unset: "`outbox.event.${routedByValue}`", Meaning: "what the match is replaced by, in Java's form: `$1`, `${name}`, `\\` before a literal",
			kind: text(func(c *Config) *string { return &c.Route.Replacement })},
		{Name: "OUTBOXD_PAYLOAD_FORMAT", Default: "raw", Meaning: "the record value: `raw`, the payload's bytes; `envelope`, a JSON object with id, types, time and payload; CloudEvents 1.0 in Kafka's binary (`cloudevents`) or structured mode (`cloudevents-json`); `connect-json`, `connect-json-schema`: the bytes Kafka Connect's JsonConverter writes without and with schemas",
			kind: choice(func(c *Config) *string { return &c.PayloadFormat }, []string{"raw", "envelope", "cloudevents", "cloudevents-json", "connect-json", "connect-json-schema"})},
		{Name: "OUTBOXD_KEY_FORMAT", Default: "raw", Meaning: "the record key: `raw`, the aggregate id as text (`bytea` and `BINARY`: its bytes), as StringConverter writes it; or as JsonConverter does. The bytes decide the partition",
			kind: choice(func(c *Config) *string { return &c.KeyFormat }, []string{"raw", "connect-json", "connect-json-schema"})},
		{Name: "OUTBOXD_EXPAND_JSON", Default: "false", Meaning: "`true`: a text payload that is a whole JSON object or array is taken as JSON, not as a string, in the formats `envelope`, `cloudevents`, `cloudevents-json` and `connect-json`; the text itself is not changed",
			kind: boolean(func(c *Config) *bool { return &c.ExpandJSON })},
		{Name: "OUTBOXD_TOPIC_PREFIX", Unset: "the connector's name", Meaning: "what Debezium's `topic.prefix` was: it is in the header `debezium-context` and in the names of schemas",
			kind: text(func(c *Config) *string { return &c.TopicPrefix })},
		{Name: "OUTBOXD_TOMBSTONE_ON_EMPTY", Default: "false",
			Meaning: "`false`: a NULL payload is refused, `''` is a value of 0 bytes. `true`: NULL or blank text becomes a tombstone",
			kind:    boolean(func(c *Config) *bool { return &c.TombstoneOnEmpty })},
		{Name: "OUTBOXD_ON_NULL_KEY", Default: "reject", Meaning: "a NULL aggregate id: `reject` it, key by event `id`, or send a `null` key",
			kind: choice(func(c *Config) *string { return &c.OnNullKey }, []string{"reject", "id", "null"})},
	}
}

func sinkRows() []Variable {
	const most = 1 << 30
	return []Variable{
		{Name: "OUTBOXD_SINK", Default: "kafka", Meaning: "`kafka`, or `stdout` for JSON lines",
			kind: choice(func(c *Config) *string { return &c.Sink }, []string{"kafka", "stdout"})},
		{Name: "OUTBOXD_KAFKA_BROKERS", Unset: "required with the Kafka sink", Alias: "OUTBOXD_KAFKA_BOOTSTRAP_SERVERS", Meaning: "brokers to begin with",
			kind: kind{"host[:port][,…]", func(c *Config, v string) (err error) { c.Kafka.Brokers, err = parseBrokers(v); return err }}},
		{Name: "OUTBOXD_KAFKA_COMPRESSION", Default: "lz4", Meaning: "compression of batches",
			kind: choice(func(c *Config) *string { return &c.Kafka.Compression }, []string{"none", "gzip", "snappy", "lz4", "zstd"})},
		{Name: "OUTBOXD_KAFKA_LINGER", Default: "5ms", Meaning: "how long a batch waits for more",
			kind: duration(func(c *Config) *time.Duration { return &c.Kafka.Linger }, 0)},
		{Name: "OUTBOXD_KAFKA_BATCH_BYTES", Default: "1MiB", Meaning: "how large a batch grows",
			kind: size(func(c *Config) *int { return &c.Kafka.BatchBytes }, 1<<10, most)},
		{Name: "OUTBOXD_KAFKA_MAX_MESSAGE_BYTES", Default: "1MiB", Meaning: "largest key + value + headers, uncompressed; a larger event is refused",
			kind: size(func(c *Config) *int { return &c.Kafka.MaxMessageBytes }, 1<<10, most)},
		{Name: "OUTBOXD_KAFKA_PARTITIONER", Default: "murmur2", Meaning: "the Java client's partition for the same key bytes",
			kind: only([]string{"murmur2"})},
		{Name: "OUTBOXD_KAFKA_CREATE_TOPICS", Default: "false", Meaning: "create a topic that is missing, before its first event",
			kind: boolean(func(c *Config) *bool { return &c.Kafka.CreateTopics })},
		{Name: "OUTBOXD_KAFKA_TOPIC_PARTITIONS", Default: "-1", Meaning: "partitions of a created topic; -1: the broker's default",
			kind: integer(func(c *Config) *int { return &c.Kafka.TopicPartitions }, 100000, -1)},
		{Name: "OUTBOXD_KAFKA_TOPIC_REPLICATION", Default: "-1", Meaning: "replicas of a created topic; -1: the broker's default",
			kind: integer(func(c *Config) *int { return &c.Kafka.TopicReplication }, 32767, -1)},
	}
}

func runtimeRows() []Variable {
	return []Variable{
		{Name: "OUTBOXD_CHECKPOINT", Unset: "`" + kafkaCheckpoint + "` with the Kafka sink (exactly-once: `" + kafkaCheckpoint + ".NAME`), `" + fileCheckpoint + "` with stdout",
			Meaning: "where the place in the log is stored: a compacted topic of one partition, which connectors may share and `run` makes when it is absent, or a file",
			kind:    kind{checkpointLegal, func(c *Config, v string) error { return c.Checkpoint.set(v) }}},
		{Name: "OUTBOXD_CHECKPOINT_INTERVAL", Default: "1s", Meaning: "how long delivered events may stay unsaved",
			kind: duration(func(c *Config) *time.Duration { return &c.Checkpoint.Interval }, 10*time.Millisecond)},
		{Name: "OUTBOXD_CHECKPOINT_MAX_EVENTS", Default: "10000", Meaning: "how many delivered events may stay unsaved; when saving fails and it is reached, reading stops",
			kind: integer(func(c *Config) *int { return &c.Checkpoint.MaxEvents }, 1e9, 1)},
		{Name: "OUTBOXD_BUFFER_EVENTS", Default: "50000", Meaning: "most events read and not yet acknowledged",
			kind: integer(func(c *Config) *int { return &c.BufferEvents }, 1e9, 1)},
		{Name: "OUTBOXD_BUFFER_BYTES", Default: "32MiB", Meaning: "the same in bytes; one larger event passes alone",
			kind: size(func(c *Config) *int64 { return &c.BufferBytes }, 1<<10, 1<<40)},
		{Name: "OUTBOXD_DRAIN_TIMEOUT", Default: "20s", Meaning: "how long a stop waits for acknowledgements",
			kind: duration(func(c *Config) *time.Duration { return &c.DrainTimeout }, time.Millisecond)},
		{Name: "OUTBOXD_START_TIMEOUT", Unset: "none: for ever", Meaning: "how long to wait at start for a database or broker that can't be reached, or a slot that an open transaction holds up; then exit code 1",
			kind: duration(func(c *Config) *time.Duration { return &c.StartTimeout }, time.Millisecond)},
	}
}

func outsideRows() []Variable {
	return []Variable{
		{Name: "OUTBOXD_HTTP_ADDR", Default: "127.0.0.1:8080", Meaning: "where `/livez`, `/readyz`, `/metrics`, `/status` and the page at `/` are served",
			kind: kind{"[host]:port, or off", func(c *Config, v string) error {
				if v == "off" {
					return nil
				}
				_, port, err := net.SplitHostPort(v)
				if err != nil {
					return errors.New("is not [host]:port")
				}
				if _, err = strconv.ParseUint(port, 10, 16); err != nil {
					return errors.New("has a port that is not a number from 0 to 65535")
				}
				c.HTTPAddr = v
				return nil
			}}},
		{Name: "OUTBOXD_HTTP_HOSTS", Unset: "none", Meaning: "host names that may be asked for, beside IP addresses and `localhost`; another Host header is refused, against DNS rebinding",
			kind: kind{"a list of host names without port", func(c *Config, v string) (err error) { c.HTTPHosts, err = parseHosts(v); return err }}},
		{Name: "OUTBOXD_HTTP_VIEW_TOKEN", Unset: "none: page and status are open", Secret: true, Meaning: "guards the page and `/status`: a bearer token, or the password to any user name, for which a browser asks; probes and `/metrics` stay open",
			kind: kind{"any text", func(*Config, string) error { return nil }}},
		{Name: "OUTBOXD_HTTP_SHOW_PAYLOADS", Default: "false", Meaning: "whether the page shows the first 1 KiB of the last events' payloads",
			kind: boolean(func(c *Config) *bool { return &c.ShowPayloads })},
		{Name: "OUTBOXD_HIDE_KEYS", Default: "false", Meaning: "whether the page hides the keys of the last events",
			kind: boolean(func(c *Config) *bool { return &c.HideKeys })},
		{Name: "OUTBOXD_LOG_LEVEL", Default: "info", Meaning: "least level that is logged",
			kind: choice(func(c *Config) *string { return &c.LogLevel }, []string{"debug", "info", "warn", "error"})},
		{Name: "OUTBOXD_LOG_FORMAT", Unset: "json; console on a terminal", Meaning: "form of the log, which goes to stderr",
			kind: choice(func(c *Config) *string { return &c.LogFormat }, []string{"json", "console"})},
	}
}

// text takes anything.
func text(field func(*Config) *string) kind {
	return kind{"any text", func(c *Config, v string) error { *field(c) = v; return nil }}
}

func column(field func(*Config) *string) kind {
	k := text(field)
	k.legal = "a column's name"
	return k
}

// optional takes none too, by which a table has no such column though the general setting names one.
func optional(field func(*Config) *string) kind {
	return kind{"a column's name, or none", func(c *Config, v string) error {
		if *field(c) = v; v == None {
			*field(c) = ""
		}
		return nil
	}}
}

func checked(legal string, field func(*Config) *string, ok func(string) bool) kind {
	return kind{legal, func(c *Config, v string) error {
		if !ok(v) {
			return errors.New("has a form that is not legal")
		}
		*field(c) = v
		return nil
	}}
}

// names are all names a row may be set by.
func (v *Variable) names() []string {
	names := []string{v.Name}
	if v.Alias != "" {
		names = append(names, v.Alias)
	}
	if v.Secret {
		names = append(names, v.Name+fileSuffix)
	}
	return names
}

func knownNames(rows []Variable) []string {
	var names []string
	for i := range rows {
		names = append(names, rows[i].names()...)
	}
	slices.Sort(names)
	return names
}
