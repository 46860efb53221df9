package faultproxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// echo starts a server that answers each line with its name and the line.
func echo(t *testing.T, name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for s := bufio.NewScanner(c); s.Scan(); {
					if _, err := fmt.Fprintf(c, "%s %s\n", name, s.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func start(t *testing.T) *Proxy {
	t.Helper()
	p, err := New(echo(t, "one"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

type client struct {
	*net.TCPConn
	lines *bufio.Reader
}

func dial(t *testing.T, p *Proxy) client {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return client{c.(*net.TCPConn), bufio.NewReader(c)}
}

func (c client) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(c, line); err != nil {
		return "", err
	}
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	return c.lines.ReadString('\n')
}

func (c client) want(t *testing.T, line, answer string) {
	t.Helper()
	if got, err := c.ask(line); err != nil || got != answer+"\n" {
		t.Fatalf("answer is %q, %v; want %q", got, err, answer)
	}
}

// refused reports whether a new connection is of no use.
func refused(p *Proxy) bool {
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return true
	}
	defer func() { _ = c.Close() }()
	_, err = client{c.(*net.TCPConn), bufio.NewReader(c)}.ask("anyone there?")
	return err != nil
}

// silent reports whether nothing arrives for a short while.
func (c client) silent() bool {
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, err := c.lines.Peek(1)
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestForwards(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.want(t, "hello", "one hello")
	if p.Connects() != 1 || p.Passed(ToServer) != 6 || p.Passed(ToClient) != 10 || p.Passed(Both) != 16 {
		t.Errorf("counted %d connects, %d and %d bytes", p.Connects(), p.Passed(ToServer), p.Passed(ToClient))
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.lines.ReadByte(); err != io.EOF {
		t.Errorf("a clean end arrives as %v", err)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.want(t, "a", "one a")
	p.Cut()
	if got, err := c.ask("b"); err == nil {
		t.Errorf("got %q through a cut connection", got)
	}
	dial(t, p).want(t, "c", "one c")
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	p := start(t)
	open := dial(t, p)
	open.want(t, "a", "one a")
	p.Refuse()
	if !refused(p) {
		t.Error("a new connection works while refusing")
	}
	open.want(t, "c", "one c")
	p.Heal()
	dial(t, p).want(t, "d", "one d")
	if p.Connects() != 3 {
		t.Errorf("counted %d connects, want 3", p.Connects())
	}
}

func TestStall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		way    Direction
		passed int64 // bytes the server got while stalled
	}{{"to server", ToServer, 0}, {"to client", ToClient, 2}, {"both", Both, 0}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := start(t)
			p.Stall(c.way)
			conn := dial(t, p)
			if _, err := fmt.Fprintln(conn, "a"); err != nil {
				t.Fatal(err)
			}
			if !conn.silent() {
				t.Error("something came through")
			}
			if got := p.Passed(ToServer); got != c.passed {
				t.Errorf("%d bytes reached the server, want %d", got, c.passed)
			}
			p.Heal()
			_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
			if got, err := conn.lines.ReadString('\n'); err != nil || got != "one a\n" {
				t.Errorf("after healing: %q, %v", got, err)
			}
		})
	}
}

func TestCutEndsStalled(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Stall(Both)
	c := dial(t, p)
	if _, err := fmt.Fprintln(c, "a"); err != nil {
		t.Fatal(err)
	}
	if !c.silent() {
		t.Fatal("something came through")
	}
	p.Cut()
	if _, err := c.ask("b"); err == nil {
		t.Error("a stalled connection survived a cut")
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.Delay(Both, 50*time.Millisecond)
	begin := time.Now()
	dial(t, p).want(t, "a", "one a")
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("an answer took %v through twice 50 ms", took)
	}
}

func TestCutAfter(t *testing.T) {
	t.Parallel()
	p := start(t)
	c := dial(t, p)
	c.want(t, "a", "one a")
	p.CutAfter(ToClient, 6+3)
	c.want(t, "b", "one b")
	got, err := c.ask("c")
	if err == nil || got != "one" {
		t.Errorf("got %q, %v; want the first 3 bytes and an error", got, err)
	}
	dial(t, p).want(t, "d", "one d")
}

func TestTarget(t *testing.T) {
	t.Parallel()
	p := start(t)
	old := dial(t, p)
	old.want(t, "a", "one a")
	p.Target(echo(t, "two"))
	dial(t, p).want(t, "b", "two b")
	old.want(t, "c", "one c")
}

func TestServerGone(t *testing.T) {
	t.Parallel()
	p := start(t)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	p.Target(gone.Addr().String())
	if !refused(p) {
		t.Error("a connection works without a server")
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	p := start(t)
	var users sync.WaitGroup
	for range 8 {
		users.Go(func() {
			for range 20 {
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				_, _ = fmt.Fprintln(c, "x")
				_ = c.Close()
			}
		})
	}
	for range 20 {
		p.Stall(ToServer)
		p.Delay(ToClient, time.Millisecond)
		p.Cut()
		p.CutAfter(ToServer, 1)
		p.Refuse()
		p.Heal()
	}
	users.Wait()
	for range 100 { // a cut that was due may still hit the first of these
		if !refused(p) {
			return
		}
	}
	t.Error("a healed proxy forwards nothing")
}
