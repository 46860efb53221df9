package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// lease is a session that holds an advisory lock. One goroutine owns its
// connection: it listens (so that the server's end of the session is seen at once) and asks
// every leasePing. The server ends the session of a frozen holder by itself
// (idle_session_timeout).
type lease struct {
	conn   *pgx.Conn
	trust  atomic.Int64 // when the last answered question was sent, on the clock of epoch
	epoch  time.Time    // carries the monotonic clock
	done   chan struct{}
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// lockKey gives the advisory lock of a connector. Advisory locks are per database.
func lockKey(name string) int64 {
	h := fnv.New64a()
	h.Write([]byte("outboxd lease " + name))
	return int64(h.Sum64())
}

// leaseParams make the server end the session of a frozen holder.
func leaseParams() map[string]string {
	return map[string]string{"idle_session_timeout": fmt.Sprintf("%dms", leaseIdleTimeout.Milliseconds())}
}

// Acquire implements source.Source. It polls with the non-blocking form: a
// waiting pg_advisory_lock would hold a snapshot, and with it vacuum.
func (s *Source) Acquire(ctx context.Context, waiting func(holder string)) (source.Lease, error) {
	s.server = ""
	conn, err := s.connect(ctx, leaseParams())
	if err != nil {
		return nil, err
	}
	held := false
	defer func() {
		if !held {
			closeConn(conn)
		}
	}()
	if err := s.mustBeDirect(ctx, conn); err != nil {
		return nil, err
	}
	if severalHosts(conn.Config()) {
		s.server = conn.PgConn().Conn().RemoteAddr().String()
	}
	if err := s.examine(ctx, conn); err != nil {
		return nil, err
	}
	if err := s.mayReplicate(ctx, conn); err != nil {
		return nil, err
	}
	var seen string
	for {
		sent := time.Now()
		var ok bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", lockKey(s.cfg.Name)).Scan(&ok); err != nil {
			return nil, s.explain(fmt.Errorf("try the lease: %w", err))
		}
		if ok {
			held = true
			return newLease(conn, sent), nil
		}
		s.dropView()
		if holder := s.holder(ctx, conn); holder != seen && waiting != nil {
			seen = holder
			waiting(holder)
		}
		select {
		case <-time.After(standbyPoll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// mayReplicate judges the right by its effect: managed services give it under other names.
func (s *Source) mayReplicate(ctx context.Context, conn *pgx.Conn) error {
	rep, err := s.connectReplication(ctx)
	if f := fault.As(err); f != nil && f.Code == fault.CodeGrantMissing {
		var rds bool
		if conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_replication')").Scan(&rds) == nil && rds {
			f.Fix = "as the master user: GRANT rds_replication TO " + quote(conn.Config().User)
		}
	}
	if err != nil {
		return err
	}
	defer closePgConn(rep)
	_, err = s.identify(ctx, rep)
	return err
}

// holder names the session that holds the lease, as well as our rights let us see it.
func (s *Source) holder(ctx context.Context, conn *pgx.Conn) string {
	key := uint64(lockKey(s.cfg.Name))
	var holder string
	err := conn.QueryRow(ctx, `
		SELECT format('pid %s%s', l.pid, coalesce(' from ' || host(a.client_addr), ''))
		FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid = $1 AND l.objid = $2
		  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		uint32(key>>32), uint32(key)).Scan(&holder)
	if err != nil {
		return "unknown"
	}
	return holder
}

func newLease(conn *pgx.Conn, sent time.Time) *lease {
	ctx, cancel := context.WithCancel(context.Background())
	l := &lease{conn: conn, epoch: sent, done: make(chan struct{}), cancel: cancel}
	l.ended.Go(func() {
		defer close(l.done)
		l.keep(ctx)
	})
	return l
}

// keep returns when the lease can't be vouched for any more.
func (l *lease) keep(ctx context.Context) {
	defer closeConn(l.conn)
	for {
		listen, cancel := context.WithTimeout(ctx, leasePing)
		err := l.conn.PgConn().WaitForNotification(listen)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil && !pgconn.Timeout(err) {
			return // 57P01, a cut connection: the server has let go of the lock
		}
		sent := time.Now()
		ask, cancel := context.WithTimeout(ctx, leaseTrust-leasePing)
		_, err = l.conn.Exec(ask, "SELECT 1")
		cancel()
		if err != nil {
			return
		}
		l.trust.Store(int64(sent.Sub(l.epoch)))
	}
}

func (l *lease) Done() <-chan struct{} { return l.done }

// Valid compares on the monotonic clock, from the sending of the last answered
// question: a process that wakes from a freeze may find an old answer waiting.
func (l *lease) Valid() bool {
	select {
	case <-l.done:
		return false
	default:
		return time.Since(l.epoch)-time.Duration(l.trust.Load()) < leaseTrust
	}
}

func (l *lease) Release(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("release lease: %w", context.Cause(ctx))
	}
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // nothing to do about it: the session ends with the socket
}

func closePgConn(conn *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
