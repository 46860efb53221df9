// Package snapshot holds what the first snapshots of all databases have in
// common: the cursor that a position holds until the rows are read, the batches
// they come in, and how an order is written. It asks no database anything.
package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Cursor is where a first snapshot stands, as a place holds it: what is left
// to be read before the log is followed from that place. It is written with each
// saved place, so that another process can go on; the settings the snapshot began
// with are in it, so that a change of the environment can't move the border
// between what was read and what was not.
type Cursor struct {
	At     time.Time `json:"at"` // when it was taken; stands for the commit time of its rows
	Where  string    `json:"where,omitempty"`
	Done   int64     `json:"done"`   // rows that were read
	Tables []Table   `json:"tables"` // that are not read to their end, in order; the first is under way
}

// Table is what is left of one table: the rows behind After, up to Through.
type Table struct {
	Schema  string   `json:"schema"`
	Name    string   `json:"name"`
	Order   []string `json:"order"`           // SQL expressions, ascending, never NULL
	After   []string `json:"after,omitempty"` // their values in the last row that was read, as the source writes them
	Through []string `json:"through"`         // their values in the last row there was when the snapshot was taken
}

// Behind is the cursor with n more rows of the first table read, up to key.
func (c *Cursor) Behind(key []string, n int64) *Cursor {
	next := *c
	next.Done += n
	next.Tables = slices.Clone(c.Tables)
	next.Tables[0].After = key
	return &next
}

// Next is the cursor with n more rows read and the first table done; nil when nothing is left.
func (c *Cursor) Next(n int64) *Cursor {
	if len(c.Tables) == 1 {
		return nil
	}
	next := *c
	next.Done += n
	next.Tables = c.Tables[1:]
	return &next
}

// Text is what Parse reads.
func (c *Cursor) Text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("print cursor: %v", err)) // strings, numbers and a time: cannot be
	}
	return string(b)
}

// Parse reads a cursor's text.
func Parse(text string) (*Cursor, error) {
	var c Cursor
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if len(c.Tables) == 0 || c.At.IsZero() {
		return nil, fmt.Errorf("snapshot: a field is missing")
	}
	for _, t := range c.Tables {
		if t.Name == "" || len(t.Order) == 0 || len(t.Through) != len(t.Order) || (t.After != nil && len(t.After) != len(t.Order)) {
			return nil, fmt.Errorf("snapshot: the cursor of table %q does not fit its order", t.Name)
		}
	}
	return &c, nil
}

// Fingerprint stands for a row of a table, by the text of its key; nil is NULL.
type Fingerprint [16]byte

// FingerprintOf makes one.
func FingerprintOf(schema, table string, key [][]byte) Fingerprint {
	h := sha256.New()
	part := func(b []byte, null bool) {
		n := uint64(len(b))
		if null {
			n = 1 << 63
		}
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, n))
		_, _ = h.Write(b)
	}
	part([]byte(schema), false)
	part([]byte(table), false)
	for _, f := range key {
		part(f, f == nil)
	}
	return Fingerprint(h.Sum(nil))
}
