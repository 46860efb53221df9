package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// examine checks what the server must offer before anything is made or read.
// It changes nothing.
func (s *Source) examine(ctx context.Context, q *session) error {
	v, err := s.ask(ctx, q)
	if err != nil {
		return err
	}
	s.server = v
	if v.id == strconv.FormatUint(uint64(s.cfg.ServerID), 10) {
		return fault.Config(fault.CodeServerID, "set OUTBOXD_MYSQL_SERVER_ID to a number that no server of the replication has", nil, "the server itself has our server id, %s", v.id)
	}
	for _, t := range s.cfg.Tables {
		if err := s.examineTable(ctx, q, t); err != nil {
			return err
		}
	}
	return s.mayReplicate(ctx)
}

func (s *Source) examineTable(ctx context.Context, q *session, t TableName) error {
	_, err := q.query(ctx, fmt.Sprintf("SELECT 1 FROM %s LIMIT 0", t))
	switch code := errorCode(err); {
	case code == 1146 || code == 1049:
		return fault.Config(fault.CodeTableMissing, "create the table, or correct OUTBOXD_TABLES", err, "table %s does not exist", t)
	case code == 1142 || code == 1044:
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT SELECT ON %s TO %s", t, s.server.quotedAccount()), cause(err), "the account may not read %s", t)
	case err != nil:
		return fmt.Errorf("look at table %s: %w", t, err)
	}
	kind, err := q.value(ctx, "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?", t.Schema, t.Name)
	if err != nil {
		return fmt.Errorf("look at table %s: %w", t, err)
	}
	if strings.HasSuffix(kind, "VIEW") {
		return fault.Config(fault.CodeTableUnusable, "name the table behind the view in OUTBOXD_TABLES", nil, "%s is a view: the log knows the table behind it alone", t)
	}
	if s.cfg.Validate == nil {
		return nil
	}
	described, err := describe(ctx, q, t)
	if err != nil {
		return err
	}
	table := &source.Table{Schema: t.Schema, Name: t.Name}
	for _, d := range described {
		table.Columns = append(table.Columns, source.Column{Name: d.name, Type: d.columnType, Kind: d.kind(), NotNull: d.notNull})
	}
	if err := s.cfg.Validate(table); fault.As(err) != nil {
		return err // it says already what to do
	} else if err != nil {
		return fault.Config(fault.CodeTableUnusable, "see the OUTBOXD_COLUMN_… variables", err, "the columns of %s don't fit", t)
	}
	return nil
}

// quotedAccount is the account as GRANT takes it.
func (v *server) quotedAccount() string {
	user, host := v.account, "%"
	if i := strings.LastIndexByte(v.account, '@'); i >= 0 {
		user, host = v.account[:i], v.account[i+1:]
	}
	q := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return q(user) + "@" + q(host)
}

// cause is the server's own error below a fault that says the same in general.
func cause(err error) error {
	if f := fault.As(err); f != nil && f.Err != nil {
		return f.Err
	}
	return err
}

func (d describedColumn) kind() source.Kind {
	switch d.dataType {
	case "json":
		return source.JSON
	case "tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal", "year":
		return source.Number
	case "date", "time", "datetime", "timestamp":
		return source.Time
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit", "geometry", "vector":
		return source.Bytes
	}
	return source.Text
}

