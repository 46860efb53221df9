package mysql

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
	"go.uber.org/zap"
)

// Where the log does not name a table's columns, what the table tells now is
// true of a row only if nothing changed it in between. A table's age shows many changes and not all: the table that
// takes another's place by a rename, as gh-ost and pt-osc end, may be older than the row. So the log itself is read
// from the row to its end, once for each time the columns are asked for: a statement that may have changed
// them is found there, or there was none.

// logPlace is a place in the log of one server.
type logPlace struct {
	file string
	pos  uint64
}

func (p logPlace) String() string { return fmt.Sprintf("%s:%d", p.file, p.pos) }

// before compares places by the number at the end of the file's name.
func (p logPlace) before(o logPlace) bool {
	switch {
	case p.file == o.file:
		return p.pos < o.pos
	case len(p.file) != len(o.file):
		return len(p.file) < len(o.file)
	}
	return p.file < o.file
}

// aheadServerID tells this reader from the stream: MariaDB ends a dump when another one begins with its id.
const aheadServerID = 1 << 30

// unchanged reads the log from one place to its end and refuses when a statement on
// the way may have changed t's columns. It returns the place up to which there is none. heard is called as bytes come.
// What the table told before cannot come from a statement behind that place: a server logs a change before others see it.
func (s *Source) unchanged(ctx context.Context, t TableName, from logPlace, heard func()) (logPlace, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return from, err
	}
	defer func() { _ = q.Close() }()
	end, err := s.status(ctx, q)
	if err != nil {
		return from, err
	}
	a := &ahead{table: t, at: from, from: from, end: logPlace{end.file, end.pos}}
	if from.pos > 1<<32-1 { // the command has room for less
		a.at.pos = 4
	}
	if a.checksummed, err = s.dumpToEnd(ctx, q, a.at); err != nil {
		return from, fmt.Errorf("read the log ahead: %w", err)
	}
	conn := q.Conn.Conn.Conn
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := a.read(ctx, conn, heard, s.log); err != nil {
		return from, err
	}
	return a.at, nil
}

// dumpToEnd asks for the log up to its end and reports whether events carry checksums.
func (s *Source) dumpToEnd(ctx context.Context, q *session, at logPlace) (checksummed bool, err error) {
	algorithm, err := q.value(ctx, "SELECT @@global.binlog_checksum")
	if err != nil {
		return false, err
	}
	id := uuid.NewString()
	for _, statement := range []string{
		"SET @source_binlog_checksum = @@global.binlog_checksum, @master_binlog_checksum = @@global.binlog_checksum",
		fmt.Sprintf("SET @replica_uuid = '%s', @slave_uuid = '%[1]s'", id),
		"SET @mariadb_slave_capability = 4",
	} {
		if _, err := q.query(ctx, statement); err != nil {
			return false, err
		}
	}
	const nonBlocking = 1 // BINLOG_DUMP_NON_BLOCK: end, do not wait
	b := append(make([]byte, 4, 128), mysql.COM_BINLOG_DUMP)
	b = le.AppendUint32(b, uint32(at.pos))
	b = le.AppendUint16(b, nonBlocking)
	b = le.AppendUint32(b, s.cfg.ServerID^aheadServerID)
	q.ResetSequence()
	return algorithm != "NONE", q.WritePacket(append(b, at.file...))
}

// ahead reads events for the statements among them.
type ahead struct {
	table       TableName
	from, end   logPlace
	at          logPlace
	checksummed bool
	statement   []byte
	inflater    inflater
}

