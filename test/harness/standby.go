package harness

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Standby starts a standby of p's server and gives p's database there. It is
// thrown away at the end of the test.
func (p *Postgres) Standby(t testing.TB) *Postgres {
	t.Helper()
	service := p.service + "-standby"
	admin, err := url.Parse(Need(t, variable(service)))
	if err != nil {
		t.Fatalf("address of %s: %v", service, err)
	}
	t.Cleanup(func() {
		Ctl(t, "stop", service)
		Ctl(t, "wipe", service)
		p.DropStandbySlot(t)
	})
	Ctl(t, "wipe", service)
	Ctl(t, "start", service)
	s := &Postgres{Name: p.Name, service: service, admin: admin}
	if s.db, err = sql.Open("pgx", s.at(admin.User, p.Name)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	return s
}

// DropStandbySlot ends what a standby of p's server follows it by: it gets no more of its log.
func (p *Postgres) DropStandbySlot(t testing.TB) {
	t.Helper()
	Eventually(t, "the slot of the standby is gone", func() bool {
		_, _ = p.db.Exec(`SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = 'standby'`)
		_, _ = p.db.Exec(`SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = 'standby'`)
		var n int
		return p.db.QueryRow(`SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'standby'`).Scan(&n) == nil && n == 0
	})
}

// Follow waits until the standby has all that p's server wrote so far.
func (p *Postgres) Follow(t testing.TB, standby *Postgres) {
	t.Helper()
	var end string
	if err := p.db.QueryRow(`SELECT pg_current_wal_lsn()::text`).Scan(&end); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the standby follows", func() bool {
		var done bool
		return standby.db.QueryRow(`SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn`, end).Scan(&done) == nil && done
	})
}

// Promote makes a primary of a standby.
func (p *Postgres) Promote(t testing.TB) {
	t.Helper()
	p.Exec(t, `SELECT pg_promote()`)
}

// CarrySlot copies a slot to a standby by hand, as tools do for servers older than 17.
func (p *Postgres) CarrySlot(t testing.TB, standby *Postgres, slot string) {
	t.Helper()
	p.Exec(t, `CHECKPOINT`) // writes the slot's state
	var from, to string
	if err := p.db.QueryRow(`SHOW data_directory`).Scan(&from); err != nil {
		t.Fatal(err)
	}
	if err := standby.db.QueryRow(`SHOW data_directory`).Scan(&to); err != nil {
		t.Fatal(err)
	}
	Ctl(t, "stop", standby.service)
	owner, err := os.Stat(to)
	if err != nil {
		t.Fatal(err)
	}
	as := owner.Sys().(*syscall.Stat_t)
	from, to = filepath.Join(from, "pg_replslot", slot), filepath.Join(to, "pg_replslot", slot)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "state"} {
		path := filepath.Join(to, name)
		if err := os.Chown(path, int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	Ctl(t, "start", standby.service)
}
