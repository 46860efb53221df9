// Package postgres reads an outbox from a PostgreSQL logical replication slot.
//
// The plugin is pgoutput, protocol version 1: rows of a transaction arrive
// after its commit, in commit order. An insert-only publication for the outbox
// tables is made before the slot, since a slot never sees a publication that is
// younger than it is. A resume point is the end LSN of a commit, or the log's
// end the server told while nothing was under way; it is confirmed to the
// server only after the engine stored it.
//
// Five connections exist at most: the lease (a session that holds an advisory
// lock), the replication connection, owned by one goroutine, one that asks now
// and then what the server keeps for us, and a short one for questions while a
// stream is opened; and during a first snapshot the one that sees the tables
// as they were when the slot was made.
package postgres

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Config is what a Source needs to know.
type Config struct {
	// URL in libpq's form, postgres://…; what it leaves out comes from User and Password.
	URL string
	// User overrides the URL's user when not empty.
	User string
	// Password is asked at each connect, so that a rotated secret is found. Nil:
	// the URL's. An empty result means the URL's as well.
	Password func() (string, error)
	// Name of the connector: names the lease and the sessions.
	Name string
	// Tables are the outbox tables. There may be none with a MessagePrefix.
	Tables []TableName
	// MessagePrefix is that of the logical messages which are events; empty: none are.
	MessagePrefix string
	// Slot and Publication names; taken literally.
	Slot, Publication string
	// Failover makes the slot one that standbys keep (PostgreSQL 17 and newer).
	Failover bool
	// AutoSetup allows Begin to create publication and slot.
	AutoSetup bool
	// Snapshot is asked with StartSnapshot alone.
	Snapshot Snapshot
	// Validate is called with each outbox table as the server describes it
	// now, before anything is read. Its error refuses the start. May be nil.
	Validate func(*source.Table) error
}

// TableName names a table literally. Schema may be empty: then the name must be unique in the database.
type TableName struct{ Schema, Name string }

// String gives the name as SQL, quoted.
func (t TableName) String() string {
	if t.Schema == "" {
		return quote(t.Name)
	}
	return quote(t.Schema) + "." + quote(t.Name)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Source implements source.Source.
type Source struct {
	cfg    Config
	log    *zap.Logger
	tables []TableName // resolved: with schema; known once Acquire succeeded
	server string      // address that the lease was taken on; "" before

	view     *view           // of a first snapshot
	begun    source.Position // what Begin made for a snapshot, in case it is asked again
	progress atomic.Pointer[source.Snapshot]
}

var (
	_ source.Source      = (*Source)(nil)
	_ source.Snapshotter = (*Source)(nil)
)

// The times of the lease and the stream. They are fields of no option: each
// depends on the others (docs/architecture.md, "The lease").
const (
	leasePing        = 5 * time.Second  // between two questions on the lease's session
	leaseTrust       = 10 * time.Second // how long an answer is trusted, from the sending of its question
	leaseIdleTimeout = 15 * time.Second // after which the server ends a frozen holder's session
	standbyPoll      = time.Second
	senderTimeout    = 10 * time.Second // wal_sender_timeout of our session
	statusInterval   = 4 * time.Second
	silenceLimit     = 3 * statusInterval // a server that answers no status for that long is gone
	connectTimeout   = 10 * time.Second
	idleInterval     = 60 * time.Second // idle progress: the longest wait …
	idleBytes        = 16 << 20         // … and the most log
	idleSettle       = 3 * time.Second  // the longest wait after much log was written, or the stream began
)

// New checks cfg without connecting.
func New(cfg Config, log *zap.Logger) (*Source, error) {
	if len(cfg.Tables) == 0 && cfg.MessagePrefix == "" {
		return nil, fault.Config(fault.CodeConfig, "set OUTBOXD_TABLES", nil, "no outbox table is named")
	}
	s := &Source{cfg: cfg, log: log}
	if _, err := s.connConfig(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Source) publicationSQL(tables []TableName) string {
	names := make([]string, len(tables))
	for i, t := range tables {
		names[i] = t.String()
	}
	if len(names) == 0 { // without a publication the slot can't even decode messages
		return fmt.Sprintf("CREATE PUBLICATION %s WITH (publish = 'insert')", quote(s.cfg.Publication))
	}
	return fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s WITH (publish = 'insert', publish_via_partition_root = true)",
		quote(s.cfg.Publication), strings.Join(names, ", "))
}

func (s *Source) slotSQL() string {
	more := ""
	if s.cfg.Failover {
		more = ", failover => true"
	}
	return fmt.Sprintf("SELECT pg_create_logical_replication_slot(%s, 'pgoutput'%s)", quoteLiteral(s.cfg.Slot), more)
}

func dropSlotSQL(slot string) string {
	return fmt.Sprintf("SELECT pg_drop_replication_slot(%s)", quoteLiteral(slot))
}
