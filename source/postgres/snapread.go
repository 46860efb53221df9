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
	s.progress.Store(&source.Snapshot{Table: at.snapshot.Tables[0].table().String(), Rows: x.before, Estimate: x.before + left, Since: now})
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
		list2(b.columns(), c.Order), b.from, c.rows(at.snapshot.Where), list(c.Order))
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
	end := at.at(at.snapshot.next(b.taken))
	return end, x.hand(b.rest(end), b)
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
	p.Table, p.Rows = b.name.String(), b.at.snapshot.Done+b.taken
	p.Estimate = max(p.Estimate, p.Rows)
	x.source.progress.Store(&p)
	if now := time.Now(); now.Sub(x.toldAt) >= snapshotLog {
		x.toldAt = now
		x.log.Info("publishing the rows that are there", zap.String("table", p.Table), zap.Int64("rows_done", p.Rows), zap.Int64("rows_estimate", p.Estimate))
	}
	return nil
}

func (x *snapshotStream) failed(c tableCursor, err error) error {
	if errors.Is(err, errClosed) {
		return err
	}
	return x.source.explainSnapshot(x.conn, c.table(), err)
}

// batcher makes batches of a table's rows.
type batcher struct {
	at     place // where the table was begun, or taken up
	name   TableName
	from   string
	table  *source.Table
	late   *late
	fields []int // that tell a row

	taken   int64    // rows that were read since at
	skipped int64    // of them, those that are left to the log
	key     []string // of the last row that was read
	rows    []source.Row
	keys    [][]string // of rows
	counts  []int64    // taken, at each of rows
	bytes   int
	arena   []byte
	values  []source.Value
	txs     []source.Tx
}

func (x *snapshotStream) batcher(ctx context.Context, at place) (*batcher, error) {
	t := at.snapshot.Tables[0].table()
	table, _, err := x.source.describe(ctx, x.conn, t)
	if err != nil {
		return nil, err
	}
	from, err := x.source.from(ctx, x.conn, t)
	if err != nil {
		return nil, err
	}
	b := &batcher{at: at, name: t, from: from, table: table, late: x.late}
	if x.late != nil {
		b.fields = x.late.tables[t].fieldsOf(table)
		if slices.Contains(b.fields, -1) {
			return nil, fmt.Errorf("table %s has lost a column of its key", t)
		}
	}
	return b, nil
}

func (b *batcher) columns() []string {
	names := make([]string, len(b.table.Columns))
	for i, c := range b.table.Columns {
		names[i] = quote(c.Name)
	}
	return names
}

func list2(a, b []string) string {
	return strings.Join(append(slices.Clone(a), parenthesized(b)...), ", ")
}

// take takes one row: the table's columns, then the order's. It returns the
// rows before it when they are a full batch. A border lies only between rows that
// differ in their key (I3).
func (b *batcher) take(row [][]byte) (*source.Batch, error) {
	n := len(b.table.Columns)
	key := make([]string, 0, len(row)-n)
	for _, v := range row[n:] {
		key = append(key, string(v))
	}
	var full *source.Batch
	if len(b.rows) >= batchRows || b.bytes >= batchBytes {
		batch := b.cut("")
		if !slices.Equal(key, b.key) {
			batch.Position = b.position(b.key, b.taken)
		}
		full = &batch
	}
	b.key = key
	b.taken++
	if b.late != nil && b.late.has(b.name, pick(row, b.fields)) {
		b.skipped++
		return full, nil
	}
	return full, b.add(row[:n], key)
}

func pick(row [][]byte, fields []int) [][]byte {
	out := make([][]byte, len(fields))
	for i, f := range fields {
		out[i] = row[f]
	}
	return out
}

func (b *batcher) add(row [][]byte, key []string) error {
	if len(b.values) < len(row) {
		b.values = make([]source.Value, max(valueSlab, len(row)))
	}
	values := b.values[:len(row):len(row)]
	b.values = b.values[len(row):]
	for i, v := range row {
		if v == nil {
			values[i] = source.Value{State: source.Null}
			continue
		}
		b.bytes += len(v)
		data := b.keep(v)
		if b.table.Columns[i].Kind == source.Bytes {
			var err error
			if data, err = unhex(data); err != nil {
				return fmt.Errorf("table %s: column %q: %w", b.table, b.table.Columns[i].Name, err)
			}
		}
		values[i] = source.Value{Data: data, State: source.Present}
	}
	if len(b.txs) == 0 {
		b.txs = make([]source.Tx, batchRows)
	}
	// Each row stands for itself: where one is refused, those before it are saved.
	tx := &b.txs[0]
	b.txs = b.txs[1:]
	*tx = source.Tx{CommitAt: b.at.snapshot.At, ID: b.at.lsn.String() + "/snapshot", Loose: true}
	b.rows = append(b.rows, source.Row{Table: b.table, Tx: tx, Index: uint32(b.at.snapshot.Done + b.taken - 1), Values: values})
	b.keys = append(b.keys, key)
	b.counts = append(b.counts, b.taken)
	return nil
}

func (b *batcher) keep(v []byte) []byte {
	if cap(b.arena)-len(b.arena) < len(v) {
		b.arena = make([]byte, 0, max(arenaBytes, len(v)))
	}
	start := len(b.arena)
	b.arena = append(b.arena, v...)
	return b.arena[start:len(b.arena):len(b.arena)]
}

// cut takes the rows there are as a batch.
func (b *batcher) cut(pos source.Position) source.Batch {
	rows, keys, counts := b.rows, b.keys, b.counts
	b.rows, b.keys, b.counts, b.bytes = nil, nil, nil, 0
	return source.Batch{Rows: rows, Position: pos, At: func(n int) source.Position {
		if n < 1 || n >= len(rows) || slices.Equal(keys[n-1], keys[n]) {
			return ""
		}
		return b.position(keys[n-1], counts[n-1])
	}}
}

// rest is the table's last batch, which may be empty.
func (b *batcher) rest(end place) source.Batch { return b.cut(end.position()) }

func (b *batcher) position(key []string, taken int64) source.Position {
	return b.at.at(b.at.snapshot.behind(key, taken)).position()
}
