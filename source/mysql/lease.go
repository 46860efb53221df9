package mysql

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"errors"

	"github.com/outboxd/outboxd/source"
)

// lease is a session that holds a user lock (GET_LOCK). One goroutine owns its
// connection: it watches for the server's end of it and asks every leasePing.
// The server ends the session of a frozen holder by itself (wait_timeout).
type lease struct {
	session *session
	server  string       // its identity
	trust   atomic.Int64 // when the last answered question was sent, on the clock of epoch
	epoch   time.Time    // carries the monotonic clock
	done    chan struct{}
	cancel  context.CancelFunc
	ended   sync.WaitGroup
}

// lockName is server-wide, so it names the database as well; 64 characters at most.
func (s *Source) lockName() string {
	h := fnv.New32a()
	h.Write([]byte(s.endpoint.database))
	return fmt.Sprintf("outboxd:%s:%08x", s.cfg.Name, h.Sum32())
}

// Acquire implements source.Source. It polls with a timeout of 0, so that a
// standby holds nothing on the server.
func (s *Source) Acquire(ctx context.Context, waiting func(holder string)) (source.Lease, error) {
	s.held, s.lease = "", nil
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	held := false
	defer func() {
		if !held {
			s.held = ""
			q.close()
		}
	}()
	s.held = q.addr
	if err := s.examine(ctx, q); err != nil {
		return nil, err
	}
	if _, err := q.query(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d", int(leaseIdle.Seconds()))); err != nil {
		return nil, fmt.Errorf("set the lease's idle timeout: %w", err)
	}
	var seen string
	for {
		sent := time.Now()
		got, err := q.value(ctx, "SELECT GET_LOCK(?, 0)", s.lockName())
		if err != nil {
			return nil, fmt.Errorf("try the lease: %w", err)
		}
		if got == "1" {
			held = true
			s.held, s.lease = q.addr, newLease(q, s.server.identity, sent)
			return s.lease, nil
		}
		s.dropView()
		holder, err := q.value(ctx, "SELECT IS_USED_LOCK(?)", s.lockName())
		if err != nil {
			return nil, fmt.Errorf("look for the lease's holder: %w", err)
		}
		if holder = "connection " + holder; holder != seen && waiting != nil {
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

func newLease(q *session, server string, sent time.Time) *lease {
	ctx, cancel := context.WithCancel(context.Background())
	l := &lease{session: q, server: server, epoch: sent, done: make(chan struct{}), cancel: cancel}
	l.ended.Go(func() {
		defer close(l.done)
		l.keep(ctx)
	})
	return l
}

// keep returns when the lease can't be vouched for any more.
func (l *lease) keep(ctx context.Context) {
	defer l.session.close()
	for {
		if !l.listen(ctx) {
			return
		}
		sent := time.Now()
		ask, cancel := context.WithTimeout(ctx, leaseTrust-leasePing)
		_, err := l.session.query(ask, "SELECT 1")
		cancel()
		if err != nil {
			return
		}
		l.trust.Store(int64(sent.Sub(l.epoch)))
	}
}

// listen waits for the next question. A server that has something to say
// between questions says goodbye, so any byte, and any end, is the end.
func (l *lease) listen(ctx context.Context) bool {
	conn := l.session.Conn.Conn.Conn
	_ = conn.SetReadDeadline(time.Now().Add(leasePing))
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	return ctx.Err() == nil && errors.As(err, &timeout) && timeout.Timeout()
}

// vouched gives what tells whether the lease that is held now still holds.
func (s *Source) vouched() func() bool {
	l := s.lease
	return func() bool { return l != nil && l.Valid() }
}

// holds ends the lease when the address it was taken at leads to another server now.
func (s *Source) holds() error {
	if s.lease == nil || s.server.identity == s.lease.server {
		return nil
	}
	s.lease.cancel()
	return fmt.Errorf("%s leads to another server (%s) than the one the lease was taken on (%s)", s.held, s.server.identity, s.lease.server)
}

// Done implements source.Lease.
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

// Release implements source.Lease.
func (l *lease) Release(ctx context.Context) error {
	l.cancel()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("release lease: %w", context.Cause(ctx))
	}
}
