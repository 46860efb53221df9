package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxd/outboxd/source"
)

// Newest implements source.Sampler. The newest row is the last by the primary
// key, which its index finds without reading the table; without one it is any row.
func (s *Source) Newest(ctx context.Context) ([]source.Row, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer q.close()
	if _, err := q.query(ctx, "SET SESSION time_zone = '+00:00'"); err != nil {
		return nil, fmt.Errorf("set the time zone: %w", err)
	}
	var rows []source.Row
	for _, t := range s.cfg.Tables {
		row, err := newest(ctx, q, t)
		if err != nil {
			return rows, fmt.Errorf("read the newest row of %s: %w", t, err)
		}
		if row.Table != nil {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func newest(ctx context.Context, q *session, t TableName) (source.Row, error) {
	described, err := describe(ctx, q, t)
	if err != nil {
		return source.Row{}, err
	}
	row := source.Row{Table: &source.Table{Schema: t.Schema, Name: t.Name}, Tx: &source.Tx{ID: "0-0-0"}}
	var columns []string
	for _, d := range described {
		row.Table.Columns = append(row.Table.Columns, source.Column{Name: d.name, Type: d.columnType, Kind: d.kind(), NotNull: d.notNull})
		column := quote(d.name)
		if d.kind() != source.Bytes {
			column = "CAST(" + column + " AS CHAR)"
		}
		columns = append(columns, column)
	}
	key, err := q.query(ctx, `SELECT COLUMN_NAME FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX`, t.Schema, t.Name)
	if err != nil {
		return source.Row{}, err
	}
	var order []string
	for i := range key.RowNumber() {
		name, err := key.GetString(i, 0)
		if err != nil {
			return source.Row{}, err
		}
		order = append(order, quote(name)+" DESC")
	}
	statement := fmt.Sprintf("SELECT %s FROM %s.%s", strings.Join(columns, ", "), quote(t.Schema), quote(t.Name))
	if len(order) > 0 {
		statement += " ORDER BY " + strings.Join(order, ", ")
	}
	found, err := q.query(ctx, statement+" LIMIT 1")
	if err != nil || found.RowNumber() == 0 {
		return source.Row{}, err
	}
	for i := range columns {
		v := source.Value{State: source.Null}
		if null, err := found.IsNull(0, i); err != nil {
			return source.Row{}, err
		} else if !null {
			text, err := found.GetString(0, i)
			if err != nil {
				return source.Row{}, err
			}
			v = source.Value{State: source.Present, Data: []byte(text)}
		}
		row.Values = append(row.Values, v)
	}
	return row, nil
}
