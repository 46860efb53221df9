// Package debezium reads the configuration of a Debezium connector with the Outbox
// Event Router, and the offsets it stored, and says what they are for outboxd. Every option is
// mapped, ignored for a reason, or refused by name; none is dropped in silence.
package debezium

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Setting is a variable of outboxd and its value.
type Setting struct{ Name, Value string }

// Note is what became of an option that is no setting.
type Note struct{ Option, Reason string }

// Import is a connector's configuration in outboxd's words.
type Import struct {
	Kind        string // postgres, mysql, mariadb
	Name        string // the connector's; "": not told
	TopicPrefix string
	OffsetFile  string // of the file store; "": none
	Settings    []Setting
	Ignored     []Note
	Refused     []Note // must be solved first

	options map[string]string
	used    map[string]bool
}

// Read takes a connector's JSON (with "config" or flat), or the properties of Debezium Server.
func Read(file []byte) (*Import, error) {
	i := &Import{options: map[string]string{}, used: map[string]bool{}}
	var err error
	if trimmed := bytes.TrimSpace(file); len(trimmed) > 0 && trimmed[0] == '{' {
		err = i.readJSON(trimmed)
	} else {
		err = i.readProperties(file)
	}
	if err != nil {
		return nil, err
	}
	if err := i.translate(); err != nil {
		return nil, err
	}
	return i, nil
}

func (i *Import) readJSON(file []byte) error {
	var whole map[string]any
	if err := json.Unmarshal(file, &whole); err != nil {
		return fmt.Errorf("read the connector's JSON: %w", err)
	}
	config := whole
	if inner, ok := whole["config"].(map[string]any); ok {
		config = inner
		i.Name, _ = whole["name"].(string)
	}
	for k, v := range config {
		i.options[k] = fmt.Sprint(v)
	}
	if name := i.take("name", ""); name != "" {
		i.Name = name
	}
	return nil
}

// readProperties takes debezium.source.*, debezium.transforms.* and so on as the connector's own.
func (i *Import) readProperties(file []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(file))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("line %d is neither JSON nor KEY=VALUE", n)
		}
		k, v = strings.TrimSpace(k), strings.ReplaceAll(strings.TrimSpace(v), "$$", "$")
		switch {
		case strings.HasPrefix(k, "debezium.source."):
			k = strings.TrimPrefix(k, "debezium.source.")
		case strings.HasPrefix(k, "debezium.sink.kafka.producer."):
			k = "producer.override." + strings.TrimPrefix(k, "debezium.sink.kafka.producer.")
		case strings.HasPrefix(k, "debezium.transforms"), strings.HasPrefix(k, "debezium.predicates"):
			k = strings.TrimPrefix(k, "debezium.")
		case strings.HasPrefix(k, "debezium.format."):
			if converter, ok := serverFormats[v]; ok {
				v = converter
			}
			k = strings.TrimPrefix(k, "debezium.format.")
			if part, rest, ok := strings.Cut(k, "."); ok {
				k = part + ".converter." + rest
			} else {
				k += ".converter"
			}
		case strings.HasPrefix(k, "quarkus."):
			i.ignore(k, "outboxd is no Quarkus application")
			continue
		}
		i.options[k] = v
	}
	if _, ok := i.options["header.converter"]; !ok {
		i.options["header.converter"] = jsonConverter // Debezium Server's default
	}
	for _, part := range []string{"key", "value"} {
		if _, ok := i.options[part+".converter"]; !ok {
			i.options[part+".converter"] = jsonConverter
		}
	}
	i.Name = "kafka" // the name Debezium Server gives its only engine
	return lines.Err()
}

const (
	jsonConverter   = "org.apache.kafka.connect.json.JsonConverter"
	stringConverter = "org.apache.kafka.connect.storage.StringConverter"
)

var serverFormats = map[string]string{"json": jsonConverter, "simplestring": stringConverter, "binary": "io.debezium.converters.BinaryDataConverter"}

