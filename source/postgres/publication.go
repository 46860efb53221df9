package postgres

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxd/outboxd/internal/fault"
)

// marks tell a publication that was altered, and altered back, from one that
// was left alone: rows committed in between are not in the stream, and the
// server says nothing of them.
type marks struct {
	row    string               // which version of the publication's row it is (xmin): ALTER … SET makes a new one
	tables map[TableName]string // which entries carry the table: ADD and SET TABLE make new ones
}

// String is the form in a position; "" for none.
func (m marks) String() string {
	if m.row == "" {
		return ""
	}
	text := m.row
	for _, t := range slices.SortedFunc(maps.Keys(m.tables), func(a, b TableName) int { return strings.Compare(a.String(), b.String()) }) {
		text += "," + url.QueryEscape(t.Schema) + "." + url.QueryEscape(t.Name) + ":" + m.tables[t]
	}
	return text
}

func parseMarks(text string) (marks, error) {
	if text == "" {
		return marks{}, nil
	}
	fields := strings.Split(text, ",")
	m := marks{row: fields[0], tables: make(map[TableName]string)}
	for _, f := range fields[1:] {
		name, mark, marked := strings.Cut(f, ":")
		schema, table, dotted := strings.Cut(name, ".")
		var err error
		if schema, err = url.QueryUnescape(schema); err == nil {
			table, err = url.QueryUnescape(table)
		}
		if err != nil || !marked || !dotted {
			return marks{}, fmt.Errorf("mark %q", f)
		}
		m.tables[TableName{schema, table}] = mark
	}
	return m, nil
}

// readMarks reads them for the outbox tables that p carries.
func (s *Source) readMarks(ctx context.Context, conn *pgx.Conn, p *publicationState) error {
	p.marks.tables = make(map[TableName]string, len(s.tables))
	if err := conn.QueryRow(ctx, `SELECT xmin::text FROM pg_publication WHERE oid = $1`, p.oid).Scan(&p.marks.row); err != nil {
		return s.explain(fmt.Errorf("read publication %q: %w", s.cfg.Publication, err))
	}
	for _, t := range s.tables {
		var mark string
		var filtered bool
		err := conn.QueryRow(ctx, `
			SELECT concat_ws('+', string_agg(r.oid::text, '+' ORDER BY r.oid),
			         (SELECT string_agg(s.oid::text, '+') FROM pg_publication_namespace s WHERE s.pnpubid = $1 AND s.pnnspid = c.relnamespace)),
			       coalesce(bool_or(r.prqual IS NOT NULL), false)
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
			LEFT JOIN pg_publication_rel r ON r.prpubid = $1 AND (r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid)))
			WHERE n.nspname = $2 AND c.relname = $3 GROUP BY c.oid, c.relnamespace`, p.oid, t.Schema, t.Name).Scan(&mark, &filtered)
		if err != nil {
			return s.explain(fmt.Errorf("read publication %q: %w", s.cfg.Publication, err))
		}
		p.marks.tables[t] = mark
		if filtered {
			p.filtered = append(p.filtered, t)
		}
	}
	return nil
}

// judgePublication finds out what the server would only warn of, or not tell
// at all: rows that the publication does not carry are skipped.
func (s *Source) judgePublication(ctx context.Context, conn *pgx.Conn, at place) (*publicationState, error) {
	p, err := s.publication(ctx, conn)
	if err != nil {
		return nil, err
	}
	switch {
	case p == nil:
		return nil, fault.Position(fault.CodePublicationLost, s.anewAt(at), nil, "publication %q is gone: its slot can't decode without it", s.cfg.Publication)
	case p.oid != at.publication:
		return nil, fault.Position(fault.CodePublicationLost, s.anewAt(at), nil,
			"publication %q was dropped and made anew since the checkpoint: rows committed without it are not in the stream", s.cfg.Publication)
	case s.lacks(p) != "":
		return nil, fault.Position(fault.CodePublicationLost,
			fmt.Sprintf("%s; rows committed while it lacked them are not in the stream, so compare the table with Kafka; then `outboxd checkpoint set --to %s` goes on from the same place", s.mend(p), at.lsn), nil,
			"publication %q carries no %s", s.cfg.Publication, s.lacks(p))
	}
	then, err := parseMarks(at.marks)
	if err != nil {
		return nil, fmt.Errorf("parse position: %w", err)
	}
	if changed := then.changed(p.marks); changed != "" {
		return nil, fault.Position(fault.CodePublicationLost,
			fmt.Sprintf("rows it did not carry meanwhile are not in the stream: compare the table with Kafka; then `outboxd checkpoint set --to %s` goes on from the same place with the publication as it is now", at.lsn), nil,
			"publication %q was altered since the checkpoint: %s", s.cfg.Publication, changed)
	}
	return p, nil
}

// changed says what differs from m; a table that m does not know is a new one of ours.
func (m marks) changed(now marks) string {
	if m.row == "" { // a place of an earlier version, which had none
		return ""
	}
	for t, mark := range m.tables {
		if is, ours := now.tables[t]; ours && is != mark {
			return fmt.Sprintf("table %s was taken out and put back, or given a row filter or a column list", t)
		}
	}
	if m.row != now.row {
		return "what it publishes, or its owner, was set anew"
	}
	return ""
}

// mend is the statement that gives p what it lacks.
func (s *Source) mend(p *publicationState) string {
	if !p.inserts {
		return fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert')", quote(s.cfg.Publication))
	}
	var lacking []string
	for _, t := range s.tables {
		if !slices.Contains(p.tables, t) {
			lacking = append(lacking, t.String())
		}
	}
	return fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", quote(s.cfg.Publication), strings.Join(lacking, ", "))
}
