package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// late holds the keys of rows that were committed after the slot's place and
// stand before the snapshot's end: those of transactions that were open when the slot was made. They
// are few where the order is that of the commits, and none but them need be known.
type late struct {
	tables   map[TableName]*lateTable
	rows     map[snapshot.Fingerprint]struct{}
	overflow bool // there are more than lateMax
}

// lateMax bounds the memory. Only an order of the operator's own, or one of
// random keys, may reach it.
const lateMax = 1 << 20

// lateTable says what tells one row of a table from another.
type lateTable struct {
	key    []string                // columns; none: all of them
	beyond func(value []byte) bool // whether a value of the first column lies behind the snapshot's end; nil: not known
	first  string                  // that column
	fields []int                   // of key in the relation at hand
	at     int                     // of first in it
}

// repeats tells what may come twice because of it.
func (l *late) repeats() string {
	if l.overflow {
		return fmt.Sprintf("rows that were committed since the slot was made, except %d of them, and what was delivered and not saved", len(l.rows))
	}
	return "what was delivered and not saved"
}

func (l *late) has(t TableName, fields [][]byte) bool {
	_, ok := l.rows[snapshot.FingerprintOf(t.Schema, t.Name, fields)]
	return ok
}

// readLate reads the log from the slot's place to its end, and confirms nothing.
func (s *Source) readLate(ctx context.Context, conn *pgx.Conn, at place) (*late, error) {
	l := &late{tables: map[TableName]*lateTable{}, rows: map[snapshot.Fingerprint]struct{}{}}
	for _, t := range at.snapshot.Tables {
		known, err := s.lateTable(ctx, conn, t)
		if err != nil {
			return nil, err
		}
		l.tables[tableOf(t)] = known
	}
	end, err := s.mark(ctx, conn)
	if err != nil {
		return nil, err
	}
	rep, err := s.connectReplication(ctx)
	if err != nil {
		return nil, err
	}
	err = s.startReplication(ctx, rep, at.lsn)
	if err == nil {
		err = l.read(ctx, rep, at.lsn, end)
	}
	closePgConn(rep)
	if err != nil {
		return nil, fmt.Errorf("look for late rows in the log: %w", err)
	}
	st, err := s.slot(ctx, conn) // its walsender may take a moment to end
	if err != nil || st == nil {
		return l, err
	}
	return l, s.freeSlot(ctx, conn, st)
}

// mark gives a place in the log behind every commit that can be seen, and sees
// to it that the log is written up to there.
func (s *Source) mark(ctx context.Context, conn *pgx.Conn) (pglogrepl.LSN, error) {
	var text string
	err := conn.QueryRow(ctx, "SELECT pg_logical_emit_message(true, 'outboxd.mark', '')::text").Scan(&text)
	if err != nil { // a right may be missing, or the database reads only
		err = conn.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&text)
	}
	if err != nil {
		return 0, s.explain(fmt.Errorf("ask for the log's end: %w", err))
	}
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		return 0, fmt.Errorf("ask for the log's end: %w", err)
	}
	return lsn, nil
}

func (s *Source) lateTable(ctx context.Context, conn *pgx.Conn, t snapshot.Table) (*lateTable, error) {
	columns, err := s.keyColumns(ctx, conn, tableOf(t))
	if err != nil {
		return nil, err
	}
	shape, _, err := s.describe(ctx, conn, tableOf(t))
	if err != nil {
		return nil, err
	}
	known := &lateTable{}
	for _, c := range columns {
		if c.Key >= 0 {
			known.key = append(known.key, c.Name)
		}
		if by := t.Order[0]; by == c.expression() || by == c.Name || by == quote(c.Name) {
			known.first, known.beyond = c.Name, beyond(c, t.Through[0])
		}
	}
	if slices.ContainsFunc(known.key, func(name string) bool { return shape.Column(name) < 0 }) {
		known.key = nil // a publication of somebody else's leaves it out: the rest must tell
	}
	return known, nil
}

// beyond compares with a snapshot's end what can be compared outside of the server.
func beyond(c keyColumn, end string) func([]byte) bool {
	if c.integer() {
		last, err := strconv.ParseInt(end, 10, 64)
		if err != nil {
			return nil
		}
		return func(b []byte) bool {
			n, err := strconv.ParseInt(string(b), 10, 64)
			return err == nil && n > last
		}
	}
	layout := "2006-01-02 15:04:05.999999999-07"
	last, err := time.Parse(layout, end)
	if err != nil {
		layout = "2006-01-02 15:04:05.999999999"
		last, err = time.Parse(layout, end)
	}
	if !c.time() || err != nil {
		return nil
	}
	return func(b []byte) bool {
		t, err := time.Parse(layout, string(b))
		return err == nil && t.After(last)
	}
}

