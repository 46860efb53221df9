package mysqlsource

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// A connection that goes silent without an end is noticed by three heartbeats that did not come.
func TestSilentConnection(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		for name, direction := range map[string]faultproxy.Direction{"both ways": faultproxy.Both, "the server is not heard": faultproxy.ToClient} {
			t.Run(server+"/"+name, func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, server, small)
				proxy, err := faultproxy.New(d.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(proxy.Close)
				c := d.config()
				u, err := url.Parse(c.URL)
				if err != nil {
					t.Fatal(err)
				}
				u.Host = proxy.Addr()
				c.URL = u.String()
				s := newSource(t, c)
				st := stream(t, s, begin(t, s))
				d.write(t, true, "1")
				got, at := rows(t, st, 1)
				equal(t, ids(got), "1")
				heard := st.(source.Pulse).LastReceived()
				harness.Eventually(t, "a heartbeat", func() bool { return st.(source.Pulse).LastReceived().After(heard) })
				heard = st.(source.Pulse).LastReceived()
				proxy.Stall(direction)
				d.write(t, true, "2")
				if _, err := fails(t, st); fault.As(err) != nil {
					t.Errorf("what mends itself is a fault: %v", err)
				}
				// Three intervals of 3 s, and what a busy machine adds.
				if silent := time.Since(heard); silent > 20*time.Second {
					t.Errorf("noticed after %v", silent)
				}
				shut, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := st.Close(shut); err != nil {
					t.Error(err)
				}
				proxy.Heal()
				got, _ = rows(t, stream(t, s, at), 1)
				equal(t, ids(got), "2")
			})
		}
	}
}

// A reader that takes nothing for longer than the server's net_write_timeout keeps its dump thread.
func TestSlowReaderKeepsTheDump(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server, "CREATE TABLE outbox (id BIGINT, payload LONGTEXT)")
			w := d.session(t)
			before := w.value(t, "SELECT @@global.net_write_timeout")
			t.Cleanup(func() { _, _ = d.db.Exec("SET GLOBAL net_write_timeout = " + before) })
			w.exec(t, "SET GLOBAL net_write_timeout = 1")
			s := newSource(t, d.config())
			st := stream(t, s, begin(t, s))
			const n, size = 40, 1 << 20 // more than the sockets hold
			for i := range n {
				w.exec(t, "INSERT INTO outbox VALUES (?, REPEAT('x', ?))", i, size)
			}
			dumps := func() string {
				return w.value(t, "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'")
			}
			thread := dumps()
			pause := time.Duration(harness.Times(5, 30)) * time.Second
			select {
			case <-time.After(pause): // nothing happens, and that is the event
			case <-t.Context().Done():
			}
			if now := dumps(); now != thread || thread == "" {
				t.Errorf("thread %q became %q", thread, now)
			}
			if got, _ := rows(t, st, n); len(got) != n {
				t.Errorf("%d rows", len(got))
			}
		})
	}
}

// Two readers with one server id: MariaDB lets the newer one read, and the older one says why it stops. MySQL
// tells them apart by something else.
func TestServerIDTaken(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		c := d.config()
		c.ServerID = 1<<31 + uint32(time.Now().UnixNano())>>1
		other := c
		other.Name = harness.Unique("other-")
		s := newSource(t, c)
		at := begin(t, s)
		first := stream(t, s, at)
		d.write(t, true, "1")
		got, at := rows(t, first, 1)
		equal(t, ids(got), "1")
		second := stream(t, newSource(t, other), at)
		d.write(t, true, "2")
		got, _ = rows(t, second, 1)
		equal(t, ids(got), "2")
		if flavor(server) == "mysql" {
			got, _ = rows(t, first, 1)
			equal(t, ids(got), "2")
			return
		}
		_, err := fails(t, first)
		if f := fault.As(err); f == nil || f.Code != fault.CodeServerID || f.Exit != fault.ExitFailure || f.Fix == "" {
			t.Errorf("ended with %v", err)
		}
	})
}

// The server's own id is refused at once.
func TestServerIDOfTheServer(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		d := newDatabase(t, server, small)
		c := d.config()
		if _, err := fmt.Sscan(d.session(t).value(t, "SELECT @@server_id"), &c.ServerID); err != nil {
			t.Fatal(err)
		}
		_, err := newSource(t, c).Acquire(t.Context(), nil)
		if f := fault.As(err); f == nil || f.Code != fault.CodeServerID || f.Exit != fault.ExitConfig {
			t.Errorf("%s: %v", server, err)
		}
	}
}

// A list of hosts is searched for one that takes writes; while the lease is held no other one is read.
func TestHosts(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server, small)
			proxy, err := faultproxy.New(d.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(proxy.Close)
			c := d.config()
			c.URL = fmt.Sprintf("mysql://cdc:cdc-pw@127.0.0.1:1,%s,%s/%s", proxy.Addr(), d.addr, d.name)
			w := d.session(t)
			t.Cleanup(func() { _, _ = d.db.Exec("SET GLOBAL read_only = OFF") })
			w.exec(t, "SET GLOBAL read_only = ON")
			s := newSource(t, c)
			if _, err := s.Acquire(t.Context(), nil); err == nil || fault.As(err) != nil {
				t.Errorf("a lease on servers that are read-only: %v", err)
			}
			w.exec(t, "SET GLOBAL read_only = OFF")
			at := begin(t, s)
			st := stream(t, s, at)
			d.write(t, true, "1")
			_, at = rows(t, st, 1)
			proxy.Close()
			if _, err := fails(t, st); err == nil {
				t.Error("it reads on")
			}
			if _, err := s.Open(t.Context(), at); err == nil || fault.As(err) != nil {
				t.Errorf("opened elsewhere than the lease: %v", err)
			}
			take(t, s)
			st = stream(t, s, at)
			d.write(t, true, "2")
			got, _ := rows(t, st, 1)
			equal(t, ids(got), "2")
		})
	}
}
