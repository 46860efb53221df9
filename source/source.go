// Package source is the contract between the engine and a database log.
//
// A Source hands out a Lease (we are the only active reader), makes the place
// a first start reads from, and opens Streams. A Stream is one live read: it
// yields batches of committed outbox rows and is told which place is safely
// stored. A reconnect is a new Stream, so nothing is ever half reset.
//
// No type of a database library crosses this border.
package source

import (
	"context"
	"math"
	"regexp"
	"time"
)

// Position is a resume point in one database's log together with the history
// it belongs to, as versioned text: a word for the kind of source, a version
// number, '?', and what that source wants. Only the source that made it reads it; the
// engine neither parses nor compares positions. The zero value means "none".
type Position string

var positionHead = regexp.MustCompile(`^([a-z]+)[0-9]+\?`)

// Kind is the word a position begins with, or "" when it is not one. It tells
// another source's position from a damaged one.
func (p Position) Kind() string {
	if m := positionHead.FindStringSubmatch(string(p)); m != nil {
		return m[1]
	}
	return ""
}

// Start says what a first start does, when nothing was ever saved.
type Start string

// The values of OUTBOXD_START.
const (
	StartAuto   Start = "auto"   // the table must be empty at the place, else the operator chooses
	StartNow    Start = "now"    // follow the log from here; rows already there are not published
	StartResume Start = "resume" // a saved place must exist
	// StartSnapshot publishes the rows already there, then follows the log without a
	// gap. The first place then holds a cursor, and streams opened on it yield
	// the rows first. A source that can't refuses it by name.
	StartSnapshot Start = "snapshot"
)

// First describes a first start to Source.Begin.
type First struct {
	Mode Start
	// Intended is true when an earlier first start saved its intent and was
	// cut short, so what exists on the server may be its half-made work (I6).
	Intended bool
	// ExactlyOnce forbids a place of which it is not known what was delivered behind it.
	ExactlyOnce bool
}

// Source is one database's log. Its methods are called by one goroutine.
type Source interface {
	// Acquire blocks until this process is the only active reader. It checks
	// what the server must offer on the way. waiting is called each time another
	// holder is seen (a short text that names it) and may be nil. A *fault.Error means that
	// waiting is no use; any other error is worth another try.
	Acquire(ctx context.Context, waiting func(holder string)) (Lease, error)
	// Begin makes what a first start needs on the server and returns the
	// first place. The engine has saved an intent before it calls (I6).
	Begin(ctx context.Context, first First) (Position, error)
	// Open streams right after from, and alone judges it: a *fault.Error
	// with CodePositionLost, CodeForeign or CodeDiverged names cause and way out.
	Open(ctx context.Context, from Position) (Stream, error)
}

// Judge is an optional ability of a Source: it judges a stored place as Open
// does, and opens nothing. Exactly-once delivery asks it before it fences anybody
// off, who might be another connector that was given the same name.
type Judge interface {
	Judge(ctx context.Context, from Position) error
}

// Lease is the right to be the only active reader. It is safe for concurrent use.
type Lease interface {
	// Done is closed when the lease can no longer be vouched for.
	Done() <-chan struct{}
	// Valid is asked right before each publish and each save: a process that
	// wakes from a freeze runs before its own timers do, so Done alone is late.
	Valid() bool
	// Release gives the lease back. It blocks until ctx ends at most.
	Release(ctx context.Context) error
}

// Stream is one live read of the log.
type Stream interface {
	// Next blocks until a batch is there. An error ends the stream.
	Next(ctx context.Context) (Batch, error)
	// Confirm tells the server that everything up to pos is stored. It may be
	// called from any goroutine, never blocks, and never goes back.
	Confirm(pos Position)
	// Close ends the read after the last confirmed place was sent, or when ctx ends.
	Close(ctx context.Context) error
}

// Pulse is an optional ability of a Stream: when bytes last came from the
// server, heartbeats included (I8). It may be called from any goroutine.
type Pulse interface{ LastReceived() time.Time }

// Retainer is an optional ability of a Stream: what the server keeps for it. It
// may be called from any goroutine and does not block.
type Retainer interface{ Retention() Retention }

