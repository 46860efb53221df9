package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// walsender is a scripted server at the other end of a pipe, in a synctest bubble.
type walsender struct {
	t    *testing.T
	conn net.Conn
	mu   sync.Mutex
	told []uint64 // confirmed places of the status messages
}

func startWalsender(t *testing.T, from uint64) (*walsender, *stream) {
	ours, theirs := net.Pipe()
	w := &walsender{t: t, conn: theirs}
	go w.listen()
	at := place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: pglogrepl.LSN(from)}
	s, err := startStream(&pgconn.HijackedConn{Conn: ours, Frontend: pgproto3.NewFrontend(ours, ours)}, at,
		newDecoder(at, map[TableName]bool{{"public", "outbox"}: true}, zap.NewNop()), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return w, s
}

func (w *walsender) listen() {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(w.conn, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(w.conn, body); err != nil {
			return
		}
		switch head[0] {
		case 'd':
			w.mu.Lock()
			w.told = append(w.told, binary.BigEndian.Uint64(body[9:]))
			w.mu.Unlock()
		case 'X':
			_ = w.conn.Close()
			return
		}
	}
}

func (w *walsender) send(messages ...wire) {
	for _, m := range messages {
		if _, err := w.conn.Write(m); err != nil {
			w.t.Errorf("send: %v", err)
		}
	}
}

func (w *walsender) row(commit, end uint64, id string) {
	w.send(walData(commit, beginMessage(commit, commitTime)), walData(commit, relationMessage(1, "public", "outbox", col{"id", 20})),
		walData(commit, insertMessage(1, id)), walData(commit, commitMessage(commit, end, commitTime)))
}

func (w *walsender) statuses() (n int, last uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.told) == 0 {
		return 0, 0
	}
	return len(w.told), w.told[len(w.told)-1]
}

// next takes a batch; none within the time is nil.
func next(t *testing.T, s *stream, wait time.Duration) *source.Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	b, err := s.Next(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		t.Fatalf("next: %v", err)
	}
	return &b
}

func lsn(t *testing.T, p source.Position) uint64 {
	t.Helper()
	at, err := parsePlace(p)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(at.lsn)
}

func closed(t *testing.T, s *stream) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// I2: only what was confirmed is told, however much was read and whatever keepalives say.
func TestStreamTellsOnlyWhatIsConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		w.row(0x100, 0x130, "1")
		b := next(t, s, time.Second)
		w.send(keepalive(0x500, true))
		time.Sleep(10 * time.Second)
		if n, last := w.statuses(); n == 0 || last != 0x50 {
			t.Errorf("told %#x in %d statuses before any confirmation", last, n)
		}
		if urgent := next(t, s, time.Second); urgent == nil || !urgent.Urgent { // now it reads again
			t.Errorf("the server asked, and nothing urgent came: %+v", urgent)
		}
		synctest.Wait()
		s.Confirm(b.Position)
		synctest.Wait()
		if _, last := w.statuses(); last != 0x130 {
			t.Errorf("told %#x right after the confirmation of 0x130", last)
		}
		closed(t, s)
	})
}

// C41: nobody takes the batch; the session lives on.
func TestStreamKeepsTheSessionUnderBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		w.row(0x100, 0x130, "1")
		time.Sleep(5 * time.Minute)
		if n, _ := w.statuses(); n < int(5*time.Minute/statusInterval)-1 {
			t.Errorf("%d statuses in five minutes without a reader", n)
		}
		if b := next(t, s, time.Second); b == nil || len(b.Rows) != 1 {
			t.Errorf("batch %+v after the pause", b)
		}
		closed(t, s)
	})
}

// I2: idle progress after 60 s or 16 MiB, at once when the server asks, never
// before; but soon after much was written, or after the stream began, so that
// the server lets go of the log.
func TestStreamIdleProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		// life answers statuses, as a server does, so that silence is no end.
		stop := make(chan struct{})
		var end atomic.Uint64
		end.Store(0x60)
		var life sync.WaitGroup
		life.Go(func() {
			for {
				select {
				case <-time.After(time.Second):
					w.send(keepalive(end.Load(), false))
				case <-stop:
					return
				}
			}
		})
		if b := next(t, s, 10*time.Second); b == nil || b.Position != "" || !b.CaughtUp {
			t.Errorf("the end of the log is not told: %+v", b)
		}
		if b := next(t, s, 5*time.Second); b == nil || lsn(t, b.Position) != 0x60 {
			t.Errorf("no progress after the beginning: %+v", b)
		}
		if b := next(t, s, time.Minute); b != nil {
			t.Errorf("progress, and nothing moved: %+v", b)
		}
		end.Store(0x68)
		if b := next(t, s, 5*time.Second); b == nil || lsn(t, b.Position) != 0x68 {
			t.Errorf("no progress after a minute: %+v", b)
		}
		end.Store(0x6a)
		if b := next(t, s, 50*time.Second); b != nil {
			t.Errorf("progress too early: %+v", b)
		}
		if b := next(t, s, 15*time.Second); b == nil || lsn(t, b.Position) != 0x6a {
			t.Errorf("no progress after another minute: %+v", b)
		}
		end.Store(0x60 + 4*idleBytes)
		if b := next(t, s, 2*time.Second); b == nil || lsn(t, b.Position) != 0x60+4*idleBytes || !b.Urgent {
			t.Errorf("no urgent progress after 64 MiB: %+v", b)
		}
		end.Store(0x68 + 4*idleBytes)
		if b := next(t, s, 5*time.Second); b == nil || lsn(t, b.Position) != 0x68+4*idleBytes {
			t.Errorf("no progress soon after much was written: %+v", b)
		}
		w.send(keepalive(0x70+4*idleBytes, true))
		if b := next(t, s, 500*time.Millisecond); b == nil || !b.Urgent {
			t.Errorf("the server waits: %+v", b)
		}
		close(stop)
		life.Wait()
		closed(t, s)
	})
}

