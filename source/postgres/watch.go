package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// watch asks the server now and then what it keeps for our slot, and whether the
// publication still carries our tables: the server tells nothing of rows that it
// doesn't. It has a connection of its own; when it can't ask, its answer grows old.
type watch struct {
	source *Source
	at     place      // with the marks that the publication had
	lost   chan error // size 1: the publication is not what it was
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu   sync.Mutex
	last source.Retention
	left []left               // of the last minutes, oldest first
	seen map[string]time.Time // transactions whose begin we may not know: when they were seen first
}

// left is how much log could be written at a moment before the server drops what the slot needs.
type left struct {
	at    time.Time
	bytes int64
}

// limit adds what is left now, nil with max_slot_wal_keep_size = -1, to what was; mu is held.
func (w *watch) limit(now time.Time, bytes *int64) *source.Limit {
	if bytes == nil {
		w.left = nil
		return nil
	}
	w.left = append(w.left, left{now, *bytes})
	for len(w.left) > 2 && now.Sub(w.left[1].at) >= watchWindow {
		w.left = w.left[1:]
	}
	l := &source.Limit{Left: *bytes}
	if first := w.left[0]; now.After(first.at) {
		l.Shrink = float64(first.bytes-*bytes) / now.Sub(first.at).Seconds()
	}
	return l
}

const (
	watchWindow   = 2 * time.Minute // a slot moves in jumps, so a shorter one tells of jumps
	watchInterval = 5 * time.Second
	watchYoung    = 5 * time.Second // a transaction that is younger is nothing to tell
)

func (s *Source) startWatch(at place) *watch {
	ctx, cancel := context.WithCancel(context.Background())
	own := &Source{cfg: s.cfg, log: s.log, tables: s.tables, server: s.server} // a later Acquire resolves the tables anew
	w := &watch{source: own, at: at, lost: make(chan error, 1), cancel: cancel}
	w.ended.Go(func() { w.run(ctx) })
	return w
}

func (w *watch) close() {
	w.cancel()
	w.ended.Wait()
}

func (w *watch) retention() source.Retention {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *watch) run(ctx context.Context) {
	var conn *pgx.Conn
	var failing bool
	defer func() {
		if conn != nil {
			closeConn(conn)
		}
	}()
	again := time.NewTicker(watchInterval)
	defer again.Stop()
	for {
		ask, cancel := context.WithTimeout(ctx, watchInterval)
		err := w.turn(ask, &conn)
		cancel()
		if fault.Is(err, fault.CodePublicationLost) {
			w.lost <- err
			return
		}
		if err != nil && ctx.Err() == nil && !failing {
			w.source.log.Debug("ask what the server keeps", zap.Error(err))
		}
		failing = err != nil
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) turn(ctx context.Context, conn **pgx.Conn) error {
	if *conn == nil || (*conn).IsClosed() {
		c, err := w.source.connect(ctx, nil)
		if err != nil {
			return err
		}
		*conn = c
	}
	if err := w.ask(ctx, *conn); err != nil {
		return err
	}
	_, err := w.source.judgePublication(ctx, *conn, w.at)
	return err
}

// publicationLost yields the fault once it is found. w may be nil.
func (w *watch) publicationLost() <-chan error {
	if w == nil {
		return nil
	}
	return w.lost
}

// openTransactions gives those with a transaction id, oldest first: only they
// have anything in the log. The begin of another role's is shown to pg_monitor alone.
const openTransactions = `
	SELECT what, since FROM (
		SELECT format('pid %s (application %s, role %s, database %s)', pid, quote_literal(coalesce(application_name, '')), quote_ident(coalesce(usename, '?')), quote_ident(coalesce(datname, '?'))) AS what,
		       xact_start AS since, age(backend_xid) AS age
		FROM pg_stat_activity WHERE backend_xid IS NOT NULL
		UNION ALL
		SELECT format('prepared transaction %s (role %s, database %s)', quote_literal(gid), quote_ident(owner), quote_ident(database)), prepared, age(transaction)
		FROM pg_prepared_xacts
	) t ORDER BY age DESC LIMIT 5`

func (w *watch) ask(ctx context.Context, conn *pgx.Conn) error {
	var r source.Retention
	var now time.Time
	var bytes, safe *int64
	err := conn.QueryRow(ctx, `SELECT clock_timestamp(), pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, safe_wal_size FROM pg_replication_slots WHERE slot_name = $1`, w.source.cfg.Slot).
		Scan(&now, &bytes, &safe)
	if err != nil {
		return fmt.Errorf("ask for the log that slot %q keeps: %w", w.source.cfg.Slot, err)
	}
	if bytes != nil {
		r.Bytes = *bytes
	}
	rows, err := conn.Query(ctx, openTransactions)
	if err != nil {
		return fmt.Errorf("ask for open transactions: %w", err)
	}
	type open struct {
		What  string
		Since *time.Time
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[open])
	if err != nil {
		return fmt.Errorf("ask for open transactions: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r.Limit = w.limit(now, safe)
	seen := make(map[string]time.Time, len(all))
	for _, o := range all {
		since := now
		if o.Since != nil {
			since = *o.Since
		} else if first, ok := w.seen[o.What]; ok {
			since = first
		}
		seen[o.What] = since
		if r.Oldest == nil && now.Sub(since) >= watchYoung {
			r.Oldest = &source.OpenTransaction{Name: o.What, Since: since}
		}
	}
	r.AskedAt = time.Now()
	w.last, w.seen = r, seen
	return nil
}
