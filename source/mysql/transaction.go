package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// errNested and errNoBegin are logs that no server writes.
var (
	errNested  = errors.New("a transaction begins inside another")
	errNoBegin = errors.New("the end of a transaction that did not begin")
)

// begin opens a transaction. Its GTID counts when it ends (I3).
func (d *decoder) begin(e event) error {
	if d.tx != nil {
		return errNested
	}
	if (e.kind == eventMariaGTID) != d.at.mariadb {
		return fmt.Errorf("event type %d is of another kind of server", e.kind)
	}
	d.open(e)
	if err := d.identify(e); err != nil {
		return err
	}
	if err := d.pass(); err != nil || d.passing {
		return err
	}
	return d.promised()
}

// identify reads what tells a transaction from others.
func (d *decoder) identify(e event) error {
	switch e.kind {
	case eventMariaGTID:
		return d.beginMariaDB(e)
	case eventTaggedGTID:
		g, err := parseTaggedGTID(e.body)
		if err != nil {
			return err
		}
		d.beginMySQL(g)
	case eventGTID:
		g, err := parseGTID(e.body)
		if err != nil {
			return err
		}
		d.beginMySQL(g)
	case eventAnonymousGTID:
		g, err := parseGTID(e.body)
		if err != nil {
			return err
		}
		d.commitTime(g)
		if d.at.byGTID {
			return fault.Config(fault.CodeServerSetting, "turn gtid_mode back ON; where it is to stay off, "+anew, nil,
				"a transaction without a GTID at %s:%d: gtid_mode is not ON any more, and the checkpoint is in GTIDs", d.file, d.pos)
		}
	}
	return nil
}

// began is what tells a transaction from others. Most are of other tables, so its text is not made before it is asked for.
type began struct {
	kind  byte // of the event: which of these tells it
	mysql gtid
	maria mysql.MariadbGTID
	file  string
	pos   uint64 // behind the first event …
	from  uint64 // … and before it
	at    uint64 // where it was committed first, microseconds since 1970; 0: not told
}

// committed is the time of its first commit; zero when it is not told.
func (b *began) committed() time.Time {
	if b.at == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(b.at)).UTC()
}

// name is its GTID, or "".
func (b *began) name() string {
	if !b.counted() {
		return ""
	}
	return b.String()
}

// counted reports whether the transaction has a GTID.
func (b *began) counted() bool {
	return b.kind == eventGTID || b.kind == eventTaggedGTID || b.kind == eventMariaGTID
}

// String is the transaction's GTID, or the place of its first event.
func (b *began) String() string {
	switch b.kind {
	case eventGTID, eventTaggedGTID:
		return b.mysql.String()
	case eventMariaGTID:
		return b.maria.String()
	}
	return b.file + ":" + strconv.FormatUint(b.pos, 10)
}

// open begins a transaction.
func (d *decoder) open(e event) {
	if d.spare == nil {
		d.spare = &source.Tx{}
	}
	d.tx = d.spare
	d.tx.CommitAt, d.began = time.Unix(int64(e.seconds), 0).UTC(), began{kind: e.kind, file: d.file, pos: d.pos, from: d.pos - uint64(e.size)}
	d.inside, d.index, d.passing = false, 0, false
	d.seen, d.held, d.ahead, d.dropped = 0, 0, false, d.dropped[:0]
}

func (d *decoder) beginMySQL(g gtid) {
	d.began.mysql = g
	d.commitTime(g)
}

// pass decides whether the transaction that begins was handed on before. The
// first one that was, if it was asked for, shows that the server is the one that the place is of.
func (d *decoder) pass() error {
	if d.until > 0 {
		d.passing = d.file != d.upto || d.began.from < d.until
		if !d.passing {
			d.until = 0
		}
	}
	if d.promise != nil && slices.ContainsFunc(d.prepared, func(p *prepared) bool { return p.began.String() == d.began.String() }) {
		d.passing = true // its rows are here
		return nil
	}
	if p, g := &d.passed, &d.began.mysql; p.number > 0 && p.number == g.number && p.uuid == g.uuid && p.tag == g.tag {
		d.passing, p.number = true, 0
	}
	if d.await && d.passing && (d.until == 0 || d.file == d.upto && d.began.from == d.at.from) {
		d.await = false
		return d.at.mustBe(d.began.committed())
	}
	return nil
}

// skipped closes a transaction that was handed on before.
func (d *decoder) skipped() error {
	d.drop()
	d.tx, d.inside, d.passing, d.collect, d.lost, d.saves = nil, false, false, false, nil, d.saves[:0]
	if d.until > 0 && d.file == d.upto && d.pos > d.until {
		return fault.Position(fault.CodeDiverged, fromOldest, nil, "the checkpoint's place %s:%d is inside a transaction that ends at %d: the server was reset or built anew", d.file, d.until, d.pos)
	}
	return nil
}

