package e2e

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/harness"
)

const mebibyte = 1 << 20

// An idle outbox holds little log while other tables and other databases of
// the server are written to, behind a restart too.
func TestIdleOutboxOnABusyServer(t *testing.T) {
	each(t, ends, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		db := s.db.(*harness.Postgres)
		p := s.active()
		s.commit(10)
		s.delivered()
		s.exec("CREATE TABLE busy (filler TEXT)")
		other := harness.NewPostgres(t, at.service)
		other.Exec(t, "CREATE TABLE busy (filler TEXT)")

		confirmed := watched(t, db, "confirmed_flush_lsn")
		for i := range harness.Times(15, 50) {
			in := db.SQL()
			if i%2 == 1 {
				in = other.SQL()
			}
			if _, err := in.ExecContext(t.Context(), "INSERT INTO busy SELECT repeat(md5(i::text), 32) FROM generate_series(1, 9500) i"); err != nil { // 10 MiB
				t.Fatal(err)
			}
		}
		if most := confirmed(); most > 64*mebibyte {
			t.Errorf("the server kept %d MiB of log by the confirmed place, want less than 64", most/mebibyte)
		} else {
			t.Logf("the server kept %d MiB of log at most by the confirmed place", most/mebibyte)
		}
		s.releases(db, "after the writes")

		p.Stop(t)
		for range 10 {
			s.exec("INSERT INTO busy SELECT repeat(md5(i::text), 32) FROM generate_series(1, 9500) i")
		}
		p = s.active()
		s.releases(db, "after a restart")
		s.commit(10)
		s.finish(p, "idle on a busy server", 0)
	})
}

// releases wants the log to be let go of, by the slot's restart place, once a
// snapshot of the running transactions is due: each 15 s, and 10 s more on a server that went idle.
func (s *scene) releases(db *harness.Postgres, when string) {
	s.t.Helper()
	began := time.Now()
	for kept(s.t, db, "restart_lsn") > 64*mebibyte {
		if time.Since(began) > 45*time.Second {
			s.t.Errorf("%s: the server still keeps %d MiB of log", when, kept(s.t, db, "restart_lsn")/mebibyte)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	s.t.Logf("%s: less than 64 MiB of log after %v", when, time.Since(began).Round(100*time.Millisecond))
}

// kept is how much log the slot keeps by one of its places.
func kept(t testing.TB, db *harness.Postgres, place string) int64 {
	t.Helper()
	return db.Int(t, "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), "+place+"))::bigint FROM pg_replication_slots WHERE database = current_database()")
}

// watched follows how much log the slot keeps until the result is called, which gives the most there was.
func watched(t testing.TB, db *harness.Postgres, place string) func() int64 {
	ctx, cancel := context.WithCancel(t.Context())
	var most int64
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			var n sql.NullInt64
			_ = db.SQL().QueryRowContext(ctx, "SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), "+place+"))::bigint FROM pg_replication_slots WHERE database = current_database()").Scan(&n)
			most = max(most, n.Int64)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	return func() int64 { cancel(); done.Wait(); return most }
}
