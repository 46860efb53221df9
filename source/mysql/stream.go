package mysql

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// register tells the server that a replica is here (COM_REGISTER_SLAVE).
func (q *session) register(serverID uint32, user string) error {
	const host = "outboxd"
	b := make([]byte, 4, 64) // room for the packet header
	b = append(b, mysql.COM_REGISTER_SLAVE)
	b = binary.LittleEndian.AppendUint32(b, serverID)
	b = append(append(b, byte(len(host))), host...)
	b = append(append(b, byte(min(len(user), 255))), user[:min(len(user), 255)]...)
	b = append(b, 0)                            // no password: it would be shown to everybody
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) // port, rank, source id
	_ = q.SetDeadline(time.Now().Add(connectTimeout))
	defer func() { _ = q.SetDeadline(time.Time{}) }()
	q.ResetSequence()
	if err := q.WritePacket(b); err != nil {
		return fmt.Errorf("register as a replica: %w", err)
	}
	if _, err := q.ReadOKPacket(); err != nil {
		return fmt.Errorf("register as a replica: %w", err)
	}
	return nil
}

// Judge implements source.Judge.
func (s *Source) Judge(ctx context.Context, from source.Position) error {
	_, err := s.accept(ctx, from)
	return inSnapshot(from, err)
}

// accept reads a position that was saved, and judges it over a session of its own.
func (s *Source) accept(ctx context.Context, from source.Position) (start, error) {
	at, err := parsePlace(from)
	if kind := from.Kind(); err != nil && kind != "" && kind != "my" && kind != "maria" {
		return start{}, fault.Position(fault.CodeForeign, "give the new connector another OUTBOXD_NAME and its own OUTBOXD_CHECKPOINT, or go back to the old source", err,
			"the checkpoint is of another kind of database (%s), the source is MySQL or MariaDB", kind)
	}
	if err != nil {
		return start{}, fault.Position(fault.CodeCheckpointUnreadable, "use the source and the version this checkpoint was written by, or see `outboxd checkpoint show`", err, "the stored position can't be read")
	}
	q, err := s.connect(ctx)
	if err != nil {
		return start{}, err
	}
	defer q.close()
	if s.server, err = s.ask(ctx, q); err != nil {
		return start{}, err
	}
	if err := s.holds(); err != nil {
		return start{}, err
	}
	return s.judge(ctx, q, at)
}

// Open implements source.Source. The place is judged on a session of its own;
// then the dump's connection is set up as a replica sets it up.
func (s *Source) Open(ctx context.Context, from source.Position) (source.Stream, error) {
	st, err := s.accept(ctx, from)
	if err != nil {
		return nil, inSnapshot(from, err)
	}
	rest, err := s.restOf(ctx, st)
	if err != nil {
		return nil, inSnapshot(from, err)
	}
	at := st.at
	st.at = at.reading(nil)
	log, err := s.openLog(ctx, st)
	if err != nil || rest == nil {
		return log, err
	}
	return s.startSnapshot(ctx, at, rest, log), nil
}

// openLog streams the log from where it is to begin.
func (s *Source) openLog(ctx context.Context, at start) (source.Stream, error) {
	dec, err := newDecoder(s, at, s.log)
	if err != nil {
		return nil, err
	}
	dec.describe, dec.table = s.describeNow, s.charsetTable
	conn, checksummed, err := s.open(ctx, at)
	if err != nil {
		return nil, err
	}
	dec.checksummed = checksummed
	reading, stop := context.WithCancel(context.Background())
	st := newStream(conn, dec, s.open, stop)
	dec.unchanged = func(t TableName, from logPlace) (logPlace, error) { return s.unchanged(reading, t, from, st.heard) }
	st.vouched = s.vouched()
	st.start()
	return st, nil
}

// open connects, and asks for the log on that connection.
func (s *Source) open(ctx context.Context, from start) (conn net.Conn, checksummed bool, err error) {
	q, err := s.connect(ctx)
	if err != nil {
		return nil, false, err
	}
	if checksummed, err = s.dump(ctx, q, from); err != nil {
		_ = q.Close()
		return nil, false, err
	}
	return q.Conn.Conn.Conn, checksummed, nil
}

