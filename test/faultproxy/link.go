package faultproxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

var errSpent = errors.New("the bytes until the cut are spent")

func (p *Proxy) serve(client *net.TCPConn) {
	p.mu.Lock()
	p.connects++
	target, refusing := p.target, p.refusing
	p.mu.Unlock()
	if refusing {
		abort(client)
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil {
		abort(client)
		return
	}
	l := &link{sides: [2]*net.TCPConn{client, conn.(*net.TCPConn)}}
	l.gone, l.end = context.WithCancel(p.ctx)
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.mu.Unlock()
	if p.ctx.Err() != nil { // Close may have passed by before the link was known
		l.reset()
	}

	var both sync.WaitGroup
	both.Go(func() { p.copy(l, ToServer) })
	both.Go(func() { p.copy(l, ToClient) })
	both.Wait()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
	l.close()
}

// copy forwards one direction. A clean end is passed on as one; any error ends
// both directions.
func (p *Proxy) copy(l *link, d Direction) {
	from, to := l.sides[d], l.sides[1-d]
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if sendErr := p.send(l, to, buf[:n], d); errors.Is(sendErr, errSpent) {
				p.Cut()
				err = sendErr
			} else if sendErr != nil {
				err = sendErr
			}
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) && p.open(l, d) == nil {
			_ = to.CloseWrite()
			return
		}
		l.reset()
		return
	}
}

// send writes data once the faults of the direction allow it.
func (p *Proxy) send(l *link, to *net.TCPConn, data []byte, d Direction) error {
	if err := p.open(l, d); err != nil {
		return err
	}
	p.mu.Lock()
	w := &p.ways[d]
	delay, spent := w.delay, w.budget >= 0 && int64(len(data)) >= w.budget
	switch {
	case spent:
		data = data[:w.budget]
		w.budget = -1
	case w.budget > 0:
		w.budget -= int64(len(data))
	}
	w.passed += int64(len(data))
	p.mu.Unlock()

	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.gone.Done():
			return l.gone.Err()
		}
	}
	if _, err := to.Write(data); err != nil {
		return err
	}
	if spent {
		return errSpent
	}
	return nil
}

// open waits until the direction is not stalled, or the link is gone. One that
// is forgotten stays stalled.
func (p *Proxy) open(l *link, d Direction) error {
	for {
		p.mu.Lock()
		stalled, changed := p.ways[d].stalled || l.forgotten, p.changed
		p.mu.Unlock()
		if !stalled {
			return nil
		}
		select {
		case <-changed:
		case <-l.gone.Done():
			return l.gone.Err()
		}
	}
}

func (l *link) reset() {
	l.end()
	for _, c := range l.sides {
		abort(c)
	}
}

func (l *link) close() {
	l.end()
	for _, c := range l.sides {
		_ = c.Close()
	}
}

// abort closes with a reset instead of a clean end.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
