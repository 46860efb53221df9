package mysql

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

var _ source.Lister = (*Source)(nil)

// What is handed over at once.
const (
	listRows  = 1000
	listBytes = 1 << 20
)

// List implements source.Lister. All tables are read in one view.
func (s *Source) List(ctx context.Context, what source.Listing, take func([]source.Listed) error) error {
	q, err := s.connect(ctx)
	if err != nil {
		return err
	}
	s.server, err = s.ask(ctx, q)
	q.close()
	if err != nil {
		return err
	}
	v, err := s.newView(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = v.Close() }()
	for _, t := range s.cfg.Tables {
		if err := s.list(ctx, v.session, t, what, take); err != nil {
			return err
		}
	}
	return nil
}

func (s *Source) list(ctx context.Context, q *session, t TableName, what source.Listing, take func([]source.Listed) error) error {
	columns, err := describe(ctx, q, t)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return fault.Config(fault.CodeTableMissing, "create the table, correct OUTBOXD_TABLES, or grant SELECT on it", nil, "table %s does not exist, or the account may not read it", t)
	}
	l := lister{table: s.server.tableOf(s.server.logged(t), columns), take: take}
	id, made, err := what.Columns(l.table)
	if err != nil {
		return err
	}
	made = madeColumn(columns, made)
	at := "NULL"
	if made != "" {
		at = fmt.Sprintf("CAST(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP '1970-01-01 00:00:00', %s) AS CHAR)", quote(made))
	}
	where, err := listedWhere(what, id, made, t)
	if err != nil {
		return err
	}
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.selected()
	}
	query := fmt.Sprintf("SELECT %s, %s FROM %s%s", strings.Join(list, ", "), at, t, where)
	err = q.textRows(ctx, query, func(_ []resultColumn, row [][]byte) error { return l.row(row) })
	if err != nil {
		return s.explainList(t, err)
	}
	return l.flush()
}

func (s *Source) explainList(t TableName, err error) error {
	err = s.explain(err)
	if code := errorCode(err); code == 1142 || code == 1143 {
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT SELECT ON %s TO %s", t, s.server.quotedAccount()), cause(err), "the account may not read %s", t)
	}
	return fmt.Errorf("read the rows of %s: %w", t, err)
}

var (
	plainNumber = regexp.MustCompile(`^-?[0-9]+$`)
	hexBytes    = regexp.MustCompile(`^0x([0-9a-fA-F]{2})+$`)
)

// listedWhere is the condition on the rows. The session's time zone is UTC.
func listedWhere(what source.Listing, id, made string, t TableName) (string, error) {
	if made == "" && (!what.Since.IsZero() || !what.Until.IsZero()) {
		return "", fault.Config(fault.CodeConfig, "bound the rows with --from-id and --to-id; or name the column in OUTBOXD_COLUMN_TIMESTAMP", nil,
			"table %s has no column that tells when a row was made", t)
	}
	var all []string
	bound := func(column, operator, value string) {
		switch {
		case value == "":
			return
		case !plainNumber.MatchString(value) && !hexBytes.MatchString(value):
			value = quoteText([]byte(value))
		}
		all = append(all, quote(column)+" "+operator+" "+value)
	}
	text := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05.999999")
	}
	bound(made, ">=", text(what.Since))
	bound(made, "<", text(what.Until))
	bound(id, ">=", what.FromID)
	bound(id, "<=", what.ToID)
	if len(all) == 0 {
		return "", nil
	}
	return " WHERE " + strings.Join(all, " AND "), nil
}

// madeColumn is the column asked for, as far as it holds a time, or the one of the usual name; or "".
func madeColumn(columns []describedColumn, asked string) string {
	var times []string
	for _, c := range columns {
		if c.time() {
			times = append(times, c.name)
			if c.name == asked {
				return asked
			}
		}
	}
	if i := snapshot.Creation(times); i >= 0 {
		return times[i]
	}
	return ""
}

// lister makes rows of one table's result.
type lister struct {
	table *source.Table
	take  func([]source.Listed) error
	rows  []source.Listed
	bytes int
}

func (l *lister) row(columns [][]byte) error {
	n := len(l.table.Columns)
	values := make([]source.Value, n)
	for i, v := range columns[:n] {
		if v == nil {
			values[i].State = source.Null
			continue
		}
		l.bytes += len(v)
		values[i] = source.Value{Data: append(make([]byte, 0, len(v)), v...), State: source.Present}
	}
	tx := &source.Tx{}
	if at := columns[n]; at != nil {
		us, err := strconv.ParseInt(string(at), 10, 64)
		if err != nil {
			return fmt.Errorf("table %s: read a row's time: %w", l.table, err)
		}
		tx.CommitAt = time.UnixMicro(us).UTC()
	}
	l.rows = append(l.rows, source.Listed{Row: source.Row{Table: l.table, Tx: tx, Values: values}})
	if len(l.rows) < listRows && l.bytes < listBytes {
		return nil
	}
	return l.flush()
}

func (l *lister) flush() error {
	rows := l.rows
	l.rows, l.bytes = nil, 0
	if len(rows) == 0 {
		return nil
	}
	return l.take(rows)
}

// Mark implements source.Lister. Without GTIDs it asks for a right that only a replica has, and gives none without it.
func (s *Source) Mark(ctx context.Context) (string, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer q.close()
	if s.server, err = s.ask(ctx, q); err != nil {
		return "", err
	}
	if !s.server.mariadb && s.server.gtids {
		text, err := q.value(ctx, "SELECT @@global.gtid_executed")
		return "gtid " + oneLine(text), err
	}
	end, err := s.status(ctx, q)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("file %s:%d", end.file, end.pos), nil
}

// Passed implements source.Lister.
func (s *Source) Passed(at source.Position, mark string) (bool, error) {
	p, err := parsePlace(at)
	if err != nil || p.snapshot != nil {
		return false, err
	}
	kind, text, _ := strings.Cut(mark, " ")
	if kind == "gtid" {
		if !p.byGTID {
			return false, nil
		}
		have, err := p.set()
		if err != nil {
			return false, err
		}
		want, err := mysql.ParseMysqlGTIDSet(text)
		if err != nil {
			return false, fmt.Errorf("parse the mark: %w", err)
		}
		return have.Contain(want), nil
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 || p.file == "" {
		return false, nil
	}
	pos, err := strconv.ParseUint(text[i+1:], 10, 64)
	if err != nil {
		return false, fmt.Errorf("parse the mark: %w", err)
	}
	if p.file == text[:i] {
		return p.pos >= pos, nil
	}
	return len(p.file) == len(text[:i]) && p.file > text[:i], nil
}
