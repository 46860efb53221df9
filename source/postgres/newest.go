package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/source"
)

// sampleTime is how long the server may look for a row that is only shown.
const sampleTime = 5 * time.Second

// Newest implements source.Sampler. The newest row is the last by the table's
// key, which its index finds without reading the table; without a key it is any row.
func (s *Source) Newest(ctx context.Context) ([]source.Row, error) {
	params := textSettings()
	params["statement_timeout"] = fmt.Sprint(sampleTime.Milliseconds())
	conn, err := s.connect(ctx, params)
	if err != nil {
		return nil, err
	}
	defer closeConn(conn)
	tables, err := s.resolve(ctx, conn)
	if err != nil {
		return nil, err
	}
	var rows []source.Row
	for _, t := range tables {
		row, err := s.newest(ctx, conn, t)
		if err != nil {
			return rows, s.explain(fmt.Errorf("read the newest row of %s: %w", t, err))
		}
		if row.Table != nil {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func (s *Source) newest(ctx context.Context, conn *pgx.Conn, t TableName) (source.Row, error) {
	table, _, err := s.describe(ctx, conn, t)
	if err != nil {
		return source.Row{}, err
	}
	key, err := s.keyColumns(ctx, conn, t)
	if err != nil {
		return source.Row{}, err
	}
	key = slices.DeleteFunc(key, func(c keyColumn) bool { return c.Key < 0 })
	slices.SortFunc(key, func(a, b keyColumn) int { return int(a.Key - b.Key) })
	names := make([]string, len(table.Columns))
	for i, c := range table.Columns {
		names[i] = quote(c.Name)
	}
	query := fmt.Sprintf("SELECT %s FROM %s", strings.Join(names, ", "), t)
	for i, c := range key {
		query += map[bool]string{true: " ORDER BY ", false: ", "}[i == 0] + quote(c.Name) + " DESC"
	}
	found, err := textRows(ctx, conn, query+" LIMIT 1")
	if err != nil || len(found) == 0 {
		return source.Row{}, err
	}
	row := source.Row{Table: table, Tx: &source.Tx{ID: "0/0"}, Values: make([]source.Value, len(names))}
	for i, v := range found[0] {
		if v == nil {
			row.Values[i] = source.Value{State: source.Null}
			continue
		}
		if table.Columns[i].Kind == source.Bytes {
			if v, err = unhex(v); err != nil {
				return source.Row{}, err
			}
		}
		row.Values[i] = source.Value{Data: v, State: source.Present}
	}
	return row, nil
}