// I3: a keepalive inside a transaction is no resume point.
func TestStreamIgnoresKeepalivesInsideTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		w.send(walData(0x100, beginMessage(0x100, commitTime)), walData(0x100, relationMessage(1, "public", "outbox", col{"id", 20})),
			walData(0x100, insertMessage(1, "1")), keepalive(0x200, true))
		if b := next(t, s, 5*time.Second); b != nil {
			t.Errorf("batch %+v inside a transaction", b)
		}
		w.send(walData(0x100, commitMessage(0x100, 0x130, commitTime)))
		if b := next(t, s, time.Second); b == nil || lsn(t, b.Position) != 0x130 {
			t.Errorf("batch %+v at the commit", b)
		}
		closed(t, s)
	})
}

func TestStreamReadsMessagesInAnyPieces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		big := make([]byte, 3*bufferBytes)
		for i := range big {
			big[i] = 'x'
		}
		var all wire
		for _, m := range []wire{
			walData(1, beginMessage(0x100, commitTime)), walData(1, relationMessage(1, "public", "outbox", col{"id", 25})),
			walData(1, insertMessage(1, string(big))), walData(1, insertMessage(1, "small")), walData(1, commitMessage(0x100, 0x130, commitTime)),
		} {
			all = append(all, m...)
		}
		go func() {
			for len(all) > 0 {
				n := min(len(all), 70001)
				if len(all) < 200 {
					n = 1
				}
				w.send(all[:n])
				all = all[n:]
			}
		}()
		var rows []source.Row
		for len(rows) < 2 {
			b := next(t, s, time.Minute)
			if b == nil {
				t.Fatal("nothing came")
			}
			rows = append(rows, b.Rows...)
		}
		if string(rows[0].Values[0].Data) != string(big) || string(rows[1].Values[0].Data) != "small" {
			t.Error("values are not what was sent")
		}
		closed(t, s)
	})
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	failed := framed('E', append(wire{'S'}.str("FATAL"), append(wire{'C'}.str("42704"), append(wire{'M'}.str("publication \"p\" does not exist"), 0)...)...))
	for name, c := range map[string]struct {
		script func(*walsender)
		code   string
	}{
		"server closes":       {func(w *walsender) { _ = w.conn.Close() }, ""},
		"server ends copy":    {func(w *walsender) { w.send(framed('c', nil)) }, ""},
		"publication is gone": {func(w *walsender) { w.send(failed) }, fault.CodePublicationLost},
		"publication is skipped": {func(w *walsender) {
			w.send(framed('N', append(wire{'S'}.str("WARNING"), append(wire{'C'}.str("55000"), append(wire{'M'}.str("skipped loading publication"), 0)...)...)))
		}, fault.CodePublicationLost},
		"log can't be read":   {func(w *walsender) { w.send(walData(1, wire{'?'})) }, ""},
		"frame of nonsense":   {func(w *walsender) { w.send(wire{'d', 0xff, 0xff, 0xff, 0xff}) }, ""},
		"server falls silent": {func(*walsender) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := startWalsender(t, 0x50)
				c.script(w)
				_, err := s.Next(t.Context())
				if err == nil {
					t.Fatal("the stream goes on")
				}
				if f := fault.As(err); (f == nil) != (c.code == "") || f != nil && f.Code != c.code {
					t.Errorf("ended with %v", err)
				}
				_ = w.conn.Close()
			})
		})
	}
}

// The last confirmation before a close reaches the server.
func TestStreamCloseTellsTheLastPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := startWalsender(t, 0x50)
		w.row(0x100, 0x130, "1")
		b := next(t, s, time.Second)
		s.Confirm(b.Position)
		closed(t, s)
		if _, last := w.statuses(); last != 0x130 {
			t.Errorf("last told %#x", last)
		}
	})
}
