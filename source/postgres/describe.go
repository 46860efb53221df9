package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// hiddenColumn is a column that the log does not carry.
type hiddenColumn struct {
	name string
	why  string
	fix  string
}

// describe reads a table's shape as the log will show it: generated columns
// are in the log since PostgreSQL 18, and only when the publication says so; a
// publication of somebody else's may list columns.
func (s *Source) describe(ctx context.Context, conn *pgx.Conn, t TableName) (*source.Table, []hiddenColumn, error) {
	// A publication's attnames count generated columns on 15, where they are never sent.
	rows, err := conn.Query(ctx, `
		SELECT a.attname, a.atttypid, format_type(a.atttypid, a.atttypmod), a.attgenerated::text, a.attnotnull, current_setting('server_version_num')::int,
		       CASE WHEN p.pubname IS NULL THEN a.attgenerated = ''
		            ELSE a.attname = ANY(p.attnames) AND (a.attgenerated = '' OR current_setting('server_version_num')::int >= 180000) END
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_publication_tables p ON p.pubname = $3 AND p.schemaname = n.nspname AND p.tablename = c.relname
		WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped
		ORDER BY a.attnum`, t.Schema, t.Name, s.cfg.Publication)
	if err != nil {
		return nil, nil, s.explain(fmt.Errorf("read the columns of %s: %w", t, err))
	}
	type column struct {
		Name      string
		OID       uint32
		Type      string
		Generated string
		NotNull   bool
		Version   int
		Sent      bool
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		return nil, nil, s.explain(fmt.Errorf("read the columns of %s: %w", t, err))
	}
	oids := make([]uint32, len(columns))
	for i, c := range columns {
		oids[i] = c.OID
	}
	bases, err := s.baseTypes(ctx, conn, oids)
	if err != nil {
		return nil, nil, err
	}
	table := &source.Table{Schema: t.Schema, Name: t.Name}
	var hidden []hiddenColumn
	for _, c := range columns {
		switch {
		case c.Sent:
			table.Columns = append(table.Columns, source.Column{Name: c.Name, Type: c.Type, Kind: kindOf(bases[c.OID]), NotNull: c.NotNull})
		case c.Generated == "s" && c.Version >= 180000:
			hidden = append(hidden, hiddenColumn{c.Name, "generated", fmt.Sprintf("ALTER PUBLICATION %s SET (publish_generated_columns = stored)", quote(s.cfg.Publication))})
		case c.Generated != "":
			hidden = append(hidden, hiddenColumn{c.Name, "generated", "make it an ordinary column that a trigger fills"})
		default:
			hidden = append(hidden, hiddenColumn{c.Name, "not in the publication's column list", fmt.Sprintf("let publication %s carry the table without a list of columns", quote(s.cfg.Publication))})
		}
	}
	return table, hidden, nil
}

// explainHidden adds to a refusal what the table has and the log does not show.
func (s *Source) explainHidden(err error, hidden []hiddenColumn) error {
	f := fault.As(err)
	if f == nil || len(hidden) == 0 {
		return err
	}
	found, fixes := make([]string, len(hidden)), make([]string, len(hidden))
	for i, h := range hidden {
		found[i] = fmt.Sprintf("column %q (%s)", h.name, h.why)
		fixes[i] = fmt.Sprintf("or, for %q: %s", h.name, h.fix)
	}
	explained := *f
	explained.Found = f.Found + "; the log does not carry " + strings.Join(found, ", ")
	explained.Fix = strings.Join(append([]string{f.Fix}, fixes...), " ")
	return &explained
}
