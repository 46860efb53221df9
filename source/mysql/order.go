package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/snapshot"
	"github.com/outboxd/outboxd/source"
)

// Snapshot says what a first snapshot publishes, and in which order.
type Snapshot struct {
	// Where is an SQL condition on the rows; empty: all of them.
	Where string
	// OrderBy is a list of SQL expressions; empty: found by the table's key.
	OrderBy string
	// Aggregate names the columns that tell a row's aggregate: none when each
	// row is one of its own, known=false when no column does. May be nil.
	Aggregate func(*source.Table) (columns []string, known bool)
}

// order is how the rows of a table are put in a row.
type order struct {
	by []string // SQL expressions, ascending; the last ones are the key, so no two rows are alike
	// alone is a condition of the order's truth: no two rows agree in these
	// columns. Empty: it holds anyway, or the operator answers for it.
	alone []string
	given bool // by OUTBOXD_SNAPSHOT_ORDER_BY
	// nullable is a time of creation that may be NULL, which then counts as the earliest.
	nullable string
}

func (d describedColumn) integer() bool {
	switch d.dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		return true
	}
	return d.dataType == "decimal" && d.scale == 0
}

func (d describedColumn) time() bool { return d.dataType == "datetime" || d.dataType == "timestamp" }

// expression is the column as it is ordered by: an ENUM is compared by its label and ordered by its number.
func (d describedColumn) expression() string {
	if d.dataType == "enum" || d.dataType == "set" {
		return quote(d.name) + " + 0"
	}
	return quote(d.name)
}