func (i *Import) take(option, unset string) string {
	i.used[option] = true
	if v, ok := i.options[option]; ok && v != "" {
		return v
	}
	return unset
}

func (i *Import) set(name, value string) {
	if value != "" {
		i.Settings = append(i.Settings, Setting{"OUTBOXD_" + name, value})
	}
}

func (i *Import) ignore(option, why string) {
	i.used[option] = true
	i.Ignored = append(i.Ignored, Note{option, why})
}

func (i *Import) refuse(option, why string) {
	i.used[option] = true
	i.Refused = append(i.Refused, Note{option, why})
}

func (i *Import) translate() error {
	class := i.take("connector.class", "")
	switch {
	case strings.HasSuffix(class, "PostgresConnector"):
		i.Kind = "postgres"
	case strings.HasSuffix(class, "MySqlConnector"):
		i.Kind = "mysql"
	case strings.HasSuffix(class, "MariaDbConnector"):
		i.Kind = "mariadb"
	default:
		return fmt.Errorf("connector.class %q is none of Debezium's connectors for PostgreSQL, MySQL and MariaDB", class)
	}
	i.TopicPrefix = i.take("topic.prefix", i.take("database.server.name", ""))
	i.set("NAME", connectorName(i.Name))
	i.source()
	if err := i.router(); err != nil {
		return err
	}
	i.converters()
	i.set("KAFKA_BROKERS", i.take("producer.override.bootstrap.servers", i.take("schema.history.internal.kafka.bootstrap.servers", "")))
	i.set("TOPIC_PREFIX", i.TopicPrefix)
	if i.take("offset.storage", "") != "" || i.options["offset.storage.file.filename"] != "" {
		i.OffsetFile = i.take("offset.storage.file.filename", "")
	}
	i.rest()
	byOption := func(a, b Note) int { return strings.Compare(a.Option, b.Option) }
	slices.SortFunc(i.Ignored, byOption)
	slices.SortFunc(i.Refused, byOption)
	return nil
}

var notInName = regexp.MustCompile(`[^a-z0-9-]+`)

func connectorName(name string) string {
	name = strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	return name[:min(len(name), 40)]
}

// plainTables is a list of names that is no pattern but for escaped dots.
var plainTables = regexp.MustCompile(`^[A-Za-z0-9_$-]+\.[A-Za-z0-9_$-]+$`)

func (i *Import) source() {
	host := i.take("database.hostname", "")
	database := i.take("database.dbname", "")
	var tables []string
	for _, t := range strings.Split(i.take("table.include.list", ""), ",") {
		t = strings.ReplaceAll(strings.TrimSpace(t), `\.`, ".")
		if !plainTables.MatchString(t) {
			i.refuse("table.include.list", fmt.Sprintf("%q is a pattern or names no schema: name each outbox table in OUTBOXD_TABLES", t))
			continue
		}
		if i.Kind == "postgres" && strings.ToLower(t) != t {
			schema, name, _ := strings.Cut(t, ".")
			t = fmt.Sprintf("%q.%q", schema, name)
		}
		tables = append(tables, t)
	}
	port, scheme := i.take("database.port", "3306"), i.Kind
	if i.Kind == "postgres" {
		port = i.take("database.port", "5432")
	} else if database == "" && len(tables) > 0 {
		database, _, _ = strings.Cut(tables[0], ".")
	}
	u := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: "/" + database}
	q := url.Values{}
	if i.Kind == "postgres" {
		for _, p := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
			if v := i.take("database."+p, ""); v != "" {
				q.Set(p, v)
			}
		}
	} else if mode := i.take("database.ssl.mode", ""); mode != "" {
		q.Set("ssl-mode", strings.ToUpper(mode))
	}
	u.RawQuery = q.Encode()
	if host == "" {
		i.refuse("database.hostname", "is not set")
	}
	i.set("SOURCE_URL", u.String())
	i.set("SOURCE_USER", i.secret("database.user"))
	i.set("SOURCE_PASSWORD", i.secret("database.password"))
	i.set("TABLES", strings.Join(tables, ","))
	if i.Kind != "postgres" {
		i.set("MYSQL_SERVER_ID", i.take("database.server.id", ""))
		i.set("START", "resume")
		return
	}
	if plugin := i.take("plugin.name", "decoderbufs"); plugin != "pgoutput" {
		i.refuse("plugin.name", fmt.Sprintf("is %s (Debezium's default when unset), and outboxd reads pgoutput alone: stop the writers of the outbox for a moment, let Debezium publish the rest, stop it, and run `outboxd setup --start now`, which makes a slot of outboxd's own, before the writers go on", plugin))
	}
	i.set("POSTGRES_SLOT", i.take("slot.name", "debezium"))
	i.set("POSTGRES_PUBLICATION", i.take("publication.name", "dbz_publication"))
	if i.take("slot.failover", "false") == "true" {
		i.set("POSTGRES_FAILOVER_SLOT", "true")
	}
}

