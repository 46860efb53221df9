// Package faultproxy is a TCP proxy on loopback that can be told to misbehave:
// refuse, cut, go silent, be slow, or end in the middle of a message.
package faultproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is the way bytes go.
type Direction int

// The two directions; Both names them together where a fault takes one.
const (
	ToServer Direction = iota
	ToClient
	Both
)

// Proxy forwards TCP connections to a target. Its methods are safe for
// concurrent use; a fault applies to open connections and to those that follow.
type Proxy struct {
	listener net.Listener
	ctx      context.Context // ends with Close: dials and waits follow it
	end      context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	target   string
	refusing bool
	ways     [2]way
	links    map[*link]struct{}
	changed  chan struct{} // closed and replaced at each change of a fault
	connects int
}

// way is what happens to the bytes of one direction.
type way struct {
	stalled bool
	delay   time.Duration
	budget  int64 // bytes until the cut; negative: no limit
	passed  int64
}

// link is one connection: client and server side.
type link struct {
	sides [2]*net.TCPConn
	gone  context.Context // ends when the link does
	end   context.CancelFunc

	forgotten bool // nothing of it goes anywhere any more
}

// New starts a proxy in front of target ("host:port") on a free loopback port.
func New(target string) (*Proxy, error) { return Listen("127.0.0.1:0", target) }

// Listen is New on a given address.
func Listen(addr, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	p := &Proxy{listener: listener, target: target, links: make(map[*link]struct{}), changed: make(chan struct{})}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.ways[ToServer].budget, p.ways[ToClient].budget = -1, -1
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect: "127.0.0.1:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts everything and ends the proxy.
func (p *Proxy) Close() {
	p.end()
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

// Connects is how many connections were taken so far, refused ones included.
func (p *Proxy) Connects() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connects
}

// Passed is how many bytes went through in a direction so far.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d == Both {
		return p.ways[ToServer].passed + p.ways[ToClient].passed
	}
	return p.ways[d].passed
}

// Target sends connections that follow to another server.
func (p *Proxy) Target(addr string) { p.change(func() { p.target = addr }) }

// Refuse resets connections that follow, until Heal. Open ones go on.
func (p *Proxy) Refuse() { p.change(func() { p.refusing = true }) }

// Cut resets every open connection. Those that follow work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
}

// Stall forwards nothing in a direction, while connections are still taken
// and stay open, until Heal.
func (p *Proxy) Stall(d Direction) { p.each(d, func(w *way) { w.stalled = true }) }

// Forget drops what comes on connections that are open now, for ever and without
// a word, as a NAT does that has forgotten them. Those that follow work.
func (p *Proxy) Forget() {
	p.change(func() {
		for l := range p.links {
			l.forgotten = true
		}
	})
}

// Delay holds each piece of data back for that long.
func (p *Proxy) Delay(d Direction, by time.Duration) { p.each(d, func(w *way) { w.delay = by }) }

// CutAfter lets n more bytes through in a direction, then resets every
// connection, once.
func (p *Proxy) CutAfter(d Direction, n int64) { p.each(d, func(w *way) { w.budget = n }) }

// Heal ends every fault but a changed target.
func (p *Proxy) Heal() {
	p.change(func() {
		p.refusing = false
		for i := range p.ways {
			p.ways[i] = way{budget: -1, passed: p.ways[i].passed}
		}
	})
}

func (p *Proxy) each(d Direction, set func(*way)) {
	p.change(func() {
		for i := range p.ways {
			if d == Both || d == Direction(i) {
				set(&p.ways[i])
			}
		}
	})
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		p.wg.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}
