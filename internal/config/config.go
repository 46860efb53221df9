// Package config is the only reader of the environment.
//
// One table (Sections) has a row for every variable of the product: its name,
// default, meaning, what is legal, and the field it fills. Load, the masking
// of secrets, `outboxd config` and docs/configuration.md all come from that
// table. To add an option, add a field to Config and a row to the table, and
// generate the docs again.
//
// A variable that a later version will bring has a row too: it is refused by
// name when set, so that nothing is ever accepted and ignored. All faults are
// reported at once, as one *fault.Error with exit code 2.
package config

import "time"

// Config is the whole configuration, checked and with every default filled in.
type Config struct {
	Name   string // names slot, publication, lease, checkpoint and metric label
	Source Source
	Tables []Table // none only with Postgres.MessagePrefix

	Delivery     string      // at-least-once, exactly-once
	Transaction  Transaction // exactly-once
	Start        string      // auto, now, snapshot, resume
	Snapshot     Snapshot
	StartTimeout time.Duration // how long to wait for an unreachable server at start; 0: for ever
	DrainTimeout time.Duration
	BufferEvents int   // read and not yet acknowledged
	BufferBytes  int64 // the same in bytes
	AutoSetup    bool  // whether run may create publication, slot and checkpoint topic
	SetupURL     Login // another login for setup; zero: none
	Postgres     Postgres
	MySQL        MySQL
	OnUpdate     string // ignore, warn, stop; empty: the source decides by the table
	OnReject     string // stop, skip
	Checkpoint   Checkpoint
	Event        // for tables without an alias
	Aliased      []Aliased
	TopicPrefix  string // what Debezium's was; empty: Name

	Sink  string // kafka, stdout
	Kafka Kafka

	HTTPAddr  string   // empty: no HTTP
	HTTPHosts []string // names that may be asked for, beside IP addresses and localhost
	// HTTPViewToken guards page and status; nil: they are open.
	HTTPViewToken Secret
	ShowPayloads  bool   // of the last events, on the page
	HideKeys      bool   // the same for keys
	LogLevel      string // debug, info, warn, error
	LogFormat     string // json, console; empty: console on a terminal, else json

	values []Value
}

// Source says which database to read and as whom.
type Source struct {
	Scheme string // postgres, mysql, mariadb
	Login
	Database string // as the URL names it
}

// MySQL reports whether the source is MySQL or MariaDB.
func (s Source) MySQL() bool { return s.Scheme == "mysql" || s.Scheme == "mariadb" }

// Login is a database address. The password is kept apart from the URL, so
// that the URL is safe to hand around.
type Login struct {
	URL string // without the password
	// User overrides the user of URL; empty: the URL's.
	User string
	// Password is asked for at each connect: a password that came from a file
	// is read again each time. It is "" when none is set. Safe for concurrent use.
	Password Secret
}

// Postgres holds what only a Postgres source needs.
type Postgres struct {
	Slot        string
	Publication string
	Failover    bool // the slot is one that standbys keep
	// MessagePrefix is that of logical messages which are events; empty: none are.
	MessagePrefix string
}

// Snapshot says what a first snapshot publishes, and in which order.
type Snapshot struct {
	Where   string // an SQL condition; empty: all rows
	OrderBy string // SQL expressions; empty: found by the table's key
}

// MySQL holds what only a MySQL or MariaDB source needs.
type MySQL struct {
	ServerID uint32 // 0: derived by the source
	Position string // auto, gtid, file
}

// ExactlyOnce is the value of Delivery that needs transactions.
const ExactlyOnce = "exactly-once"

// Transaction says how events are committed in Kafka with Delivery exactly-once.
type Transaction struct {
	Interval time.Duration // longest time between a delivery and its commit
	Timeout  time.Duration // after which the brokers end an open transaction
}

// Checkpoint says where the place is stored and how often. Either Topic or Path is set.
type Checkpoint struct {
	Topic     string // of Kafka
	Path      string // of a file
	Interval  time.Duration
	MaxEvents int // delivered and not yet saved
}

// Event says how a row becomes a record.
type Event struct {
	Columns          Columns
	Headers          []Header
	HeaderFormat     string // raw, connect, connect-json, connect-json-schema
	Placement        []Placement
	OnMissingColumn  string // fail, ignore
	Topic            string // template
	Route            Route  // instead of it, unless it is zero
	PayloadFormat    string // raw, envelope, cloudevents, cloudevents-json, connect-json, connect-json-schema
	KeyFormat        string // raw, connect-json, connect-json-schema
	ExpandJSON       bool   // text that is a JSON object or array is taken as such
	TombstoneOnEmpty bool   // NULL or blank payload becomes a tombstone
	OnNullKey        string // reject, id, null
}

// Aliased is how the rows of one table become records: what is set for its
// alias, and the general settings for the rest.
type Aliased struct {
	Table Table
	Event
}

// Columns names the column of each role; empty: found by its usual names, or,
// from Timestamp on, that there is none. AggregateID may be None, or payload: and a path to a member.
type Columns struct {
	ID, AggregateID, AggregateType, EventType, Payload string
	Timestamp, Headers, Trace, SchemaVersion           string
}

// Placement sends a further column along.
type Placement struct {
	Column string
	Place  string // header, envelope, partition
	Alias  string // empty: the column's name
}

// Route is a column whose value is rewritten into the topic.
type Route struct{ By, Regex, Replacement string }

// None is the word for "there is no such column".
const None = "none"

// Header is one of the connector's own record headers.
type Header struct {
	Name  string // id, eventType, aggregateType, position, source, traceparent, debezium-context; None alone: no header
	Alias string // as it is written; equal to Name unless renamed
}

// Kafka holds the settings of the Kafka sink.
type Kafka struct {
	Brokers          []string // host:port
	Security         Security
	Compression      string // none, gzip, snappy, lz4, zstd
	Linger           time.Duration
	BatchBytes       int
	MaxMessageBytes  int // key + value + headers, uncompressed
	CreateTopics     bool
	TopicPartitions  int           // -1: the broker's default
	TopicReplication int           // -1: the broker's default
	RejectAfter      time.Duration // how long what may be mended is tried before it counts as refused
}
