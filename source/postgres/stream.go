package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// stream implements source.Stream. One goroutine owns the replication
// connection: it frames messages itself in a buffer of its own, hands batches
// over, and sends status by its own timer even while nobody takes a batch, so
// that back-pressure never ends the session.
//
// Three places are kept apart: what was read (the decoder), what the engine
// settled (its matter), and what it saved (confirmed, the only one the server is told).
type stream struct {
	conn net.Conn
	log  *zap.Logger
	dec  *decoder
	buf  []byte // buf[r:w] is read and not parsed
	r, w int

	out       chan source.Batch
	confirmed atomic.Uint64 // LSN
	received  atomic.Int64  // when bytes last came, Unix nanoseconds
	wake      chan struct{} // size 1: confirmed moved
	closing   chan struct{}
	ended     chan struct{} // closed when the goroutine is gone
	err       error         // why; readable once ended is closed

	told     pglogrepl.LSN // the last confirmed place the server was told
	statusAt time.Time     // when
	handed   pglogrepl.LSN // the last place handed to the engine
	handedAt time.Time
	end      pglogrepl.LSN // the log's end by the last keepalive, between transactions
	asked    bool          // the server asks for a reply
	urged    pglogrepl.LSN // the last place handed over as urgent
	stepAt   time.Time     // when idle progress was last made for its bytes, or the stream began

	caughtUp     bool   // the walsender has nothing more for us
	toldCaughtUp bool   // the engine knows
	watch        *watch // nil in tests
	pace         *pace  // nil where reads can't wait for more
	parsed       int    // messages since the last read
	slot         string
	readingFrom  time.Time // silence counts from here: we did not read while handing over
}

// bufferBytes is where the buffer begins; it grows to the largest message and goes back.
const bufferBytes = 256 << 10

func startStream(h *pgconn.HijackedConn, at place, dec *decoder, log *zap.Logger) (*stream, error) {
	now := time.Now()
	s := &stream{
		conn: h.Conn, log: log, dec: dec, buf: make([]byte, bufferBytes),
		out: make(chan source.Batch), wake: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
		slot: at.slot, told: at.lsn, handed: at.lsn, handedAt: now, end: at.lsn, urged: at.lsn, stepAt: now, readingFrom: now,
	}
	s.pace = newPace(h.Conn, now)
	s.confirmed.Store(uint64(at.lsn))
	s.received.Store(now.UnixNano())
	// What pgconn read ahead of the hijack is still in its buffer.
	for h.Frontend.ReadBufferLen() > 0 {
		m, err := h.Frontend.Receive()
		if err != nil {
			_ = h.Conn.Close()
			return nil, fmt.Errorf("read the stream's first messages: %w", err)
		}
		if s.buf, err = m.Encode(s.buf[:s.w]); err != nil {
			_ = h.Conn.Close()
			return nil, fmt.Errorf("read the stream's first messages: %w", err)
		}
		s.w = len(s.buf)
		s.buf = s.buf[:cap(s.buf)]
	}
	go func() {
		defer close(s.ended)
		defer s.conn.Close()
		s.err = s.run()
	}()
	return s, nil
}

// errClosed ends the goroutine when Close was called.
var errClosed = errors.New("stream closed")

// Next implements source.Stream.
func (s *stream) Next(ctx context.Context) (source.Batch, error) {
	select {
	case b := <-s.out:
		return b, nil
	case <-s.ended:
		return source.Batch{}, s.err
	case err := <-s.watch.publicationLost():
		return source.Batch{}, err
	case <-ctx.Done():
		return source.Batch{}, context.Cause(ctx)
	}
}