// secret takes what is not a reference to one of Connect's config providers.
func (i *Import) secret(option string) string {
	v := i.take(option, "")
	if strings.Contains(v, "${") {
		i.ignore(option, "is a reference that Kafka Connect resolves: give outboxd the value, or its file (OUTBOXD_SOURCE_PASSWORD_FILE)")
		return ""
	}
	return v
}

const eventRouter = "io.debezium.transforms.outbox.EventRouter"

func (i *Import) router() error {
	alias := ""
	for _, name := range strings.Split(i.take("transforms", ""), ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		switch class := i.take("transforms."+name+".type", ""); class {
		case eventRouter:
			alias = "transforms." + name + "."
		default:
			i.refuse("transforms."+name+".type", fmt.Sprintf("%s is another transformation than the Outbox Event Router: outboxd has none", class))
			for option := range i.options {
				if strings.HasPrefix(option, "transforms."+name+".") {
					i.used[option] = true
				}
			}
		}
	}
	if alias == "" {
		return errors.New("no transformation is " + eventRouter + ": this connector is no outbox relay")
	}
	get := func(option string) string { return i.take(alias+option, "") }
	for _, m := range [][2]string{
		{"table.field.event.id", "COLUMN_ID"}, {"table.field.event.key", "COLUMN_AGGREGATE_ID"}, {"table.field.event.payload", "COLUMN_PAYLOAD"},
		{"table.field.event.timestamp", "COLUMN_TIMESTAMP"}, {"table.field.event.schema.version", "COLUMN_SCHEMA_VERSION"},
		{"table.fields.additional.placement", "COLUMN_PLACEMENT"}, {"tracing.span.context.field", "COLUMN_TRACE"},
		{"route.by.field", "TOPIC_ROUTE_BY"}, {"route.topic.replacement", "TOPIC_ROUTE_REPLACEMENT"},
	} {
		i.set(m[1], strings.ReplaceAll(get(m[0]), " ", ""))
	}
	if v := get("route.topic.regex"); v != "" {
		if _, err := regexp.Compile(v); err != nil {
			i.refuse(alias+"route.topic.regex", fmt.Sprintf("has something that RE2 lacks: %v; write it without, or set OUTBOXD_TOPIC", err))
		} else {
			i.set("TOPIC_ROUTE_REGEX", v)
		}
	}
	if get("table.field.additional.missing") == "ignore" || get("table.fields.additional.error.on.missing") == "false" {
		i.set("ON_MISSING_COLUMN", "ignore")
	}
	for _, m := range [][2]string{{"table.expand.json.payload", "EXPAND_JSON"}, {"route.tombstone.on.empty.payload", "TOMBSTONE_ON_EMPTY"}} {
		if get(m[0]) == "true" {
			i.set(m[1], "true")
		}
	}
	i.set("ON_UPDATE", map[string]string{"warn": "warn", "error": "warn", "fatal": "stop"}[get("table.op.invalid.behavior")])
	i.set("ON_NULL_KEY", "null")
	headers := "id"
	if i.take("extended.headers.enabled", "true") == "true" {
		headers += ",debezium-context"
	}
	i.set("HEADERS", headers)
	for _, m := range [][2]string{
		{"table.field.event.type", "has no effect in Debezium since 1.2 either"},
		{"table.json.payload.null.behavior", "outboxd leaves the payload as it is, null members too"},
		{"table.json.payload.empty.array.behavior", "outboxd leaves the payload as it is, empty arrays too"},
		{"tracing.operation.name", "outboxd passes the trace on and makes no span of its own"},
		{"tracing.with.context.field.only", "outboxd passes the trace on and makes no span of its own"},
		{"predicate", "outboxd sends heartbeats nowhere, so there is nothing to leave out"},
		{"negate", "outboxd sends heartbeats nowhere, so there is nothing to leave out"},
	} {
		if get(m[0]) != "" {
			i.ignore(alias+m[0], m[1])
		}
	}
	return nil
}

