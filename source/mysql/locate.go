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

// oldest is the word for the oldest place that the server's log still has.
const oldest = "oldest"

// Locate gives the position that text names: as `checkpoint show` prints it, a set of
// GTIDs (MySQL), FILE:OFFSET (MySQL without GTIDs, MariaDB), or oldest. It is judged as Open
// would judge it, and no more than that is read. The lease must be held.
func (s *Source) Locate(ctx context.Context, text string, held source.Position) (source.Position, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer q.close()
	if s.server, err = s.ask(ctx, q); err != nil {
		return "", err
	}
	at, err := s.locate(ctx, q, strings.TrimSpace(text))
	if errors.Is(err, errNoPlace) {
		return "", fault.Config(fault.CodeConfig, "give it as `outboxd checkpoint show` prints it, as a set of GTIDs (MySQL with GTIDs), as FILE:OFFSET (MySQL without GTIDs, MariaDB), or as oldest", err, "%q names no place", text)
	}
	if err != nil {
		return "", err
	}
	if now, err := parsePlace(held); err == nil && now.snapshot != nil && at.snapshot == nil {
		return "", fault.Config(fault.CodeStartChoice, "let the snapshot end first; or, to leave out its rest, run `outboxd checkpoint delete` before", nil,
			"a first snapshot is under way, and that place is without it")
	}
	if _, err := s.judge(ctx, q, at); err != nil {
		return "", err
	}
	return at.position(), nil
}

var errNoPlace = errors.New("no place is told in this form")

func (s *Source) locate(ctx context.Context, q *session, text string) (place, error) {
	if source.Position(text).Kind() != "" {
		at, err := parsePlace(source.Position(text))
		if err != nil {
			err = errors.Join(errNoPlace, err)
		}
		return at, err
	}
	at, err := s.blank()
	if err != nil {
		return at, err
	}
	if text == oldest {
		logs, err := s.logs(ctx, q)
		if err != nil {
			return at, err
		}
		at.file, at.pos = logs[0].name, 4
		if at.byGTID && !at.mariadb {
			at.gtids, err = q.value(ctx, "SELECT @@global.gtid_purged")
			at.gtids = oneLine(at.gtids)
			return at, err
		}
		return s.inFile(ctx, q, at)
	}
	if at.byGTID && !at.mariadb {
		at.gtids = text
		set, err := at.set()
		if err != nil || set.IsEmpty() {
			return at, errors.Join(errNoPlace, err)
		}
		at.gtids = set.String()
		return at, nil
	}
	i := strings.LastIndexByte(text, ':')
	if i < 1 {
		return at, errNoPlace
	}
	at.file = text[:i]
	if at.pos, err = strconv.ParseUint(text[i+1:], 10, 64); err != nil || at.pos < 4 {
		return at, errors.Join(errNoPlace, err)
	}
	return s.inFile(ctx, q, at)
}

// inFile completes a place in a file: MariaDB tells the GTIDs there.
func (s *Source) inFile(ctx context.Context, q *session, at place) (place, error) {
	if !at.mariadb {
		return at, nil
	}
	text, err := s.gtidsAt(ctx, q, at)
	if errors.Is(err, errNoSuchPlace) {
		return at, fault.Config(fault.CodeConfig, "give the end of a transaction, as SHOW BINLOG EVENTS tells it", nil, "the server has no transaction that ends at %s:%d", at.file, at.pos)
	}
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
