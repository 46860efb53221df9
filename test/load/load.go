// Package load is the application of the tests: concurrent writers that change
// aggregates and insert outbox rows in the same transactions, some of which they
// roll back, whole or to a savepoint, in Postgres, MySQL or MariaDB.
//
// Each aggregate has a row that a transaction locks before it numbers its
// events, so the numbers follow the commit order and have no gaps. Every payload
// carries its number as member "seq" and its aggregate as "order_id"; what was
// rolled back carries "ghost".
package load

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Config of a load. Zero fields take the default in brackets.
type Config struct {
	Events     int      // how many to commit; 0: until Stop
	Writers    int      // [8]
	Aggregates int      // [500]
	PerSecond  int      // events, roughly; 0: as fast as it goes
	Types      []string // aggregate types; aggregate n has type n modulo their number
	Table      Table
	Dialect    Dialect
	Together   bool   // Events in one transaction of one writer
	Seed       uint64 // of what is random, UUIDs included [random]
	// Faults says that the database will be ended under the writers: they try
	// again instead of failing. A commit with an unknown outcome may then make
	// more events than were asked for, and the database alone knows how many.
	Faults bool
}

// Result counts what the writers did.
type Result struct {
	Committed  int // events
	Commits    int // transactions
	Rollbacks  int // transactions, and pieces back to a savepoint
	Interrupts int // transactions that an error ended
}

// MaxTransaction is the most events one transaction commits.
const MaxTransaction = 12

// Load is a load that is running.
type Load struct {
	cfg    Config
	db     *sql.DB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done

	stopped   atomic.Bool
	left      atomic.Int64 // events not yet taken by a writer
	committed atomic.Int64
	commits   atomic.Int64
	rollbacks atomic.Int64
	broken    atomic.Int64
}

// Run commits cfg.Events events and returns.
func Run(ctx context.Context, db *sql.DB, cfg Config) (Result, error) {
	l, err := Start(ctx, db, cfg)
	if err != nil {
		return Result{}, err
	}
	return l.Wait()
}

// Start begins a load and returns at once.
func Start(ctx context.Context, db *sql.DB, cfg Config) (*Load, error) {
	if cfg.Writers == 0 {
		cfg.Writers = 8
	}
	if cfg.Aggregates == 0 {
		cfg.Aggregates = 500
	}
	if cfg.Seed == 0 {
		cfg.Seed = rand.Uint64()
	}
	if cfg.Together {
		cfg.Writers = 1
	}
	if err := prepare(ctx, db, cfg); err != nil {
		return nil, fmt.Errorf("prepare aggregates: %w", err)
	}
	l := &Load{cfg: cfg, db: db, done: make(chan struct{})}
	l.left.Store(int64(cfg.Events))
	if cfg.Events == 0 {
		l.left.Store(1 << 40)
	}
	ctx, l.cancel = context.WithCancel(ctx)
	go l.run(ctx)
	return l, nil
}

// Committed is how many events were committed so far.
func (l *Load) Committed() int { return int(l.committed.Load()) }

// Wait blocks until everything asked for is committed, or a writer failed.
func (l *Load) Wait() (Result, error) {
	<-l.done
	return Result{
		Committed: int(l.committed.Load()), Commits: int(l.commits.Load()),
		Rollbacks: int(l.rollbacks.Load()), Interrupts: int(l.broken.Load()),
	}, l.err
}

// Stop ends the load after the open transactions.
func (l *Load) Stop() (Result, error) {
	l.stopped.Store(true)
	return l.Wait()
}

func (l *Load) run(ctx context.Context) {
	defer close(l.done)
	defer l.cancel()
	var writers sync.WaitGroup
	var once sync.Once
	for n := range l.cfg.Writers {
		writers.Go(func() {
			if err := l.write(ctx, rand.New(rand.NewPCG(l.cfg.Seed, uint64(n)))); err != nil {
				once.Do(func() { l.err = err; l.cancel() })
			}
		})
	}
	writers.Wait()
}

// write makes transactions until nothing is left.
func (l *Load) write(ctx context.Context, random *rand.Rand) error {
	for {
		n := 1 + random.IntN(MaxTransaction)
		if l.cfg.Together {
			n = l.cfg.Events
		}
		n = l.take(n)
		if n == 0 {
			return nil
		}
		begin := time.Now()
		committed, err := l.transaction(ctx, random, n)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("load ended early: %w", context.Cause(ctx))
		case err != nil && !l.cfg.Faults:
			return err
		case err != nil:
			l.broken.Add(1)
			l.left.Add(int64(n))
			pause(ctx, 50*time.Millisecond)
		case !committed:
			l.rollbacks.Add(1)
			l.left.Add(int64(n))
		default:
			l.commits.Add(1)
			l.committed.Add(int64(n))
			l.pace(ctx, n, begin)
		}
	}
}

// take reserves up to n of the events that are left.
func (l *Load) take(n int) int {
	for {
		left := l.left.Load()
		if left <= 0 || l.stopped.Load() {
			return 0
		}
		got := min(int64(n), left)
		if l.left.CompareAndSwap(left, left-got) {
			return int(got)
		}
	}
}

// pace keeps a writer to its share of PerSecond.
func (l *Load) pace(ctx context.Context, n int, begin time.Time) {
	if l.cfg.PerSecond > 0 {
		share := time.Duration(n*l.cfg.Writers) * time.Second / time.Duration(l.cfg.PerSecond)
		pause(ctx, share-time.Since(begin))
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