func (i *Import) converters() {
	for _, part := range []string{"key", "value", "header"} {
		option := part + ".converter"
		name := map[string]string{"key": "KEY_FORMAT", "value": "PAYLOAD_FORMAT", "header": "HEADER_FORMAT"}[part]
		class := i.take(option, "")
		schemas := i.take(option+".schemas.enable", "true") == "true"
		short := class[strings.LastIndexByte(class, '.')+1:]
		switch {
		case part == "header" && (class == "" || short == "SimpleHeaderConverter"):
			i.set(name, "connect")
		case class == "":
			i.ignore(option, "is not set: the worker's holds, which this file does not tell. Set OUTBOXD_"+name+" to raw (StringConverter), connect-json or connect-json-schema (JsonConverter without or with schemas)")
		case short == "StringConverter", short == "BinaryDataConverter", short == "ByteArrayConverter", short == "ByteBufferConverter":
			i.set(name, "raw")
		case short == "JsonConverter" && schemas && part != "header":
			i.set(name, "connect-json-schema")
		case short == "JsonConverter":
			i.set(name, "connect-json")
		default:
			i.refuse(option, short+" has no counterpart: let the application serialise the payload into a bytes column, which passes untouched")
		}
		for o := range i.options {
			if strings.HasPrefix(o, option+".delegate.") {
				i.ignore(o, "is for heartbeats, which outboxd sends nowhere")
			}
		}
	}
}