// count adds a transaction to the GTIDs.
func (d *decoder) count(b *began) {
	switch b.kind {
	case eventGTID, eventTaggedGTID:
		if g := b.mysql; d.at.byGTID && !follows((*d.mysql)[g.uuid][g.tag], g.number) {
			d.mysql.AddGTIDWithTag(g.uuid, g.tag, g.number)
		}
	case eventMariaGTID: // one place per domain; the library's AddSet would warn of a sequence that goes back
		last := d.maria.Sets[b.maria.DomainID] // after a failover, which the server has judged already
		if last == nil {
			last = &mysql.MariadbGTID{}
			d.maria.Sets[b.maria.DomainID] = last
		}
		*last = b.maria
	}
}

// follows lengthens the last interval by the number behind it, as nearly every
// transaction does. The library makes all intervals anew for each.
func follows(intervals mysql.IntervalSlice, number int64) bool {
	last := len(intervals) - 1
	if last < 0 || intervals[last].Stop != number {
		return false
	}
	intervals[last].Stop++
	return true
}

func (d *decoder) commitTime(g gtid) {
	d.began.at = g.original
	if g.committed > 0 {
		d.tx.CommitAt = time.UnixMicro(int64(g.committed)).UTC()
	}
}

func (d *decoder) beginMariaDB(e event) error {
	g, standalone, isXA, err := parseMariaGTID(e)
	if err != nil {
		return err
	}
	d.began.maria, d.began.at, d.inside, d.collect = g, uint64(e.seconds)*1e6, !standalone, isXA
	return nil
}

// statementOf reads a statement event, and the session's database
// (Query_event and Execute_load_query_event in libs/mysql/binlog/event/statement_events.h).
func statementOf(e event, i *inflater) (schema, text []byte, err error) {
	c := cutter{b: e.body}
	c.skip(4 + 4)
	length := int(c.fixed(1))
	c.skip(2)
	status := int(c.fixed(2))
	if e.kind == eventExecuteLoadQuery {
		c.skip(4 + 4 + 4 + 1)
	}
	c.skip(status)
	schema = c.bytes(length)
	c.skip(1)
	if c.short {
		return nil, nil, errShort
	}
	if e.kind != eventQueryCompressed {
		return schema, c.b, nil
	}
	if text, err = i.decompress(c.b); err != nil {
		return nil, nil, fmt.Errorf("a statement: %w", err)
	}
	return schema, text, nil
}

// query acts on a statement: transaction control, DDL, or DML that was logged as text.
func (d *decoder) query(e event) error {
	schema, text, err := statementOf(e, &d.inflater)
	if err != nil {
		return err
	}
	switch string(text) { // most of what comes, without a copy
	case "BEGIN":
		d.inside = true
		if d.tx == nil {
			d.open(e)
			d.inside = true
			return d.promised()
		}
		return nil
	case "COMMIT":
		return d.end(true)
	}
	return d.statement(string(text), string(schema))
}

func (d *decoder) statement(text, schema string) error {
	l := lexer{text}
	switch t := l.begins(); {
	case t.word("ROLLBACK"):
		if name, ok := l.savepoint(); ok {
			return d.rollbackTo(name)
		}
		return d.end(false)
	case t.word("SAVEPOINT"):
		d.saves = append(d.saves, savepoint{l.next().text, len(d.rows), d.index, d.seen})
		return nil
	case t.word("XA"):
		return d.xa(&l)
	case t.word("TRUNCATE"):
		if !d.passing {
			d.truncated(&l, schema)
		}
	case t.one("INSERT", "REPLACE", "LOAD", "CREATE") && !d.passing:
		if lost := d.insertsAsText(text, schema); lost != nil {
			d.lost = lost
		}
	}
	d.forget(text)
	if !d.inside {
		return d.end(true) // a statement that is a transaction of its own: DDL
	}
	if d.tx == nil {
		return errNoBegin
	}
	if !d.passing {
		d.warnOfText(text, schema)
	}
	return nil
}

// truncated warns of TRUNCATE [TABLE] name, behind its first word, for a table
// of ours: it is no event, but AUTO_INCREMENT begins anew.
func (d *decoder) truncated(l *lexer, schema string) {
	t := l.next()
	if t.word("TABLE") {
		t = l.next()
	}
	if table, ours := d.ours(l.name(t, schema)); ours {
		d.log.Warn("an outbox table was truncated; event ids may repeat from here on", zap.Stringer("table", table),
			zap.String("file", d.file), zap.Uint64("position", d.pos),
			zap.String("fix", "where consumers know a repeat by the event id, use DELETE, which keeps AUTO_INCREMENT"))
	}
}

// ours gives the outbox table of that name, however a statement writes it.
func (d *decoder) ours(name TableName) (TableName, bool) {
	for _, t := range d.outboxes {
		if strings.EqualFold(t.Name, name.Name) && strings.EqualFold(t.Schema, name.Schema) {
			return t.TableName, true
		}
	}
	return TableName{}, false
}

