package pgsource

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// Whatever wal_sender_timeout the server has, off and very short too, our
// session keeps its walsender while nobody takes the rows.
func TestSenderTimeouts(t *testing.T) {
	for _, server := range []string{"postgres15", "postgres18"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			readers := map[string]*reader{}
			databases := map[string]database{}
			before := map[string]int64{}
			pid := func(timeout string) int64 {
				d := databases[timeout]
				return d.Int(t, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, d.slot)
			}
			for _, timeout := range []string{"0", "5s", "1s"} {
				d := newDatabase(t, server)
				d.Exec(t, "ALTER DATABASE "+d.Name+" SET wal_sender_timeout = '"+timeout+"'")
				databases[timeout], readers[timeout] = d, open(t, d.config())
				before[timeout] = pid(timeout)
				d.Exec(t, `INSERT INTO outbox SELECT i, 'a', jsonb_build_object('fill', repeat('x', 1000)) FROM generate_series(1, 20000) i`)
			}
			select {
			case <-time.After(time.Duration(harness.Times(12, 45)) * time.Second): // nothing happens, and that is the event
			case <-t.Context().Done():
			}
			for timeout, r := range readers {
				if after := pid(timeout); after != before[timeout] {
					t.Errorf("wal_sender_timeout %s: walsender %d became %d", timeout, before[timeout], after)
				}
				r.take(t, 20000)
			}
		})
	}
}

// A connection that goes silent, in both directions or in one, ends the
// stream, and another one takes the slot over from the walsender that is left behind.
func TestSilentConnection(t *testing.T) {
	for _, server := range []string{"postgres15", "postgres18"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			for name, direction := range map[string]faultproxy.Direction{
				"both ways": faultproxy.Both, "the server hears nothing": faultproxy.ToServer, "the server is not heard": faultproxy.ToClient,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					d := newDatabase(t, server)
					proxy, err := faultproxy.New(d.Addr())
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
					at := begin(t, s)
					stream, err := s.Open(t.Context(), at)
					if err != nil {
						t.Fatal(err)
					}
					r := &reader{Stream: stream, last: at}
					d.write(t, true, "1")
					r.expect(t, "1")
					heard := stream.(source.Pulse).LastReceived()
					proxy.Stall(direction)
					d.write(t, true, "2")
					ended(t, stream)
					// Three intervals of 4 s, and what a busy machine adds.
					if silent := time.Since(heard); silent > 25*time.Second {
						t.Errorf("noticed after %v", silent)
					}
					shut, cancel := context.WithTimeout(t.Context(), time.Second)
					_ = stream.Close(shut)
					cancel()
					proxy.Heal()
					proxy.Cut() // what is left of the old connections
					next, err := s.Open(t.Context(), r.last)
					if err != nil {
						t.Fatalf("open anew: %v", err)
					}
					t.Cleanup(func() { _ = next.Close(context.Background()) })
					(&reader{Stream: next}).expect(t, "2")
				})
			}
		})
	}
}

// ended waits until a stream ends by itself. What it had read already may come before.
func ended(t *testing.T, stream source.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for {
		_, err := stream.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal("the stream goes on")
		}
		if err != nil {
			return
		}
	}
}
