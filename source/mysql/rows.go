package mysql

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// rowsOf reads a rows event's header; nil when it is of another table.
func (d *decoder) rowsOf(e event) (*table, cutter, error) {
	c := cutter{b: e.body}
	t := d.tables[c.fixed(6)]
	if t == nil || c.short {
		return nil, c, c.err()
	}
	c.skip(2)
	switch e.kind {
	case eventWriteRows, eventUpdateRows, eventPartialUpdateRows:
		extra := int(c.fixed(2))
		c.skip(extra - 2)
	}
	return t, c, c.err()
}

func (d *decoder) insert(e event) error {
	t, c, err := d.rowsOf(e)
	if t == nil || err != nil {
		return err
	}
	if d.tx == nil {
		return errors.New("a row outside of a transaction")
	}
	if !d.collects() {
		return nil
	}
	if d.tx.ID == "" {
		d.tx.ID, d.spare = d.began.String(), nil
	}
	n := int(c.lenenc())
	if n != len(t.columns) {
		return fmt.Errorf("table %s has %d columns, its rows %d", t, len(t.columns), n)
	}
	present := c.bytes((n + 7) / 8)
	if c.short {
		return errShort
	}
	here := 0
	for i := range t.columns {
		if has(present, i) {
			here++
		}
	}
	if here == 0 { // nothing tells where such a row ends, or that it is there
		return fault.Refused("set binlog_row_image=FULL", nil, "a row of %s at %s:%d was logged without any column", t, d.file, d.pos)
	}
	if e.kind == eventWriteRowsCompressed {
		if c.b, err = d.inflater.decompress(c.b); err != nil {
			return fmt.Errorf("decompress rows of %s: %w", t, err)
		}
	}
	const rowBytes, valueBytes = 72, 32 // beside the text
	for len(c.b) > 0 {
		before := d.bytes
		values, err := d.row(t, present, here, &c)
		if err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
		d.seen++
		if d.promise != nil && d.promise.takenBack(d.seen-1) {
			continue
		}
		d.rows = append(d.rows, source.Row{Table: t.Table, Tx: d.tx, Index: d.index, Values: values})
		d.index++
		d.held += d.bytes - before + rowBytes + valueBytes*len(values)
	}
	d.weigh()
	return nil
}

func has(bits []byte, i int) bool { return bits[i/8]&(1<<(i%8)) != 0 }

// row reads one row image: a bit for each of the columns that are here, set when it is NULL, then the values.
func (d *decoder) row(t *table, present []byte, here int, c *cutter) ([]source.Value, error) {
	nulls := c.bytes((here + 7) / 8)
	if c.short {
		return nil, errShort
	}
	values := d.take(len(t.columns))
	bit := 0
	for i := range t.columns {
		if !has(present, i) {
			values[i] = source.Value{State: source.Absent}
			continue
		}
		null := has(nulls, bit)
		bit++
		if null {
			values[i] = source.Value{State: source.Null}
			continue
		}
		data, n, err := d.print(&t.columns[i], c.b)
		if errors.Is(err, errLabel) {
			return nil, schemaUnknown(TableName{t.Schema, t.Name}, fmt.Sprintf("column %q: %s", t.Columns[i].Name, err))
		}
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", t.Columns[i].Name, err)
		}
		c.skip(n)
		values[i] = source.Value{Data: data, State: source.Present}
	}
	return values, nil
}

// print puts a value's text into the arena.
func (d *decoder) print(col *column, b []byte) (text []byte, n int, err error) {
	if cap(d.arena)-len(d.arena) < arenaBytes/8 {
		d.arena = make([]byte, 0, arenaBytes)
	}
	start := len(d.arena)
	out, n, err := col.take(d.arena[start:], b)
	if err != nil {
		return nil, 0, err
	}
	d.bytes += len(out)
	if len(out) <= cap(d.arena)-start {
		d.arena = d.arena[:start+len(out)]
	} // else the value is larger than the arena's rest and has moved to memory of its own
	return out[:len(out):len(out)], n, nil
}

func (d *decoder) take(n int) []source.Value {
	if len(d.values) < n {
		d.values = make([]source.Value, max(valueSlab, n))
	}
	v := d.values[:n:n]
	d.values = d.values[n:]
	return v
}

// update counts an UPDATE on our table; it is never an event.
func (d *decoder) update(e event) error {
	t, _, err := d.rowsOf(e)
	if t == nil || d.passing || err != nil {
		return err
	}
	d.updates++
	policy := d.onUpdate
	if policy == "" {
		policy = defaultOnUpdate(t.Table)
	}
	switch policy {
	case UpdateStop: // at the commit: what is rolled back was no update
		d.lost = &fault.Error{
			Code: fault.CodeEventRefused, Exit: fault.ExitRefused,
			Found: fmt.Sprintf("an outbox row of %s was updated at %s:%d and OUTBOXD_ON_UPDATE is stop", t, d.file, d.pos),
			Fix:   "an update is never an event; set OUTBOXD_ON_UPDATE to ignore or warn if that is meant",
		}
	case UpdateWarn:
		if now := time.Now(); now.Sub(d.warnedAt) >= time.Minute {
			d.warnedAt = now
			d.log.Warn("outbox rows were updated; an update is never an event", zap.Stringer("table", t), zap.Uint64("updates", d.updates))
		}
	}
	return nil
}

// marks are columns that a polling relay writes.
var marks = []string{"status", "state", "attempts", "retry_count", "retries", "processed", "processed_at", "published", "published_at", "sent", "sent_at", "delivered_at", "dispatched_at", "locked_at", "locked_by", "last_error"}

func defaultOnUpdate(t *source.Table) OnUpdate {
	for _, c := range t.Columns {
		for _, m := range marks {
			if strings.EqualFold(c.Name, m) {
				return UpdateIgnore
			}
		}
	}
	return UpdateWarn
}
