package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// snapshotStream is the rest of a first snapshot, and then the log, as one
// stream. One goroutine owns the snapshot's session. The log's stream is open from the
// start: it waits with its first batch and keeps the slot in use meanwhile.
type snapshotStream struct {
	source.Stream // the log's
	source        *Source
	log           *zap.Logger
	conn          *pgx.Conn
	at            place
	late          *late

	out     chan source.Batch
	closing chan struct{}
	ended   chan struct{} // closed when the goroutine is gone
	err     error         // why; nil when the snapshot is read; readable once ended is closed
	over    bool          // Next goes to the log; belongs to Next's caller
	heard   atomic.Int64  // Unix nanoseconds

	// The rest belongs to the goroutine.
	began  time.Time
	before int64 // rows that were read before this stream
	toldAt time.Time
	stop   context.CancelFunc // of its questions
}

// fetchRows is how many rows the server is asked for at once. They are handed
// on as they come.
const fetchRows = 5000

// startSnapshot reads what at's cursor leaves from v, then follows log.
func (s *Source) startSnapshot(ctx context.Context, conn *pgx.Conn, at place, v *view, log source.Stream) *snapshotStream {
	now := time.Now()
	x := &snapshotStream{
		Stream: log, source: s, log: s.log, conn: v.conn, at: at, late: v.late,
		out: make(chan source.Batch), closing: make(chan struct{}), ended: make(chan struct{}),
		began: now, before: at.snapshot.Done, toldAt: now,
	}
	x.heard.Store(now.UnixNano())
	left := s.estimate(ctx, conn, at.snapshot) // not in the view's transaction, which an error would end
	s.progress.Store(&source.Snapshot{Table: tableOf(at.snapshot.Tables[0]).String(), Rows: x.before, Estimate: x.before + left, Since: now})
	s.log.Info("publishing the rows that are there", zap.Time("as_of", at.snapshot.At), zap.Bool("exact", v.late == nil),
		zap.Int64("rows_done", x.before), zap.Int64("rows_left_estimate", left))
	asking, stop := context.WithCancel(context.Background())
	x.stop = stop
	go func() {
		defer close(x.ended)
		x.err = x.run(asking)
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
	if p, ok := x.Stream.(source.Pulse); ok {
		return latest(heard, p.LastReceived())
	}
	return heard
}

// Retention implements source.Retainer.
func (x *snapshotStream) Retention() source.Retention {
	if r, ok := x.Stream.(source.Retainer); ok {
		return r.Retention()
	}
	return source.Retention{}
}

// Close implements source.Stream. The view is kept for the next stream when
// the server answers in time.
func (x *snapshotStream) Close(ctx context.Context) error {
	close(x.closing)
	wait, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	select {
	case <-x.ended:
	case <-wait.Done(): // a long sort, or a dead server
		_ = x.conn.PgConn().CancelRequest(wait)
		x.stop()
		<-x.ended
	}
	x.stop()
	return x.Stream.Close(ctx)
}

func (x *snapshotStream) run(ctx context.Context) error {
	at := x.at
	for at.snapshot != nil {
		next, err := x.table(ctx, at)
		if err != nil {
			return err
		}
		at = next
	}
	x.source.progress.Store(nil)
	x.log.Info("the rows that were there are read, the log follows", zap.Duration("took", time.Since(x.began).Round(time.Millisecond)))
	_ = x.conn.Close(ctx) // the view holds up vacuum; Open forgets it
	return nil
}

// table reads what is left of the first table and gives the place behind it.
func (x *snapshotStream) table(ctx context.Context, at place) (place, error) {
	c := at.snapshot.Tables[0]
	b, err := x.batcher(ctx, at)
	if err != nil {
		return at, err
	}
	pg := x.conn.PgConn()
	query := fmt.Sprintf("CLOSE ALL; DECLARE outboxd NO SCROLL CURSOR FOR SELECT %s FROM %s WHERE %s ORDER BY %s",
		list2(b.columns(), c.Order), b.from, rowsLeft(c, at.snapshot.Where), list(c.Order))
	if _, err := pg.Exec(ctx, query).ReadAll(); err != nil {
		return at, x.failed(c, err)
	}
	for {
		n, err := x.fetch(ctx, pg, b)
		if err != nil {
			return at, x.failed(c, err)
		}
		if n == 0 {
			break
		}
	}
	rest, next := b.Rest()
	return at.at(next), x.hand(rest, b)
}

// fetch reads the next rows of the cursor and hands batches over as they fill.
func (x *snapshotStream) fetch(ctx context.Context, pg *pgconn.PgConn, b *batcher) (n int, err error) {
	results := pg.Exec(ctx, fmt.Sprintf("FETCH %d FROM outboxd", fetchRows))
	defer func() {
		if cerr := results.Close(); err == nil { // reads the rest, so that the view stays usable
			err = cerr
		}
	}()
	for results.NextResult() {
		rows := results.ResultReader()
		for rows.NextRow() {
			n++
			x.heard.Store(time.Now().UnixNano())
			full, err := b.take(rows.Values())
			if err == nil && full != nil {
				err = x.hand(*full, b)
			}
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// hand waits for the engine to take b.
func (x *snapshotStream) hand(batch source.Batch, b *batcher) error {
	select {
	case x.out <- batch:
	case <-x.closing:
		return errClosed
	}
	p := *x.source.progress.Load()
	p.Table, p.Rows = b.name.String(), b.Done()
	p.Estimate = max(p.Estimate, p.Rows)
	x.source.progress.Store(&p)
	if now := time.Now(); now.Sub(x.toldAt) >= snapshotLog {
		x.toldAt = now
		x.log.Info("publishing the rows that are there", zap.String("table", p.Table), zap.Int64("rows_done", p.Rows), zap.Int64("rows_estimate", p.Estimate))
	}
	return nil
}

func (x *snapshotStream) failed(c snapshot.Table, err error) error {
	if errors.Is(err, errClosed) {
		return err
	}
	return x.source.explainSnapshot(x.conn, tableOf(c), err)
}

// batcher makes batches of a table's rows.
type batcher struct {
	snapshot.Batcher
	name   TableName
	from   string
	late   *late
	fields []int // that tell a row
}

func (x *snapshotStream) batcher(ctx context.Context, at place) (*batcher, error) {
	t := tableOf(at.snapshot.Tables[0])
	table, _, err := x.source.describe(ctx, x.conn, t)
	if err != nil {
		return nil, err
	}
	from, err := x.source.from(ctx, x.conn, t)
	if err != nil {
		return nil, err
	}
	b := &batcher{name: t, from: from, late: x.late}
	b.Cursor, b.Table, b.TxID = at.snapshot, table, at.lsn.String()+"/snapshot"
	b.Position = func(c *snapshot.Cursor) source.Position { return at.at(c).position() }
	b.Unwrap = func(column int, text []byte) ([]byte, error) {
		if table.Columns[column].Kind != source.Bytes {
			return text, nil
		}
		return unhex(text)
	}
	if x.late != nil {
		b.fields = x.late.tables[t].fieldsOf(table)
		if slices.Contains(b.fields, -1) {
			return nil, fmt.Errorf("table %s has lost a column of its key", t)
		}
	}
	return b, nil
}

func (b *batcher) columns() []string {
	names := make([]string, len(b.Table.Columns))
	for i, c := range b.Table.Columns {
		names[i] = quote(c.Name)
	}
	return names
}

func list2(a, b []string) string {
	return strings.Join(append(slices.Clone(a), snapshot.Parenthesized(b)...), ", ")
}

// take takes one row: the table's columns, then the order's.
func (b *batcher) take(row [][]byte) (*source.Batch, error) {
	n := len(b.Table.Columns)
	key := make([]string, 0, len(row)-n)
	for _, v := range row[n:] {
		key = append(key, string(v))
	}
	return b.Take(row[:n], key, b.late != nil && b.late.has(b.name, pick(row, b.fields)))
}

func pick(row [][]byte, fields []int) [][]byte {
	out := make([][]byte, len(fields))
	for i, f := range fields {
		out[i] = row[f]
	}
	return out
}
