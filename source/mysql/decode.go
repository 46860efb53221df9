package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Limits of one batch, as on every source.
const (
	batchRows  = 1000
	batchBytes = 512 << 10
	arenaBytes = 256 << 10
	valueSlab  = 4096
)

// table is an outbox table as the log described it.
type table struct {
	*source.Table
	columns []column
	raw     []byte // the description, without its id, to know it again
}

// decoder turns events into rows and places. It belongs to the stream's goroutine.
type decoder struct {
	log         *zap.Logger
	wanted      map[TableName]bool
	server      *server
	onUpdate    OnUpdate
	describe    func(TableName, time.Time) ([]describedColumn, error) // with binlog_row_metadata=MINIMAL
	table       func(charset string) (runes, error)                   // for the character sets that need one
	charsets    map[string]*charset
	checksummed bool

	at     place // behind the last transaction that ended
	mysql  *mysql.MysqlGTIDSet
	maria  *mysql.MariadbGTIDSet
	gtid   func()            // counts the GTID of the transaction under way
	tables map[uint64]*table // ours, by the log's table id
	known  map[TableName]*table

	tx       *source.Tx
	inside   bool // between BEGIN and its end
	index    uint32
	saves    []savepoint
	rows     []source.Row
	settled  int // rows[:settled] are committed
	bytes    int
	moved    bool   // at moved since the last batch
	logBytes uint64 // bytes of log read
	arena    []byte
	values   []source.Value
	updates  uint64
	warnedAt time.Time
	zstd     *zstd.Decoder
}

type savepoint struct {
	name string
	rows int
	next uint32
}

func newDecoder(s *Source, at place, log *zap.Logger) (*decoder, error) {
	d := &decoder{
		log: log, wanted: map[TableName]bool{}, server: &s.server, onUpdate: s.cfg.OnUpdate, at: at,
		tables: map[uint64]*table{}, known: map[TableName]*table{}, charsets: map[string]*charset{},
	}
	for _, t := range s.cfg.Tables {
		d.wanted[t] = true
	}
	set, err := at.set()
	if err != nil {
		return nil, err
	}
	switch set := set.(type) {
	case *mysql.MysqlGTIDSet:
		d.mysql = set
	case *mysql.MariadbGTIDSet:
		d.maria = set
	}
	return d, nil
}

// packet takes one event as it came. The bytes are copied where they are kept.
func (d *decoder) packet(b []byte) error {
	d.logBytes += uint64(len(b))
	e, err := parseEvent(b, d.checksummed)
	if err != nil {
		return err
	}
	return d.event(e)
}

// event acts on one event; in a compressed transaction they come out of its payload.
func (d *decoder) event(e event) error {
	switch e.kind {
	case eventTableMap:
		return d.tableMap(e)
	case eventWriteRows, eventWriteRowsV1, eventWriteRowsCompressed:
		return d.insert(e)
	case eventUpdateRows, eventUpdateRowsV1, eventUpdateRowsCompressed, eventPartialUpdateRows:
		return d.update(e)
	case eventXID:
		return d.end(e, true)
	case eventQuery, eventQueryCompressed:
		return d.query(e)
	case eventGTID, eventAnonymousGTID, eventTaggedGTID, eventMariaGTID:
		return d.begin(e)
	case eventPayload:
		return d.payload(e)
	case eventRotate:
		return d.rotate(e)
	case eventFormatDescription:
		checksummed, err := describesChecksums(e.body)
		d.checksummed = checksummed
		clear(d.tables) // ids are those of one server run
		return err
	case eventIncident:
		return fault.Position(fault.CodePositionLost, anew, nil, "the server notes in its log at %s:%d that events were lost", d.at.file, e.end)
	case eventXAPrepare:
		return d.prepared(e)
	case eventDeleteRows, eventDeleteRowsV1, eventDeleteRowsCompressed,
		eventHeartbeat, eventHeartbeatV2, eventPreviousGTIDs, eventMariaGTIDList, eventBinlogCheckpoint, eventAnnotateRows,
		eventRowsQuery, eventIntvar, eventRand, eventUserVar, eventStop, eventStartEncryption, eventTransactionContext, eventViewChange,
		eventBeginLoadQuery, eventIgnorable:
		return nil
	case eventExecuteLoadQuery:
		return d.statement(e, "LOAD DATA")
	}
	if e.flags&flagIgnorable != 0 {
		return nil
	}
	return fmt.Errorf("event type %d is not known", e.kind) // I5
}

