package mysql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"

	"github.com/outboxd/outboxd/source"
)

// A transaction in the log may end in ROLLBACK, and its rows may be more than memory should hold.
// One that is larger than Config.Hold is read ahead to its end, without keeping its
// rows; when that is a commit it is read once more, and handed on in pieces as it comes.

// holdBytes is Config.Hold when nothing is said.
const holdBytes = 32 << 20

// promise is what is learned of a transaction that is read to its end.
type promise struct {
	began   string    // which one it is
	rows    uint32    // ours, those that were taken back too
	dropped []stretch // by ROLLBACK TO SAVEPOINT
}

// stretch is a part of a transaction's rows, by their ordinals.
type stretch struct{ from, to uint32 }

// errCommitted ends a read that went ahead of what can be held in memory, and found a commit.
var errCommitted = errors.New("a transaction that is larger than memory should hold was committed")

// weigh decides about the rows that an event has added to the transaction under way.
func (d *decoder) weigh() {
	switch {
	case d.passing: // what is prepared is judged when that is known
	case d.promise != nil: // known to be committed
		d.settled, d.split = len(d.rows), true
	case d.ahead || d.held > d.hold && len(d.rows)-d.settled > 1: // one row passes alone
		d.ahead = true
		d.drop()
	}
}

// drop forgets the rows of the transaction under way.
func (d *decoder) drop() {
	clear(d.rows[d.settled:])
	d.rows = d.rows[:d.settled]
	d.held = 0
}

// piece takes rows of a large transaction under way. The last one stays, so that something comes with the place behind it.
func (d *decoder) piece() (b source.Batch, ok bool) {
	if d.settled < 2 || d.settled <= batchRows && d.bytes < batchBytes {
		return b, false
	}
	n := min(d.settled-1, batchRows)
	b.Rows = d.rows[:n:n]
	d.rows = append(make([]source.Row, 0, batchRows+batchRows/2), d.rows[n:]...)
	d.settled, d.bytes = len(d.rows), 0
	return b, true
}

// takenBack reports whether a row of a transaction that is read once more was taken back to a savepoint.
func (p *promise) takenBack(ordinal uint32) bool {
	return slices.ContainsFunc(p.dropped, func(s stretch) bool { return s.from <= ordinal && ordinal < s.to })
}

// takeBack notes that the rows from an ordinal on were taken back to a savepoint.
func (d *decoder) takeBack(from uint32) {
	d.dropped = slices.DeleteFunc(d.dropped, func(s stretch) bool { return s.from >= from })
	if from < d.seen {
		d.dropped = append(d.dropped, stretch{from, d.seen})
	}
}

// again prepares the decoder to read once more from its place, and says how to ask for it.
func (d *decoder) again() start {
	d.promise = &promise{d.began.String(), d.seen, slices.Clone(d.dropped)}
	d.tx, d.inside, d.ahead, d.lost, d.saves = nil, false, false, nil, d.saves[:0]
	d.drop()
	clear(d.tables)
	at := d.at
	at.gtids = d.gtids()
	from := start{at: at, file: at.file, pos: at.pos}
	switch {
	case at.byGTID && !at.mariadb, at.file == "":
		from = fromGTIDs(at)
	case at.pos > math.MaxUint32:
		from.pos = 4
	}
	d.file, d.pos, d.until = at.file, at.pos, 0
	if !from.byGTID && from.pos < at.pos {
		d.pos, d.until, d.upto = from.pos, at.pos, at.file
	}
	return from
}

// promised checks that the transaction that begins is the one to read once more.
func (d *decoder) promised() error {
	if d.promise != nil && d.promise.began != d.began.String() {
		return fmt.Errorf("the log was read once more for transaction %s, and it gives %s", d.promise.began, &d.began)
	}
	return nil
}

// reopen asks for the log once more.
func (s *stream) reopen() error {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-s.closing:
			cancel()
		case <-stop:
		}
	}()
	_ = s.connection().Close()
	conn, checksummed, err := s.ask(ctx, s.dec.again())
	if err != nil {
		return fmt.Errorf("read a large transaction once more: %w", err)
	}
	s.dec.checksummed = checksummed
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	select {
	case <-s.closing:
		_ = conn.Close()
		return errClosed
	default:
	}
	s.r, s.w, s.long = 0, 0, nil
	return nil
}

func (s *stream) connection() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conn
}
