package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/source"
)

// walked are rows of ours of one committed transaction, and the place behind it.
// A large one comes in pieces, of which the last alone has a place.
type walked struct {
	rows []source.Row
	end  *place
}

// walk reads the log from a start to end, or to the present end of the log when that comes first, and gives the
// transactions that have rows of ours. It is a dump of its own that does not wait at the log's end.
func (s *Source) walk(ctx context.Context, from start, end logPlace, each func(walked) error) error {
	dec, err := newDecoder(s, from, zap.NewNop()) // what there is to say the stream will say
	if err != nil {
		return err
	}
	w := &walker{source: s, dec: dec, end: end, each: each}
	dec.describe, dec.table, dec.onUpdate, dec.more = s.describeNow, s.charsetTable, UpdateIgnore, w.hand
	dec.unchanged = func(t TableName, from logPlace) (logPlace, error) { return s.unchanged(ctx, t, from, func() {}) }
	for {
		err := w.read(ctx, from)
		if !errors.Is(err, errCommitted) {
			return err
		}
		from = dec.again()
	}
}

type walker struct {
	source *Source
	dec    *decoder
	end    logPlace
	each   func(walked) error
}

// read reads one dump.
func (w *walker) read(ctx context.Context, from start) error {
	q, err := w.source.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = q.Close() }()
	defer context.AfterFunc(ctx, func() { _ = q.SetDeadline(time.Unix(1, 0)) })()
	from.ends = true
	if w.dec.checksummed, err = w.source.dump(ctx, q, from); err != nil {
		return err
	}
	var buf []byte
	for w.dec.tx != nil || (logPlace{w.dec.file, w.dec.pos}).before(w.end) {
		if buf, err = q.ReadPacketReuseMem(buf[:0]); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("read the log: %w", err)
		}
		switch {
		case len(buf) == 0:
			return errShort
		case buf[0] == 0xff:
			return fmt.Errorf("read the log: %w", q.HandleErrorPacket(buf))
		case buf[0] == 0xfe: // the end
			return nil
		}
		if err := w.dec.packet(buf[1:]); err != nil {
			return fmt.Errorf("read the log behind %s:%d: %w", w.dec.at.file, w.dec.at.pos, err)
		}
		if err := w.hand(); err != nil {
			return err
		}
	}
	return nil
}

// hand gives the rows that are known to be committed.
func (w *walker) hand() error {
	for {
		var t walked
		if w.dec.tx != nil {
			b, _ := w.dec.piece()
			t.rows = b.Rows
		} else {
			b, _ := w.dec.batch()
			t.rows = b.Rows
			if b.Position != "" {
				end, err := parsePlace(b.Position)
				if err != nil {
					return err
				}
				t.end = &end
			}
		}
		if t.rows == nil {
			return nil
		}
		if err := w.each(t); err != nil {
			return err
		}
	}
}
