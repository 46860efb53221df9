package load

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Table is how rows are put into an outbox table. The statements' parameters are $1, $2, …
type Table struct {
	Name    string
	Columns [4]string // aggregate type, aggregate id, event type, payload
	UUID    string    // column that takes a random UUID; empty: the id is given by the database
}

// The two tables of the tests.
var (
	Outbox   = Table{Name: "outbox", Columns: [4]string{"aggregate_type", "aggregate_id", "event_type", "payload"}}
	Debezium = Table{Name: "outbox", Columns: [4]string{"aggregatetype", "aggregateid", "type", "payload"}, UUID: "id"}
)

// prepare makes the rows that writers lock; those of an earlier load go on.
func prepare(ctx context.Context, db *sql.DB, cfg Config) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS aggregates (id INT PRIMARY KEY, seq BIGINT NOT NULL)"); err != nil {
		return err
	}
	var have int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM aggregates").Scan(&have); err != nil || have >= cfg.Aggregates {
		return err
	}
	var values []string
	for i := have; i < cfg.Aggregates; i++ {
		values = append(values, fmt.Sprintf("(%d, 0)", i))
	}
	_, err := db.ExecContext(ctx, "INSERT INTO aggregates (id, seq) VALUES "+strings.Join(values, ", "))
	return err
}

// tx is one open transaction and what it has numbered so far.
type tx struct {
	*sql.Tx
	cfg    *Config
	random *rand.Rand
	ids    []int // aggregates that are locked, ascending: no deadlocks
	seq    map[int]int64
}

// transaction writes n events of a few aggregates and commits them, or rolls them back.
func (l *Load) transaction(ctx context.Context, random *rand.Rand, n int) (committed bool, err error) {
	raw, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = raw.Rollback() }()
	t := &tx{Tx: raw, cfg: &l.cfg, random: random, seq: make(map[int]int64)}
	if err := t.lock(ctx, 1+random.IntN(3)); err != nil {
		return false, fmt.Errorf("lock aggregates: %w", err)
	}
	for n > 0 {
		if random.IntN(8) == 0 {
			if err := t.undone(ctx); err != nil {
				return false, fmt.Errorf("go back to savepoint: %w", err)
			}
			l.rollbacks.Add(1)
		}
		rows := min(n, 1+random.IntN(4))
		if err := t.insert(ctx, rows, false); err != nil {
			return false, fmt.Errorf("insert: %w", err)
		}
		n -= rows
	}
	if random.IntN(5) == 0 {
		return false, raw.Rollback()
	}
	for _, id := range t.ids {
		if _, err := t.ExecContext(ctx, fmt.Sprintf("UPDATE aggregates SET seq = %d WHERE id = %d", t.seq[id], id)); err != nil {
			return false, fmt.Errorf("update aggregate: %w", err)
		}
	}
	if err := raw.Commit(); err != nil {
		return false, fmt.Errorf("commit: %w", err)
	}
	return true, nil
}

func (t *tx) lock(ctx context.Context, n int) error {
	for range n {
		t.ids = append(t.ids, t.random.IntN(t.cfg.Aggregates))
	}
	slices.Sort(t.ids)
	t.ids = slices.Compact(t.ids)
	for _, id := range t.ids {
		var seq int64
		err := t.QueryRowContext(ctx, fmt.Sprintf("SELECT seq FROM aggregates WHERE id = %d FOR UPDATE", id)).Scan(&seq)
		if err != nil {
			return err
		}
		t.seq[id] = seq
	}
	return nil
}

// undone inserts events and goes back to before them.
func (t *tx) undone(ctx context.Context) error {
	if _, err := t.ExecContext(ctx, "SAVEPOINT here"); err != nil {
		return err
	}
	if err := t.insert(ctx, 1+t.random.IntN(3), true); err != nil {
		return err
	}
	_, err := t.ExecContext(ctx, "ROLLBACK TO SAVEPOINT here")
	return err
}

// insert writes n events in one statement. A ghost takes no number.
func (t *tx) insert(ctx context.Context, n int, ghost bool) error {
	columns := t.cfg.Table.Columns[:]
	if t.cfg.Table.UUID != "" {
		columns = append([]string{t.cfg.Table.UUID}, columns...)
	}
	var args []any
	var rows []string
	for range n {
		id := t.ids[t.random.IntN(len(t.ids))]
		seq := t.seq[id] + 1
		if !ghost {
			t.seq[id] = seq
		}
		var row []string
		for _, value := range t.row(id, seq, ghost)[5-len(columns):] {
			args = append(args, value)
			row = append(row, fmt.Sprintf("$%d", len(args)))
		}
		rows = append(rows, "("+strings.Join(row, ", ")+")")
	}
	_, err := t.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES %s",
		t.cfg.Table.Name, strings.Join(columns, ", "), strings.Join(rows, ", ")), args...)
	return err
}

func (t *tx) row(id int, seq int64, ghost bool) []any {
	return []any{uuid(t.random), t.cfg.Types[id%len(t.cfg.Types)], aggregateID(id), eventType(t.random), payload(t.random, seq, ghost)}
}
