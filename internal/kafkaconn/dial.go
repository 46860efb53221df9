package kafkaconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// dialer makes connections, and knows those that are open.
type dialer struct {
	Security
	life  context.Context //nolint:containedctx // it is that of the connections, not of a call
	quiet <-chan struct{} // closed when nothing more is sent

	// proven: a connection was of use, so that brokers which hang up later want nothing
	// that we lack. Looking into each would make a storm of connections.
	proven atomic.Bool

	mu   sync.Mutex
	open map[*conn]struct{}
}

func (c Config) dialer(life context.Context, quiet <-chan struct{}) *dialer {
	return &dialer{Security: c.Security, life: life, quiet: quiet, open: map[*conn]struct{}{}}
}

// Dial gives a connection that is ready for requests.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.life, dialTimeout)
	defer cancel()
	c, err := d.secure(ctx, network, address)
	if err != nil {
		return nil, d.explain(ctx, network, address, err)
	}
	var end time.Time
	if d.SASL != nil {
		if end, err = d.login(ctx, c, address); err != nil {
			_ = c.Close()
			return nil, d.explain(ctx, network, address, err)
		}
	}
	out := &conn{Conn: c, dialer: d, address: address, renewal: end, last: time.Now(), drained: make(chan struct{}, 1)}
	d.mu.Lock()
	d.open[out] = struct{}{}
	d.mu.Unlock()
	out.stop = context.AfterFunc(d.life, func() { _ = c.Close() })
	return out, nil
}

// secure gives a connection before any login.
func (d *dialer) secure(ctx context.Context, network, address string) (net.Conn, error) {
	// The system's own probes keep an idle connection alive at what stands between, and find out one that is dead.
	tcp := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	c, err := tcp.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.TLS == nil {
		return &plain{Conn: c}, nil
	}
	settings, err := d.TLS.client(address)
	if err == nil {
		secure := tls.Client(c, settings)
		if err = secure.HandshakeContext(ctx); err == nil {
			return secure, nil
		}
		err = handshakeError{err}
	}
	_ = c.Close()
	return nil, err
}

// login makes the SASL login and gives the time by which it is to be made again; zero: never.
func (d *dialer) login(ctx context.Context, c net.Conn, address string) (time.Time, error) {
	if _, secure := c.(*tls.Conn); !secure {
		if err := d.SASL.mayBeSeen(c.RemoteAddr(), address); err != nil {
			return time.Time{}, err
		}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return d.SASL.login(ctx, c)
}

// forget lets go of a connection that is closed.
func (d *dialer) forget(c *conn) {
	d.mu.Lock()
	delete(d.open, c)
	d.mu.Unlock()
}

// suspect closes the other connections on which nothing was heard for as long
// as on one that turned out to be dead: what forgot that one has forgotten them.
func (d *dialer) suspect() {
	d.mu.Lock()
	var idle []*conn
	for c := range d.open {
		if c.idle() >= stillTime {
			idle = append(idle, c)
		}
	}
	d.mu.Unlock()
	for _, c := range idle {
		_ = c.Conn.Close()
	}
}

// plain is a connection without TLS. A broker that wants it sends an alert.
type plain struct {
	net.Conn
	heard bool
}

func (c *plain) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n >= 2 && !c.heard && b[0] == 0x15 && b[1] == 0x03 { // of an answer these would be its size, 350 MB
		return 0, errWantsTLS
	}
	c.heard = c.heard || n > 0
	return n, err
}

var errWantsTLS = fmt.Errorf("a TLS alert came as answer: %w", io.ErrUnexpectedEOF)

// handshakeError came of the TLS handshake.
type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

func (e handshakeError) Error() string {
	if errors.Is(e.error, io.EOF) {
		return "TLS handshake: the connection was closed"
	}
	return "TLS handshake: " + e.error.Error()
}