// insertsAsText refuses rows of ours that were logged as text (binlog_format set
// by one session): they are not in the log (I5). The refusal waits for the commit.
func (d *decoder) insertsAsText(text, schema string) *fault.Error {
	into, ok := inserts(text, schema)
	if !ok {
		return nil
	}
	t, ours := d.ours(into)
	if !ours {
		return nil
	}
	return &fault.Error{
		Code: fault.CodeStatementLogged, Exit: fault.ExitRefused,
		Found: fmt.Sprintf("an insert into %s was logged as text at %s:%d: its rows are not in the log", t, d.file, d.pos),
		Fix:   "find the session that sets binlog_format=STATEMENT and stop it; publish its rows by hand; then go on behind them: ",
	}
}

// warnOfText tells of a change that was logged as text: what a trigger of it puts into an outbox is not in the log.
// schema is the session's own.
func (d *decoder) warnOfText(text, schema string) {
	l := lexer{text}
	verb := l.begins()
	if !verb.one("INSERT", "REPLACE", "LOAD", "UPDATE", "DELETE", "WITH") {
		return
	}
	now := time.Now()
	if now.Sub(d.textWarnedAt) < time.Minute {
		return
	}
	d.textWarnedAt = now
	fields := []zap.Field{zap.String("statement", strings.ToUpper(verb.text)), zap.String("database", schema)}
	if table, ok := changes(text, schema); ok {
		fields = append(fields, zap.Stringer("table", table))
	}
	d.log.Warn("a change was logged as text (binlog_format=STATEMENT); outbox rows that its triggers write are lost", append(fields,
		zap.String("file", d.file), zap.Uint64("position", d.pos),
		zap.String("fix", "find the session that sets binlog_format=STATEMENT or MIXED and let it use ROW, as the server does; compare the outbox with Kafka if a trigger of that table writes to it"))...)
}

// forget drops what was learned of a table that a statement may change. Where the log does not name
// the columns it looks the same after they were renamed.
func (d *decoder) forget(text string) {
	for i := range d.outboxes {
		if o := &d.outboxes[i]; strings.Contains(strings.ToLower(text), strings.ToLower(o.Name)) {
			o.known = nil
		}
	}
}

// savepoint reads what stands behind ROLLBACK: [WORK] TO [SAVEPOINT] name.
func (l *lexer) savepoint() (name string, ok bool) {
	t := l.next()
	if t.word("WORK") {
		t = l.next()
	}
	if !t.word("TO") {
		return "", false
	}
	if t = l.next(); t.word("SAVEPOINT") {
		t = l.next()
	}
	return t.text, true
}

func (d *decoder) rollbackTo(name string) error {
	for i := len(d.saves) - 1; i >= 0; i-- {
		if strings.EqualFold(d.saves[i].name, name) {
			if d.promise != nil {
				return nil // what was taken back is known
			}
			d.takeBack(d.saves[i].seen)
			d.index = d.saves[i].next
			if !d.ahead {
				d.rows = d.rows[:d.saves[i].rows]
			}
			d.saves = d.saves[:i+1]
			return nil
		}
	}
	if d.seen > 0 {
		return fmt.Errorf("a rollback to the savepoint %q, which the log does not hold", name)
	}
	return nil
}

// end closes the transaction: only here does the place move (I3).
func (d *decoder) end(commit bool) error {
	if d.tx == nil {
		return errNoBegin
	}
	if d.passing {
		return d.skipped()
	}
	if commit && d.lost != nil {
		f := *d.lost
		f.Fix += setTo(string(d.behind().position()))
		return &f
	}
	switch {
	case commit && d.ahead:
		return errCommitted
	case d.promise != nil:
		if !commit || d.seen != d.promise.rows {
			return fmt.Errorf("transaction %s was read once more and has %d rows instead of %d", d.promise.began, d.seen, d.promise.rows)
		}
		d.promise = nil
	case !commit:
		d.drop()
	}
	if d.settled == 0 && len(d.rows) > 0 {
		d.base, d.ends = d.gtids(), nil // where the borders of this batch count from
	}
	d.settled = len(d.rows)
	counted := d.began.String
	d.count(&d.began)
	if also := d.also; also != nil {
		d.count(also)
		if d.at.byGTID && !d.at.mariadb {
			counted = func() string { return union(also.String(), d.began.String()) }
		}
	}
	d.at.file, d.at.pos, d.at.from, d.at.at, d.at.last = d.file, d.pos, d.began.from, d.began.committed(), ""
	d.last = d.began
	d.reading()
	if d.settled > 0 && !d.split {
		d.ends = append(d.ends, border{d.settled, d.at, counted(), d.last.name()})
	}
	d.tx, d.inside, d.lost, d.also, d.collect, d.saves, d.moved = nil, false, nil, nil, false, d.saves[:0], true
	return nil
}