// Confirm implements source.Stream.
func (s *stream) Confirm(pos source.Position) {
	p, err := parsePlace(pos)
	if err != nil {
		s.log.Error("confirm", zap.Error(err)) // our own text: cannot be
		return
	}
	for {
		old := s.confirmed.Load()
		if uint64(p.lsn) <= old {
			return
		}
		if s.confirmed.CompareAndSwap(old, uint64(p.lsn)) {
			break
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	// The owner sets its deadline first and looks at wake after: either it
	// sees the token or this ends its read.
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
}

// LastReceived implements source.Pulse.
func (s *stream) LastReceived() time.Time { return time.Unix(0, s.received.Load()) }

// Retention implements source.Retainer.
func (s *stream) Retention() source.Retention {
	if s.watch == nil {
		return source.Retention{}
	}
	return s.watch.retention()
}

// Close implements source.Stream.
func (s *stream) Close(ctx context.Context) error {
	if s.watch != nil {
		defer s.watch.close()
	}
	close(s.closing)
	_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		_ = s.conn.Close()
		<-s.ended
		return fmt.Errorf("close stream: %w", context.Cause(ctx))
	}
}

// run is the goroutine.
func (s *stream) run() error {
	for {
		if err := s.parse(); err != nil {
			return err
		}
		if err := s.tend(); err != nil {
			return err
		}
		if err := s.read(); err != nil {
			return err
		}
	}
}

// parse takes every complete message in the buffer and hands batches over.
func (s *stream) parse() error {
	for {
		if s.w-s.r < 5 {
			break
		}
		length := int(binary.BigEndian.Uint32(s.buf[s.r+1:]))
		if length < 4 || length > 1<<30+64 {
			return fmt.Errorf("read the stream: a message of %d bytes", length)
		}
		if s.w-s.r < length+1 {
			s.grow(length + 1)
			break
		}
		kind, body := s.buf[s.r], s.buf[s.r+5:s.r+1+length]
		s.r += 1 + length
		s.parsed++
		if err := s.message(kind, body); err != nil {
			return errors.Join(s.flush(), err) // what was committed before it is not held up
		}
		if s.dec.full() {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	return s.flush()
}

// grow makes room for a message of n bytes at the buffer's start.
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

// message handles one message of the frontend/backend protocol.
func (s *stream) message(kind byte, body []byte) error {
	switch kind {
	case 'd':
		return s.copyData(body)
	case 'E':
		return s.serverError(body)
	case 'N':
		var n pgproto3.NoticeResponse
		if err := n.Decode(body); err != nil {
			return fmt.Errorf("read a notice: %w", err)
		}
		if n.Code == "55000" {
			// PostgreSQL 18 skips the rows of a publication it doesn't find at this
			// place in the log, and only warns.
			return s.publicationGone(fmt.Errorf("%s: %s (SQLSTATE %s)", n.Severity, n.Message, n.Code))
		}
		s.log.Warn("notice from the database", zap.String("severity", n.Severity), zap.String("sqlstate", n.Code), zap.String("message", n.Message))
		return nil
	case 'S': // a parameter changed
		return nil
	case 'c', 'C', 'Z':
		return errors.New("the server ended the stream")
	}
	return fmt.Errorf("read the stream: message type %q is not known", kind) // I5
}

func (s *stream) serverError(body []byte) error {
	var e pgproto3.ErrorResponse
	if err := e.Decode(body); err != nil {
		return fmt.Errorf("read the server's error: %w", err)
	}
	err := pgconn.ErrorResponseToPgError(&e)
	switch e.Code {
	case "42704":
		return s.publicationGone(err)
	case "58P01": // a file of the log: behind a slot that was carried over without it
		return fault.Position(fault.CodePositionLost, anew(s.slot), err, "the log that slot %q needs is gone", s.slot)
	}
	return fmt.Errorf("the server ended the stream: %w", err)
}

func (s *stream) publicationGone(cause error) error {
	return fault.Position(fault.CodePublicationLost, anew(s.slot), cause,
		"the server finds no publication at the place of slot %q in the log: the slot is older than the publication, or the publication was dropped", s.slot)
}

func (s *stream) copyData(b []byte) error {
	switch {
	case len(b) >= 25 && b[0] == 'w':
		s.caughtUp = false
		if err := s.dec.message(b[25:]); err != nil {
			return fmt.Errorf("decode the log at %s: %w", pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])), err)
		}
		return nil
	case len(b) >= 18 && b[0] == 'k':
		if s.dec.tx == nil { // I3: inside a transaction it is no resume point
			s.end = max(s.end, pglogrepl.LSN(binary.BigEndian.Uint64(b[1:])))
			s.caughtUp = true // the walsender sends one before it waits for more
		}
		s.asked = s.asked || b[17] == 1
		return nil
	}
	return fmt.Errorf("read the stream: copy data that is neither log nor keepalive")
}

// flush hands over what is complete.
func (s *stream) flush() error {
	for {
		b, lsn, ok := s.dec.batch()
		if !ok {
			return nil
		}
		b.CaughtUp = s.caughtUp
		if err := s.hand(b, lsn); err != nil {
			return err
		}
	}
}

// hand waits for the engine to take b, and keeps the session alive meanwhile.
func (s *stream) hand(b source.Batch, lsn pglogrepl.LSN) error {
	for {
		timer := time.NewTimer(time.Until(s.statusAt.Add(statusInterval)))
		select {
		case s.out <- b:
			timer.Stop()
			now := time.Now()
			s.handed, s.handedAt, s.readingFrom = max(s.handed, lsn), now, now
			s.toldCaughtUp = b.CaughtUp
			return nil
		case <-timer.C:
		case <-s.wake:
		case <-s.closing:
			timer.Stop()
			return s.goodbye()
		}
		timer.Stop()
		if err := s.status(); err != nil {
			return err
		}
	}
}

// tend reports idle progress and sends status when it is due.
func (s *stream) tend() error {
	if s.dec.idle() {
		if err := s.progress(); err != nil {
			return err
		}
	}
	now := time.Now()
	moved := pglogrepl.LSN(s.confirmed.Load()) > s.told
	// A server that shuts down asks again as soon as it is answered.
	answer := s.asked && now.Sub(s.statusAt) >= replyPause
	if !moved && !answer && now.Before(s.statusAt.Add(statusInterval)) {
		return nil
	}
	return s.status()
}

