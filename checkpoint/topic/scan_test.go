package topic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/checkpoint"
)

// fakeLog is a log as a broker gives it through sarama: whole batches, at least
// one an answer, and none of those without records.
type fakeLog struct {
	batches []*sarama.RecordBatch
	end     int64
	segment int // in batches; no answer reaches over the end of one
}

const small = 7

var longValue = strings.Repeat("v", 200)

func (l *fakeLog) fetch(from int64, bytes int32) (p piece, err error) {
	var size int64
	some := false
	first := sort.Search(len(l.batches), func(i int) bool { return l.batches[i].LastOffset() >= from })
	for i := first; i < len(l.batches); i++ {
		b := l.batches[i]
		size += sizeOf(b)
		if some && (size > int64(bytes) || i%l.segment == 0) {
			break
		}
		some = true
		p.next = b.LastOffset() + 1
		if len(b.Records) > 0 {
			p.batches = append(p.batches, b)
		}
	}
	if !some {
		return piece{next: l.end, blank: true}, nil
	}
	return p, nil
}

func sizeOf(b *sarama.RecordBatch) int64 {
	n := int64(batchOverhead)
	for _, r := range b.Records {
		n += int64(len(r.Key) + len(r.Value) + recordOverhead)
	}
	return n
}

func (l *fakeLog) batch(records ...*sarama.Record) *sarama.RecordBatch {
	for i, r := range records {
		r.OffsetDelta = int64(i)
	}
	b := &sarama.RecordBatch{FirstOffset: l.end, LastOffsetDelta: int32(len(records) - 1), Records: records}
	l.batches = append(l.batches, b)
	l.end += int64(len(records))
	return b
}

func (l *fakeLog) put(key, value string) { l.batch(rec(key, value)) }

func (l *fakeLog) foreign(n int) {
	for i := range n {
		l.put("other-"+string(rune('0'+i%5))+"/place", longValue)
	}
}

func (l *fakeLog) transactional(producer int64, records ...*sarama.Record) {
	b := l.batch(records...)
	b.IsTransactional, b.ProducerID = true, producer
}

func (l *fakeLog) marker(producer int64, commit byte) {
	b := l.batch(&sarama.Record{Key: []byte{0, 0, 0, commit}, Value: make([]byte, 6)})
	b.IsTransactional, b.Control, b.ProducerID = true, true, producer
}

// empty is what compaction leaves of a producer's last batch.
func (l *fakeLog) empty(offsets int) {
	l.batches = append(l.batches, &sarama.RecordBatch{FirstOffset: l.end, LastOffsetDelta: int32(offsets - 1)})
	l.end += int64(offsets)
}

// rec makes a record; no value is a tombstone.
func rec(key, value string) *sarama.Record {
	r := &sarama.Record{Key: []byte(key)}
	if value != "" {
		r.Value = []byte(value)
	}
	return r
}

func read(l *fakeLog) (*scan, error) {
	s := newScan(l.fetch, "a/place", "a/birth")
	return s, s.backwards(0, l.end, "a/place")
}

func text(v *[]byte) string {
	switch {
	case v == nil:
		return "none"
	case *v == nil:
		return "tombstone"
	}
	return string(*v)
}

func TestScan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name         string
		fill         func(l *fakeLog)
		place, birth string
	}{
		{"nothing", func(l *fakeLog) {}, "none", "none"},
		{"only others", func(l *fakeLog) { l.foreign(100) }, "none", "none"},
		{"the newest counts", func(l *fakeLog) { l.put("a/place", "1"); l.put("a/place", "2"); l.foreign(3) }, "2", "none"},
		{"the newest of a batch counts", func(l *fakeLog) { l.batch(rec("a/place", "1"), rec("a/place", "2")) }, "2", "none"},
		{"a birth and a place", func(l *fakeLog) { l.foreign(50); l.batch(rec("a/birth", "b"), rec("a/place", "1")) }, "1", "b"},
		{"a tombstone", func(l *fakeLog) { l.put("a/place", "1"); l.foreign(9); l.put("a/place", "") }, "tombstone", "none"},
		{"a birth alone", func(l *fakeLog) { l.put("a/birth", "b"); l.foreign(99) }, "none", "b"},
		{"a birth behind a tombstone", func(l *fakeLog) { l.put("a/birth", "b"); l.put("a/place", ""); l.foreign(9) }, "tombstone", "b"},
		{"a name that is longer", func(l *fakeLog) { l.put("aa/place", "1"); l.put("a/place2", "1"); l.put("", "1") }, "none", "none"},
		{"a gap", func(l *fakeLog) { l.put("a/place", "1"); l.end += 5000; l.foreign(3) }, "1", "none"},
		{"a gap to the end", func(l *fakeLog) { l.put("a/place", "1"); l.end += 5000 }, "1", "none"},
		{"a gap from the start", func(l *fakeLog) { l.end += 5000; l.foreign(3) }, "none", "none"},
		{"batches without records", func(l *fakeLog) { l.put("a/place", "1"); l.empty(1); l.empty(1000); l.foreign(1); l.empty(3) }, "1", "none"},
		{"nothing but such", func(l *fakeLog) { l.empty(100); l.empty(1) }, "none", "none"},
		{"such in segments of their own", func(l *fakeLog) {
			l.put("a/place", "1")
			for range 5 * small {
				l.empty(1)
				l.end += 10
			}
			l.foreign(2)
		}, "1", "none"},
		{"a committed transaction", func(l *fakeLog) {
			l.put("a/place", "1")
			l.transactional(5, rec("a/place", "2"))
			l.foreign(20)
			l.marker(5, 1)
		}, "2", "none"},
		{"an aborted transaction", func(l *fakeLog) {
			l.put("a/place", "1")
			l.transactional(5, rec("a/place", "2"))
			l.marker(5, 0)
			l.foreign(20)
		}, "1", "none"},
		{"an aborted transaction between committed ones", func(l *fakeLog) {
			l.transactional(5, rec("a/birth", "b"))
			l.transactional(5, rec("a/place", "1"))
			l.marker(5, 1)
			l.transactional(5, rec("a/place", "2"))
			l.transactional(6, rec("b/place", "2"))
			l.marker(5, 0)
			l.marker(6, 1)
		}, "1", "none"}, // the place is enough
		{"an open transaction of another connector", func(l *fakeLog) {
			l.put("a/place", "1")
			l.transactional(6, rec("b/place", "2"))
		}, "1", "none"},
		{"an open transaction before a save", func(l *fakeLog) { l.transactional(5, rec("a/place", "2")); l.put("a/place", "1") }, "1", "none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := fakeLog{segment: small}
			c.fill(&l)
			s, err := read(&l)
			if err != nil {
				t.Fatal(err)
			}
			if got := text(s.newest["a/place"]); got != c.place {
				t.Errorf("place %s, want %s", got, c.place)
			}
			if got := text(s.newest["a/birth"]); got != c.birth {
				t.Errorf("birth %s, want %s", got, c.birth)
			}
		})
	}
}