// orderOf finds the order in which the rows of t were committed, as far as
// one aggregate is concerned: an integer key, which is given in that order;
// else the time of creation; else none, where no aggregate has two rows.
func (s *Source) orderOf(ctx context.Context, q *session, t TableName) (order, error) {
	columns, key, err := s.keyed(ctx, q, t)
	if err != nil {
		return order{}, err
	}
	s.keys[s.server.logged(t)] = key
	if s.cfg.Snapshot.OrderBy != "" {
		by, err := snapshot.ParseOrderBy(s.cfg.Snapshot.OrderBy, "'\"`")
		if err != nil {
			return order{}, fault.Config(fault.CodeConfig, "list SQL expressions in OUTBOXD_SNAPSHOT_ORDER_BY, separated by commas; the order is ascending", nil, "OUTBOXD_SNAPSHOT_ORDER_BY %v", err)
		}
		return order{by: with(by, key), given: true}, nil
	}
	if i := onlyInteger(key); i >= 0 {
		return order{by: with([]string{key[i].expression()}, key)}, nil
	}
	aggregate, known := s.aggregate(t, columns)
	if known && len(aggregate) == 0 { // each event is an aggregate of its own
		return order{by: with(nil, key)}, nil
	}
	if at := created(columns); at != nil {
		o := order{by: with([]string{at.expression()}, key), nullable: at.name}
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
func onlyInteger(key []describedColumn) int {
	found := -1
	for i, c := range key {
		switch {
		case c.integer() && found < 0:
			found = i
		case !c.time() && c.dataType != "date":
			return -1
		}
	}
	return found
}

// created finds the column that says when a row was made.
func created(columns []describedColumn) *describedColumn {
	var times []*describedColumn
	var names []string
	for i := range columns {
		if columns[i].time() {
			times, names = append(times, &columns[i]), append(names, columns[i].name)
		}
	}
	if i := snapshot.Creation(names); i >= 0 {
		return times[i]
	}
	return nil
}

// with appends the key, which makes the order total.
func with(by []string, key []describedColumn) []string {
	by = slices.Clone(by)
	for _, c := range key {
		if !slices.Contains(by, c.expression()) && !slices.Contains(by, c.name) {
			by = append(by, c.expression())
		}
	}
	return by
}

// aggregate gives the columns that name a row's aggregate; none when each row
// is one of its own. known is false when no column does.
func (s *Source) aggregate(t TableName, columns []describedColumn) (quoted []string, known bool) {
	if s.cfg.Snapshot.Aggregate == nil {
		return nil, false // not to be told from here: the order must be beyond doubt then
	}
	names, known := s.cfg.Snapshot.Aggregate(s.server.tableOf(t, columns))
	for _, n := range names {
		quoted = append(quoted, quote(n))
	}
	return quoted, known
}

// tableOf is the table's shape as the log shows it.
func (v *server) tableOf(t TableName, columns []describedColumn) *source.Table {
	table := &source.Table{Schema: t.Schema, Name: t.Name}
	for _, c := range columns {
		table.Columns = append(table.Columns, c.logged(v.mariadb))
	}
	return table
}

// logged is the column as the log shows it.
func (d describedColumn) logged(mariadb bool) source.Column {
	column := source.Column{Name: d.name, Type: d.dataType, Kind: d.kind(), NotNull: d.notNull}
	switch d.dataType {
	case "decimal":
		column.Type += fmt.Sprintf("(%d,%d)", d.precision, d.scale)
	case "time", "datetime", "timestamp":
		if d.fraction > 0 {
			column.Type += fmt.Sprintf("(%d)", d.fraction)
		}
	case "binary":
		column.Type = "char"
	case "varbinary":
		column.Type = "varchar"
	case "tinytext", "text", "mediumtext", "longtext", "tinyblob", "mediumblob", "longblob":
		column.Type = "blob"
	case "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection", "geometrycollection":
		column.Type, column.Kind = "geometry", source.Bytes
	case "vector":
		if mariadb {
			column.Type = "varchar"
		}
	}
	if strings.Contains(d.columnType, "unsigned") {
		column.Type += " unsigned"
	}
	return column
}

// keyed reads a table's columns and those of its key: the primary one, or one as good.
func (s *Source) keyed(ctx context.Context, q *session, t TableName) (columns, key []describedColumn, err error) {
	if columns, err = describe(ctx, q, t); err != nil {
		return nil, nil, err
	}
	indexes, err := indexesOf(ctx, q, t)
	if err != nil {
		return nil, nil, err
	}
	for _, x := range indexes {
		if !x.unique || !x.whole {
			continue
		}
		for _, name := range x.columns {
			if i := slices.IndexFunc(columns, func(c describedColumn) bool { return c.name == name }); i >= 0 {
				key = append(key, columns[i])
			}
		}
		break
	}
	if len(key) == 0 {
		return nil, nil, fault.Config(fault.CodeSnapshotOrder, fmt.Sprintf("give it one (ALTER TABLE %s ADD PRIMARY KEY …); or OUTBOXD_START=now leaves the rows that are there", t), nil,
			"table %s has no primary key and no unique one without NULL, by which a snapshot could go on and tell its rows from those of the log", t)
	}
	for _, c := range key {
		switch c.dataType {
		case "float", "double", "bit":
			return nil, nil, s.noOrder(t, fmt.Sprintf("%q of its key is a %s, which can't be compared as text", c.name, strings.ToUpper(c.dataType)))
		}
	}
	return columns, key, nil
}

// index is an index as far as it may serve a snapshot.
type index struct {
	name    string
	columns []string
	unique  bool // and without NULL
	whole   bool // over whole columns, not parts of them or expressions
}

// indexesOf reads a table's indexes, the primary key first, then unique ones.
func indexesOf(ctx context.Context, q *session, t TableName) ([]index, error) {
	r, err := q.query(ctx, `SELECT INDEX_NAME, NON_UNIQUE, COALESCE(COLUMN_NAME, ''), SUB_PART, NULLABLE FROM information_schema.STATISTICS
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND INDEX_TYPE = 'BTREE' ORDER BY INDEX_NAME <> 'PRIMARY', NON_UNIQUE, INDEX_NAME, SEQ_IN_INDEX`, t.Schema, t.Name)
	if err != nil {
		return nil, fmt.Errorf("read the indexes of %s: %w", t, err)
	}
	var all []index
	for i := range r.RowNumber() {
		text := func(c int) string { v, _ := r.GetString(i, c); return v }
		part, err := r.IsNull(i, 3)
		if err != nil {
			return nil, fmt.Errorf("read the indexes of %s: %w", t, err)
		}
		if len(all) == 0 || all[len(all)-1].name != text(0) {
			all = append(all, index{name: text(0), unique: text(1) == "0", whole: true})
		}
		x := &all[len(all)-1]
		x.columns = append(x.columns, text(2))
		x.whole = x.whole && part && text(2) != ""
		x.unique = x.unique && text(4) != "YES"
	}
	return all, nil
}

// serves names the index that has the rows in the order by; "" when none has. Each
// holds the primary key behind its own columns.
func serves(indexes []index, by []string) string {
	var primary []string
	if len(indexes) > 0 && indexes[0].name == "PRIMARY" {
		primary = indexes[0].columns
	}
	for _, x := range indexes {
		held := slices.Clone(x.columns)
		for _, c := range primary {
			if !slices.Contains(held, c) {
				held = append(held, c)
			}
		}
		if !x.whole || len(held) < len(by) {
			continue
		}
		found := true
		for i, e := range by {
			found = found && (e == quote(held[i]) || e == held[i])
		}
		if found {
			return x.name
		}
	}
	return ""
}

// prepareSnapshot finds the order of each table, before anything is made.
func (s *Source) prepareSnapshot(ctx context.Context, q *session) ([]order, error) {
	orders := make([]order, len(s.cfg.Tables))
	s.keys = map[TableName][]describedColumn{}
	for i, t := range s.cfg.Tables {
		engine, err := q.value(ctx, "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", t.Schema, t.Name)
		if err != nil {
			return nil, fmt.Errorf("look at table %s: %w", t, err)
		}
		if engine != "InnoDB" {
			return nil, fault.Config(fault.CodeTableUnusable, fmt.Sprintf("ALTER TABLE %s ENGINE = InnoDB; or OUTBOXD_START=now leaves the rows that are there", t), nil,
				"table %s is of the engine %s, which shows no snapshot", t, engine)
		}
		o, err := s.orderOf(ctx, q, t)
		if err == nil {
			err = s.orderHolds(ctx, q, t, &o)
		}
		if err != nil {
			return nil, err
		}
		orders[i] = o
	}
	return orders, nil
}

// orderHolds finds out whether the order is one, among the rows there are.
func (s *Source) orderHolds(ctx context.Context, q *session, t TableName, o *order) error {
	where := func(condition string) string {
		var all []string
		if s.cfg.Snapshot.Where != "" {
			all = append(all, "("+s.cfg.Snapshot.Where+"\n)")
		}
		if condition != "" {
			all = append(all, condition)
		}
		if len(all) == 0 {
			return ""
		}
		return " WHERE " + strings.Join(all, " AND ")
	}
	if o.given {
		found, err := s.exists(ctx, q, t, fmt.Sprintf("SELECT 1 FROM %s%s", t, where("(("+strings.Join(o.by, ") IS NULL OR (")+") IS NULL)")))
		if err == nil && found {
			err = s.noOrder(t, "an expression of OUTBOXD_SNAPSHOT_ORDER_BY is NULL in some of them")
		}
		return err
	}
	if o.nullable != "" {
		found, err := s.exists(ctx, q, t, fmt.Sprintf("SELECT 1 FROM %s%s", t, where(quote(o.nullable)+" IS NULL")))
		if err != nil {
			return err
		}
		if found { // else the plain column, which an index may serve
			never := fmt.Sprintf("COALESCE(%s, TIMESTAMP '1000-01-01 00:00:00')", quote(o.nullable))
			for _, list := range [][]string{o.by, o.alone} {
				if i := slices.Index(list, quote(o.nullable)); i >= 0 {
					list[i] = never
				}
			}
		}
	}
	if len(o.alone) == 0 {
		_, err := s.exists(ctx, q, t, fmt.Sprintf("SELECT 1 FROM %s%s", t, where("")))
		return err
	}
	found, err := s.exists(ctx, q, t, fmt.Sprintf("SELECT 1 FROM %s%s GROUP BY %s HAVING COUNT(*) > 1", t, where(""), strings.Join(o.alone, ", ")))
	if err == nil && found {
		err = s.noOrder(t, fmt.Sprintf("it has no integer key, and some of its rows are alike in %s", strings.Join(o.alone, ", ")))
	}
	return err
}

func (s *Source) exists(ctx context.Context, q *session, t TableName, query string) (bool, error) {
	text, err := q.value(ctx, "SELECT EXISTS ("+query+")")
	if err != nil {
		return false, s.explainSnapshot(t, err)
	}
	found, err := strconv.Atoi(text)
	return found != 0, err
}

// refusesSQL reports whether the server says that a statement, or a value in it, is wrong.
func refusesSQL(err error) bool {
	var my *mysql.MyError
	if !errors.As(err, &my) || my.Code == 1146 {
		return false
	}
	switch my.Code {
	case 1111, 1267, 1292, 1366, 1411, 1525, 1582, 1583, 3141, 3143, 4038: // of the state HY000, or may be: functions, collations, values, JSON
		return true
	}
	return strings.HasPrefix(my.State, "42") || strings.HasPrefix(my.State, "22")
}

// explainSnapshot turns what the server refuses in a snapshot's query into a fault.
func (s *Source) explainSnapshot(t TableName, err error) error {
	err = s.explain(err)
	code := errorCode(err)
	switch {
	case code == 1142 || code == 1143:
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT SELECT ON %s TO %s", t, s.server.quotedAccount()), cause(err),
			"OUTBOXD_START=snapshot reads %s, and the account may not", t)
	case refusesSQL(err) && (s.cfg.Snapshot.Where != "" || s.cfg.Snapshot.OrderBy != ""):
		return fault.Config(fault.CodeConfig, "correct OUTBOXD_SNAPSHOT_WHERE or OUTBOXD_SNAPSHOT_ORDER_BY", err,
			"the server refuses the condition or the order of the snapshot of %s", t)
	}
	return fmt.Errorf("read the rows of %s: %w", t, err)
}
