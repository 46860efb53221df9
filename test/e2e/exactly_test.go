package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// SIGKILL after counted events, again and again: who reads what is committed sees each event once.
func TestExactlyOnceKilled(t *testing.T) {
	eachParallel(t, everywhere(0), func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		p := s.active()
		l := s.committing(1000)
		counts := []int{1, 250, 97, 400}
		for i := range harness.Times(4, 20) {
			s.more(counts[i%len(counts)])
			p.Kill()
			p = s.active()
		}
		s.end(l)
		s.finish(p, "exactly once, killed", 0)
	})
}

func TestExactlyOnceBrokerKilled(t *testing.T) {
	each(t, families(1), func(t *testing.T, at stage) {
		harness.Disturb(t, "kafka")
		s := newScene(t, at).exactlyOnce().withTopics()
		p := s.active()
		l := s.committing(1000)
		for i := range harness.Times(1, 4) {
			s.more(300)
			harness.Ctl(t, [...]string{"kill", "stop"}[i%2], "kafka")
			harness.Ctl(t, "start", "kafka")
		}
		s.more(300)
		s.end(l)
		s.finish(p, "exactly once, broker killed and restarted", 0)
	})
}

func TestExactlyOnceDatabaseKilled(t *testing.T) {
	each(t, families(0), func(t *testing.T, at stage) {
		harness.Disturb(t, at.service)
		s := newScene(t, at).exactlyOnce().withTopics()
		p := s.active()
		l := s.committing(1000)
		for range harness.Times(1, 4) {
			s.more(200)
			harness.Ctl(t, "kill", at.service)
			harness.Ctl(t, "start", at.service)
		}
		s.more(200)
		s.end(l)
		s.finish(p, "exactly once, database killed", 0)
	})
}

// A transaction that a crash left open hides what comes behind it from readers.
// The next instance ends it, long before the brokers would.
func TestExactlyOnceStandbyEndsWhatACrashLeftOpen(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		s.env["OUTBOXD_TRANSACTION_TIMEOUT"] = "10m"
		s.env["OUTBOXD_TRANSACTION_INTERVAL"] = "3m" // nothing is committed by itself
		all := harness.Follow(t, s.topics...)
		first := s.active()
		s.commit(1)
		s.tail.WaitRecords(t, 1) // the first after a start doesn't wait
		s.commit(200)
		all.WaitRecords(t, 201)
		if n, _ := s.tail.Counts(); n != 1 {
			t.Fatalf("%d records are visible before the commit", n-1)
		}
		second := s.start("OUTBOXD_TRANSACTION_INTERVAL=100ms")
		second.WaitReady(t)
		killed := time.Now()
		first.Kill()
		s.delivered()
		t.Logf("readers waited %s", time.Since(killed).Round(10*time.Millisecond))
		s.finish(second, "exactly once, taken over", 0)
	})
}

// A frozen instance wakes when another one has taken over: nothing of it is seen.
func TestExactlyOnceFrozen(t *testing.T) {
	eachParallel(t, families(1), func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		frozen(s, "exactly once, frozen", 0)
	})
}

// The same at least once: the documented window, and never an old event behind a newer one for good.
func TestFrozen(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics().smallWindow()
		frozen(s, "frozen", 2*window)
	})
}

func frozen(s *scene, what string, window int) {
	t := s.t
	first := s.active()
	second := s.start()
	second.WaitReady(t)
	l := s.committing(500)
	s.more(200)
	first.Signal(syscall.SIGSTOP)
	second.WaitActive(t)
	s.more(200)
	first.Signal(syscall.SIGCONT)
	first.WaitCode(t, "/readyz?role=active", 503)
	first.WaitReady(t)
	second.WaitCode(t, "/readyz?role=active", 200) // a save of the one that woke may have got in the way of its own
	s.more(200)
	s.end(l)
	s.delivered()
	first.Stop(t)
	s.finish(second, what, window)
}

// A neighbour's transaction that stays open delays neither start nor delivery.
func TestExactlyOnceBesideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	neighbour := newScene(t, on("postgres17")).exactlyOnce().withTopics()
	neighbour.env["OUTBOXD_TRANSACTION_TIMEOUT"], neighbour.env["OUTBOXD_TRANSACTION_INTERVAL"] = "10m", "3m"
	all := harness.Follow(t, neighbour.topics...)
	frozen := neighbour.active()
	neighbour.commit(1)
	neighbour.tail.WaitRecords(t, 1)
	neighbour.commit(50)
	all.WaitRecords(t, 51)
	frozen.Signal(syscall.SIGSTOP)
	defer frozen.Signal(syscall.SIGCONT)

	s := newScene(t, on("postgres17")).exactlyOnce().withTopics()
	p := s.active()
	s.commit(100)
	s.finish(p, "exactly once, beside an open transaction", 0)
}

