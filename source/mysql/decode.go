package mysql

import (
	"bufio"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
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
	outboxes    []outbox
	server      *server
	onUpdate    OnUpdate
	describe    func(TableName, time.Time) ([]describedColumn, error) // with binlog_row_metadata=MINIMAL …
	unchanged   func(TableName, logPlace) (logPlace, error)           // … and up to where that holds
	table       func(charset string) (runes, error)                   // for the character sets that need one
	charsets    map[string]*charset
	checksummed bool

	file   string // where the log is read …
	pos    uint64 // … and how far, beyond 4 GiB too
	proved bool   // an event was found where the place says that one begins
	at     place  // behind the last transaction that ended
	last   began  // that transaction; none before the first
	until  uint64 // what begins before it …
	upto   string // … in this file, and in those before, was handed on before
	passed gtid   // the transaction that was, too; MySQL
	await  bool   // one of these is the witness of our place
	mysql  *mysql.MysqlGTIDSet
	maria  *mysql.MariadbGTIDSet
	tables map[uint64]*table // ours, by the log's table id

	tx      *source.Tx // the transaction under way; without an ID before a row of ours
	began   began
	spare   *source.Tx // for the next one: no row holds it
	inside  bool       // between BEGIN and its end
	passing bool       // it was handed on before: its rows are passed over
	index   uint32
	saves   []savepoint
	lost    *fault.Error // why the transaction can't be handed on, should it commit
	rows    []source.Row
	settled int // rows[:settled] are committed

	hold    int          // bytes of one transaction's rows to hold before it is known to be committed
	held    int          // of the one under way
	seen    uint32       // its rows, those that were taken back too
	dropped []stretch    // what was taken back
	ahead   bool         // it is read to its end, and its rows are let go
	promise *promise     // it was, and ended in a commit: the next transaction is that one
	more    func() error // hands over what is full; nil: nobody takes it yet

	prepared []*prepared // XA transactions with rows of ours, in the log's order
	also     *began      // a prepare that is counted with the transaction under way
	collect  bool        // it is a prepare

	ends     []border
	base     string // GTIDs before the first of ends
	split    bool   // pieces of the settled rows have been handed on
	bytes    int
	moved    bool   // at moved since the last batch
	logBytes uint64 // bytes of log read
	seconds  uint32 // when the last event was logged, Unix time
	arena    []byte
	values   []source.Value
	updates  uint64
	warnedAt time.Time

	textWarnedAt     time.Time
	preparedWarnedAt time.Time
	zstd             *zstd.Decoder
	unpacked         *bufio.Reader // of a compressed transaction
	inflater         inflater
}

// outbox is a table we want rows of.
type outbox struct {
	TableName          // as the log has it
	known     *table   // as it was described last; nil: anew
	unchanged logPlace // the log ahead was read up to here, and nothing changes the table
}

type savepoint struct {
	name string
	rows int
	next uint32
	seen uint32
}