// Retention is what the server kept for a stream when it was last asked.
type Retention struct {
	AskedAt time.Time        // zero: not asked yet
	Bytes   int64            // of log
	Limit   *Limit           // nil: the server keeps what we need whatever it costs, or doesn't tell
	Oldest  *OpenTransaction // the oldest transaction that holds log; nil: none that is older than a few seconds
}

// Limit is how far the server is from dropping log that a stream needs.
type Limit struct {
	Left   int64   // bytes
	Shrink float64 // by which Left became less, in bytes per second over the last minutes; not above 0: it doesn't
}

// Seconds is the time until nothing is left if it goes on like this; +Inf when it does not shrink.
func (l Limit) Seconds() float64 {
	switch {
	case l.Left <= 0:
		return 0
	case l.Shrink <= 0:
		return math.Inf(1)
	}
	return float64(l.Left) / l.Shrink
}

// OpenTransaction is a transaction that was neither committed nor rolled back.
type OpenTransaction struct {
	Name  string    // whose it is, in the server's words
	Since time.Time // when it began, or was first seen where the server doesn't tell us
}

// Sampler is an optional ability of a Source: it reads the newest row of each
// outbox table that holds any, as the log would show it, so that a record can be shown before it is
// sent. The row's Tx is a stand-in without a commit time. It changes nothing, takes no lease, and ends soon.
type Sampler interface {
	Newest(ctx context.Context) ([]Row, error)
}

// Snapshotter is an optional ability of a Source: how far a first snapshot is.
// It may be called from any goroutine.
type Snapshotter interface {
	// Snapshot returns nil when none is under way.
	Snapshot() *Snapshot
}

// Snapshot tells of a first snapshot that is under way.
type Snapshot struct {
	Table    string // being read
	Rows     int64  // read so far, of all tables and all runs
	Estimate int64  // of all rows there are to read, by the server's planner
	Since    time.Time
}

// Batch holds rows of one or more committed transactions, in commit order. It
// may be empty: the log moved on without rows for us. The receiver owns it.
type Batch struct {
	Rows []Row
	// Position is the resume point after Rows; zero inside a transaction that
	// is handed over in pieces (I3). Such a piece holds rows of that one alone.
	Position Position
	// At gives the resume point behind the first n rows, or "" when that is no
	// commit boundary. It is asked only when a row can't be published, and may be nil.
	At func(n int) Position
	// CaughtUp is true when this batch reaches the end of the log as the
	// server last told it.
	CaughtUp bool
	// Urgent is true when the server waits for Confirm of Position, as it does
	// in a shutdown: the engine then saves at once instead of at its next interval.
	Urgent bool
}

// Row is one committed insert on an outbox table.
type Row struct {
	Table  *Table // shared and immutable per schema version: compare by pointer
	Tx     *Tx
	Index  uint32 // ordinal of the row within its transaction, from 0
	Values []Value
}

// Tx is the transaction a row came with. ID + Row.Index is the exact place of a row.
type Tx struct {
	CommitAt time.Time
	// Loose tells that another read may give its rows in another order, so that
	// a place inside of it means nothing later: rows of a first snapshot.
	Loose bool
	ID    string // Postgres: LSN of the commit record; MySQL, MariaDB: GTID, or file:offset
}

// Table is one version of a table's shape.
type Table struct {
	Schema  string
	Name    string
	Columns []Column
}

// String gives schema.table.
func (t *Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// Column returns the index of the column of that name, or -1.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return i
		}
	}
	return -1
}

// Column is one column of a Table.
type Column struct {
	Name string
	Type string // the server's name of the type
	Kind Kind
	// NotNull tells that the column can't be NULL, as far as the source knows.
	NotNull bool
}

// Kind is what a column's bytes are.
type Kind uint8

// The kinds of values.
const (
	Text    Kind = iota // UTF-8 as the server prints it; also every type not named below
	JSON                // UTF-8 JSON text exactly as the server prints it
	Bytes               // raw bytes
	Number              // integer or decimal text
	Boolean             // as the server prints it: t or f on Postgres
	Time                // date, time or timestamp text
)

// State tells a value from NULL and from "the log does not carry it".
type State uint8

// The states of a value.
const (
	Absent  State = iota // not in the log record; never to be taken as NULL
	Null                 // SQL NULL
	Present              // Data holds the value, which may be empty
)

// Value is one column's value. Data belongs to the batch and is not changed by anyone.
type Value struct {
	Data  []byte
	State State
}
