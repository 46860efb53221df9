package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	limit   = 3 * time.Minute  // for all that comes after the database is up
	catchUp = 60 * time.Second // for the last events, once the last order is done
	outage  = time.Second      // how long outboxd stays down
)

// stage is where the play takes place.
type stage struct {
	o        options
	board    *board
	db       database
	brokers  []string
	consumer *consumer

	mu        sync.Mutex
	sightings []sighting
}

// play starts everything, runs the play, and stops everything in turn.
func play(ctx context.Context, o options, b *board) (_ verdict, err error) {
	db, err := startDatabase(ctx, o, b)
	if err != nil {
		return verdict{}, err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	kafka, err := startKafka()
	if err != nil {
		return verdict{}, err
	}
	defer kafka.Close()

	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("gave up after %v", limit))
	defer cancel()
	consumer, err := newConsumer(kafka.ListenAddrs(), b.show)
	if err != nil {
		return verdict{}, err
	}
	defer consumer.client.Close()
	b.say("database and Kafka are up, the tables orders and outbox are made; starting outboxd")
	s := &stage{o: o, board: b, db: db, brokers: kafka.ListenAddrs(), consumer: consumer}
	return s.run(ctx)
}

// startDatabase gives a database with the tables, empty.
func startDatabase(ctx context.Context, o options, b *board) (database, error) {
	if o.mysql != "" {
		db, err := openMySQL(ctx, o.mysql)
		if err != nil {
			return nil, fmt.Errorf("open mysql: %w", err)
		}
		return db, nil
	}
	b.say("starting Postgres (a first run downloads it, 15 MB)")
	db, err := startPostgres(ctx, o.work, o.cache, o.repository)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	return db, nil
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
		return traffic(ctx, s.db.shop(), s.o.orders)
	})
	aside(s.consumer.run)
	aside(func(ctx context.Context) error { return watch(ctx, s.db, s.saw) })
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

func (s *stage) relay() settings {
	return settings{binary: s.o.binary, work: s.o.work, source: s.db.url(), brokers: s.brokers}
}

// checkpoint is the position that outboxd has saved.
func (s *stage) checkpoint(ctx context.Context) (string, error) { return s.relay().checkpoint(ctx) }

func (s *stage) startRelay(ctx context.Context) (*relay, error) {
	r, err := startRelay(s.relay())
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

	place, err := s.db.confirmed(ctx, s.checkpoint)
	if err != nil {
		return truth{}, err
	}
	records, err := s.consumer.drain(ctx)
	if err != nil {
		return truth{}, err
	}
	return truth{confirmed: s.before(place), killedAt: len(records)}, nil
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
	if t.committed, err = s.db.committed(ctx); err != nil {
		return verdict{}, err
	}
	if t.rolledBack, err = s.db.rolledBack(ctx); err != nil {
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

// before returns the events that are known to lie before a place in the log.
func (s *stage) before(place int64) map[int64]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := map[int64]bool{}
	for _, seen := range s.sightings {
		if seen.place <= place {
			for _, id := range seen.ids {
				ids[id] = true
			}
		}
	}
	return ids
}
