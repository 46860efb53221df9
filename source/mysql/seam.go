package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// The seam of a first snapshot: a view of the tables, and a place in the log such
// that each transaction with rows of ours is either in the view or behind the place.
// Nothing is locked, and no right is asked for beyond those of reading the log.
//
// MariaDB gives both at once: START TRANSACTION WITH CONSISTENT SNAPSHOT waits for
// the commit that is under way (LOCK_commit_ordered) and notes where the log stood
// then (binlog_snapshot_file, binlog_snapshot_position). Commits are made visible in
// the log's order under that lock, so what stands before the place is in the view,
// and nothing else is.
//
// MySQL tells no place with a view. A transaction T goes through three moments there,
// in this order: it is written to the log (L), the engine makes it visible to new views
// (V), its GTID counts as executed (X). So we take, in this order:
//
//	E  gtid_executed
//	S  the view
//	P  the end of the log, file and offset
//
// If T is in E, then X(T) < E < S, so V(T) < S: T is in the view, and the log, asked for
// what is not in E, does not give it. If T is in the view, V(T) < S < P, so L(T) < P: T
// stands before P in the log. What is left are the transactions that are in the log before
// P and not in E. They may be in the view (V < S < X) or not (L < P, S < V): nothing but the
// view can tell, so it is asked for their rows. These few are read from the log, from E
// to P, before anything is published, and E grows by those that the view has. Then:
//
//   - T is in E: in the view, not in the stream.
//   - T is not in E, and before P: not in the view, in the stream.
//   - T is behind P: not in the view, in the stream.
//
// One more case: the view has no row of T because they were deleted again. It then
// can't tell T from a transaction that is not visible yet. With binlog_order_commits (the
// default) V follows the order of L, so the view is a prefix of the log: all before the
// last transaction found in it is in it. Behind that, T is left to the stream: its rows were there
// when E was read, and nothing of its aggregates that is later is in the view. With
// binlog_order_commits=OFF each T is judged by its own rows, and one whose rows
// were all deleted between E and S is published, at worst behind a later event of its aggregate.
//
// Without GTIDs there is no E. A place P0 is read from the server's status instead, and
// what stands before it is waited for: V follows L, so it is enough that the last
// transaction with rows of ours before P0 is visible. It is looked for in the
// current file: the server starts a new one only when all commits in the
// older ones are visible (m_atomic_prep_xids). A row of it that a plain read does not show is
// read with a shared lock, alone, which waits for its transaction's end, then gives it up. From
// there on P0 serves as E does.
//
// The view is then the place's own, as that of a Postgres slot is; a later one
// (after a crash) is told from the log by late.go.

