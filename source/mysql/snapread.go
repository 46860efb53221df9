package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// snapshotStream is the rest of a first snapshot, and then the log, as one
// stream. One goroutine owns the snapshot's session. The log's stream is open from the
// start: it waits with its first batch, and the server purges no log that somebody reads.
type snapshotStream struct {
	source.Stream // the log's
	source        *Source
	log           *zap.Logger
	view          *view
	at            place

	out     chan source.Batch
	closing chan struct{}
	shut    sync.Once
	ended   chan struct{} // closed when the goroutine is gone
	err     error         // why; nil when the snapshot is read; readable once ended is closed
	over    bool          // Next goes to the log; belongs to Next's caller
	heard   atomic.Int64  // Unix nanoseconds

	// The rest belongs to the goroutine.
	began  time.Time
	toldAt time.Time
}

// chunkRows is how many rows one statement asks for, where an index has them in
// order. Without one a single statement sorts them once and gives them all.
const chunkRows = 5000

// startSnapshot reads what at's cursor leaves from v, then follows log.
func (s *Source) startSnapshot(ctx context.Context, at place, v *view, log source.Stream) *snapshotStream {
	now := time.Now()
	x := &snapshotStream{
		Stream: log, source: s, log: s.log, view: v, at: at,
		out: make(chan source.Batch), closing: make(chan struct{}), ended: make(chan struct{}), began: now, toldAt: now,
	}
	x.heard.Store(now.UnixNano())
	done, left := at.snapshot.Done, s.estimate(ctx, v.session, at.snapshot)
	first := at.snapshot.Tables[0]
	s.progress.Store(&source.Snapshot{Table: TableName{first.Schema, first.Name}.String(), Rows: done, Estimate: done + left, Since: now})
	s.log.Info("publishing the rows that are there", zap.Time("as_of", at.snapshot.At), zap.Bool("exact", v.late == nil),
		zap.Int64("rows_done", done), zap.Int64("rows_left_estimate", left))
	go func() {
		defer close(x.ended)
		x.err = x.run()
	}()
	return x
}

// Next implements source.Stream.
func (x *snapshotStream) Next(ctx context.Context) (source.Batch, error) {
	if !x.over {
		select {
		case b := <-x.out:
			return b, nil
		case <-ctx.Done():
			return source.Batch{}, context.Cause(ctx)
		case <-x.ended:
			if x.err != nil {
				return source.Batch{}, x.err
			}
			x.over = true
		}
	}
	return x.Stream.Next(ctx)
}

// LastReceived implements source.Pulse.
func (x *snapshotStream) LastReceived() time.Time {
	heard := time.Unix(0, x.heard.Load())
	if p, ok := x.Stream.(source.Pulse); ok && p.LastReceived().After(heard) {
		return p.LastReceived()
	}
	return heard
}

// Close implements source.Stream. The view is kept for the next stream when
// its statement ends in time: a chunk does, a long sort is told to.
func (x *snapshotStream) Close(ctx context.Context) error {
	x.shut.Do(func() { close(x.closing) })
	if !x.waits(ctx, 300*time.Millisecond) {
		x.interrupt(ctx)
		if !x.waits(ctx, time.Second) {
			_ = x.view.Close()
			<-x.ended
		}
	}
	return x.Stream.Close(ctx)
}

func (x *snapshotStream) waits(ctx context.Context, limit time.Duration) bool {
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case <-x.ended:
		return true
	case <-wait.Done():
		return false
	}
}

// interrupt ends the statement and leaves the session and what it sees.
func (x *snapshotStream) interrupt(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if q, err := x.source.connect(ctx); err == nil {
		_, _ = q.query(ctx, fmt.Sprintf("KILL QUERY %d", x.view.GetConnectionID()))
		q.close()
	}
}

func (x *snapshotStream) run() error {
	at := x.at
	for at.snapshot != nil {
		next, err := x.table(at)
		if err != nil {
			return err
		}
		at.snapshot = next
	}
	x.source.progress.Store(nil)
	x.log.Info("the rows that were there are read, the log follows", zap.Duration("took", time.Since(x.began).Round(time.Millisecond)))
	_ = x.view.Close() // the server can purge again; Open forgets it
	return nil
}

// table reads what is left of the first table and gives the cursor behind it.
func (x *snapshotStream) table(at place) (*snapshot.Cursor, error) {
	r, err := x.reader(at)
	if err != nil {
		return nil, err
	}
	for n := chunkRows; n == chunkRows; {
		if n, err = r.chunk(); err != nil {
			return nil, err
		}
	}
	rest, next := r.Rest()
	return next, x.hand(rest, r)
}