func TestScanRefusesAnOpenTransaction(t *testing.T) {
	t.Parallel()
	l := fakeLog{segment: small}
	l.put("a/place", "1")
	l.transactional(5, rec("a/place", "2"))
	l.marker(6, 1)
	if _, err := read(&l); !errors.Is(err, checkpoint.ErrOpen) {
		t.Fatalf("got %v, want %v", err, checkpoint.ErrOpen)
	}
}

// Whatever the log looks like, reading it backwards finds what reading it
// forwards finds.
func TestScanOfRandomLogs(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := fakeLog{segment: small}
		want := map[string]string{"a/place": "none", "a/birth": "none"}
		for i := range r.IntN(200) {
			k := []string{"a/place", "a/birth"}[r.IntN(2)]
			v := fmt.Sprint(i)
			switch r.IntN(20) {
			case 0:
				l.put(k, v)
				want[k] = v
			case 1:
				l.put(k, "")
				want[k] = "tombstone"
			case 2:
				l.transactional(7, rec(k, v))
				l.foreign(r.IntN(5))
				l.marker(7, 1)
				want[k] = v
			case 3:
				l.transactional(7, rec("x/place", v), rec(k, v))
				l.foreign(r.IntN(5))
				l.marker(7, 0)
			case 4, 5, 6:
				l.empty(1 + r.IntN(20))
			case 7, 8:
				l.end += r.Int64N(100)
			case 9:
				l.batch(rec("x/place", v), rec(k, v), rec("y/place", v))
				want[k] = v
			default:
				l.foreign(r.IntN(9))
			}
		}
		s, err := read(&l)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got := text(s.newest["a/place"]); got != want["a/place"] {
			t.Fatalf("seed %d: place %s, want %s", seed, got, want["a/place"])
		}
		if got := text(s.newest["a/birth"]); !s.has("a/place") && got != want["a/birth"] {
			t.Fatalf("seed %d: birth %s, want %s", seed, got, want["a/birth"])
		}
	}
}

// What is older costs nothing, and what is newer is read once.
func TestCostOfScan(t *testing.T) {
	t.Parallel()
	one := func(older, newer int) cost {
		l := fakeLog{segment: 3999}
		l.foreign(older)
		l.put("a/place", "1")
		l.foreign(newer)
		s, err := read(&l)
		if err != nil || text(s.newest["a/place"]) != "1" {
			t.Fatalf("older %d, newer %d: %v, %v", older, newer, text(s.newest["a/place"]), err)
		}
		return s.cost
	}
	if alone, behind := one(0, 0), one(100_000, 0); behind.fetches != alone.fetches || behind.records > 2*alone.records {
		t.Errorf("behind 100000 records %+v, alone %+v", behind, alone)
	}
	for _, newer := range []int{1, 10, 1000, 20_000} {
		alone, behind := one(0, newer), one(100_000, newer)
		if behind.records > 2*alone.records || behind.fetches > 2*alone.fetches {
			t.Errorf("newer %d: behind 100000 records %+v, alone %+v", newer, behind, alone)
		}
		if most := newer + newer/20 + 30; alone.records > most {
			t.Errorf("newer %d: %d records read, want at most %d", newer, alone.records, most)
		}
		if most := newer/500 + 40; alone.fetches > most {
			t.Errorf("newer %d: %d fetches, want at most %d", newer, alone.fetches, most)
		}
	}
}

func TestScanFails(t *testing.T) {
	t.Parallel()
	l := fakeLog{segment: small}
	l.foreign(1000)
	down := errors.New("down")
	for _, c := range []struct {
		name string
		at   int
		p    piece
		err  error
	}{
		{"at the first fetch", 1, piece{}, down},
		{"at the last fetch", 9, piece{}, down},
		{"when an answer leads no further", 3, piece{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := 0
			s := newScan(func(from int64, bytes int32) (piece, error) {
				if n++; n == c.at {
					return c.p, c.err
				}
				return l.fetch(from, bytes)
			}, "a/place")
			if err := s.backwards(0, l.end, "a/place"); err == nil || c.err != nil && !errors.Is(err, c.err) {
				t.Fatalf("got %v after %d fetches", err, n)
			}
		})
	}
}