func (a *ahead) read(ctx context.Context, conn net.Conn, heard func(), log *zap.Logger) error {
	r := bufio.NewReaderSize(conn, bufferBytes)
	began, told, continues := time.Now(), false, false
	for a.at.before(a.end) {
		if r.Buffered() == 0 {
			heard()
			if !told && time.Since(began) > 10*time.Second {
				told = true
				log.Info("the log does not name columns: reading it to its end, to be sure that nobody changed them", zap.Stringer("table", a.table),
					zap.Stringer("from", a.from), zap.Stringer("end", a.end), zap.String("fix", "set binlog_row_metadata=FULL"))
			}
			if err := conn.SetReadDeadline(time.Now().Add(silenceLimit)); err != nil {
				return fmt.Errorf("read the log ahead: %w", err)
			}
			if ctx.Err() != nil { // it ended before: the deadline that ended it is undone
				return context.Cause(ctx)
			}
		}
		head, err := r.Peek(4)
		length := 0
		if err == nil {
			length = int(le24(head))
			_, _ = r.Discard(4)
			var ended bool
			if ended, err = a.packet(r, length, continues); ended {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("read the log ahead, at %s: %w", a.at, err)
		}
		continues = length == maxPacket
	}
	return nil
}

// packet takes one packet of that length; of most only the header is looked at.
func (a *ahead) packet(r *bufio.Reader, length int, continues bool) (ended bool, err error) {
	if continues || length == 0 {
		_, err := r.Discard(length)
		return false, err
	}
	b, err := r.Peek(min(length, 1+headerBytes))
	if err != nil {
		return false, err
	}
	switch {
	case b[0] == 0xfe:
		return true, nil
	case b[0] != 0:
		text := make([]byte, length)
		if _, err := io.ReadFull(r, text); err != nil {
			return false, err
		}
		return true, fmt.Errorf("read the log ahead, at %s: %w", a.at, errorPacket(text))
	case len(b) < 1+headerBytes:
		return false, errShort
	}
	switch e := header(b[1:]); e.kind {
	case eventRotate, eventFormatDescription, eventQuery, eventQueryCompressed:
		a.statement = append(a.statement[:0], make([]byte, length)...)
		if _, err := io.ReadFull(r, a.statement); err != nil {
			return false, err
		}
		if length == maxPacket { // a statement of 16 MiB, of which this is the beginning
			return false, a.changed(a.statement[1+headerBytes:], e)
		}
		err = a.event(a.statement[1:])
		return err != nil, err
	default:
		a.at.pos = reckon(a.at.pos, e)
		_, err := r.Discard(length)
		return false, err
	}
}

func (a *ahead) event(b []byte) error {
	e, err := parseEvent(b, a.checksummed)
	if err != nil {
		return err
	}
	switch e.kind {
	case eventRotate:
		if len(e.body) < 8 {
			return errShort
		}
		if file := string(e.body[8:]); file != a.at.file || e.flags&flagArtificial == 0 {
			a.at = logPlace{file, le.Uint64(e.body)}
		}
		return nil
	case eventFormatDescription:
		a.checksummed, err = describesChecksums(e.body)
		return err
	}
	return a.changed(e.body, e)
}

// changed refuses a statement that may have changed the table.
func (a *ahead) changed(body []byte, e event) error {
	a.at.pos = reckon(a.at.pos, e)
	if !a.from.before(a.at) {
		return nil
	}
	e.body = body
	schema, text, err := statementOf(e, &a.inflater)
	if err != nil {
		return err
	}
	if reshapes(string(text), string(schema), a.table) {
		return schemaUnknown(a.table, fmt.Sprintf("a statement at %s may have changed it since the rows at %s were written", a.at, a.from))
	}
	return nil
}

// reshapes reports whether a statement may change the columns of a table, or put another in its place: ALTER,
// RENAME, DROP or CREATE TABLE that names it anywhere.
func reshapes(text, schema string, table TableName) bool {
	l := lexer{text}
	if !l.begins().one("ALTER", "RENAME", "DROP", "CREATE") {
		return false
	}
	t := l.next()
	for t.one("OR", "REPLACE", "ONLINE", "OFFLINE", "IGNORE") {
		t = l.next()
	}
	if !t.one("TABLE", "TABLES") {
		return false // TEMPORARY tables are of one session
	}
	for t = l.next(); t != (token{}); t = l.next() {
		if n := l.name(t, schema); strings.EqualFold(n.Name, table.Name) && strings.EqualFold(n.Schema, table.Schema) {
			return true
		}
	}
	return false
}