// Two databases whose connectors were given the same name: the second one is
// refused before it fences off the first, which notices nothing.
func TestExactlyOnceNameOfAnother(t *testing.T) {
	eachParallel(t, families(0), func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		p := s.active()
		s.commit(50)
		s.delivered()
		other := newScene(t, at)
		if at.postgres() { // lease and slot are of the database
			other.env["OUTBOXD_POSTGRES_SLOT"] = harness.Unique("slot_")
			other.env["OUTBOXD_POSTGRES_PUBLICATION"] = harness.Unique("publication_")
		}
		for _, name := range []string{"OUTBOXD_DELIVERY", "OUTBOXD_NAME", "OUTBOXD_CHECKPOINT"} {
			other.env[name] = s.env[name]
		}
		if at.postgres() {
			refused(t, other.start(), 3, "foreign")
		} else { // the same server's log: only the table is another
			other.env["OUTBOXD_SOURCE_URL"] = newScene(t, on("postgres17")).env["OUTBOXD_SOURCE_URL"]
			refused(t, other.start(), 3, "foreign")
		}
		s.commit(50)
		s.delivered()
		if n, _ := p.Metric("outboxd_restarts_total"); n != 0 {
			t.Errorf("%v restarts of the one that was there first", n)
		}
		s.finish(p, "exactly once, beside another of its name", 0)
	})
}

// Without its checkpoint nobody knows what was delivered behind the slot's place.
func TestExactlyOnceNeedsItsCheckpoint(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17")).exactlyOnce().withTopics()
	p := s.active()
	s.commit(50)
	s.delivered()
	p.Stop(t)
	harness.DeleteTopic(t, s.checkpoints())
	for _, start := range []string{"auto", "resume"} {
		refused(t, s.start("OUTBOXD_START="+start), 3, "position_lost", "exactly-once")
	}
	p = s.active("OUTBOXD_START=now")
	s.commit(50)
	s.finish(p, "exactly once, from the slot's place", 0)
}

// Kafka refuses one event of a transaction: what stands before it is seen once,
// however often it is started again; when the topic takes it, all goes on.
func TestExactlyOnceRefusedByKafka(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17")).exactlyOnce()
	for _, topic := range s.topics {
		harness.CreateTopic(t, topic, partitions, map[string]string{"max.message.bytes": "20000"})
	}
	s.tail = harness.FollowAt(t, s.level, s.topics...)
	p := s.active()
	s.commit(100)
	s.exec("INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT $1, 'large', 'large', "+
		"jsonb_build_object('seq', 1, 'fill', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) i))", s.types[0])
	s.commit(100)
	refused(t, p, 4, "event_refused", "too_large")
	for range 2 {
		refused(t, s.start(), 4, "event_refused", "too_large")
	}
	s.tail.WaitRecords(t, 100)
	if n, _ := s.tail.Counts(); n != 100 {
		t.Errorf("%d events are visible, want the 100 before the one that is refused", n)
	}
	harness.SetTopic(t, s.topics[0], "max.message.bytes", "1000000")
	s.finish(s.active(), "exactly once, refused by Kafka and mended", 0)
}

// A source transaction that takes longer than one of Kafka's may is cut, and a
// crash in the middle goes on behind what is committed.
func TestExactlyOnceLongTransaction(t *testing.T) {
	eachParallel(t, families(1), func(t *testing.T, at stage) {
		s := newScene(t, at).exactlyOnce().withTopics()
		s.env["OUTBOXD_TRANSACTION_TIMEOUT"] = "3s" // it is cut after a third of that
		s.env["OUTBOXD_BUFFER_EVENTS"] = "500"      // slowly
		s.env["OUTBOXD_KAFKA_LINGER"] = "50ms"
		if harness.Long() {
			s.env["OUTBOXD_TRANSACTION_TIMEOUT"] = "60s"
		}
		p := s.active()
		s.commitAtOnce(harness.Times(60_000, 1_000_000))
		cut := func() bool {
			for _, r := range harness.RecordsAt(t, checker.Committed, s.checkpoints()) {
				if strings.Contains(string(r.Value), `"done"`) {
					return true
				}
			}
			return false
		}
		harness.Eventually(t, "a cut", cut)
		p.Kill()
		p = s.active()
		s.finish(p, "exactly once, a long transaction", 0)
	})
}