func (d *decoder) rotate(e event) error {
	if len(e.body) < 8 {
		return errShort
	}
	file := string(e.body[8:])
	if file != d.at.file || e.flags&flagArtificial == 0 {
		d.at.file, d.at.pos = file, le.Uint64(e.body)
		d.moved = d.moved || (d.tx == nil && e.flags&flagArtificial == 0)
	}
	return nil
}

// begin opens a transaction. Its GTID counts when it ends (I3).
func (d *decoder) begin(e event) error {
	if d.tx != nil {
		return errors.New("a transaction begins inside another")
	}
	d.tx, d.inside, d.index, d.gtid = &source.Tx{CommitAt: time.Unix(int64(e.seconds), 0).UTC()}, false, 0, nil
	switch e.kind {
	case eventMariaGTID:
		return d.beginMariaDB(e)
	case eventTaggedGTID:
		var g replication.GtidTaggedLogEvent
		if err := g.Decode(e.body); err != nil {
			return fmt.Errorf("decode a tagged GTID: %w", err)
		}
		d.beginMySQL(g.SID, g.Tag, g.GNO, g.ImmediateCommitTimestamp)
	case eventGTID:
		var g replication.GTIDEvent
		if len(e.body) < 25 {
			return errShort
		}
		if err := g.Decode(e.body); err != nil {
			return fmt.Errorf("decode a GTID: %w", err)
		}
		d.beginMySQL(g.SID, g.Tag, g.GNO, g.ImmediateCommitTimestamp)
	case eventAnonymousGTID:
		var g replication.GTIDEvent
		if len(e.body) < 25 {
			return errShort
		}
		if err := g.Decode(e.body); err != nil {
			return fmt.Errorf("decode an anonymous GTID: %w", err)
		}
		d.commitTime(g.ImmediateCommitTimestamp)
		d.tx.ID = d.at.file + ":" + strconv.FormatUint(uint64(e.end), 10)
		if d.at.byGTID {
			return errors.New("a transaction without a GTID: gtid_mode is no longer ON, and the place is in GTIDs")
		}
	}
	return nil
}

func (d *decoder) beginMySQL(sid []byte, tag mysql.Tag, gno int64, commit uint64) {
	id, _ := uuid.FromBytes(sid) // 16 bytes by the format
	text := id.String() + ":"
	if tag != (mysql.Tag{}) {
		text += tag.String() + ":"
	}
	d.tx.ID = text + strconv.FormatInt(gno, 10)
	d.commitTime(commit)
	if d.at.byGTID {
		d.gtid = func() { d.mysql.AddGTIDWithTag(id, tag, gno) }
	}
}

func (d *decoder) commitTime(us uint64) {
	if us > 0 {
		d.tx.CommitAt = time.UnixMicro(int64(us)).UTC()
	}
}

// Flags of MariaDB's GTID event.
const (
	mariaStandalone = 1
	mariaPreparedXA = 64
)

func (d *decoder) beginMariaDB(e event) error {
	c := cutter{b: e.body}
	g := &mysql.MariadbGTID{SequenceNumber: c.fixed(8), DomainID: uint32(c.fixed(4)), ServerID: e.server}
	flags := c.fixed(1)
	d.tx.ID = g.String()
	d.inside = flags&mariaStandalone == 0
	d.gtid = func() {
		// One place per domain; AddSet would refuse a sequence that goes back
		// after a failover, which the server has judged already.
		d.maria.Sets[g.DomainID] = g
	}
	return c.err()
}

