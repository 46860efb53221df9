// Package verify compares what should be in topics with what is.
//
// One side are events, as the rows of an outbox table ask for them (or as another
// relay published them), the other records of topics. Both may be millions and come in
// any order, so neither is held in memory: each is written, reduced to hashes, into one of
// 256 files in a temporary folder by its topic and id. Each file is then joined on its own. What
// was found of an event goes on into files by topic and key, where the order is
// judged. Memory is that of the largest file: about a 256th of all, and an aggregate at least.
//
// No payload is kept: a value is compared by its hash.
package verify

import "time"

// Event is one event that should be in a topic.
type Event struct {
	Topic string
	ID    []byte
	Key   []byte // nil: a null key
	Value []byte // nil: a tombstone
	// Spread is the number whose rest by the count of partitions is the record's partition; -1: not known.
	Spread int64
	// At is when the row was committed, if Exact, or made; zero: not known.
	At    time.Time
	Exact bool
	// Tx tells the rows of one transaction from others; "": not known.
	Tx string
	// Place is the place in the order; it goes before all else. "": none.
	Place string
}

// Record is one record that is in a topic.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	ID        []byte
	Key       []byte
	Value     []byte
	Place     string // as the header position has it; "": none
	At        time.Time
}

// Extent is a partition of a topic, and how far it reaches.
type Extent struct {
	Topic     string
	Partition int32
	Start     int64 // above 0 older records were deleted
	Open      bool  // behind what was read a transaction is open
}

// Kind is what became of an event, or what is wrong with its records.
type Kind string

// The kinds. Missing, Repeated, Disordered and Altered are differences.
const (
	Missing    Kind = "missing"      // in the table, not in the topic, and nothing explains it
	Repeated   Kind = "repeated"     // more than once
	Disordered Kind = "out_of_order" // before an event that was committed earlier, or an earlier one is the last of its key
	Altered    Kind = "altered"      // key or value is another one
	Suspect    Kind = "suspect"      // out of order as far as can be told, but transactions that ran side by side explain it
	Expired    Kind = "expired"      // not in the topic any more: it begins later
	Pending    Kind = "pending"      // not delivered yet
	Parked     Kind = "parked"       // in the dead-letter topic
	Refused    Kind = "refused"      // the mapping refuses the row
	Extra      Kind = "extra"        // in the topic, and no event asks for it
)

// Example is one event or record that a Kind was found for.
type Example struct {
	Kind      Kind   `json:"kind"`
	Topic     string `json:"topic"`
	ID        string `json:"id"`
	Partition int32  `json:"partition"` // -1: there is no record
	Offset    int64  `json:"offset"`
	Detail    string `json:"detail,omitempty"`
}

// Report is what was found.
type Report struct {
	Events   int64            `json:"events"`  // that should be there
	Records  int64            `json:"records"` // that were read
	Matched  int64            `json:"matched"` // events with a record
	Counts   map[Kind]int64   `json:"counts"`
	Order    map[string]int64 `json:"order"` // by what the order was judged, and of how many aggregates
	NoID     int64            `json:"noId"`  // records without an id
	CaughtUp bool             `json:"caughtUp"`
	Open     []string         `json:"openTransactions,omitempty"` // partitions that end in one
	NoTopic  []string         `json:"missingTopics,omitempty"`
}