// dump sets up the session and asks for the log. It reports whether events come with checksums
// until the log says something else.
func (s *Source) dump(ctx context.Context, q *session, from start) (checksummed bool, err error) {
	algorithm, err := q.value(ctx, "SELECT @@global.binlog_checksum")
	if err != nil {
		return false, fmt.Errorf("set up the dump: %w", err)
	}
	id := uuid.NewString()
	statements := []string{
		"SET @source_binlog_checksum = @@global.binlog_checksum, @master_binlog_checksum = @@global.binlog_checksum",
		fmt.Sprintf("SET @source_heartbeat_period = %d, @master_heartbeat_period = %[1]d", heartbeat.Nanoseconds()),
		fmt.Sprintf("SET @replica_uuid = '%s', @slave_uuid = '%[1]s'", id),
		fmt.Sprintf("SET SESSION net_write_timeout = %d", int(writeTimeout.Seconds())),
	}
	if from.at.mariadb {
		statements = append(statements, "SET @mariadb_slave_capability = 4")
		if from.byGTID {
			statements = append(statements, fmt.Sprintf("SET @slave_connect_state = '%s', @slave_gtid_strict_mode = 1", from.gtids))
		}
	}
	for _, statement := range statements {
		if _, err := q.query(ctx, statement); err != nil {
			return false, fmt.Errorf("set up the dump: %w", err)
		}
	}
	if err := q.register(s.cfg.ServerID, s.endpoint.user); err != nil {
		return false, s.missingGrant(err, "REPLICATION SLAVE")
	}
	command, err := s.dumpCommand(from)
	if err != nil {
		return false, err
	}
	q.ResetSequence()
	if err := q.WritePacket(command); err != nil {
		return false, fmt.Errorf("ask for the log: %w", err)
	}
	return algorithm != "NONE", nil
}

// dumpCommand is COM_BINLOG_DUMP, or COM_BINLOG_DUMP_GTID on MySQL.
func (s *Source) dumpCommand(from start) ([]byte, error) {
	b := make([]byte, 4, 128)
	if from.byGTID && !from.at.mariadb {
		parsed, err := place{gtids: from.gtids}.set()
		if err != nil {
			return nil, err
		}
		set := parsed.Encode()
		b = le.AppendUint16(append(b, mysql.COM_BINLOG_DUMP_GTID), from.flags())
		b = le.AppendUint32(b, s.cfg.ServerID)
		b = le.AppendUint32(b, 0) // no file name
		b = le.AppendUint64(b, 4)
		b = le.AppendUint32(b, uint32(len(set)))
		return append(b, set...), nil
	}
	file, pos := from.file, from.pos
	if from.byGTID { // MariaDB starts at @slave_connect_state
		file, pos = "", 4
	}
	b = append(b, mysql.COM_BINLOG_DUMP)
	b = le.AppendUint32(b, uint32(pos))
	b = le.AppendUint16(b, from.flags())
	b = le.AppendUint32(b, s.cfg.ServerID)
	return append(b, file...), nil
}

// describeNow reads a table's columns while the log is read. A table made or rebuilt after
// the rows were written can't tell their names; zero when the log has told them.
func (s *Source) describeNow(t TableName, written time.Time) ([]describedColumn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer q.close()
	r, err := q.query(ctx, "SELECT UNIX_TIMESTAMP(CREATE_TIME) FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", t.Schema, t.Name)
	if err != nil {
		return nil, fmt.Errorf("look at table %s: %w", t, err)
	}
	if r.RowNumber() == 0 { // or it is not shown to an account that has lost its right
		if _, err := q.query(ctx, fmt.Sprintf("SELECT 1 FROM %s LIMIT 0", t)); err != nil && errorCode(err) != 1146 && errorCode(err) != 1049 {
			return nil, fmt.Errorf("look at table %s: %w", t, err)
		}
		return nil, schemaUnknown(t, "it is gone")
	}
	if made, _ := r.GetInt(0, 0); !written.IsZero() && made > written.Unix() {
		return nil, schemaUnknown(t, "it was made or rebuilt at "+time.Unix(made, 0).UTC().Format(time.RFC3339)+", after rows that are still to be read")
	}
	return describe(ctx, q, t)
}

// charsetTable asks for the table of a character set while the log is read.
func (s *Source) charsetTable(name string) (runes, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer q.close()
	return q.charsetTable(ctx, name)
}

func schemaUnknown(t TableName, why string) error {
	return fault.Position(fault.CodeSchemaUnknown, "set binlog_row_metadata=FULL, so that the log itself names its columns; for the rows before that: "+anew, nil,
		"the log does not name the columns of %s (binlog_row_metadata is not FULL), and the table can't tell: %s", t, why)
}