// query reads a statement event: transaction control, DDL, or DML that was
// logged as text.
func (d *decoder) query(e event) error {
	c := cutter{b: e.body}
	c.skip(4 + 4)
	schema := int(c.fixed(1))
	c.skip(2)
	c.skip(int(c.fixed(2)))
	c.skip(schema + 1)
	if c.short {
		return errShort
	}
	text := c.b
	if e.kind == eventQueryCompressed {
		var err error
		if text, err = decompress(text); err != nil {
			return fmt.Errorf("decompress a statement: %w", err)
		}
	}
	return d.control(e, string(text))
}

func (d *decoder) control(e event, text string) error {
	word, rest, _ := strings.Cut(text, " ")
	switch strings.ToUpper(word) {
	case "BEGIN":
		if d.tx == nil {
			d.tx, d.index = &source.Tx{CommitAt: time.Unix(int64(e.seconds), 0).UTC(), ID: d.at.file + ":" + strconv.FormatUint(uint64(e.end), 10)}, 0
		}
		d.inside = true
		return nil
	case "COMMIT":
		return d.end(e, true)
	case "ROLLBACK":
		if name, ok := strings.CutPrefix(rest, "TO "); ok {
			return d.rollbackTo(name)
		}
		return d.end(e, false)
	case "SAVEPOINT":
		d.saves = append(d.saves, savepoint{rest, len(d.rows), d.index})
		return nil
	case "XA":
		return d.xa(e, strings.ToUpper(rest))
	case "INSERT", "REPLACE", "LOAD", "WITH":
		if err := d.statement(e, text); err != nil {
			return err
		}
	}
	if d.inside {
		return nil
	}
	return d.end(e, true) // a statement that is a transaction of its own: DDL
}

// statement refuses an INSERT that was logged as text (binlog_format set by
// one session): its rows are not in the log (I5).
func (d *decoder) statement(e event, text string) error {
	for t := range d.wanted {
		if strings.Contains(strings.ToLower(text), strings.ToLower(t.Name)) {
			return &fault.Error{
				Code: fault.CodeStatementLogged, Exit: fault.ExitRefused,
				Found: fmt.Sprintf("a statement that seems to insert into %s was logged as text at %s:%d: its rows are not in the log", t, d.at.file, e.end),
				Fix:   "find the session that sets binlog_format=STATEMENT and stop it; publish its rows by hand, then `outboxd checkpoint delete` and OUTBOXD_START=now",
			}
		}
	}
	return nil
}

func (d *decoder) rollbackTo(name string) error {
	for i := len(d.saves) - 1; i >= 0; i-- {
		if d.saves[i].name == name {
			d.rows, d.index = d.rows[:d.saves[i].rows], d.saves[i].next
			d.saves = d.saves[:i+1]
			return nil
		}
	}
	return nil // a savepoint before the first logged change
}

func (d *decoder) xa(e event, rest string) error {
	switch {
	case strings.HasPrefix(rest, "START"), strings.HasPrefix(rest, "BEGIN"):
		d.inside = true
		return nil
	case strings.HasPrefix(rest, "END"):
		return nil
	}
	return d.end(e, true) // XA COMMIT or ROLLBACK of something prepared earlier
}

// prepared ends the group of a transaction that is decided later. Rows of ours
// in it can't be told from ones that will be rolled back.
func (d *decoder) prepared(e event) error {
	if len(d.rows) > d.settled {
		return &fault.Error{
			Code: fault.CodeEventRefused, Exit: fault.ExitRefused,
			Found: fmt.Sprintf("an outbox row was written in an XA transaction at %s:%d; these are not supported yet", d.at.file, e.end),
			Fix:   "write outbox rows in plain transactions",
		}
	}
	return d.end(e, true)
}

// end closes the transaction: only here does the place move (I3).
func (d *decoder) end(e event, commit bool) error {
	if d.tx == nil {
		return errors.New("the end of a transaction that did not begin")
	}
	if !commit {
		d.rows = d.rows[:d.settled]
	}
	d.settled = len(d.rows)
	if d.gtid != nil {
		d.gtid()
	}
	d.advance(e.end)
	d.at.at = time.Time{}
	if d.at.mariadb {
		d.at.at = d.tx.CommitAt
	}
	d.tx, d.inside, d.gtid, d.saves, d.moved = nil, false, nil, d.saves[:0], true
	return nil
}