// hand waits for the engine to take b.
func (x *snapshotStream) hand(b source.Batch, r *tableReader) error {
	select {
	case x.out <- b:
	case <-x.closing:
		return errClosed
	}
	p := *x.source.progress.Load()
	p.Table, p.Rows = r.name.String(), r.Done()
	p.Estimate = max(p.Estimate, p.Rows)
	x.source.progress.Store(&p)
	if now := time.Now(); now.Sub(x.toldAt) >= snapshotLog {
		x.toldAt = now
		x.log.Info("publishing the rows that are there", zap.String("table", p.Table), zap.Int64("rows_done", p.Rows), zap.Int64("rows_estimate", p.Estimate))
	}
	return nil
}

// tableReader reads one table of a snapshot.
type tableReader struct {
	snapshot.Batcher
	stream *snapshotStream
	name   TableName
	left   snapshot.Table // to read
	where  string
	query  string // up to its condition
	tail   string // behind it
	limit  bool   // rows come in chunks
	key    []int  // columns that tell a row
}

func (x *snapshotStream) reader(at place) (*tableReader, error) {
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	left := at.snapshot.Tables[0]
	r := &tableReader{stream: x, name: TableName{left.Schema, left.Name}, left: left, where: at.snapshot.Where}
	columns, key, err := x.source.keyed(ctx, x.view.session, r.name)
	if err != nil {
		return nil, err
	}
	indexes, err := indexesOf(ctx, x.view.session, r.name)
	if err != nil {
		return nil, err
	}
	r.Cursor, r.Table, r.TxID = at.snapshot, x.source.server.tableOf(x.source.server.logged(r.name), columns), at.id()+"/snapshot"
	r.Position = func(c *snapshot.Cursor) source.Position { return at.reading(c).position() }
	for _, c := range key {
		r.key = append(r.key, r.Table.Column(c.name))
	}
	by := snapshot.Parenthesized(left.Order)
	var list []string
	for _, c := range columns {
		list = append(list, c.selected())
	}
	r.query = fmt.Sprintf("SELECT %s FROM %s", strings.Join(append(list, by...), ", "), r.name)
	r.tail = " ORDER BY " + strings.Join(by, ", ")
	if name := serves(indexes, left.Order); name != "" {
		r.limit = true
		r.query += fmt.Sprintf(" FORCE INDEX (%s)", quote(name))
		r.tail += fmt.Sprintf(" LIMIT %d", chunkRows)
	}
	return r, nil
}

// id tells the place in the id of a transaction.
func (p place) id() string { return fmt.Sprintf("%s:%d", p.file, p.pos) }

// selected is the column as it is asked for: a FLOAT or DOUBLE prints other digits in a result than as text.
func (d describedColumn) selected() string {
	if d.dataType == "float" || d.dataType == "double" {
		return "CAST(" + quote(d.name) + " AS CHAR)"
	}
	return quote(d.name)
}

// chunk reads one statement's rows and hands batches over as they fill. It returns chunkRows when there may be more.
func (r *tableReader) chunk() (n int, err error) {
	x := r.stream
	query := r.query + " WHERE " + rowsLeft(r.left, r.where) + r.tail
	width := len(r.Table.Columns)
	err = x.view.textRows(context.Background(), query, func(columns []resultColumn, row [][]byte) error {
		n++
		x.heard.Store(time.Now().UnixNano())
		key, err := x.source.literals(r.name, r.left.Order, columns[width:], row[width:])
		if err != nil {
			return err
		}
		left := x.view.late != nil && x.view.late.has(r.name, pick(row, r.key))
		full, err := r.Take(row[:width], key, left)
		if err == nil && full != nil {
			err = x.hand(*full, r)
		}
		r.left.After = key
		return err
	})
	select {
	case <-x.closing: // the statement may have been told to end
		return n, errors.Join(errClosed, err)
	default:
	}
	switch {
	case err != nil && fault.As(err) == nil:
		return n, x.source.explainSnapshot(r.name, err)
	case err != nil:
		return n, err
	case !r.limit:
		return 0, nil
	}
	return n, nil
}

func pick(row [][]byte, fields []int) [][]byte {
	out := make([][]byte, len(fields))
	for i, f := range fields {
		out[i] = row[f]
	}
	return slices.Clip(out)
}
