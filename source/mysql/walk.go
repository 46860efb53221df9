package mysql

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/source"
)

// walked is a transaction that a walk found: its rows of ours, all of them,
// and the place behind it.
type walked struct {
	rows []source.Row
	end  place
}

// walk reads the log from a start to its present end, or to end when that comes first, and gives each
// transaction that has rows of ours. It is a dump of its own that does not wait at the log's end.
func (s *Source) walk(ctx context.Context, from start, end logEnd, each func(walked) error) error {
	q, err := s.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = q.Close() }()
	defer context.AfterFunc(ctx, func() { _ = q.SetDeadline(time.Unix(1, 0)) })()
	dec, err := newDecoder(s, from, zap.NewNop()) // what there is to say the stream will say
	if err != nil {
		return err
	}
	dec.describe, dec.table, dec.onUpdate = s.describeNow, s.charsetTable, UpdateIgnore
	from.ends = true
	if dec.checksummed, err = s.dump(ctx, q, from); err != nil {
		return err
	}
	var buf []byte
	for !end.behind(dec.file, dec.pos) {
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
		if err := dec.packet(buf[1:]); err != nil {
			return fmt.Errorf("read the log behind %s:%d: %w", dec.at.file, dec.at.pos, err)
		}
		if dec.tx != nil || dec.settled == 0 {
			continue
		}
		var t walked
		var behind source.Position
		for b, ok := dec.batch(); ok; b, ok = dec.batch() {
			t.rows, behind = append(t.rows, b.Rows...), b.Position
		}
		if t.end, err = parsePlace(behind); err != nil {
			return err
		}
		if err := each(t); err != nil {
			return err
		}
	}
	return nil
}

// behind reports whether file:pos is at this place or behind it; the zero place is nowhere.
func (e logEnd) behind(file string, pos uint64) bool {
	switch {
	case e.file == "":
		return false
	case file == e.file:
		return pos >= e.pos
	case len(file) != len(e.file): // the number after the last one of six digits has seven
		return len(file) > len(e.file)
	}
	return file > e.file
}