func newDecoder(s *Source, from start, log *zap.Logger) (*decoder, error) {
	at := from.at
	d := &decoder{
		log: log, server: &s.server, onUpdate: s.cfg.OnUpdate, at: at, file: at.file, pos: at.pos, await: from.witness,
		proved: at.mariadb || from.byGTID || from.pos <= 4, // the others are judged before
		hold:   int(s.cfg.Hold), tables: map[uint64]*table{}, spare: &source.Tx{}, charsets: map[string]*charset{},
	}
	for _, t := range s.cfg.Tables {
		d.outboxes = append(d.outboxes, outbox{TableName: s.server.logged(t)})
	}
	if !from.byGTID && (from.file != at.file || from.pos < at.pos) {
		d.file, d.pos, d.until, d.upto = from.file, from.pos, at.pos, at.file
	}
	if from.byGTID && from.witness {
		var err error
		if d.passed, err = parseGTIDText(at.last); err != nil {
			return nil, err
		}
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
	if err := d.prove(e); err != nil {
		return err
	}
	d.advance(e)
	if e.seconds > 0 {
		d.seconds = e.seconds
	}
	return d.event(e)
}

// prove compares the first event's place with ours. Nothing but its checksum, which may be off, would
// tell otherwise that the place is inside an event.
func (d *decoder) prove(e event) error {
	switch {
	case d.proved, e.kind == eventFormatDescription, e.kind == eventHeartbeat, e.kind == eventHeartbeatV2:
		return nil
	case e.kind == eventRotate && e.flags&flagArtificial != 0:
		d.proved = len(e.body) > 8 && string(e.body[8:]) != d.file // the place is a file's end
		return nil
	case e.end-e.size != uint32(d.pos):
		return fmt.Errorf("an event was read that begins at %d", e.end-e.size)
	}
	d.proved = true
	return nil
}

// unproved makes a failure to read the first event one of the place.
func (d *decoder) unproved(err error) error {
	if d.proved {
		return err
	}
	return fault.Position(fault.CodeDiverged, anew, err,
		"the log can't be read at the checkpoint's place %s:%d: it is inside an event, the log is damaged, or the server was reset", d.file, d.pos)
}

// advance follows the log. A place is told modulo 2^32, and not by each event. What describes the file or the
// connection is not in the place's order: where GTIDs are the coordinates it is sent again from the file's start.
func (d *decoder) advance(e event) { d.pos = reckon(d.pos, e) }

// reckon is the place behind an event that comes when the log is read up to pos.
func reckon(pos uint64, e event) uint64 {
	switch e.kind {
	case eventRotate, eventFormatDescription, eventPreviousGTIDs, eventMariaGTIDList, eventBinlogCheckpoint, eventStartEncryption,
		eventHeartbeat, eventHeartbeatV2, eventStop:
		return pos
	}
	if e.flags&flagArtificial != 0 {
		return pos
	}
	if e.end == 0 {
		return pos + uint64(e.size)
	}
	end := pos&^0xffffffff | uint64(e.end)
	if end < pos {
		end += 1 << 32
	}
	return end
}

// rotate goes to another file. A server that opens a dump says so too, with an
// artificial event; in MariaDB the place stays good then, since it was judged on this server.
func (d *decoder) rotate(e event) error {
	if len(e.body) < 8 {
		return errShort
	}
	file, artificial := string(e.body[8:]), e.flags&flagArtificial != 0
	if artificial && file == d.file && (d.at.mariadb || !d.at.byGTID) {
		return nil
	}
	if d.file == d.upto {
		d.until = 0
	}
	d.file, d.pos = file, le.Uint64(e.body)
	if d.tx == nil && !artificial && d.until == 0 {
		d.at.file, d.at.pos, d.at.from, d.moved = d.file, d.pos, 0, true
	}
	return nil
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
		return d.end(true)
	case eventQuery, eventQueryCompressed, eventExecuteLoadQuery:
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
		return fault.Position(fault.CodePositionLost, anew, nil, "the server notes in its log at %s:%d that events were lost", d.file, d.pos)
	case eventXAPrepare:
		return d.prepares(e)
	case eventDeleteRows, eventDeleteRowsV1, eventDeleteRowsCompressed,
		eventHeartbeat, eventHeartbeatV2, eventPreviousGTIDs, eventMariaGTIDList, eventBinlogCheckpoint, eventAnnotateRows,
		eventRowsQuery, eventIntvar, eventRand, eventUserVar, eventStop, eventStartEncryption, eventTransactionContext, eventViewChange,
		eventBeginLoadQuery, eventIgnorable:
		return nil
	}
	if e.flags&flagIgnorable != 0 {
		return nil
	}
	return fmt.Errorf("event type %d is not known", e.kind) // I5
}

// full reports whether a batch is due whatever comes next.
func (d *decoder) full() bool {
	return d.settled >= batchRows || (d.settled > 0 && d.bytes >= batchBytes)
}

// idle reports whether nothing is under way and nothing waits.
func (d *decoder) idle() bool { return d.tx == nil && len(d.rows) == 0 }

// batch takes committed rows: all of them with the place behind them (I3), or,
// when a large transaction is the last of them, first what stands before it, and
// then the large one in pieces without a position.
func (d *decoder) batch() (b source.Batch, ok bool) {
	if d.settled == 0 {
		return b, false
	}
	if d.promise != nil && d.tx != nil {
		return d.piece()
	}
	n := d.settled
	if n > batchRows+batchRows/2 {
		n = batchRows
		if last := len(d.ends) - 1; !d.split && last > 0 {
			n, b.At = d.ends[last-1].rows, d.borders()
			b.Position = b.At(n)
		}
	}
	b.Rows = d.rows[:n:n]
	d.settled -= n
	rest := d.rows[n:]
	if d.settled == 0 && !d.split {
		b.At = d.borders()
	}
	d.split = d.settled > 0
	if d.settled == 0 {
		d.rows = append(make([]source.Row, 0, max(len(rest), min(n, batchRows+batchRows/2))), rest...)
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
	p.gtids = d.gtids()
	if p.last == "" && d.last.counted() {
		p.last = d.last.String()
	}
	return p.position()
}
