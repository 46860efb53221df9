package pgsource

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

// Messages and rows of one transaction stand in the order they were written in; what
// was rolled back is not there, whole or to a savepoint; others' messages are not ours.
func TestMessages(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		c := d.config()
		c.MessagePrefix = "shop.events"
		s := newSource(t, c)
		r := read(t, s, begin(t, s))
		const emit = `SELECT pg_logical_emit_message(%t, '%s', '{"id": "%s", "payload": {"n": 1}}')`
		for _, steps := range [][]string{
			{fmt.Sprintf(emit, true, "shop.events", "ghost"), "ROLLBACK"},
			{
				`INSERT INTO outbox VALUES (1, 'a', '{}')`, fmt.Sprintf(emit, true, "shop.events", "2"), "SAVEPOINT s", fmt.Sprintf(emit, true, "shop.events", "ghost"),
				"ROLLBACK TO s", `INSERT INTO outbox VALUES (3, 'a', '{}')`, fmt.Sprintf(emit, true, "others", "ghost"), fmt.Sprintf(emit, true, "shop.events", "4"), "COMMIT",
			},
			{fmt.Sprintf(emit, false, "shop.events", "ghost"), "ROLLBACK"},
			{fmt.Sprintf(emit, false, "shop.events", "ghost"), fmt.Sprintf(emit, true, "shop.events", "5"), "COMMIT"},
		} {
			d.Exec(t, "BEGIN; "+strings.Join(steps, "; "))
		}
		r.until(5).caughtUp()
		same(t, "rows and messages", ids(r.rows), []string{"1", "2", "3", "4", "5"})
		if r.rows[1].Table.String() != "shop.events" || string(r.rows[1].Values[1].Data) != `{"n": 1}` {
			t.Errorf("a message: %s %q", r.rows[1].Table, r.rows[1].Values)
		}
		for i, want := range []uint32{0, 1, 2, 3, 0} {
			if r.rows[i].Index != want {
				t.Errorf("row %d has index %d", i, r.rows[i].Index)
			}
		}
		at := r.close()
		d.Exec(t, fmt.Sprintf(emit, true, "shop.events", "6"))
		r = read(t, s, at).until(1)
		same(t, "the stream after that", ids(r.rows), []string{"6"})
		r.close()
	})
}

// Without a table the publication is empty, and the slot needs it all the same.
func TestMessagesAlone(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		c := d.config()
		c.Tables, c.MessagePrefix = nil, "events"
		s := newSource(t, c)
		r := read(t, s, begin(t, s))
		d.write(t, true, "1") // a table that is not ours
		d.Exec(t, `SELECT pg_logical_emit_message(true, 'events', '{"id": "a"}')`)
		r.until(1).caughtUp()
		same(t, "messages", ids(r.rows), []string{"a"})
		r.close()
		if n := d.Int(t, `SELECT count(*) FROM pg_publication_tables WHERE pubname = $1`, d.slot); n != 0 {
			t.Errorf("the publication carries %d tables", n)
		}
	})
}

// A message that can't be read ends the stream with what was committed before it delivered, and with its place.
func TestMessageThatIsNoEvent(t *testing.T) {
	for _, server := range oldestAndNewest {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server)
			c := d.config()
			c.MessagePrefix = "events"
			s := newSource(t, c)
			r := read(t, s, begin(t, s))
			d.write(t, true, "1")
			d.Exec(t, `BEGIN; INSERT INTO outbox VALUES (2, 'a', '{}'); SELECT pg_logical_emit_message(true, 'events', 'not for you'); COMMIT`)
			d.write(t, true, "3")
			var err error
			for err == nil {
				b, nerr := r.open.Next(r.ctx)
				if err = nerr; err != nil {
					break
				}
				r.rows = append(r.rows, b.Rows...)
				if b.Position != "" {
					r.at = b.Position
				}
			}
			if f := fault.As(err); f == nil || f.Code != fault.CodeEventRefused || f.Exit != fault.ExitRefused || strings.Contains(err.Error(), "not for you") {
				t.Errorf("a message that is no JSON: %v", err)
			}
			same(t, "before it", ids(r.rows), []string{"1"})
			_ = r.open.Close(context.WithoutCancel(r.ctx))
		})
	}
}
