package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
)

// firstOwnType is the lowest OID that pgoutput describes with a message of its
// own ('Y'). What is below is built in and means the same on every server.
const firstOwnType = 10000

// baseTypes gives, for each type, the type that its values are made of: a
// domain's innermost base type, and itself for all others. A type that is not there is left out.
func (s *Source) baseTypes(ctx context.Context, conn *pgx.Conn, oids []uint32) (map[uint32]uint32, error) {
	rows, err := conn.Query(ctx, `
		WITH RECURSIVE chain(typ, base, next) AS (
			SELECT oid, oid AS base, typbasetype FROM pg_type WHERE oid = ANY($1::oid[])
			UNION ALL
			SELECT c.typ, t.oid, t.typbasetype FROM chain c JOIN pg_type t ON t.oid = c.next
		) SELECT typ, base FROM chain WHERE next = 0`, oids)
	if err != nil {
		return nil, s.explain(fmt.Errorf("look for types: %w", err))
	}
	bases := make(map[uint32]uint32, len(oids))
	var typ, base uint32
	if _, err := pgx.ForEachRow(rows, []any{&typ, &base}, func() error { bases[typ] = base; return nil }); err != nil {
		return nil, s.explain(fmt.Errorf("look for types: %w", err))
	}
	return bases, nil
}

// columnTypes gives the base types of what the outbox tables are made of now.
func (s *Source) columnTypes(ctx context.Context, conn *pgx.Conn) (map[uint32]uint32, error) {
	var oids []uint32
	for _, t := range s.tables {
		rows, err := conn.Query(ctx, `
			SELECT DISTINCT a.atttypid FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND a.atttypid >= $3`, t.Schema, t.Name, uint32(firstOwnType))
		if err != nil {
			return nil, s.explain(fmt.Errorf("look for the types of %s: %w", t, err))
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
		if err != nil {
			return nil, s.explain(fmt.Errorf("look for the types of %s: %w", t, err))
		}
		oids = append(oids, found...)
	}
	if len(oids) == 0 {
		return map[uint32]uint32{}, nil
	}
	return s.baseTypes(ctx, conn, oids)
}

// columnName names a column of a table.
type columnName struct {
	TableName
	column string
}

// notNull tells which columns of the outbox tables can't be NULL, when a stream
// is opened: the log does not say it.
func (s *Source) notNull(ctx context.Context, conn *pgx.Conn) (map[columnName]bool, error) {
	found := map[columnName]bool{}
	for _, t := range s.tables {
		rows, err := conn.Query(ctx, `
			SELECT a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND a.attnotnull`, t.Schema, t.Name)
		if err != nil {
			return nil, s.explain(fmt.Errorf("look for the columns of %s: %w", t, err))
		}
		var name string
		if _, err := pgx.ForEachRow(rows, []any{&name}, func() error { found[columnName{t, name}] = true; return nil }); err != nil {
			return nil, s.explain(fmt.Errorf("look for the columns of %s: %w", t, err))
		}
	}
	return found, nil
}

// baseType asks for one type that the log names and that was in no outbox table
// when the stream was opened: a column was added since. It runs in the stream's
// goroutine, so it ends before the server expects the next status.
func (s *Source) baseType(oid uint32) (uint32, error) {
	ctx, cancel := context.WithTimeout(context.Background(), statusInterval)
	defer cancel()
	conn, err := s.connect(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer closeConn(conn)
	bases, err := s.baseTypes(ctx, conn, []uint32{oid})
	if err != nil {
		return 0, err
	}
	base, ok := bases[oid]
	if !ok {
		s.log.Warn("a column's type was dropped since: its values are taken as text", zap.Uint32("oid", oid))
		return oid, nil
	}
	return base, nil
}