// stream implements source.Stream. One goroutine owns the connection and
// frames packets itself in a buffer of its own. The server needs no word from
// us: while nobody takes a batch we don't read, and its dump thread waits.
type stream struct {
	ask     func(context.Context, start) (net.Conn, bool, error) // for the log, once more
	vouched func() bool                                          // whether we are the only active reader
	mu      sync.Mutex                                           // guards conn against Close
	conn    net.Conn
	dec     *decoder
	buf     []byte // buf[r:w] is read and not parsed
	r, w    int
	long    []byte // an event of more than one packet, so far

	out      chan source.Batch
	received atomic.Int64 // when bytes last came, Unix nanoseconds
	closing  chan struct{}
	shut     sync.Once
	stop     context.CancelFunc // of what reads beside the stream
	ended    chan struct{}      // closed when the goroutine is gone
	err      error              // why; readable once ended is closed

	caughtUp     bool // the server had nothing more at its last heartbeat
	toldCaughtUp bool
	handedAt     time.Time
	handedBytes  uint64
}

const bufferBytes = 256 << 10

func newStream(conn net.Conn, dec *decoder, ask func(context.Context, start) (net.Conn, bool, error), stop context.CancelFunc) *stream {
	s := &stream{
		ask: ask, conn: conn, dec: dec, buf: make([]byte, bufferBytes), out: make(chan source.Batch),
		closing: make(chan struct{}), ended: make(chan struct{}), stop: stop, handedAt: time.Now(),
	}
	s.heard()
	dec.more = s.flush
	return s
}

func (s *stream) start() {
	go func() {
		defer close(s.ended)
		defer s.stop()
		defer func() { _ = s.connection().Close() }()
		s.err = s.run()
	}()
}

func (s *stream) heard() { s.received.Store(time.Now().UnixNano()) }

var errClosed = errors.New("stream closed")

// Next implements source.Stream.
func (s *stream) Next(ctx context.Context) (source.Batch, error) {
	select {
	case b := <-s.out:
		return b, nil
	case <-s.ended:
		return source.Batch{}, s.err
	case <-ctx.Done():
		return source.Batch{}, context.Cause(ctx)
	}
}

// Confirm implements source.Stream. The server keeps no place for us.
func (s *stream) Confirm(source.Position) {}

// LastReceived implements source.Pulse.
func (s *stream) LastReceived() time.Time { return time.Unix(0, s.received.Load()) }

// Close implements source.Stream.
func (s *stream) Close(ctx context.Context) error {
	s.shut.Do(func() { close(s.closing) })
	s.stop()
	_ = s.connection().Close() // a dump has no end to say goodbye to
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close stream: %w", context.Cause(ctx))
	}
}

func (s *stream) run() error {
	for {
		err := s.parse()
		if errors.Is(err, errCommitted) && !errors.Is(err, errClosed) {
			err = s.reopen()
		}
		if err != nil {
			return err
		}
		if err := s.progress(); err != nil {
			return err
		}
		if err := s.read(); err != nil {
			return err
		}
	}
}

// maxPacket is the largest packet; one of that size goes on in the next.
const maxPacket = 1<<24 - 1

