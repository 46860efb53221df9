package postgres

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgtype"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/source"
)

// The format is "Logical Replication Message Formats" of the PostgreSQL
// manual, protocol version 1.

var errShort = errors.New("message is cut short")

// Limits of one batch. A transaction that is larger is handed on in pieces.
const (
	batchRows  = 1000
	batchBytes = 512 << 10
	arenaBytes = 256 << 10
	valueSlab  = 4096
	txSlab     = 64
)

// relation is a table the log has described ('R').
type relation struct {
	table  *source.Table
	wanted bool // one of our outbox tables
}

// decoder turns pgoutput messages into rows. It belongs to the stream's goroutine.
type decoder struct {
	log       *zap.Logger
	wanted    map[TableName]bool
	relations map[uint32]relation
	types     map[uint32]string                         // names of the users' own types ('Y')
	bases     map[uint32]uint32                         // what these are made of …
	lookUp    func(oid uint32) (base uint32, err error) // … and whom to ask for others
	notNull   map[columnName]bool                       // which columns can't be NULL, where that is known
	prefix    string                                    // of positions
	messages  *messages                                 // nil: none are asked for

	tx      *source.Tx // transaction under way, nil between transactions
	index   uint32     // of its next row
	rows    []source.Row
	bytes   int
	ends    []border      // of the committed transactions since the last take
	settled int           // rows[:settled] belong to committed transactions …
	lsn     pglogrepl.LSN // … the last of which ends here; 0 if none since the last take
	arena   []byte
	values  []source.Value
	txs     []source.Tx
	ignored uint64 // messages that are no insert on our tables
}

// border is the end of a transaction within a batch.
type border struct {
	rows int // rows up to it
	lsn  pglogrepl.LSN
}

func newDecoder(at place, wanted map[TableName]bool, log *zap.Logger) *decoder {
	return &decoder{log: log, wanted: wanted, relations: map[uint32]relation{}, types: map[uint32]string{}, bases: map[uint32]uint32{}, prefix: at.prefix()}
}

// message takes one pgoutput message. The bytes are copied where they are kept.
func (d *decoder) message(m []byte) error {
	if len(m) == 0 {
		return errShort
	}
	r := reader{m[1:], false}
	switch m[0] {
	case 'I':
		return d.insert(&r)
	case 'B':
		return d.begin(&r)
	case 'C':
		return d.commit(&r)
	case 'R':
		return d.relation(&r)
	case 'Y':
		oid := r.uint32()
		schema, name := r.string(), r.string()
		if schema != "" && schema != "pg_catalog" {
			name = schema + "." + name
		}
		d.types[oid] = name
		return r.err()
	case 'T':
		return d.truncate(&r)
	case 'M':
		return d.logicalMessage(&r)
	case 'U', 'D', 'O':
		// A publication that is not ours may carry more than inserts; an
		// origin is no row.
		d.ignored++
		return nil
	}
	return fmt.Errorf("message type %q is not known", m[0]) // I5
}

func (d *decoder) begin(r *reader) error {
	final, at := r.uint64(), r.uint64()
	if d.tx != nil {
		return errors.New("a transaction begins inside another")
	}
	d.tx = d.transaction()
	*d.tx = source.Tx{CommitAt: fromPostgres(int64(at)), ID: lsnText(final)}
	d.index = 0
	return r.err()
}

func (d *decoder) transaction() *source.Tx {
	if len(d.txs) == 0 {
		d.txs = make([]source.Tx, txSlab)
	}
	tx := &d.txs[0]
	d.txs = d.txs[1:]
	return tx
}

// lsnText is pglogrepl.LSN's String at a tenth of its cost: a transaction may be one row.
func lsnText(lsn uint64) string {
	const digits = "0123456789ABCDEF"
	var b [17]byte
	i := len(b)
	for _, half := range [2]uint32{uint32(lsn), uint32(lsn >> 32)} {
		for {
			i--
			b[i] = digits[half&15]
			if half >>= 4; half == 0 {
				break
			}
		}
		if i--; i >= 0 {
			b[i] = '/'
		}
	}
	return string(b[i+1:])
}

