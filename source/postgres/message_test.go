package postgres

import (
	"encoding/binary"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

func logical(flags byte, prefix, content string) []byte {
	m := append([]byte{'M', flags}, make([]byte, 8)...)
	m = append(append(m, prefix...), 0)
	return append(binary.BigEndian.AppendUint32(m, uint32(len(content))), content...)
}

func messageDecoder() (*decoder, *observer.ObservedLogs) {
	core, logs := observer.New(zap.WarnLevel)
	d := newDecoder(place{}, nil, zap.New(core))
	d.messages = &messages{prefix: "events", log: zap.New(core), shapes: map[string]*source.Table{}}
	d.tx = &source.Tx{ID: "0/1"}
	return d, logs
}

// print gives a row as name=value, with the kind before JSON and - for NULL.
func printRow(r source.Row) string {
	var parts []string
	for i, c := range r.Table.Columns {
		v := "-"
		if r.Values[i].State == source.Present {
			v = string(r.Values[i].Data)
		}
		if c.Kind == source.JSON {
			v = "json:" + v
		}
		parts = append(parts, c.Name+"="+v)
	}
	return strings.Join(parts, " ")
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		`{"id":"1","aggregate_id":7,"aggregate_type":"order","event_type":"paid","payload":{"b": 1.10, "a":[1e20,"}"]}}`:            `id=1 aggregate_id=json:7 aggregate_type=order event_type=paid payload=json:{"b": 1.10, "a":[1e20,"}"]}`,
		" {\n\"event_id\" : \"\\u00e4\\n\" , \"aggregateid\":\"a\", \"aggregatetype\":\"x\",\"type\":null,\"payload\":\"text\"\t} ": "event_id=ä\n aggregateid=a aggregatetype=x type=json:- payload=text",
		`{"ID":"1","AggregateID":"a","type":"t","aggregate_type":"x","Payload":1}`:                                                  "ID=1 AggregateID=a type=t aggregate_type=x Payload=json:1",
		`{}`: "id=- aggregate_id=- aggregate_type=- event_type=- payload=json:-",
		`{"payload":[],"id":true,"tenant":"t-1","headers":{"a":"b"}}`: "payload=json:[] id=json:true tenant=t-1 headers=json:{\"a\":\"b\"} aggregate_id=- aggregate_type=- event_type=-",
		`{"id":"\"","payload":"a\\\\"}`:                               `id=" payload=a\\ aggregate_id=- aggregate_type=- event_type=-`,
	} {
		d, _ := messageDecoder()
		if err := d.message(logical(1, "events", content)); err != nil {
			t.Errorf("%s: %v", content, err)
			continue
		}
		if got := printRow(d.rows[0]); got != want {
			t.Errorf("%s:\n got %s\nwant %s", content, got, want)
		}
		if d.rows[0].Table.Name != "events" || d.rows[0].Tx != d.tx {
			t.Errorf("row %+v", d.rows[0])
		}
	}
}

func TestMessagesRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{``, `1`, `[]`, `"{}"`, `{"id":1`, `{"id":1}x`, `{"id":1,"id":2}`, "{\"id\":\"\xff\"}", `null`} {
		d, _ := messageDecoder()
		err := d.message(logical(1, "events", content))
		if f := fault.As(err); f == nil || f.Code != fault.CodeEventRefused || f.Exit != fault.ExitRefused || len(d.rows) > 0 {
			t.Errorf("%q: %v", content, err)
		} else if content != "" && len(content) > 4 && strings.Contains(err.Error(), content) {
			t.Errorf("the error repeats the message: %v", err)
		}
	}
	d, _ := messageDecoder()
	for n := range len(logical(1, "events", "{}")) - 1 {
		if err := d.message(logical(1, "events", "{}")[:n+1]); err == nil {
			t.Errorf("cut after %d bytes: no error", n+1)
		}
	}
}

// What is not ours, and what does not belong to its transaction, is no event.
func TestMessagesPassedOver(t *testing.T) {
	t.Parallel()
	d, logs := messageDecoder()
	for _, m := range [][]byte{logical(1, "other", "x"), logical(0, "other", "{}"), logical(0, "events", "{}"), logical(0, "events", "{}")} {
		if err := d.message(m); err != nil {
			t.Error(err)
		}
	}
	if len(d.rows) > 0 {
		t.Errorf("%d rows", len(d.rows))
	}
	if n := logs.FilterMessageSnippet("not transactional").Len(); n != 1 {
		t.Errorf("warned %d times, want once in a while", n)
	}
	d.messages = nil
	if err := d.message(logical(1, "events", "{}")); err != nil || len(d.rows) > 0 {
		t.Errorf("nobody asked for messages: %v", err)
	}
}

func TestMessageShapes(t *testing.T) {
	d, _ := messageDecoder()
	const content = `{"id":"1","aggregate_id":"7","aggregate_type":"order","event_type":"paid","payload":{"n":1}}`
	for range 2 {
		if err := d.message(logical(1, "events", content)); err != nil {
			t.Fatal(err)
		}
	}
	if d.rows[0].Table != d.rows[1].Table || d.rows[1].Index != 1 {
		t.Error("messages alike have tables of their own")
	}
	for i := range 10 * maxShapes {
		if err := d.message(logical(1, "events", `{"m`+strings.Repeat("x", i)+`":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.messages.shapes) > maxShapes {
		t.Errorf("%d shapes are kept", len(d.messages.shapes))
	}
	b := []byte(content)
	buffer := make([]source.Value, 16)
	take := func(n int) []source.Value { return buffer[:n] }
	if n := testing.AllocsPerRun(100, func() { _, _ = d.messages.row(b, take) }); n > 1 {
		t.Errorf("%v allocations for a message", n)
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"a":"\\","b":[{}]}`, `[`, `{"a" : null , "b":-1e5}`} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, content string) {
		d, _ := messageDecoder()
		_ = d.message(logical(1, "events", content))
	})
}
