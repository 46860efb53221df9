package kafkaconn

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// A link that nothing went over for stillTime may be dead without anybody's
// word: a NAT or firewall has forgotten it. The first request after that must be
// answered, in part, within soon; then the connection counts as dead, and with it
// all that were still for as long. A broker that is merely slow loses a connection once,
// for the next one has no such limit, and knows what is sent again.
const (
	stillTime = 10 * time.Second
	soon      = 2 * time.Second
)

// loginTime is how long a login may take that is made again, and the answers before it.
const loginTime = 30 * time.Second

// conn is a connection as sarama has it: each Write is a request, to which one
// answer comes.
type conn struct {
	net.Conn
	dialer  *dialer
	address string
	stop    func() bool   // lets go of life when closed before its end
	renewal time.Time     // when the login is to be made anew; zero: never. Only Write has to do with it
	drained chan struct{} // size 1: no answer is awaited any more

	mu      sync.Mutex
	waiting int         // answers that are awaited
	answers int         // that came whole
	frame   frame       // the answer that is being read
	last    time.Time   // when bytes last went or came
	watch   *time.Timer // closes a connection that turns out to be dead
	dead    bool        // it did
}

func (c *conn) Write(b []byte) (int, error) {
	select {
	case <-c.dialer.quiet:
		c.listen()
		return 0, net.ErrClosed
	default:
	}
	if !c.renewal.IsZero() && !time.Now().Before(c.renewal) {
		if err := c.renew(); err != nil {
			_ = c.Conn.Close()
			return 0, fmt.Errorf("log in again: %w", err)
		}
	}
	c.mu.Lock()
	if c.waiting <= 0 && time.Since(c.last) >= stillTime && c.watch == nil {
		c.watch = time.AfterFunc(soon, c.bury)
	}
	c.waiting++
	c.last = time.Now()
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// listen waits until no answer is awaited, or life ends.
func (c *conn) listen() {
	for {
		c.mu.Lock()
		waiting := c.waiting
		c.mu.Unlock()
		if waiting <= 0 {
			return
		}
		select {
		case <-c.drained:
		case <-c.dialer.life.Done():
			return
		}
	}
}

// bury closes a connection whose first request after a pause got no answer.
func (c *conn) bury() {
	c.mu.Lock()
	c.dead = c.watch != nil
	dead := c.dead
	c.mu.Unlock()
	if dead {
		c.dialer.suspect() // before anybody hears of it and tries one of them
		_ = c.Conn.Close()
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	if n > 0 {
		c.last = time.Now()
		if c.watch != nil && !c.dead {
			c.watch.Stop()
			c.watch = nil
		}
		whole := c.frame.take(b[:n])
		c.answers += whole
		c.waiting -= whole
	}
	if err != nil {
		c.waiting = 0 // no other answer comes
	}
	if c.waiting <= 0 {
		wake(c.drained)
	}
	dead, answers := c.dead, c.answers
	c.mu.Unlock()
	if answers > 2 {
		c.dialer.proven.Store(true)
	}
	switch {
	case err == nil || c.dialer.life.Err() != nil:
	case dead:
		err = fmt.Errorf("no answer within %v on a connection that was still for longer than %v: something between has dropped it: %w", soon, stillTime, err)
	case answers <= 2: // what a broker has against us it shows at the first requests
		ctx, cancel := context.WithTimeout(c.dialer.life, dialTimeout)
		defer cancel()
		err = c.dialer.explain(ctx, "tcp", c.address, err)
	}
	return n, err
}

// renew makes the login again, as KIP-368 has it, between two requests: when
// nothing is on the wire.
func (c *conn) renew() error {
	ctx, cancel := context.WithTimeout(c.dialer.life, loginTime)
	defer cancel()
	for {
		c.mu.Lock()
		waiting := c.waiting
		c.mu.Unlock()
		if waiting <= 0 {
			break
		}
		select {
		case <-c.drained:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d answers: %w", waiting, os.ErrDeadlineExceeded)
		}
	}
	if err := c.SetDeadline(time.Now().Add(loginTime)); err != nil {
		return err
	}
	end, err := c.dialer.login(ctx, c.Conn, c.address)
	if err != nil {
		return err
	}
	c.renewal = end
	return c.SetDeadline(time.Now().Add(loginTime)) // sarama sets it before it reads
}

// idle is for how long nothing went or came.
func (c *conn) idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.last)
}

func (c *conn) Close() error {
	c.stop()
	c.dialer.forget(c)
	c.mu.Lock()
	if c.watch != nil {
		c.watch.Stop()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// frame follows a stream of answers, each with its size before it.
type frame struct {
	size [4]byte
	have int // of size
	left int // of the answer
}

// take counts the answers that end in b.
func (f *frame) take(b []byte) (whole int) {
	for len(b) > 0 {
		if f.have < len(f.size) {
			n := copy(f.size[f.have:], b)
			f.have, b = f.have+n, b[n:]
			if f.have < len(f.size) {
				return whole
			}
			f.left = int(binary.BigEndian.Uint32(f.size[:]))
		}
		n := min(f.left, len(b))
		f.left, b = f.left-n, b[n:]
		if f.left == 0 {
			f.have = 0
			whole++
		}
	}
	return whole
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