// advance takes an event's end, which the log tells modulo 2^32.
func (d *decoder) advance(end uint32) {
	if end == 0 {
		return
	}
	pos := d.at.pos&^0xffffffff | uint64(end)
	if pos < d.at.pos {
		pos += 1 << 32
	}
	d.at.pos = pos
}

// tableMap describes the table that the next rows are of. Another table costs a comparison.
func (d *decoder) tableMap(e event) error {
	id, schema, name, rest, err := tableName(e.body)
	if err != nil {
		return err
	}
	key := TableName{}
	for t := range d.wanted {
		if t.Name == string(name) && t.Schema == string(schema) {
			key = t
		}
	}
	if key.Name == "" {
		delete(d.tables, id)
		return nil
	}
	if known := d.known[key]; known != nil && bytes.Equal(known.raw, rest.b) {
		d.tables[id] = known
		return nil
	}
	t, err := d.learn(key, e)
	if err != nil {
		return err
	}
	t.raw = bytes.Clone(rest.b)
	d.known[key], d.tables[id] = t, t
	return nil
}

func (d *decoder) learn(key TableName, e event) (*table, error) {
	m, err := parseTableMap(e.body)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", key, err)
	}
	m.mariadb = d.server.mariadb
	t := &table{}
	if m.names != nil {
		t.Table, t.columns, err = m.shape(d.collation)
		if err == nil && d.server.mariadb {
			err = d.uncover(key, t)
		}
		return t, err
	}
	described, err := d.describe(key, time.Unix(int64(e.seconds), 0))
	if err != nil {
		return nil, err
	}
	t.Table, t.columns, err = m.shapeFrom(described, d.charset)
	var changed mismatch
	if errors.As(err, &changed) {
		return nil, schemaUnknown(key, "it was changed since: "+changed.Error())
	}
	return t, err
}

// uncover asks for the types that the log does not name.
func (d *decoder) uncover(key TableName, t *table) error {
	if !slices.ContainsFunc(t.columns, func(c column) bool { return c.hidden() }) {
		return nil
	}
	described, err := d.describe(key, time.Time{})
	if err != nil {
		return err
	}
	for i := range t.columns {
		if !t.columns[i].hidden() {
			continue
		}
		name := t.Columns[i].Name
		at := slices.IndexFunc(described, func(c describedColumn) bool { return c.name == name })
		if at < 0 {
			return schemaUnknown(key, fmt.Sprintf("column %q, which may be a BINARY, UUID or INET, is no longer there", name))
		}
		t.columns[i].uncover(described[at].dataType)
		t.Columns[i] = t.columns[i].named(name)
	}
	return nil
}

// charset gives a character set by its name.
func (d *decoder) charset(name string) (*charset, error) {
	if c := d.charsets[name]; c != nil {
		return c, nil
	}
	c, ok := charsetNamed(name)
	if !ok {
		if tabled[name] == nil {
			return nil, fmt.Errorf("character set %q is not known", name)
		}
		table, err := d.table(name)
		if err != nil {
			return nil, err
		}
		c = table.charset(name)
	}
	d.charsets[name] = c
	return c, nil
}

// collation gives the character set of a collation, as the log tells them.
func (d *decoder) collation(id uint64) (*charset, error) {
	name, ok := d.server.collations[id]
	if !ok {
		return nil, fmt.Errorf("collation %d is not known", id)
	}
	return d.charset(name)
}

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
	n := int(c.lenenc())
	if n != len(t.columns) {
		return fmt.Errorf("table %s has %d columns, its rows %d", t, len(t.columns), n)
	}
	present := c.bytes((n + 7) / 8)
	if e.kind == eventWriteRowsCompressed {
		if c.b, err = decompress(c.b); err != nil {
			return fmt.Errorf("decompress rows of %s: %w", t, err)
		}
	}
	for len(c.b) > 0 && !c.short {
		values, err := d.row(t, present, &c)
		if err != nil {
			return fmt.Errorf("table %s: %w", t, err)
		}
		d.rows = append(d.rows, source.Row{Table: t.Table, Tx: d.tx, Index: d.index, Values: values})
		d.index++
	}
	return c.err()
}