// parse takes every complete packet in the buffer and hands batches over.
func (s *stream) parse() error {
	for s.w-s.r >= 4 {
		length := int(le24(s.buf[s.r:]))
		if s.w-s.r < 4+length {
			s.grow(4 + length)
			break
		}
		b := s.buf[s.r+4 : s.r+4+length]
		s.r += 4 + length
		if length == maxPacket || s.long != nil {
			s.long = append(s.long, b...)
			if length == maxPacket {
				continue
			}
			b, s.long = s.long, nil
		}
		if err := s.packet(b); err != nil {
			return errors.Join(s.flush(), err) // what was committed before it is not held up
		}
		if s.dec.full() {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	s.caughtUp = s.caughtUp || s.recent()
	return s.flush()
}

// recent reports whether all that came is read and the last event is of this
// moment: on a server that always writes something no heartbeat tells the log's end.
func (s *stream) recent() bool {
	age := time.Since(time.Unix(int64(s.dec.seconds), 0))
	return s.r == s.w && age.Abs() < 2*time.Second
}

// grow makes room for n bytes at the buffer's start.
func (s *stream) grow(n int) {
	if n <= len(s.buf)-s.r {
		return
	}
	b := s.buf
	if n > len(b) {
		b = make([]byte, n)
	}
	s.w = copy(b, s.buf[s.r:s.w])
	s.r, s.buf = 0, b
}

func (s *stream) packet(b []byte) error {
	switch {
	case len(b) == 0:
		return errShort
	case b[0] == 0:
		if len(b) > 5 {
			kind := b[5]
			s.caughtUp = kind == eventHeartbeat || kind == eventHeartbeatV2 || (s.caughtUp && kind == eventRotate)
		}
		if err := s.dec.packet(b[1:]); err != nil {
			return s.dec.unproved(fmt.Errorf("read the log behind %s:%d: %w", s.dec.at.file, s.dec.at.pos, err))
		}
		return nil
	case b[0] == 0xff && len(b) >= 3:
		return s.serverError(b)
	case b[0] == 0xfe:
		return errors.New("read the log: the server ended the dump")
	}
	return fmt.Errorf("read the log: packet of type %d is not known", b[0])
}

func (s *stream) serverError(b []byte) error {
	err := fmt.Errorf("read the log: the server ended the dump: %w", errorPacket(b))
	switch code := errorCode(err); {
	case code == mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG:
		return s.dec.unproved(err)
	case code == errSlaveSame && s.vouched != nil && s.vouched(): // else it is our own successor
		return &fault.Error{
			Code: fault.CodeServerID, Exit: fault.ExitFailure, Err: err,
			Found: "another replica with our server id has connected, and the server lets one of them read",
			Fix:   "give one of them another id: OUTBOXD_MYSQL_SERVER_ID here, server_id there; that of a connector is made from its OUTBOXD_NAME and its source",
		}
	}
	return err
}

// errSlaveSame is ER_SLAVE_SAME_ID of MariaDB. MySQL tells replicas apart by a uuid, and ours is a new one each time.
const errSlaveSame = 4052

// errorPacket reads an error packet: code, then a state behind '#', then the text.
func errorPacket(b []byte) error {
	if len(b) < 3 {
		return errShort
	}
	text := b[3:]
	if len(text) >= 6 && text[0] == '#' {
		text = text[6:]
	}
	return mysql.NewError(le.Uint16(b[1:]), string(text))
}

func (s *stream) flush() error {
	for {
		b, ok := s.dec.batch()
		if !ok {
			return nil
		}
		b.CaughtUp = s.caughtUp
		if err := s.hand(b); err != nil {
			return err
		}
	}
}

func (s *stream) hand(b source.Batch) error {
	select {
	case s.out <- b:
		s.toldCaughtUp = b.CaughtUp
		if b.Position != "" {
			s.handedAt, s.handedBytes = time.Now(), s.dec.logBytes
		}
		return nil
	case <-s.closing:
		return errClosed
	}
}

// progress hands over a batch without rows: the log moved on, or its end was reached (I2).
func (s *stream) progress() error {
	s.dec.warnOfPrepared(time.Now())
	if !s.dec.idle() {
		return nil
	}
	if s.dec.moved && (s.dec.logBytes-s.handedBytes >= idleBytes || time.Since(s.handedAt) >= idleInterval) {
		s.dec.moved = false
		return s.hand(source.Batch{Position: s.dec.position(), CaughtUp: s.caughtUp})
	}
	if s.caughtUp && !s.toldCaughtUp {
		return s.hand(source.Batch{CaughtUp: true})
	}
	return nil
}

// read waits for bytes; a server that sends not even a heartbeat is gone.
func (s *stream) read() error {
	if s.r == s.w {
		s.r, s.w = 0, 0
		if len(s.buf) > 8*bufferBytes {
			s.buf = make([]byte, bufferBytes)
		}
	}
	if len(s.buf)-s.w < bufferBytes/8 {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
	_ = s.conn.SetReadDeadline(time.Now().Add(silenceLimit))
	n, err := s.conn.Read(s.buf[s.w:])
	if n > 0 {
		s.w += n
		s.heard()
		return nil
	}
	var timeout net.Error
	select {
	case <-s.closing:
		return errClosed
	default:
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("read the log: nothing came for %s, not even a heartbeat", silenceLimit)
	case errors.Is(err, io.EOF):
		return errors.New("read the log: the server closed the connection")
	}
	return fmt.Errorf("read the log: %w", err)
}
