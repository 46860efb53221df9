package snapshot

import (
	"fmt"
	"slices"

	"github.com/outboxd/outboxd/source"
)

// Limits of one batch, as on the log.
const (
	batchRows  = 1000
	batchBytes = 512 << 10
	arenaBytes = 256 << 10
	valueSlab  = 4096
)

// Batcher makes batches of the rows of a cursor's first table. One goroutine uses it.
type Batcher struct {
	Cursor   *Cursor                         // where the table was begun, or taken up
	Position func(c *Cursor) source.Position // of the place with that cursor
	Table    *source.Table
	TxID     string // of each row's transaction
	// Unwrap makes a value of a column's text, which it may change; nil: they are the same.
	Unwrap func(column int, text []byte) ([]byte, error)

	taken  int64    // rows that were read since Cursor
	key    []string // of the last row that was read
	rows   []source.Row
	keys   [][]string // of rows
	counts []int64    // taken, at each of rows
	bytes  int
	arena  []byte
	values []source.Value
	txs    []source.Tx
}

// Done is how many rows were read, of all tables and all runs.
func (b *Batcher) Done() int64 { return b.Cursor.Done + b.taken }

// Take takes one row: its columns' text, nil for NULL, and what the order's
// expressions are in it. A row that is left to the log counts as read. It returns the rows
// before it when they are a full batch. A border lies only between rows that
// differ in their key (I3).
func (b *Batcher) Take(columns [][]byte, key []string, left bool) (*source.Batch, error) {
	var full *source.Batch
	if len(b.rows) >= batchRows || b.bytes >= batchBytes {
		batch := b.cut("")
		if !slices.Equal(key, b.key) {
			batch.Position = b.position(b.key, b.taken)
		}
		full = &batch
	}
	b.key = key
	b.taken++
	if left {
		return full, nil
	}
	return full, b.add(columns, key)
}

func (b *Batcher) add(columns [][]byte, key []string) error {
	if len(b.values) < len(columns) {
		b.values = make([]source.Value, max(valueSlab, len(columns)))
	}
	values := b.values[:len(columns):len(columns)]
	b.values = b.values[len(columns):]
	for i, v := range columns {
		if v == nil {
			values[i] = source.Value{State: source.Null}
			continue
		}
		b.bytes += len(v)
		data := b.keep(v)
		if b.Unwrap != nil {
			var err error
			if data, err = b.Unwrap(i, data); err != nil {
				return fmt.Errorf("table %s: column %q: %w", b.Table, b.Table.Columns[i].Name, err)
			}
		}
		values[i] = source.Value{Data: data, State: source.Present}
	}
	if len(b.txs) == 0 {
		b.txs = make([]source.Tx, batchRows)
	}
	// Each row stands for itself: where one is refused, those before it are saved.
	tx := &b.txs[0]
	b.txs = b.txs[1:]
	*tx = source.Tx{CommitAt: b.Cursor.At, ID: b.TxID, Loose: true}
	b.rows = append(b.rows, source.Row{Table: b.Table, Tx: tx, Index: uint32(b.Done() - 1), Values: values})
	b.keys = append(b.keys, key)
	b.counts = append(b.counts, b.taken)
	return nil
}

func (b *Batcher) keep(v []byte) []byte {
	if cap(b.arena)-len(b.arena) < len(v) {
		b.arena = make([]byte, 0, max(arenaBytes, len(v)))
	}
	start := len(b.arena)
	b.arena = append(b.arena, v...)
	return b.arena[start:len(b.arena):len(b.arena)]
}

// cut takes the rows there are as a batch.
func (b *Batcher) cut(pos source.Position) source.Batch {
	rows, keys, counts := b.rows, b.keys, b.counts
	b.rows, b.keys, b.counts, b.bytes = nil, nil, nil, 0
	return source.Batch{Rows: rows, Position: pos, At: func(n int) source.Position {
		if n < 1 || n >= len(rows) || slices.Equal(keys[n-1], keys[n]) {
			return ""
		}
		return b.position(keys[n-1], counts[n-1])
	}}
}

// Rest is the table's last batch, which may be empty, and the cursor behind it.
func (b *Batcher) Rest() (source.Batch, *Cursor) {
	next := b.Cursor.Next(b.taken)
	return b.cut(b.Position(next)), next
}

func (b *Batcher) position(key []string, taken int64) source.Position {
	return b.Position(b.Cursor.Behind(key, taken))
}
