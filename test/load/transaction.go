package load

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Table is how rows are put into an outbox table.
type Table struct {
	Name string
	// Columns for a random UUID, aggregate type, aggregate id, event type and
	// payload. An empty one is not written: the database gives the id, or the table has no such column.
	Columns [5]string
	Binary  bool // both ids are 16 bytes
}

// The tables of the tests.
var (
	Outbox   = Table{Name: "outbox", Columns: [5]string{"", "aggregate_type", "aggregate_id", "event_type", "payload"}}
	Debezium = Table{Name: "outbox", Columns: [5]string{"id", "aggregatetype", "aggregateid", "type", "payload"}}
	Binary   = Table{Name: "outbox", Columns: Debezium.Columns, Binary: true}
	Laravel  = Table{Name: "outbox", Columns: [5]string{3: "event_type", 4: "payload"}}
)

// Dialect is what differs between databases in the statements.
type Dialect int

// The dialects.
const (
	Postgres Dialect = iota // parameters are $1, $2, …
	MySQL                   // parameters are ?
)

func (d Dialect) parameter(n int) string {
	if d == MySQL {
		return "?"
	}
	return fmt.Sprintf("$%d", n)
}

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
	// What is locked must be read as it is, not as it was when the transaction began.
	raw, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = raw.Rollback() }()
	t := &tx{Tx: raw, cfg: &l.cfg, random: random, seq: make(map[int]int64)}
	most, statement := 3, 4 // aggregates, and rows of one statement
	if l.cfg.Together {
		most, statement = 100, 400
	}
	if err := t.lock(ctx, 1+random.IntN(most)); err != nil {
		return false, fmt.Errorf("lock aggregates: %w", err)
	}
	for n > 0 {
		if !l.cfg.Together && random.IntN(8) == 0 {
			if err := t.undone(ctx); err != nil {
				return false, fmt.Errorf("go back to savepoint: %w", err)
			}
			l.rollbacks.Add(1)
		}
		rows := min(n, 1+random.IntN(statement))
		if err := t.insert(ctx, rows, false); err != nil {
			return false, fmt.Errorf("insert: %w", err)
		}
		n -= rows
	}
	if !l.cfg.Together && random.IntN(5) == 0 {
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
	var columns []string
	for _, name := range t.cfg.Table.Columns {
		if name != "" {
			columns = append(columns, name)
		}
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
		for i, value := range t.row(id, seq, ghost) {
			if t.cfg.Table.Columns[i] != "" {
				args = append(args, value)
				row = append(row, t.cfg.Dialect.parameter(len(args)))
			}
		}
		rows = append(rows, "("+strings.Join(row, ", ")+")")
	}
	_, err := t.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES %s",
		t.cfg.Table.Name, strings.Join(columns, ", "), strings.Join(rows, ", ")), args...)
	return err
}

// row gives a value for each of Table.Columns.
func (t *tx) row(id int, seq int64, ghost bool) [5]any {
	random, aggregate := any(uuid(t.random)), any(aggregateID(id))
	if t.cfg.Table.Binary {
		random, aggregate = binaryUUID(t.random), binaryAggregateID(id)
	}
	return [5]any{random, t.cfg.Types[id%len(t.cfg.Types)], aggregate, eventType(t.random), payload(t.random, id, seq, ghost)}
}
