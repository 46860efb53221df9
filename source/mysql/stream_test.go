package mysql

import (
	"bytes"
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/source"
)

// dump is a scripted server at the other end of a pipe, in a synctest bubble.
type dump struct {
	binlog
	t    *testing.T
	conn net.Conn
	seq  byte
}

func startDump(t *testing.T) (*dump, *stream) {
	ours, theirs := net.Pipe()
	s := newStream(ours, testDecoder(byGTID), nil, func() {})
	s.start()
	return &dump{binlog{pos: 4, seconds: 1_796_042_000}, t, theirs, 0}, s
}

// framed is a packet's bytes: pieces of 2^24-1 while there is that much, then the rest, which may be empty.
func (d *dump) framed(b []byte) []byte {
	var all []byte
	for {
		n := min(len(b), maxPacket)
		all = append(append(all, byte(n), byte(n>>8), byte(n>>16), d.seq), b[:n]...)
		d.seq++
		b = b[n:]
		if n < maxPacket {
			return all
		}
	}
}

func (d *dump) raw(b []byte) {
	if _, err := d.conn.Write(b); err != nil {
		d.t.Errorf("send: %v", err)
	}
}

func (d *dump) send(events ...wire) {
	for _, e := range events {
		d.raw(d.framed(append([]byte{0}, e...)))
	}
}

func (d *dump) heartbeat() {
	d.send(d.binlog.framed(eventHeartbeat, 0, d.pos, wire{}.str("binlog.000001")))
}

func (d *dump) foreign(n uint64) { d.send(d.gtid(serverB, n), d.query("BEGIN"), d.xid()) }

func (d *dump) rows(n uint64, ids ...uint64) {
	d.send(d.gtid(serverA, n), d.query("BEGIN"), d.outbox())
	for _, id := range ids {
		d.send(d.row(id))
	}
	d.send(d.xid())
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

func gtids(t *testing.T, p source.Position) string {
	t.Helper()
	at, err := parsePlace(p)
	if err != nil {
		t.Fatal(err)
	}
	return at.gtids
}

func closed(t *testing.T, s *stream) {
	t.Helper()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestStreamHandsOverTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := startDump(t)
		go d.rows(11, 1, 2)
		b := next(t, s, time.Second)
		if b == nil || len(b.Rows) != 2 || gtids(t, b.Position) != serverA.String()+":1-11" || b.CaughtUp {
			t.Fatalf("batch %+v", b)
		}
		d.heartbeat()
		if b := next(t, s, time.Second); b == nil || !b.CaughtUp || b.Position != "" || len(b.Rows) > 0 {
			t.Errorf("the end of the log is not told: %+v", b)
		}
		d.heartbeat()
		if b := next(t, s, time.Second); b != nil {
			t.Errorf("it is told again: %+v", b)
		}
		closed(t, s)
		if _, err := s.Next(t.Context()); err == nil {
			t.Error("a batch from a closed stream")
		}
	})
}

// A server that always writes something sends no heartbeat; an event of this
// very moment tells the end as well.
func TestStreamKnowsTheEndOfABusyLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := startDump(t)
		d.seconds = uint32(time.Now().Add(-time.Minute).Unix())
		go d.rows(11, 1)
		if b := next(t, s, time.Second); b == nil || b.CaughtUp {
			t.Errorf("a minute behind: %+v", b)
		}
		d.seconds = uint32(time.Now().Unix())
		go d.rows(12, 2)
		if b := next(t, s, time.Second); b == nil || !b.CaughtUp {
			t.Errorf("at the end: %+v", b)
		}
		closed(t, s)
	})
}

// Heartbeats are life; without them a server is gone.
func TestStreamSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := startDump(t)
		go func() {
			for range 20 {
				time.Sleep(heartbeat)
				d.heartbeat()
			}
		}()
		next(t, s, heartbeat+time.Second) // caught up
		if b := next(t, s, 15*heartbeat); b != nil {
			t.Errorf("batch %+v", b)
		}
		if quiet := time.Since(s.LastReceived()); quiet > heartbeat {
			t.Errorf("last heard %v ago", quiet)
		}
		if _, err := s.Next(t.Context()); err == nil {
			t.Error("a server that fell silent is listened to for ever")
		}
	})
}

// Nobody takes the batch: nothing is read on, and the silence is ours.
func TestStreamBackPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := startDump(t)
		sent := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range uint64(20) {
				d.rows(11+n, n+1)
				sent++
			}
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if sent > 5 {
			t.Errorf("%d transactions were read and nobody took one", sent)
		}
		for n := range 20 {
			for {
				b := next(t, s, time.Second)
				if b == nil {
					t.Fatalf("nothing after %d rows", n)
				}
				if len(b.Rows) > 0 {
					break
				}
			}
		}
		<-done
		closed(t, s)
	})
}

