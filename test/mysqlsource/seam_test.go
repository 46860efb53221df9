package mysqlsource

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// application commits transactions of one to three events from several
// sessions at once, each event numbered within its aggregate under a lock, as applications do. Some
// roll back; some rows are deleted again in their own transaction, as relays of Debezium's kind ask for.
type application struct {
	d         database
	stop      context.CancelFunc
	done      sync.WaitGroup
	committed atomic.Int64
	failed    atomic.Pointer[error]
}

const (
	seamTable  = `CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_id INT NOT NULL, seq INT NOT NULL, payload JSON)`
	aggregates = 24
)

func (d database) applies(t *testing.T, sessions int) *application {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	a := &application{d: d, stop: stop}
	d.db.SetMaxIdleConns(sessions)
	for range sessions {
		a.done.Go(func() {
			for ctx.Err() == nil {
				if err := a.commit(); err != nil {
					a.failed.Store(&err)
					return
				}
			}
		})
	}
	t.Cleanup(func() { a.end(t) })
	return a
}

func (a *application) commit() error {
	ctx := context.Background()
	tx, err := a.d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	events := 1 + rand.IntN(3)
	if rand.IntN(50) == 0 {
		events = 60
	}
	aggregate := rand.IntN(aggregates)
	var seq int
	if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT seq FROM aggregates WHERE id = %d FOR UPDATE", aggregate)).Scan(&seq); err != nil {
		return err
	}
	var rows []string
	for i := range events {
		rows = append(rows, fmt.Sprintf("(%d, %d, '{}')", aggregate, seq+i+1))
	}
	if err := execs(tx, `INSERT INTO outbox (aggregate_id, seq, payload) VALUES `+strings.Join(rows, ", ")); err != nil {
		return err
	}
	if rand.IntN(10) == 0 { // never to be missed, and no reason to count
		if err := execs(tx, fmt.Sprintf(`INSERT INTO outbox (aggregate_id, seq) VALUES (%d, -1)`, aggregate), `DELETE FROM outbox WHERE seq = -1 AND id = LAST_INSERT_ID()`); err != nil {
			return err
		}
	}
	if err := execs(tx, fmt.Sprintf("UPDATE aggregates SET seq = %d WHERE id = %d", seq+events, aggregate)); err != nil {
		return err
	}
	if rand.IntN(20) == 0 {
		return tx.Rollback()
	}
	a.committed.Add(1)
	return tx.Commit()
}

func execs(tx *sql.Tx, statements ...string) error {
	for _, s := range statements {
		if _, err := tx.ExecContext(context.Background(), s); err != nil {
			return err
		}
	}
	return nil
}

// reaches waits until n transactions are committed.
func (a *application) reaches(t *testing.T, n int64) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("%d transactions", n), func() bool { return a.committed.Load() >= n || a.failed.Load() != nil })
}

func (a *application) end(t *testing.T) {
	t.Helper()
	a.stop()
	a.done.Wait()
	if err := a.failed.Load(); err != nil {
		t.Fatal(*err)
	}
}

// Under the load of many sessions, snapshot and log together give each
// committed event once, and the events of an aggregate in order: at the first start, and
// when another process goes on in the middle. Commits are held up between the
// log and the engine, which widens the gap that the seam has to bridge.
func TestSnapshotSeam(t *testing.T) {
	for _, c := range []struct {
		server  string
		place   mysql.PlaceMode
		setting string
		value   int
		usual   int
	}{
		{"mysql", mysql.PlaceAuto, "binlog_group_commit_sync_delay", 0, 0},
		{"mysql", mysql.PlaceAuto, "binlog_group_commit_sync_delay", 20_000, 0},
		{"mysql", mysql.PlaceAuto, "binlog_order_commits", 0, 1},
		{"mysql", mysql.PlaceFile, "binlog_group_commit_sync_delay", 20_000, 0},
		{"mysql-nogtid", mysql.PlaceAuto, "binlog_group_commit_sync_delay", 20_000, 0},
		{"mariadb1011", mysql.PlaceAuto, "binlog_commit_wait_count", 0, 0},
		{"mariadb118", mysql.PlaceAuto, "binlog_commit_wait_count", 0, 0},
		{"mariadb118", mysql.PlaceFile, "binlog_commit_wait_count", 0, 0},
	} {
		t.Run(fmt.Sprintf("%s/%s/%s=%d", c.server, c.place, c.setting, c.value), func(t *testing.T) {
			d := newDatabase(t, c.server, seamTable)
			d.exec(t, `CREATE TABLE aggregates (id INT PRIMARY KEY, seq INT NOT NULL)`)
			d.fill(t, `INSERT INTO aggregates VALUES `, aggregates, func(i int) string { return fmt.Sprintf("(%d, 0)", i-1) })
			d.exec(t, fmt.Sprintf("SET GLOBAL %s = %d", c.setting, c.value))
			t.Cleanup(func() {
				if _, err := d.db.Exec(fmt.Sprintf("SET GLOBAL %s = %d", c.setting, c.usual)); err != nil {
					t.Error(err)
				}
			})
			seen, left := 0, 0
			for range harness.Times(4, 60) {
				d.exec(t, "DELETE FROM outbox")
				d.exec(t, "UPDATE aggregates SET seq = 0")
				core, logs := observer.New(zap.DebugLevel)
				cfg := d.config()
				cfg.Place = c.place
				cfg.Name = harness.Unique("seam-")
				s, err := mysql.New(cfg, zap.New(core))
				if err != nil {
					t.Fatal(err)
				}
				a := d.applies(t, 12)
				a.reaches(t, 30+rand.Int64N(50))
				at := mustFirst(t, s)
				a.reaches(t, a.committed.Load()+30)
				one := read(t, s, at)
				one.next()
				at = one.close() // the process ends here
				rest := read(t, another(t, cfg), at)
				a.end(t)
				for _, l := range logs.FilterMessage("the place of the snapshot is found").All() {
					m := l.ContextMap()
					seen, left = seen+int(m["transactions_in_view"].(int64)), left+int(m["transactions_left_to_the_log"].(int64))
				}
				all := len(one.rows)
				for total := d.session(t).count(t, "SELECT COUNT(*) FROM outbox"); all < total; all = len(one.rows) + events(rest) {
					rest.next()
				}
				rest.caughtUp()
				rest.rows = append(one.rows, rest.rows...)
				judgeSeam(t, d, rest)
				rest.close()
			}
			t.Logf("between what was executed and the log's end: %d transactions in the view, %d not", seen, left)
		})
	}
}

func (s session) count(t *testing.T, query string) (n int) {
	t.Helper()
	if err := s.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// events counts the rows that stay.
func events(r *follower) (n int) {
	for _, row := range r.rows {
		if string(row.Values[2].Data) != "-1" {
			n++
		}
	}
	return n
}

func judgeSeam(t *testing.T, d database, r *follower) {
	t.Helper()
	got := map[string][]string{}
	for _, row := range r.rows {
		if seq := string(row.Values[2].Data); seq != "-1" {
			aggregate := string(row.Values[1].Data)
			got[aggregate] = append(got[aggregate], seq)
		}
	}
	for _, row := range d.session(t).table(t, "SELECT id, seq FROM aggregates") {
		var n int
		if _, err := fmt.Sscan(*row[1], &n); err != nil {
			t.Fatal(err)
		}
		if want := numbers(1, n); !slices.Equal(got[*row[0]], want) {
			same(t, "aggregate "+*row[0], got[*row[0]], want)
		}
	}
}
