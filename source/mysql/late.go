package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// late holds the keys of rows that were committed after a snapshot's place and
// stand before its end: those of transactions that were open when it was taken. They
// are few where the order is that of the commits, and none but them need be known.
type late struct {
	rows     map[snapshot.Fingerprint]struct{}
	overflow bool // there are more than lateMax
}

// lateMax bounds the memory. Only an order of the operator's own, or one of
// random keys, may reach it.
const lateMax = 1 << 20

// repeats tells what may come twice because of it.
func (l *late) repeats() string {
	if l.overflow {
		return fmt.Sprintf("rows that were committed since the snapshot was taken, except %d of them, and what was delivered and not saved", len(l.rows))
	}
	return "what was delivered and not saved"
}

// lateTable says what tells one row of a table from another, and where its order ends.
type lateTable struct {
	name   TableName
	key    []describedColumn
	first  string                  // column that the order begins with; "" when it is another expression
	beyond func(value []byte) bool // whether a value of it lies behind the snapshot's end
}

// readLate reads the log from a snapshot's place to end.
func (s *Source) readLate(ctx context.Context, st start, end logPlace) (*late, error) {
	l := &late{rows: map[snapshot.Fingerprint]struct{}{}}
	tables := map[TableName]*lateTable{}
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer q.close()
	for _, t := range st.at.snapshot.Tables {
		known, err := s.lateTable(ctx, q, t)
		if err != nil {
			return nil, err
		}
		tables[s.server.logged(known.name)] = known
	}
	st.at = st.at.reading(nil)
	err = s.walk(ctx, st, end, func(t walked) error {
		for _, r := range t.rows {
			if known := tables[TableName{r.Table.Schema, r.Table.Name}]; known != nil {
				if err := l.add(known, r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for late rows in the log: %w", err)
	}
	return l, nil
}

func (s *Source) lateTable(ctx context.Context, q *session, c snapshot.Table) (*lateTable, error) {
	t := TableName{c.Schema, c.Name}
	columns, key, err := s.keyed(ctx, q, t)
	if err != nil {
		return nil, err
	}
	known := &lateTable{name: t, key: key}
	for _, column := range columns {
		if by := c.Order[0]; by == quote(column.name) || by == column.name {
			if known.beyond = column.beyond(c.Through[0]); known.beyond != nil {
				known.first = column.name
			}
		}
	}
	return known, nil
}

// beyond compares with a snapshot's end what can be compared outside of the server; else nil.
func (d describedColumn) beyond(end string) func([]byte) bool {
	if d.integer() && d.dataType != "decimal" && !strings.Contains(d.columnType, "unsigned") {
		last, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return nil
		}
		return func(b []byte) bool {
			n, err := strconv.ParseInt(string(b), 10, 64)
			return err == nil && n > last
		}
	}
	if d.integer() && d.dataType != "decimal" {
		last, err := strconv.ParseUint(end, 10, 64)
		if err != nil {
			return nil
		}
		return func(b []byte) bool {
			n, err := strconv.ParseUint(string(b), 10, 64)
			return err == nil && n > last
		}
	}
	const layout = "2006-01-02 15:04:05.999999"
	last, err := time.Parse(layout, strings.Trim(end, "'"))
	if !d.time() || err != nil {
		return nil
	}
	return func(b []byte) bool {
		t, err := time.Parse(layout, string(b))
		return err == nil && t.After(last)
	}
}

func (l *late) add(t *lateTable, r source.Row) error {
	if t.first != "" {
		if i := r.Table.Column(t.first); i >= 0 && r.Values[i].State == source.Present && t.beyond(r.Values[i].Data) {
			return nil
		}
	}
	if len(l.rows) >= lateMax {
		l.overflow = true
		return nil
	}
	key := make([][]byte, len(t.key))
	for i, c := range t.key {
		n := r.Table.Column(c.name)
		if n < 0 || r.Values[n].State != source.Present {
			return fmt.Errorf("a row of %s in the log lacks column %q of its key", r.Table, c.name)
		}
		key[i] = r.Values[n].Data
		if key[i] == nil {
			key[i] = []byte{}
		}
	}
	l.rows[snapshot.FingerprintOf(t.name.Schema, t.name.Name, key)] = struct{}{}
	return nil
}

func (l *late) has(t TableName, key [][]byte) bool {
	_, ok := l.rows[snapshot.FingerprintOf(t.Schema, t.Name, key)]
	return ok
}