// firstView takes a view and finds its place.
func (s *Source) firstView(ctx context.Context, q *session) (*view, error) {
	if s.server.mariadb {
		return s.firstViewMariaDB(ctx, q)
	}
	ordered, err := q.value(ctx, "SELECT @@global.binlog_order_commits")
	if err != nil {
		return nil, fmt.Errorf("ask for binlog_order_commits: %w", err)
	}
	at, err := s.now(ctx, q) // E, or P0
	if err != nil {
		return nil, err
	}
	if !at.byGTID {
		if ordered != "1" {
			return nil, fault.Config(fault.CodeServerSetting, "SET GLOBAL binlog_order_commits = ON, or turn gtid_mode ON; or OUTBOXD_START=now leaves the rows that are there", nil,
				"binlog_order_commits is OFF, and without GTIDs nothing tells then which rows are in a snapshot and which are in the log alone")
		}
		if err := s.settled(ctx, q, at); err != nil {
			return nil, err
		}
	}
	v, err := s.newView(ctx)
	if err != nil {
		return nil, err
	}
	end, err := s.status(ctx, q) // P
	if err == nil {
		v.place, err = s.visible(ctx, v, at, logPlace{end.file, end.pos}, ordered == "1")
	}
	if err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

func (s *Source) firstViewMariaDB(ctx context.Context, q *session) (*view, error) {
	v, err := s.newView(ctx)
	if err != nil {
		return nil, err
	}
	if v.place, err = s.placeOf(ctx, q, v); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// placeOf asks MariaDB where the log stood when the view was taken.
func (s *Source) placeOf(ctx context.Context, q *session, v *view) (place, error) {
	at := place{mariadb: true, byGTID: s.cfg.Place != PlaceFile}
	r, err := v.query(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'")
	if err != nil {
		return at, fmt.Errorf("ask for the snapshot's place: %w", err)
	}
	for i := range r.RowNumber() {
		name, _ := r.GetString(i, 0)
		value, _ := r.GetString(i, 1)
		switch strings.ToLower(name) {
		case "binlog_snapshot_file":
			at.file = value
		case "binlog_snapshot_position":
			if at.pos, err = strconv.ParseUint(value, 10, 64); err != nil {
				return at, fmt.Errorf("ask for the snapshot's place: %w", err)
			}
		}
	}
	if at.file == "" || at.pos == 0 {
		return at, errors.New("ask for the snapshot's place: the server tells none")
	}
	text, err := s.gtidsAt(ctx, q, at)
	if err != nil {
		return at, err
	}
	at.gtids = oneLine(text)
	set, err := at.set()
	if err != nil {
		return at, fmt.Errorf("read the server's GTIDs: %w", err)
	}
	at.gtids = set.String()
	return at, nil
}

// visible moves a place over the transactions with rows of ours that the view has, of those before end.
func (s *Source) visible(ctx context.Context, v *view, from place, end logPlace, ordered bool) (place, error) {
	at := from
	if from.byGTID { // a transaction that is not in E may stand anywhere before where the log ended then
		from.file, from.pos = "", 0
	}
	set, err := from.set()
	if err != nil {
		return at, err
	}
	seen, left := 0, 0
	st := start{at: from, byGTID: from.byGTID, gtids: from.gtids, file: from.file, pos: from.pos}
	found := false
	err = s.walk(ctx, st, end, func(t walked) (err error) {
		if !found {
			if found, err = s.has(ctx, v.session, t.rows); err != nil {
				return err
			}
		}
		switch {
		case t.end == nil:
			return nil
		case !found:
			left++
			return nil
		}
		found = false
		seen++
		if ordered {
			at = *t.end
			return nil
		}
		return set.Update(t.rows[0].Tx.ID)
	})
	if err != nil {
		return at, fmt.Errorf("look for the snapshot's place in the log: %w", err)
	}
	if !ordered {
		at.gtids = set.String()
	}
	s.log.Debug("the place of the snapshot is found", zap.String("position", string(at.position())), zap.Int("transactions_in_view", seen), zap.Int("transactions_left_to_the_log", left))
	return at, nil
}

// has reports whether a view has any of a transaction's rows.
func (s *Source) has(ctx context.Context, q *session, rows []source.Row) (bool, error) {
	const most = 500
	for len(rows) > 0 {
		table, n := rows[0].Table, 1
		for n < len(rows) && n < most && rows[n].Table == table {
			n++
		}
		condition, err := s.anyOf(rows[:n])
		if err != nil {
			return false, err
		}
		text, err := q.value(ctx, fmt.Sprintf("SELECT EXISTS (SELECT 1 FROM %s WHERE %s)", TableName{table.Schema, table.Name}, condition))
		if err != nil {
			return false, fmt.Errorf("look for rows of the log in the snapshot: %w", err)
		}
		if text == "1" {
			return true, nil
		}
		rows = rows[n:]
	}
	return false, nil
}

// anyOf is a condition that holds for each of the rows, which are of one table.
func (s *Source) anyOf(rows []source.Row) (string, error) {
	key := s.keys[TableName{rows[0].Table.Schema, rows[0].Table.Name}]
	all := make([]string, len(rows))
	for i, r := range rows {
		one := make([]string, len(key))
		for j, c := range key {
			n := r.Table.Column(c.name)
			if n < 0 || r.Values[n].State != source.Present {
				return "", fmt.Errorf("a row of %s in the log lacks column %q of its key", r.Table, c.name)
			}
			one[j] = quote(c.name) + " = " + c.literal(r.Values[n].Data)
		}
		all[i] = "(" + strings.Join(one, " AND ") + ")"
	}
	return strings.Join(all, " OR "), nil
}

// literal writes a value of the log for a comparison with the column.
func (d describedColumn) literal(v []byte) string {
	switch d.kind() {
	case source.Number:
		return string(v)
	case source.Bytes:
		return fmt.Sprintf("x'%x'", v)
	}
	return quoteText(v)
}

// settled waits until what stands before at in the log is visible, without GTIDs.
func (s *Source) settled(ctx context.Context, q *session, at place) error {
	from := at
	from.pos = 4
	var last []source.Row
	err := s.walk(ctx, start{at: from, file: from.file, pos: from.pos}, logPlace{at.file, at.pos}, func(t walked) error {
		last = t.rows[len(t.rows)-1:]
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for the last row before the snapshot in the log: %w", err)
	}
	if last == nil {
		return nil
	}
	if found, err := s.has(ctx, q, last); err != nil || found {
		return err
	}
	condition, err := s.anyOf(last)
	if err != nil {
		return err
	}
	// Not with gaps: they would hold up inserts.
	if _, err := q.query(ctx, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		return fmt.Errorf("wait for the last row before the snapshot: %w", err)
	}
	t := last[0].Table
	_, err = q.query(ctx, fmt.Sprintf("SELECT 1 FROM %s WHERE %s LOCK IN SHARE MODE", TableName{t.Schema, t.Name}, condition))
	if err != nil {
		return fmt.Errorf("wait for the last row before the snapshot to be committed: %w", err)
	}
	return nil
}
