package mysql

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxd/outboxd/source"
)

// reread feeds a log as a server would give it: when the decoder asks for it once more, from its place.
func reread(t *testing.T, d *decoder, events ...wire) (pieces []source.Batch, reads int) {
	t.Helper()
	take := func() error {
		for {
			b, ok := d.batch()
			if !ok {
				return nil
			}
			pieces = append(pieces, b)
		}
	}
	d.more = take
	begun := 0 // where the transaction of the place ends
	for reads = 1; ; reads++ {
		err := func() error {
			for i := begun; i < len(events); i++ {
				at := d.position()
				if err := d.packet(events[i]); err != nil {
					return err
				}
				if d.position() != at {
					begun = i + 1
				}
				if err := take(); err != nil {
					return err
				}
			}
			return nil
		}()
		if !errors.Is(err, errCommitted) {
			if err != nil {
				t.Fatal(err)
			}
			return pieces, reads
		}
		_ = take()
		d.again()
	}
}

// A transaction that memory should not hold is read to its end, and then once more: what was taken back to a
// savepoint, and one that is rolled back, is never handed on, in no piece. Its rows have the ordinals they would have.
func TestDecodeReadsTwice(t *testing.T) {
	t.Parallel()
	const many = 4000
	for name, at := range map[string]place{"GTIDs": byGTID, "file": inFile, "MariaDB": mariadb} {
		for _, packed := range []bool{false, true} {
			if packed && at.mariadb {
				continue
			}
			t.Run(fmt.Sprintf("%s, compressed %v", name, packed), func(t *testing.T) {
				t.Parallel()
				l := &binlog{pos: 4, seconds: 1_796_042_000}
				number := uint64(10)
				transaction := func(end string, body func() []wire) (events []wire) {
					number++
					switch {
					case at.mariadb:
						events = append(events, l.mariaGTID(0, number, 0))
					case at.byGTID:
						events = append(events, l.gtid(serverA, number))
					default:
						events = append(events, l.anonymous())
					}
					inner := l
					if packed {
						inner = &binlog{}
					}
					all := []wire{inner.query("BEGIN"), inner.outbox()}
					keep := l
					l = inner
					all = append(all, body()...)
					l = keep
					if end == "" {
						all = append(all, inner.xid())
					} else {
						all = append(all, inner.query(end))
					}
					if packed {
						return append(events, l.payload(0, all...))
					}
					return append(events, all...)
				}
				fill := func(from, to uint64) (events []wire) {
					for id := from; id < to; id++ {
						events = append(events, l.row(id))
					}
					return events
				}
				var events []wire
				events = append(events, transaction("", func() []wire { return fill(1, 3) })...)
				events = append(events, transaction("ROLLBACK", func() []wire { return fill(100_000, 100_000+many) })...)
				events = append(events, transaction("", func() []wire {
					all := append(fill(10, 20), l.query("SAVEPOINT a"))
					all = append(all, fill(200_000, 200_005)...)
					all = append(all, l.query("SAVEPOINT b"))
					all = append(all, fill(300_000, 300_000+many)...)
					all = append(all, l.query("ROLLBACK TO b"))
					all = append(all, fill(400_000, 400_001)...)
					all = append(all, l.query("ROLLBACK TO a"))
					all = append(all, fill(20, 20+many)...)
					return append(all, l.query("SAVEPOINT c"), l.query("ROLLBACK TO c"))
				})...)
				events = append(events, transaction("", func() []wire { return fill(5000, 5002) })...)

				d := testDecoder(at)
				d.hold = 100_000
				pieces, reads := reread(t, d, events...)
				if reads != 2 {
					t.Errorf("the log was read %d times", reads)
				}
				next, index := uint64(1), uint32(0)
				var tx *source.Tx
				for i, b := range pieces {
					if len(b.Rows) > batchRows+batchRows/2 {
						t.Errorf("piece %d has %d rows", i, len(b.Rows))
					}
					for _, r := range b.Rows {
						if r.Tx != tx {
							tx, index = r.Tx, 0
						}
						switch {
						case next == 3:
							next = 10
						case next == 20+many:
							next = 5000
						}
						if string(r.Values[0].Data) != fmt.Sprint(next) || r.Index != index {
							t.Fatalf("row %s with ordinal %d, want %d and %d", r.Values[0].Data, r.Index, next, index)
						}
						next++
						index++
					}
					inside := next > 10 && next < 20+many
					if whole := b.Position != ""; whole == inside {
						t.Errorf("piece %d up to row %d has the position %q", i, next-1, b.Position)
					}
				}
				if next != 5002 {
					t.Errorf("the last row is %d", next-1)
				}
				if last := pieces[len(pieces)-1]; last.Position != d.position() {
					t.Errorf("place %s, want %s", last.Position, d.position())
				}
			})
		}
	}
}

// What is read once more must be what was read.
func TestDecodeReadsTwiceTheSame(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]func(l *binlog) []wire{
		"another transaction": func(l *binlog) []wire { return []wire{l.gtid(serverA, 12), l.query("BEGIN")} },
		"rolled back": func(l *binlog) []wire {
			return []wire{l.gtid(serverA, 11), l.query("BEGIN"), l.outbox(), l.row(1), l.row(2), l.query("ROLLBACK")}
		},
		"fewer rows": func(l *binlog) []wire {
			return []wire{l.gtid(serverA, 11), l.query("BEGIN"), l.outbox(), l.row(1), l.xid()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &binlog{pos: 4, seconds: uint32(time.Now().Unix())}
			d := testDecoder(byGTID)
			d.hold = 1
			err := feed(d, l.gtid(serverA, 11), l.query("BEGIN"), l.outbox(), l.row(1), l.row(2), l.xid())
			if !errors.Is(err, errCommitted) {
				t.Fatal(err)
			}
			d.again()
			if err := feed(d, second(l)...); err == nil || errors.Is(err, errCommitted) {
				t.Errorf("passes with %v", err)
			}
		})
	}
}