// I2: idle progress after 60 s or 16 MiB of log, never inside a transaction.
func TestStreamIdleProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, s := startDump(t)
		stop := make(chan struct{})
		ended := make(chan struct{})
		asked := make(chan func())
		go func() { // one writer: the script between the heartbeats
			defer close(ended)
			for {
				select {
				case <-time.After(heartbeat):
					d.heartbeat()
				case f := <-asked:
					f()
				case <-stop:
					return
				}
			}
		}()
		next(t, s, 10*time.Second) // caught up
		asked <- func() { d.foreign(1) }
		if b := next(t, s, 40*time.Second); b != nil && b.Position != "" {
			t.Errorf("progress too early: %+v", b)
		}
		if b := next(t, s, 30*time.Second); b == nil || gtids(t, b.Position) != serverA.String()+":1-10,"+serverB.String()+":1" {
			t.Errorf("no progress after a minute: %+v", b)
		}
		big := insertBody(5, 1, make(wire, idleBytes+1))
		asked <- func() { d.send(d.gtid(serverB, 2), d.query("BEGIN"), d.event(eventWriteRows, big)) }
		for until := time.Now().Add(idleInterval / 2); time.Now().Before(until); {
			if b := next(t, s, time.Second); b != nil && b.Position != "" {
				t.Fatalf("progress inside a transaction: %+v", b)
			}
		}
		asked <- func() { d.send(d.xid()) }
		if b := next(t, s, time.Second); b == nil || gtids(t, b.Position) != serverA.String()+":1-10,"+serverB.String()+":1-2" {
			t.Errorf("no progress after 16 MiB: %+v", b)
		}
		close(stop)
		<-ended
		closed(t, s)
	})
}

// Packets come in any pieces, and an event of 2^24-1 bytes and more in several packets (A29).
func TestStreamJoinsPackets(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string]int{
		"one byte less": maxPacket - 1, "exactly one": maxPacket, "one byte more": maxPacket + 1, "two and a bit": 2*maxPacket + 7, "exactly two": 2 * maxPacket,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := startDump(t)
				// The whole packet, with its first byte, is of that size.
				row := insertBody(77, 4, outboxRow(1, "k", smallJSON(1), "ab"))
				fill := payload - 1 - headerBytes - len(row) - 1 - 4 // less what the wrapping takes
				doc := append(wire{jsonString}, jsonLength(fill)...)
				fill -= len(doc) - len(smallJSON(1)) - 1 - 4
				doc = append(append(wire{jsonString}, jsonLength(fill)...), bytes.Repeat([]byte{'x'}, fill)...)
				body := insertBody(77, 4, outboxRow(1, "k", doc, "ab"))
				var all []byte
				for _, e := range []wire{d.gtid(serverA, 11), d.query("BEGIN"), d.outbox(), d.event(eventWriteRows, body), d.row(2), d.xid()} {
					all = append(all, d.framed(append([]byte{0}, e...))...)
				}
				if got := 1 + headerBytes + len(body); got != payload {
					t.Fatalf("the packet has %d bytes, not %d", got, payload)
				}
				go func() {
					for len(all) > 0 {
						n := min(len(all), 70001)
						if len(all) < 300 {
							n = 1
						}
						d.raw(all[:n])
						all = all[n:]
					}
				}()
				var got []source.Row
				for len(got) < 2 {
					b := next(t, s, time.Minute)
					if b == nil {
						t.Fatal("nothing came")
					}
					got = append(got, b.Rows...)
				}
				if text := got[0].Values[2].Data; len(text) != fill+2 || text[1] != 'x' || text[fill] != 'x' || string(got[1].Values[0].Data) != "2" {
					t.Errorf("%d bytes, want %d; second row %q", len(got[0].Values[2].Data), fill+2, got[1].Values[0].Data)
				}
				closed(t, s)
			})
		})
	}
}

// jsonLength is a length in groups of seven bits, four of them.
func jsonLength(n int) wire {
	return wire{}.u8(n&0x7f | 0x80).u8(n>>7&0x7f | 0x80).u8(n>>14&0x7f | 0x80).u8(n >> 21)
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script func(*dump)
		code   uint16 // of the server's error
	}{
		"server closes":       {func(d *dump) { _ = d.conn.Close() }, 0},
		"in mid packet":       {func(d *dump) { d.raw([]byte{40, 0, 0, 0, 0, 1}); _ = d.conn.Close() }, 0},
		"server ends dump":    {func(d *dump) { d.raw(d.framed([]byte{0xfe, 0, 0, 0, 0})) }, 0},
		"server's error":      {func(d *dump) { d.raw(d.framed(wire{0xff}.le(2, 1236).str("#HY000purged"))) }, 1236},
		"error without state": {func(d *dump) { d.raw(d.framed(wire{0xff}.le(2, 1158).str("x"))) }, 1158},
		"unreadable event":    {func(d *dump) { d.send(d.event(99, nil)) }, 0},
		"packet of nothing":   {func(d *dump) { d.raw(d.framed(nil)) }, 0},
		"packet of nonsense":  {func(d *dump) { d.raw(d.framed([]byte{7})) }, 0},
		"event of nothing":    {func(d *dump) { d.send(nil) }, 0},
		"server falls silent": {func(*dump) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, s := startDump(t)
				go c.script(d)
				_, err := s.Next(t.Context())
				if err == nil {
					t.Fatal("the stream goes on")
				}
				if got := errorCode(err); got != c.code {
					t.Errorf("ended with %v", err)
				}
				_ = d.conn.Close()
			})
		})
	}
}

// Close ends a stream whatever it is doing.
func TestStreamClose(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]func(*dump){
		"while it waits for the server": func(*dump) {},
		"while it waits for a reader":   func(d *dump) { d.rows(11, 1) },
		"inside a packet":               func(d *dump) { d.raw([]byte{40, 0, 0, 0, 0, 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d, s := startDump(t)
				script(d)
				synctest.Wait()
				start := time.Now()
				closed(t, s)
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v", took)
				}
				if _, err := d.conn.Write([]byte{0}); err == nil {
					t.Error("the connection is open")
				}
			})
		})
	}
}
