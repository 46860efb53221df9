package kafkaconn

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestConnectionsEndWithLife(t *testing.T) {
	t.Parallel()
	l := listen(t)
	life, cut := context.WithCancel(t.Context())
	s := Config{}.Base(life)

	kept, err := s.Net.Proxy.Dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	if got := s.Metadata.Retry.BackoffFunc(1, 5000); got != 100*time.Millisecond {
		t.Fatalf("pause %v", got)
	}
	cut()
	if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the other end reads %v, want EOF", err)
	}
	if _, err := kept.Read(make([]byte, 1)); err == nil {
		t.Fatal("still readable")
	}
	if c, err := s.Net.Proxy.Dialer.Dial("tcp", l.Addr().String()); err == nil {
		_ = c.Close()
		t.Fatal("a new connection was made")
	}
	if got := s.Metadata.Retry.BackoffFunc(1, 5000); got != 0 {
		t.Fatalf("pause %v after the end", got)
	}
}

func TestHushedConnectionsOnlyListen(t *testing.T) {
	t.Parallel()
	l := listen(t)
	life, cut := context.WithCancel(t.Context())
	defer cut()
	quiet := make(chan struct{})
	s := Config{}.Base(life)
	Config{}.Hush(life, s, quiet)
	c, err := s.Net.Proxy.Dialer.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	say := func(to, from net.Conn, text string) {
		t.Helper()
		if _, err := to.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(from, got); err != nil || string(got) != text {
			t.Fatalf("read %q, %v", got, err)
		}
	}
	say(c, peer, "question")
	close(quiet)
	say(peer, c, "answer")
}

// A write that failed would make sarama hang up before the answers are in. Where
// none is awaited it fails at once: whoever waits for it may be who is to end life.
func TestHushedWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		waiting int
		free    func(c *conn, peer net.Conn, end context.CancelFunc) // nil: it is free already
	}{
		{"nothing is awaited", 0, nil},
		{"the answer comes", 1, func(c *conn, peer net.Conn, _ context.CancelFunc) {
			_, _ = peer.Write([]byte{0, 0, 0, 1, 7})
		}},
		{"the connection breaks", 2, func(c *conn, peer net.Conn, _ context.CancelFunc) { _ = peer.Close() }},
		{"life ends", 1, func(_ *conn, _ net.Conn, end context.CancelFunc) { end() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				quiet := make(chan struct{})
				close(quiet)
				life, end := context.WithCancel(t.Context())
				defer end()
				near, peer := net.Pipe()
				w := &conn{Conn: near, dialer: Config{}.dialer(life, quiet), waiting: c.waiting, answers: 10, drained: make(chan struct{}, 1)}
				go func() { _, _ = io.Copy(io.Discard, w) }()
				var err error
				returned := false
				go func() {
					_, err = w.Write([]byte("question"))
					returned = true
				}()
				synctest.Wait()
				if returned != (c.free == nil) {
					t.Fatalf("the write returned %t, %v", returned, err)
				}
				if c.free != nil {
					c.free(w, peer, end)
					synctest.Wait()
				}
				if !returned || err == nil {
					t.Fatalf("the write returned %t, %v", returned, err)
				}
				_ = peer.Close()
				_ = near.Close()
			})
		})
	}
}

func TestBaseIsModest(t *testing.T) {
	t.Parallel()
	s := Config{}.Base(t.Context())
	if s.Metadata.Full || s.Metadata.AllowAutoTopicCreation || s.ClientID != "outboxd" {
		t.Fatalf("full %v, auto-create %v, client id %s", s.Metadata.Full, s.Metadata.AllowAutoTopicCreation, s.ClientID)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestReachNamesEveryBroker(t *testing.T) {
	t.Parallel()
	one, two := listen(t), listen(t)
	c := Config{Brokers: []string{one.Addr().String(), two.Addr().String()}}
	_ = one.Close()
	_ = two.Close()
	_, err := c.Reach(c.Base(t.Context()))
	if err == nil || fault.As(err) != nil {
		t.Fatalf("got %v, want a plain error", err)
	}
	for _, address := range c.Brokers {
		if !strings.Contains(err.Error(), address) {
			t.Errorf("%v does not name %s", err, address)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		brokers []string
		ok      bool
	}{
		{nil, false},
		{[]string{"kafka:9092"}, true},
		{[]string{"[::1]:9092", "10.0.0.1:9092"}, true},
		{[]string{"kafka"}, false},
		{[]string{"kafka:9092", ""}, false},
		{[]string{":9092"}, false},
		{[]string{"kafka:"}, false},
	} {
		err := Config{Brokers: c.brokers}.Validate()
		if (err == nil) != c.ok || err != nil && !fault.Is(err, fault.CodeConfig) {
			t.Errorf("%q: %v", c.brokers, err)
		}
	}
}