// unneeded are options that have no counterpart, by what they begin with.
var unneeded = []Note{
	{"tasks.max", "one task reads a log, here too"},
	{"snapshot.", "what is taken over is a running connector's place; a first snapshot is OUTBOXD_START=snapshot"},
	{"incremental.snapshot.", "what is taken over is a running connector's place"},
	{"schema.history.", "outboxd keeps no history of schemas"}, {"include.schema.changes", "outboxd keeps no history of schemas"},
	{"database.history.", "outboxd keeps no history of schemas"}, {"ddl.", "outboxd parses no DDL"}, {"table.ignore.builtin", "outboxd parses no DDL"},
	{"database.include.list", "OUTBOXD_TABLES names the tables"}, {"schema.include.list", "OUTBOXD_TABLES names the tables"},
	{"heartbeat.", "outboxd moves on in an idle table by itself"}, {"topic.heartbeat.", "outboxd moves on in an idle table by itself"},
	{"tombstones.on.delete", "deletes are no events"}, {"skipped.operations", "updates, deletes and truncations are no events"},
	{"publication.autocreate.mode", "the publication is there"}, {"slot.", "outboxd keeps the slot and waits for it"},
	{"publish.via.partition.root", "belongs to the publication, which is there"}, {"replica.identity.", "inserts need none"},
	{"lsn.flush.", "outboxd confirms what is saved"}, {"flush.lsn.source", "outboxd confirms what is saved"}, {"status.update.interval.ms", "outboxd has its own"}, {"xmin.fetch.interval.ms", "is for Debezium's offsets"},
	{"offset.", "the place is kept in OUTBOXD_CHECKPOINT"}, {"max.batch.size", "OUTBOXD_BUFFER_EVENTS"}, {"max.queue.size", "OUTBOXD_BUFFER_EVENTS, OUTBOXD_BUFFER_BYTES"}, {"poll.", "outboxd does not poll"},
	{"errors.", "OUTBOXD_ON_REJECT says what to do with an event that can't be published; all else is tried again for ever"}, {"retriable.", "what mends itself is tried again for ever"},
	{"event.", "what can't be decoded stops the connector"}, {"inconsistent.schema.handling.mode", "what can't be decoded stops the connector"},
	{"topic.creation.", "OUTBOXD_KAFKA_CREATE_TOPICS, _TOPIC_PARTITIONS and _TOPIC_REPLICATION"},
	{"producer.override.", "the producer has its own settings: OUTBOXD_KAFKA_COMPRESSION, _LINGER, _BATCH_BYTES, _TLS, _SASL_…"},
	{"driver.", "outboxd has another driver"}, {"connect.", "outboxd has its own time limits"}, {"database.tcpKeepAlive", "outboxd has its own"}, {"database.initial.statements", "outboxd's sessions have settings of their own"}, {"binlog.", "outboxd has its own"},
	{"provide.transaction.metadata", "the header position tells the transaction"}, {"signal.", "there are no signals; see docs/operations.md"}, {"notification.", "there are no notifications; see /status and the log"},
	{"decimal.handling.mode", "values are the server's text"}, {"binary.handling.mode", "bytes pass as they are"}, {"time.precision.mode", "any column of a date or time can be the timestamp"}, {"interval.handling.mode", "values are the server's text"},
	{"hstore.handling.mode", "values are the server's text"}, {"bigint.unsigned.handling.mode", "values are the server's text"}, {"field.name.adjustment.mode", "names are left as they are"}, {"schema.name.adjustment.mode", "names are left as they are"},
	{"unavailable.value.placeholder", "inserts carry all values"}, {"gtid.source.", "all transactions of the server are read"}, {"predicates", "outboxd sends heartbeats nowhere, so there is nothing to leave out"},
	{"statistics.", "see /metrics"}, {"custom.metric.tags", "see /metrics"}, {"read.only", "outboxd writes nothing"}, {"schema.refresh.mode", "outboxd follows the log's own description"}, {"internal.", "internal to Debezium"},
	{"exactly.once.support", "OUTBOXD_DELIVERY=exactly-once"}, {"transaction.boundary", "OUTBOXD_DELIVERY=exactly-once"}, {"debezium.", "is for Debezium Server"},
}

// rest finds what nothing above has taken: ignored for a reason, or refused.
func (i *Import) rest() {
	for option, value := range i.options {
		if i.used[option] || value == "" {
			continue
		}
		at := slices.IndexFunc(unneeded, func(n Note) bool { return strings.HasPrefix(option, n.Option) })
		if at < 0 {
			i.refuse(option, "is not known to this version: find out what it does, and take it out of the file when outboxd can do without")
			continue
		}
		i.ignore(option, unneeded[at].Reason)
	}
}

// EnvFile is the import as a file for --env-file.
func (i *Import) EnvFile() string {
	var b strings.Builder
	b.WriteString("# Made of a Debezium connector's configuration. It may hold a password.\n")
	for _, n := range i.Refused {
		fmt.Fprintf(&b, "# REFUSED %s: %s\n", n.Option, n.Reason)
	}
	for _, s := range i.Settings {
		value := s.Value
		if strings.ContainsAny(value, "\"'# ") {
			quote := `'`
			if strings.Contains(value, "'") {
				quote = `"`
			}
			value = quote + value + quote
		}
		fmt.Fprintf(&b, "%s=%s\n", s.Name, value)
	}
	for _, n := range i.Ignored {
		fmt.Fprintf(&b, "# ignored %s: %s\n", n.Option, n.Reason)
	}
	return b.String()
}
