package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
)

// keyColumn is a column as far as it may serve for the order of a snapshot.
type keyColumn struct {
	Name    string
	OID     uint32 // of the type; of a domain's base type
	NotNull bool
	Key     int32 // place in the key, -1 when it is not part of it
}

func (c keyColumn) integer() bool {
	return c.OID == pgtype.Int2OID || c.OID == pgtype.Int4OID || c.OID == pgtype.Int8OID || c.OID == pgtype.NumericOID
}

func (c keyColumn) time() bool { return c.OID == pgtype.TimestampOID || c.OID == pgtype.TimestamptzOID }

// expression is the column as it is ordered by; NULL is never comparable.
func (c keyColumn) expression() string {
	if c.NotNull || !c.time() {
		return quote(c.Name)
	}
	return fmt.Sprintf("coalesce(%s, '-infinity')", quote(c.Name))
}

// order is how the rows of a table are put in a row.
type order struct {
	by []string // SQL expressions, ascending
	// alone is a condition of the order's truth: no two rows agree in these
	// columns. Empty: it holds anyway, or the operator answers for it.
	alone []string
	given bool // by OUTBOXD_SNAPSHOT_ORDER_BY
	loose bool // not total: rows may be equal in it
}

// orderOf finds the order in which the rows of t were committed, as far as
// one aggregate is concerned: an integer key, which is given in that order;
// else the time of creation; else none, where no aggregate has two rows.
func (s *Source) orderOf(ctx context.Context, conn *pgx.Conn, t TableName) (order, error) {
	columns, err := s.keyColumns(ctx, conn, t)
	if err != nil {
		return order{}, err
	}
	var key []keyColumn
	for _, c := range columns {
		if c.Key >= 0 {
			key = append(key, c)
		}
	}
	slices.SortFunc(key, func(a, b keyColumn) int { return int(a.Key - b.Key) })
	if s.cfg.Snapshot.OrderBy != "" {
		by, err := snapshot.ParseOrderBy(s.cfg.Snapshot.OrderBy, `'"`)
		if err != nil {
			return order{}, fault.Config(fault.CodeConfig, "list SQL expressions in OUTBOXD_SNAPSHOT_ORDER_BY, separated by commas; the order is ascending", nil, "OUTBOXD_SNAPSHOT_ORDER_BY %v", err)
		}
		return order{by: with(by, key), given: true, loose: len(key) == 0}, nil
	}
	if len(key) == 0 {
		return order{}, fault.Config(fault.CodeSnapshotOrder, "set OUTBOXD_SNAPSHOT_ORDER_BY to the columns that tell the order in which the rows were committed", nil,
			"table %s has no primary key, so the order of its rows is not known", t)
	}
	if i := onlyInteger(key); i >= 0 {
		return order{by: with([]string{key[i].expression()}, key)}, nil
	}
	aggregate, known := s.aggregate(ctx, conn, t)
	if known && len(aggregate) == 0 { // each event is an aggregate of its own
		return order{by: with(nil, key)}, nil
	}
	if at := creation(columns); at != nil {
		o := order{by: with([]string{at.expression()}, key)}
		if known {
			o.alone = append(slices.Clone(aggregate), at.expression())
		}
		return o, nil
	}
	if !known {
		return order{}, s.noOrder(t, "it has no integer key and no time of creation, and its aggregates are named in the payload")
	}
	return order{by: with(nil, key), alone: aggregate}, nil
}

func (s *Source) noOrder(t TableName, why string) error {
	return fault.Config(fault.CodeSnapshotOrder,
		"set OUTBOXD_SNAPSHOT_ORDER_BY to columns or SQL expressions that tell the order in which the rows were committed (the key follows by itself); or OUTBOXD_START=now leaves the rows that are there", nil,
		"the rows of table %s can't be published in order: %s", t, why)
}

// onlyInteger is the key's integer when nothing but times stands beside it, as in a partitioned table; else -1.
func onlyInteger(key []keyColumn) int {
	found := -1
	for i, c := range key {
		switch {
		case c.integer() && found < 0:
			found = i
		case !c.time() && c.OID != pgtype.DateOID:
			return -1
		}
	}
	return found
}

// creation finds the column that says when a row was made.
func creation(columns []keyColumn) *keyColumn {
	var times []*keyColumn
	var names []string
	for i := range columns {
		if columns[i].time() {
			times, names = append(times, &columns[i]), append(names, columns[i].Name)
		}
	}
	if i := snapshot.Creation(names); i >= 0 {
		return times[i]
	}
	return nil
}

// with appends the key, which makes the order total.
func with(by []string, key []keyColumn) []string {
	by = slices.Clone(by)
	for _, c := range key {
		if !slices.Contains(by, c.expression()) && !slices.Contains(by, c.Name) {
			by = append(by, quote(c.Name))
		}
	}
	return by
}

// aggregate gives the columns that name a row's aggregate; none when each row
// is one of its own. known is false when no column does.
func (s *Source) aggregate(ctx context.Context, conn *pgx.Conn, t TableName) (columns []string, known bool) {
	table, _, err := s.describe(ctx, conn, t)
	if err != nil || s.cfg.Snapshot.Aggregate == nil {
		return nil, false // not to be told from here: the order must be beyond doubt then
	}
	names, known := s.cfg.Snapshot.Aggregate(table)
	for _, n := range names {
		columns = append(columns, quote(n))
	}
	return columns, known
}

// keyColumns reads a table's columns with their part in its key: the primary
// one, or one as good.
func (s *Source) keyColumns(ctx context.Context, conn *pgx.Conn, t TableName) ([]keyColumn, error) {
	rows, err := conn.Query(ctx, `
		SELECT a.attname, coalesce(nullif(y.typbasetype, 0), y.oid), a.attnotnull,
		       coalesce(array_position((k.indkey::int2[])[0:k.indnkeyatts - 1], a.attnum), 0) - 1
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type y ON y.oid = a.atttypid
		LEFT JOIN LATERAL (
			SELECT i.indkey, i.indnkeyatts FROM pg_index i
			WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
			  AND NOT EXISTS (SELECT FROM pg_attribute x WHERE x.attrelid = c.oid AND NOT x.attnotnull
			                  AND x.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))
			ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1) k ON true
		WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attnum`, t.Schema, t.Name)
	if err != nil {
		return nil, s.explain(fmt.Errorf("read the key of %s: %w", t, err))
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[keyColumn])
	if err != nil {
		return nil, s.explain(fmt.Errorf("read the key of %s: %w", t, err))
	}
	return columns, nil
}
