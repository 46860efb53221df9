package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxd/outboxd/test/demo/orders"
)

const (
	limit   = 3 * time.Minute  // for all that comes after Postgres is up
	catchUp = 60 * time.Second // for the last events, once the last order is done
	outage  = time.Second      // how long outboxd stays down
)

// stage is where the play takes place.
type stage struct {
	o        options
	board    *board
	db       *pgxpool.Pool
	url      string
	brokers  []string
	ledger   ledger
	consumer *consumer

	mu        sync.Mutex
	sightings []sighting
}

// play starts everything, runs the play, and stops everything in turn.
func play(ctx context.Context, o options, b *board) (_ verdict, err error) {
	b.say("starting Postgres (a first run downloads it, 15 MB)")
	pg, err := startPostgres(ctx, o.work, o.cache, o.repository)
	if err != nil {
		return verdict{}, fmt.Errorf("start postgres: %w", err)
	}
	defer func() { err = errors.Join(err, pg.stop()) }()
	kafka, err := startKafka()
	if err != nil {
		return verdict{}, err
	}
	defer kafka.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %v", limit))
	defer cancel()
	db, err := pgxpool.New(ctx, pg.url)
	if err != nil {
		return verdict{}, err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, orders.Schema); err != nil {
		return verdict{}, fmt.Errorf("make the tables: %w", err)
	}
	consumer, err := newConsumer(kafka.ListenAddrs(), b.show)
	if err != nil {
		return verdict{}, err
	}
	defer consumer.client.Close()
	b.say("Postgres and Kafka are up, the tables orders and outbox are made; starting outboxd")
	s := &stage{o: o, board: b, db: db, url: pg.url, brokers: kafka.ListenAddrs(), ledger: ledger{db}, consumer: consumer}
	return s.run(ctx)
}

// run lets orders, consumer and ledger go on beside the acts.
func (s *stage) run(ctx context.Context) (verdict, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	aside := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		})
	}
	first, err := s.startRelay(ctx)
	if err != nil {
		return verdict{}, err
	}
	defer first.kill()
	s.board.say("outboxd is up (pid %d): %d orders are being placed, every third card is declined at first", first.pid(), s.o.orders)

	placed := make(chan struct{})
	aside(func(ctx context.Context) error {
		defer close(placed)
		return traffic(ctx, orders.New(s.db), s.o.orders)
	})
	aside(s.consumer.run)
	aside(func(ctx context.Context) error { return s.ledger.watch(ctx, s.saw) })
	aside(s.board.run)

	t, err := s.killInMidStream(ctx, first)
	if err != nil {
		return verdict{}, err
	}
	if err := pause(ctx, outage); err != nil {
		return verdict{}, context.Cause(ctx)
	}
	second, err := s.startRelay(ctx)
	if err != nil {
		return verdict{}, err
	}
	defer second.kill()
	s.board.say("outboxd is up again (pid %d) and goes on from its checkpoint; what comes again is marked *", second.pid())
	return s.finish(ctx, second, placed, t)
}

func (s *stage) startRelay(ctx context.Context) (*relay, error) {
	r, err := startRelay(s.o.binary, s.o.work, s.url, s.brokers)
	if err != nil {
		return nil, err
	}
	if err := r.ready(ctx); err != nil {
		r.kill()
		return nil, fmt.Errorf("wait until outboxd is ready: %w", err)
	}
	return r, nil
}

// killInMidStream waits until about half of the events are through and kills
// outboxd while orders go on. It notes what had been confirmed by then.
func (s *stage) killInMidStream(ctx context.Context, r *relay) (truth, error) {
	alive, forget := r.alive(ctx)
	defer forget()
	err := s.consumer.await(alive, func(c *consumer) bool { return len(c.records) >= 2*s.o.orders })
	if err != nil {
		return truth{}, err
	}
	forget()
	r.kill()
	s.board.say("outboxd was killed (SIGKILL, pid %d); orders go on", r.pid())

	lsn, err := s.ledger.confirmed(ctx)
	if err != nil {
		return truth{}, err
	}
	records, err := s.consumer.drain(ctx)
	if err != nil {
		return truth{}, err
	}
	return truth{confirmed: s.before(lsn), killedAt: len(records)}, nil
}

// finish waits for the last event, stops outboxd and judges.
func (s *stage) finish(ctx context.Context, r *relay, placed <-chan struct{}, t truth) (verdict, error) {
	alive, forget := r.alive(ctx)
	defer forget()
	select {
	case <-placed:
	case <-alive.Done():
		return verdict{}, context.Cause(alive)
	}
	var err error
	if t.committed, err = s.ledger.committed(ctx); err != nil {
		return verdict{}, err
	}
	if t.rolledBack, err = s.ledger.rolledBack(ctx); err != nil {
		return verdict{}, err
	}
	tooLong := errors.New("events are missing")
	last, cancel := context.WithTimeoutCause(alive, catchUp, tooLong)
	defer cancel()
	err = s.consumer.await(last, func(c *consumer) bool { return c.hasAll(t.committed) })
	if err != nil && !errors.Is(err, tooLong) {
		return verdict{}, err
	}
	forget()
	if err := r.stop(30 * time.Second); err != nil {
		return verdict{}, err
	}
	s.board.say("the last order is done, outboxd was stopped (SIGTERM) and ended cleanly")
	records, err := s.consumer.drain(ctx)
	if err != nil {
		return verdict{}, err
	}
	records, err = sabotage(s.o.sabotage, records, t)
	if err != nil {
		return verdict{}, err
	}
	return judge(t, records), nil
}

func (s *stage) saw(seen sighting) {
	s.board.committed(len(seen.ids))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sightings = append(s.sightings, seen)
}

// before returns the events that are known to lie before lsn in the log.
func (s *stage) before(lsn int64) map[int64]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[int64]bool{}
	for _, seen := range s.sightings {
		if seen.lsn <= lsn {
			for _, id := range seen.ids {
				ids[id] = true
			}
		}
	}
	return ids
}