func (d *decoder) commit(r *reader) error {
	r.skip(1 + 8) // flags, LSN of the commit record
	end := r.uint64()
	if d.tx == nil {
		return errors.New("a commit outside of a transaction")
	}
	// The end, not the commit record's own LSN: the server sends again what
	// ends past the confirmed place (I3).
	d.tx, d.lsn, d.settled = nil, pglogrepl.LSN(end), len(d.rows)
	if n := len(d.ends); n > 0 && d.ends[n-1].rows == d.settled {
		d.ends[n-1].lsn = d.lsn // a transaction without rows of ours
	} else {
		d.ends = append(d.ends, border{d.settled, d.lsn})
	}
	return r.err()
}

func (d *decoder) relation(r *reader) error {
	oid := r.uint32()
	t := &source.Table{Schema: r.string(), Name: r.string()}
	wanted := d.wanted[TableName{t.Schema, t.Name}]
	r.skip(1) // replica identity
	n := int(r.uint16())
	for range n {
		r.skip(1) // key flag
		c := source.Column{Name: r.string()}
		typ := r.uint32()
		modifier := int32(r.uint32())
		if r.short {
			return errShort
		}
		if !wanted {
			continue
		}
		base, err := d.base(typ)
		if err != nil {
			return fmt.Errorf("table %s, column %q: %w", t, c.Name, err)
		}
		c.Kind = kindOf(base)
		c.Type = d.typeName(typ) + modified(typ, modifier)
		c.NotNull = d.notNull[columnName{TableName{t.Schema, t.Name}, c.Name}]
		t.Columns = append(t.Columns, c)
	}
	d.relations[oid] = relation{table: t, wanted: wanted}
	return r.err()
}

// base gives the type that tells the form of oid's values: a domain's base type.
func (d *decoder) base(oid uint32) (uint32, error) {
	if oid < firstOwnType {
		return oid, nil
	}
	if base, ok := d.bases[oid]; ok {
		return base, nil
	}
	if d.lookUp == nil {
		return oid, nil
	}
	base, err := d.lookUp(oid)
	if err != nil {
		return 0, err
	}
	d.bases[oid] = base
	return base, nil
}

var builtin = pgtype.NewMap()

func (d *decoder) typeName(oid uint32) string {
	if name, ok := d.types[oid]; ok {
		return name
	}
	if t, ok := builtin.TypeForOID(oid); ok {
		return t.Name
	}
	return fmt.Sprintf("oid %d", oid)
}

// modified gives precision and scale, where a value's form depends on them.
func modified(oid uint32, modifier int32) string {
	switch {
	case modifier < 0:
	case oid == pgtype.NumericOID && modifier >= 4:
		return fmt.Sprintf("(%d,%d)", (modifier-4)>>16&0xffff, ((modifier-4)&0x7ff^0x400)-0x400)
	case oid == pgtype.TimeOID, oid == pgtype.TimestampOID, oid == pgtype.TimestamptzOID:
		return fmt.Sprintf("(%d)", modifier)
	}
	return ""
}

func (d *decoder) insert(r *reader) error {
	rel, ok := d.relations[r.uint32()]
	if !ok {
		return errors.New("a row of a table that was not described")
	}
	if !rel.wanted {
		d.ignored++
		return nil
	}
	if d.tx == nil {
		return errors.New("a row outside of a transaction")
	}
	if r.byte() != 'N' {
		return errors.New("an insert without a new tuple")
	}
	n := int(r.uint16())
	if n != len(rel.table.Columns) {
		return fmt.Errorf("table %s has %d columns, its row %d", rel.table, len(rel.table.Columns), n)
	}
	values, err := d.tuple(r, rel.table, n)
	if err != nil {
		return fmt.Errorf("table %s: %w", rel.table, err)
	}
	d.rows = append(d.rows, source.Row{Table: rel.table, Tx: d.tx, Index: d.index, Values: values})
	d.index++
	return nil
}

// tuple copies the row once, whole, into the arena and cuts its values from there.
func (d *decoder) tuple(r *reader, table *source.Table, n int) ([]source.Value, error) {
	own := reader{d.keep(r.rest), false}
	d.bytes += len(r.rest)
	values := d.take(n)
	for i := range values {
		switch kind := own.byte(); kind {
		case 'n':
			values[i] = source.Value{State: source.Null}
		case 'u': // unchanged TOAST: absent, never NULL
			values[i] = source.Value{State: source.Absent}
		case 't':
			data := own.bytes(int(own.uint32()))
			if table.Columns[i].Kind == source.Bytes && !own.short {
				var err error
				if data, err = unhex(data); err != nil {
					return nil, fmt.Errorf("column %q: %w", table.Columns[i].Name, err)
				}
			}
			values[i] = source.Value{Data: data, State: source.Present}
		default:
			if own.short {
				return nil, errShort
			}
			return nil, fmt.Errorf("column %q: value format %q is not known", table.Columns[i].Name, kind)
		}
	}
	return values, own.err()
}