// describe reads the columns as they are now, in the order of the log.
func describe(ctx context.Context, q *session, t TableName) ([]describedColumn, error) {
	r, err := q.query(ctx, `SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, 'binary'),
		CHARACTER_OCTET_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, IS_NULLABLE FROM information_schema.COLUMNS
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, t.Schema, t.Name)
	if err != nil {
		return nil, fmt.Errorf("read the columns of %s: %w", t, err)
	}
	columns := make([]describedColumn, r.RowNumber())
	for i := range columns {
		text := func(c int) string { v, _ := r.GetString(i, c); return v }
		number := func(c int) int { v, _ := r.GetInt(i, c); return int(v) }
		columns[i] = describedColumn{
			name: text(0), dataType: text(1), columnType: text(2), charset: text(3),
			octets: number(4), precision: number(5), scale: number(6), fraction: number(7), notNull: text(8) == "NO",
		}
	}
	return columns, nil
}

// mayReplicate judges the right by its effect: it registers as a replica and leaves.
func (s *Source) mayReplicate(ctx context.Context) error {
	q, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer q.close()
	if err := q.register(s.cfg.ServerID, s.endpoint.user); err != nil {
		return s.missingGrant(err, "REPLICATION SLAVE")
	}
	end, err := s.status(ctx, q)
	if err != nil {
		return s.missingGrant(err, s.clientGrant())
	}
	return s.mustBeLogged(end)
}

// mustBeLogged refuses tables that the server's filters keep out of the log.
func (s *Source) mustBeLogged(end logEnd) error {
	for _, t := range s.cfg.Tables {
		if end.only != "" && !listed(end.only, t.Schema) || listed(end.never, t.Schema) {
			return fault.Config(fault.CodeServerSetting, "take the database into binlog_do_db, or out of binlog_ignore_db, in the server's configuration", nil,
				"the server does not log the database of %s (binlog_do_db %q, binlog_ignore_db %q)", t, end.only, end.never)
		}
	}
	return nil
}

func listed(databases, name string) bool {
	for d := range strings.SplitSeq(databases, ",") {
		if d != "" && strings.EqualFold(strings.TrimSpace(d), name) {
			return true
		}
	}
	return false
}

func (s *Source) clientGrant() string {
	if s.server.mariadb {
		return "BINLOG MONITOR"
	}
	return "REPLICATION CLIENT"
}

func (s *Source) missingGrant(err error, right string) error {
	if code := errorCode(err); code == 1227 || code == 1045 || code == 1142 {
		return fault.Config(fault.CodeGrantMissing, fmt.Sprintf("GRANT %s ON *.* TO %s", right, s.server.quotedAccount()), cause(err), "the account lacks %s", right)
	}
	return err
}

// logEnd is the end of the server's log.
type logEnd struct {
	file        string
	pos         uint64
	gtids       string
	only, never string // databases that are logged, and that are not (binlog_do_db, binlog_ignore_db)
}

func (s *Source) status(ctx context.Context, q *session) (logEnd, error) {
	r, err := q.query(ctx, "SHOW BINARY LOG STATUS")
	if errorCode(err) == 1064 { // MariaDB, and MySQL before 8.4
		r, err = q.query(ctx, "SHOW MASTER STATUS")
	}
	if err != nil {
		return logEnd{}, fmt.Errorf("ask for the log's end: %w", err)
	}
	if r.RowNumber() == 0 {
		return logEnd{}, fmt.Errorf("ask for the log's end: the server tells none")
	}
	file, err := r.GetString(0, 0)
	if err != nil {
		return logEnd{}, fmt.Errorf("ask for the log's end: %w", err)
	}
	pos, err := r.GetUint(0, 1)
	if err != nil {
		return logEnd{}, fmt.Errorf("ask for the log's end: %w", err)
	}
	variable := "@@global.gtid_executed"
	if s.server.mariadb {
		variable = "@@global.gtid_binlog_pos"
	}
	gtids, err := q.value(ctx, "SELECT "+variable)
	if err != nil {
		return logEnd{}, fmt.Errorf("ask for the server's GTIDs: %w", err)
	}
	only, _ := r.GetString(0, 2)
	never, _ := r.GetString(0, 3)
	return logEnd{file, pos, strings.ReplaceAll(gtids, "\n", ""), only, never}, nil
}

// Begin implements source.Source. MySQL keeps nothing for us, so a place that
// is lost leaves no trace, and resume can never find one.
func (s *Source) Begin(ctx context.Context, first source.First) (source.Position, error) {
	if first.Mode == source.StartResume {
		return "", fault.Position(fault.CodePositionLost, "if this is a first start, set OUTBOXD_START to auto, now or snapshot; if not, find out who removed the checkpoint, put it back (`outboxd checkpoint copy`), or compare the table with Kafka: OUTBOXD_START=now goes on from here and leaves out what was committed since", nil,
			"OUTBOXD_START is resume, but there is no checkpoint")
	}
	s.dropView()
	q, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer q.close()
	if s.server, err = s.ask(ctx, q); err != nil {
		return "", err
	}
	if first.Mode == source.StartSnapshot {
		return s.beginSnapshot(ctx, q)
	}
	at, err := s.now(ctx, q)
	if err != nil {
		return "", err
	}
	if first.Mode == source.StartAuto {
		if err := s.mustBeEmpty(ctx, q); err != nil {
			return "", err
		}
	}
	return at.position(), nil
}

// now is the place at the end of the log. GTIDs are read before file and
// position: the log is written before a commit counts as executed, so the set may lag
// behind the file, and starting from it repeats at most what is not yet visible.
func (s *Source) now(ctx context.Context, q *session) (place, error) {
	p, err := s.blank()
	if err != nil {
		return p, err
	}
	end, err := s.status(ctx, q)
	if err != nil {
		return p, err
	}
	p.file, p.pos = end.file, end.pos
	if !p.mariadb && !p.byGTID {
		return p, nil
	}
	p.gtids = end.gtids
	if p.mariadb { // the place's GTIDs are those of the file's place, not of another moment
		if p.gtids, err = s.gtidsAt(ctx, q, p); err != nil {
			return p, err
		}
	}
	set, err := p.set()
	if err != nil {
		return p, fmt.Errorf("read the server's GTIDs: %w", err)
	}
	p.gtids = set.String()
	return p, nil
}

// blank is a place of this server that says nothing yet but how it is told.
func (s *Source) blank() (place, error) {
	p := place{mariadb: s.server.mariadb, byGTID: s.server.gtids}
	switch s.cfg.Place {
	case PlaceGTID:
		if !s.server.gtids {
			return p, fault.Config(fault.CodeServerSetting, "turn gtid_mode ON, or set OUTBOXD_MYSQL_POSITION to file", nil, "OUTBOXD_MYSQL_POSITION is gtid and the server's gtid_mode is not ON")
		}
	case PlaceFile:
		p.byGTID = false
	}
	if !p.mariadb && !p.byGTID {
		p.uuid = s.server.uuid
	}
	return p, nil
}

// gtidsAt asks MariaDB for its GTIDs at a place in a file.
func (s *Source) gtidsAt(ctx context.Context, q *session, p place) (string, error) {
	r, err := q.query(ctx, "SELECT BINLOG_GTID_POS(?, ?)", p.file, strconv.FormatUint(p.pos, 10))
	if err != nil {
		return "", fmt.Errorf("ask for the GTIDs at %s:%d: %w", p.file, p.pos, err)
	}
	if null, _ := r.IsNull(0, 0); null {
		return "", errNoSuchPlace
	}
	return r.GetString(0, 0)
}

var errNoSuchPlace = errors.New("the server has no such place in its log")

// mustBeEmpty looks with a locking read: a row that is in the log already and
// not yet visible holds its lock until it is.
func (s *Source) mustBeEmpty(ctx context.Context, q *session) error {
	for _, t := range s.cfg.Tables {
		r, err := q.query(ctx, fmt.Sprintf("SELECT 1 FROM %s LIMIT 1 LOCK IN SHARE MODE", t))
		if err != nil {
			return fmt.Errorf("look for rows in %s (an open transaction may hold this up): %w", t, err)
		}
		if r.RowNumber() > 0 {
			return fault.Config(fault.CodeStartChoice, "OUTBOXD_START=snapshot publishes the rows that are there and then what is committed; OUTBOXD_START=now publishes what is committed from now on and leaves them; or empty the table first",
				nil, "table %s holds rows already, and this is the first start", t)
		}
	}
	return nil
}
