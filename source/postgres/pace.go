package postgres

import (
	"crypto/tls"
	"net"
	"syscall"
	"time"
)

// pace lets bytes gather before the next read while much is coming. A
// walsender sends each message by itself, and each would wake us: in bulk that
// costs more than all the rest, on both sides. At low rates it does nothing,
// so that the first byte wakes us at once.
//
// In bulk the kernel says "readable" only once lowWater bytes are queued
// (SO_RCVLOWAT), and a read must never wait for less: so each wait and each
// read ends after paceWait, come what may. Under TLS a record may be cut at any
// byte and the layer has a buffer of its own; the same limit makes that right.
//
// A nil pace never waits: Unix sockets, pipes, other systems than Linux.
type pace struct {
	raw      syscall.RawConn
	tls      bool
	bulk     bool
	draining bool // TLS hands out a record at a time: more are queued
	since    time.Time
	bytes    int // read since then
	messages int // parsed since then
}

const (
	lowWater     = 128 << 10
	paceWait     = 4 * time.Millisecond
	paceWindow   = 100 * time.Millisecond
	bulkBytes    = 5 << 20 // a second; from here on it is bulk …
	bulkMessages = 5000    // … or from here: many small ones, as keepalives for others' transactions
)

// newPace returns nil for a connection that can't be paced.
func newPace(conn net.Conn, now time.Time) *pace {
	p := &pace{since: now}
	if t, ok := conn.(*tls.Conn); ok {
		conn, p.tls = t.NetConn(), true
	}
	c, ok := conn.(*net.TCPConn)
	if !ok || !canPace {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	p.raw = raw
	return p
}

// note counts what came, and decides once in a while whether it is bulk.
func (p *pace) note(bytes, messages int, now time.Time) {
	if p == nil {
		return
	}
	p.bytes += bytes
	p.messages += messages
	d := now.Sub(p.since)
	if d < paceWindow {
		return
	}
	over := func(n, limit int) bool {
		if p.bulk {
			limit /= 2 // it doesn't go to and fro
		}
		return float64(n) >= float64(limit)*d.Seconds()
	}
	bulk := over(p.bytes, bulkBytes) || over(p.messages, bulkMessages)
	p.since, p.bytes, p.messages = now, 0, 0
	if bulk == p.bulk {
		return
	}
	mark := 1
	if bulk {
		mark = lowWater
	}
	// Where the kernel refuses, the first byte goes on waking us.
	p.bulk = setLowWater(p.raw, mark) == nil && bulk
	p.draining = false
}

// inBulk tells whether reads are to wait for more.
func (p *pace) inBulk() bool { return p != nil && p.bulk }

// gather waits until much is queued or the connection's read deadline is over,
// and reports whether anything is queued.
func (p *pace) gather() bool {
	n, waited := 0, false
	err := p.raw.Read(func(fd uintptr) bool {
		n = queued(fd)
		if waited || n >= lowWater || (p.draining && n > 0) {
			return true
		}
		waited = true
		return false
	})
	if err != nil { // the deadline
		_ = p.raw.Control(func(fd uintptr) { n = queued(fd) })
	}
	p.draining = p.tls && n > 0
	return n > 0
}