// row reads one row image: a bit per column that is there, set when it is NULL, then the values.
func (d *decoder) row(t *table, present []byte, c *cutter) ([]source.Value, error) {
	here := 0
	for i := range t.columns {
		if present[i/8]&(1<<(i%8)) != 0 {
			here++
		}
	}
	nulls := c.bytes((here + 7) / 8)
	if c.short {
		return nil, errShort
	}
	values := d.take(len(t.columns))
	bit := 0
	for i := range t.columns {
		if present[i/8]&(1<<(i%8)) == 0 {
			values[i] = source.Value{State: source.Absent}
			continue
		}
		null := nulls[bit/8]&(1<<(bit%8)) != 0
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
	if t == nil || err != nil {
		return err
	}
	d.updates++
	policy := d.onUpdate
	if policy == "" {
		policy = defaultOnUpdate(t.Table)
	}
	switch policy {
	case UpdateStop:
		return &fault.Error{
			Code: fault.CodeEventRefused, Exit: fault.ExitRefused,
			Found: fmt.Sprintf("an outbox row of %s was updated at %s:%d and OUTBOXD_ON_UPDATE is stop", t, d.at.file, e.end),
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

// full reports whether a batch is due whatever comes next.
func (d *decoder) full() bool {
	return d.settled >= batchRows || (d.settled > 0 && d.bytes >= batchBytes)
}

// idle reports whether nothing is under way and nothing waits.
func (d *decoder) idle() bool { return d.tx == nil && len(d.rows) == 0 }

// batch takes committed rows: a piece without a position when there are more
// than fit one batch, else all of them with the place behind them (I3).
func (d *decoder) batch() (b source.Batch, ok bool) {
	if d.settled == 0 {
		return b, false
	}
	n := d.settled
	if n > batchRows+batchRows/2 {
		n = batchRows
	}
	b.Rows = d.rows[:n:n]
	d.settled -= n
	rest := d.rows[n:]
	if d.settled == 0 {
		d.rows = append([]source.Row(nil), rest...)
		b.Position = d.position()
		d.moved, d.bytes = false, 0
	} else {
		d.rows = rest
	}
	for i := range d.saves { // counted from the front that has just left
		d.saves[i].rows -= n
	}
	return b, true
}

// position is the place behind the last transaction that ended.
func (d *decoder) position() source.Position {
	p := d.at
	if p.mariadb {
		p.gtids = d.maria.String()
	} else if p.byGTID {
		p.gtids = d.mysql.String()
	}
	return p.position()
}

// payload unpacks a compressed transaction (binlog_transaction_compression).
// Its fields are a type, a length and a value each, up to a zero type; what follows is
// the transaction's events without checksums (Transaction_payload_event).
func (d *decoder) payload(e event) error {
	c := cutter{b: e.body}
	compression := uint64(0)
	for {
		kind := c.lenenc()
		if kind == 0 {
			break
		}
		field := cutter{b: c.bytes(int(c.lenenc()))}
		if kind == 2 {
			compression = field.lenenc()
		}
		if c.short {
			return errShort
		}
	}
	events := c.b
	switch compression {
	case 255: // none
	case 0:
		var err error
		if d.zstd == nil {
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err != nil {
				return fmt.Errorf("decompress a transaction: %w", err)
			}
		}
		if events, err = d.zstd.DecodeAll(c.b, nil); err != nil {
			return fmt.Errorf("decompress a transaction: %w", err)
		}
	default:
		return fmt.Errorf("decompress a transaction: compression type %d is not known", compression)
	}
	for len(events) > 0 {
		if len(events) < headerBytes {
			return errShort
		}
		size := int(le.Uint32(events[9:]))
		if size < headerBytes || size > len(events) {
			return errShort
		}
		inner, err := parseEvent(events[:size], false)
		if err != nil {
			return err
		}
		inner.end = e.end // the place behind the transaction is the payload's end
		if err := d.event(inner); err != nil {
			return err
		}
		events = events[size:]
	}
	return nil
}