// truncate warns of a TRUNCATE of an outbox table, which is no event. Our own
// publication carries none.
func (d *decoder) truncate(r *reader) error {
	d.ignored++
	n, options := int(r.uint32()), r.byte()
	for range n {
		rel := d.relations[r.uint32()]
		if r.short {
			return errShort
		}
		if !rel.wanted {
			continue
		}
		if d.tx == nil {
			return errors.New("a truncation outside of a transaction")
		}
		d.log.Warn("an outbox table was truncated; event ids may repeat from here on",
			zap.Stringer("table", rel.table), zap.Bool("restart_identity", options&restartIdentity != 0), zap.String("transaction", d.tx.ID),
			zap.String("fix", "where consumers know a repeat by the event id, use DELETE, or TRUNCATE without RESTART IDENTITY"))
	}
	return r.err()
}

// restartIdentity is the option bit of TRUNCATE … RESTART IDENTITY.
const restartIdentity = 2

func (d *decoder) keep(b []byte) []byte {
	if cap(d.arena)-len(d.arena) < len(b) {
		d.arena = make([]byte, 0, max(arenaBytes, len(b)))
	}
	start := len(d.arena)
	d.arena = append(d.arena, b...)
	return d.arena[start:len(d.arena):len(d.arena)]
}

func (d *decoder) take(n int) []source.Value {
	if len(d.values) < n {
		d.values = make([]source.Value, max(valueSlab, n))
	}
	v := d.values[:n:n]
	d.values = d.values[n:]
	return v
}

// full reports whether a batch is due whatever comes next.
func (d *decoder) full() bool { return len(d.rows) >= batchRows || d.bytes >= batchBytes }

// batch takes what can be handed on: the committed part, or, when that is
// empty and the batch is full, a piece of the transaction under way, without a
// position (I3). lsn is the position's, or 0.
func (d *decoder) batch() (b source.Batch, lsn pglogrepl.LSN, ok bool) {
	switch {
	case d.lsn != 0:
		b, lsn = source.Batch{Rows: d.rows[:d.settled:d.settled], Position: d.position(d.lsn), At: d.at(d.ends)}, d.lsn
	case d.full():
		b = source.Batch{Rows: d.rows}
	default:
		return b, 0, false
	}
	rest := d.rows[len(b.Rows):]
	// What a batch took, the next one may take too.
	d.rows = append(make([]source.Row, 0, max(batchRows/8, len(b.Rows)+len(rest))), rest...)
	d.bytes, d.settled, d.lsn, d.ends = 0, 0, 0, nil
	return b, lsn, true
}

// at gives the resume points inside a batch.
func (d *decoder) at(ends []border) func(int) source.Position {
	return func(rows int) source.Position {
		for _, e := range ends {
			if e.rows == rows {
				return d.position(e.lsn)
			}
		}
		return ""
	}
}

// idle reports whether nothing is under way and nothing waits.
func (d *decoder) idle() bool { return d.tx == nil && len(d.rows) == 0 && d.lsn == 0 }

func (d *decoder) position(lsn pglogrepl.LSN) source.Position {
	return source.Position(d.prefix + lsn.String())
}

// fromPostgres converts microseconds since 2000-01-01.
func fromPostgres(us int64) time.Time {
	return time.UnixMicro(us + postgresEpoch).UTC()
}

const postgresEpoch = 946684800000000 // 2000-01-01 in Unix microseconds

// reader cuts fields; once something is short, everything after is zero.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.rest, r.short = nil, true
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) skip(n int) { r.bytes(n) }

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// string reads to the next NUL.
func (r *reader) string() string {
	i := bytes.IndexByte(r.rest, 0)
	if i < 0 {
		r.rest, r.short = nil, true
		return ""
	}
	s := string(r.rest[:i])
	r.rest = r.rest[i+1:]
	return s
}

func (r *reader) err() error {
	if r.short {
		return errShort
	}
	return nil
}