func (l *late) read(ctx context.Context, rep *pgconn.PgConn, from, end pglogrepl.LSN) error {
	relations := map[uint32]*pglogrepl.RelationMessage{}
	due := time.Now()
	for {
		if !time.Now().Before(due) {
			due = time.Now().Add(statusInterval)
			if err := pglogrepl.SendStandbyStatusUpdate(ctx, rep, pglogrepl.StandbyStatusUpdate{WALWritePosition: from, ReplyRequested: true}); err != nil {
				return err
			}
		}
		wait, cancel := context.WithDeadline(ctx, due)
		m, err := rep.ReceiveMessage(wait)
		cancel()
		if pgconn.Timeout(err) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return err
		}
		data, ok := m.(*pgproto3.CopyData)
		switch {
		case !ok:
			if e, is := m.(*pgproto3.ErrorResponse); is {
				return pgconn.ErrorResponseToPgError(e)
			}
		case data.Data[0] == pglogrepl.PrimaryKeepaliveMessageByteID:
			k, err := pglogrepl.ParsePrimaryKeepaliveMessage(data.Data[1:])
			if err != nil {
				return err
			}
			if k.ServerWALEnd >= end {
				return nil
			}
			if k.ReplyRequested {
				due = time.Now()
			}
		case data.Data[0] == pglogrepl.XLogDataByteID:
			x, err := pglogrepl.ParseXLogData(data.Data[1:])
			if err != nil {
				return err
			}
			if done, err := l.message(x.WALData, relations, end); done || err != nil {
				return err
			}
		}
	}
}

func (l *late) message(data []byte, relations map[uint32]*pglogrepl.RelationMessage, end pglogrepl.LSN) (done bool, err error) {
	if len(data) == 0 {
		return false, errShort
	}
	switch data[0] {
	case 'R', 'I', 'C': // the others are the stream's to judge
	default:
		return false, nil
	}
	m, err := pglogrepl.Parse(data)
	if err != nil {
		return false, err
	}
	switch m := m.(type) {
	case *pglogrepl.RelationMessage:
		relations[m.RelationID] = m
		if t := l.tables[TableName{m.Namespace, m.RelationName}]; t != nil {
			return false, t.bind(m)
		}
	case *pglogrepl.InsertMessage:
		r := relations[m.RelationID]
		if r == nil {
			return false, fmt.Errorf("a row of a table that was not described")
		}
		name := TableName{r.Namespace, r.RelationName}
		if t := l.tables[name]; t != nil {
			l.add(name, t, m.Tuple)
		}
	case *pglogrepl.CommitMessage:
		return m.TransactionEndLSN >= end, nil
	}
	return false, nil
}

func (t *lateTable) bind(m *pglogrepl.RelationMessage) error {
	places := map[string]int{}
	t.fields, t.at = nil, -1
	for i, c := range m.Columns {
		places[c.Name] = i
		if len(t.key) == 0 {
			t.fields = append(t.fields, i)
		}
	}
	for _, name := range t.key {
		i, ok := places[name]
		if !ok {
			return fmt.Errorf("the log of table %s.%s has no column %q of its key", m.Namespace, m.RelationName, name)
		}
		t.fields = append(t.fields, i)
	}
	if i, ok := places[t.first]; ok && t.beyond != nil {
		t.at = i
	}
	return nil
}

func (l *late) add(name TableName, t *lateTable, row *pglogrepl.TupleData) {
	if t.at >= 0 && row.Columns[t.at].DataType == 't' && t.beyond(row.Columns[t.at].Data) {
		return
	}
	if len(l.rows) >= lateMax {
		l.overflow = true
		return
	}
	fields := make([][]byte, len(t.fields))
	for i, c := range t.fields {
		if row.Columns[c].DataType == 't' {
			fields[i] = row.Columns[c].Data
			if fields[i] == nil {
				fields[i] = []byte{}
			}
		}
	}
	l.rows[snapshot.FingerprintOf(name.Schema, name.Name, fields)] = struct{}{}
}

// fieldsOf gives the places of a row's key in the table as it is described.
func (t *lateTable) fieldsOf(table *source.Table) []int {
	var fields []int
	if len(t.key) == 0 {
		for i := range table.Columns {
			fields = append(fields, i)
		}
	}
	for _, name := range t.key {
		fields = append(fields, table.Column(name))
	}
	return fields
}