const replyPause = 100 * time.Millisecond

// progress hands over a batch without rows: the log moved on, the server waits
// for our word, or the end was reached (I2).
func (s *stream) progress() error {
	if s.asked && s.end > s.urged && uint64(s.end) > s.confirmed.Load() {
		s.urged = s.end
		return s.hand(source.Batch{Position: s.dec.position(s.end), CaughtUp: s.caughtUp, Urgent: true}, s.end)
	}
	if s.idleDue() {
		// While the next save is not due, a busy server would pile up log.
		piling := uint64(s.end) >= s.confirmed.Load()+2*idleBytes
		return s.hand(source.Batch{Position: s.dec.position(s.end), CaughtUp: s.caughtUp, Urgent: piling}, s.end)
	}
	if s.caughtUp && !s.toldCaughtUp {
		handedAt := s.handedAt
		err := s.hand(source.Batch{CaughtUp: true}, s.handed)
		s.handedAt = handedAt // no progress of the log
		return err
	}
	return nil
}

// idleDue tells whether the log moved enough for a batch without rows.
func (s *stream) idleDue() bool {
	now := time.Now()
	switch {
	case s.end <= s.handed:
		return false
	case s.end-s.handed >= idleBytes:
		s.stepAt = now
		return true
	case now.Sub(s.stepAt) < idleInterval:
		// Much was written just now, and the server lets go of it only when a place
		// behind its next snapshot of the running transactions is confirmed: soon after.
		return now.Sub(s.handedAt) >= idleSettle
	}
	return now.Sub(s.handedAt) >= idleInterval
}

// status tells the server the confirmed place and asks for an answer, which
// proves that it is alive. Format: "Standby status update" of the manual.
func (s *stream) status() error {
	lsn := s.confirmed.Load()
	m := make([]byte, 0, 39)
	m = append(m, 'd', 0, 0, 0, 38, 'r')
	for range 3 { // written, flushed, applied: all mean "stored"
		m = binary.BigEndian.AppendUint64(m, lsn)
	}
	m = binary.BigEndian.AppendUint64(m, uint64(time.Now().UnixMicro()-postgresEpoch))
	m = append(m, 1)
	_ = s.conn.SetWriteDeadline(time.Now().Add(statusInterval))
	if _, err := s.conn.Write(m); err != nil {
		return fmt.Errorf("send status: %w", err)
	}
	s.told, s.statusAt, s.asked = pglogrepl.LSN(lsn), time.Now(), false
	return nil
}

// read waits for bytes, for the next status, for Confirm or for Close.
func (s *stream) read() error {
	s.makeRoom()
	due := s.statusAt.Add(statusInterval)
	if s.asked {
		due = s.statusAt.Add(replyPause)
	}
	bulk := s.pace.inBulk()
	if bulk {
		due = earliest(due, time.Now().Add(paceWait))
	}
	_ = s.conn.SetReadDeadline(due)
	select {
	case <-s.closing:
		return s.goodbye()
	case <-s.wake:
		return nil
	default:
	}
	if bulk {
		// What Confirm does to the deadline from here on is seen at the next turn, very soon.
		due = time.Unix(1, 0) // what TLS has decoded is there without waiting
		if s.pace.gather() {
			due = time.Now().Add(paceWait)
		}
		_ = s.conn.SetReadDeadline(due)
	}
	n, err := s.conn.Read(s.buf[s.w:])
	now := time.Now()
	s.pace.note(n, s.parsed, now)
	s.parsed = 0
	if n > 0 {
		s.w += n
		s.received.Store(now.UnixNano())
		return nil
	}
	var timeout net.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &timeout) && timeout.Timeout():
		if silent := time.Since(latest(s.LastReceived(), s.readingFrom)); silent > silenceLimit {
			return fmt.Errorf("read the stream: the server has not answered for %s", silent.Round(time.Second))
		}
		return nil
	case errors.Is(err, io.EOF):
		return errors.New("read the stream: the server closed the connection")
	}
	return fmt.Errorf("read the stream: %w", err)
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// makeRoom moves what is not parsed to the buffer's start, and lets go of a
// buffer that one large message had needed.
func (s *stream) makeRoom() {
	if s.r == s.w {
		s.r, s.w = 0, 0
		if len(s.buf) > 8*bufferBytes {
			s.buf = make([]byte, bufferBytes)
		}
	}
	if s.r > 0 { // the piece of a message
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
}

// goodbye sends the last confirmed place and waits until the server has read
// it, which it shows by ending its side.
func (s *stream) goodbye() error {
	if err := s.status(); err != nil {
		return err
	}
	_ = s.conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := s.conn.Write([]byte{'c', 0, 0, 0, 4, 'X', 0, 0, 0, 4}); err != nil { // CopyDone, Terminate
		return fmt.Errorf("end the stream: %w", err)
	}
	_, _ = io.Copy(io.Discard, s.conn) // until its end, or the deadline
	return errClosed
}
