package stdout

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/sinktest"
)

// pipe keeps what was written until it is broken.
type pipe struct {
	bytes.Buffer
	broken bool
	room   int // bytes that still fit once broken
}

func (p *pipe) Write(b []byte) (int, error) {
	if !p.broken {
		return p.Buffer.Write(b)
	}
	n := min(p.room, len(b))
	p.room -= n
	p.Buffer.Write(b[:n])
	return n, io.ErrClosedPipe
}

func TestContract(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, func(*testing.T) sinktest.Rig {
		p := &pipe{}
		return sinktest.Rig{
			Sink:  New(p),
			Topic: "t",
			Read:  func(t *testing.T) []sink.Message { return parse(t, p.String()) },
			Break: func(*testing.T) { p.broken = true },
		}
	})
}

// parse reads the lines back as a consumer would.
func parse(t *testing.T, out string) (all []sink.Message) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l struct {
			Topic         string
			Key           *string
			KeyBase64     []byte `json:"key_base64"`
			Timestamp     time.Time
			Value         *string
			ValueBase64   []byte `json:"value_base64"`
			Headers       json.RawMessage
			HeadersBase64 map[string][]byte `json:"headers_base64"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		m := sink.Message{Topic: l.Topic, Key: l.KeyBase64, Value: l.ValueBase64, Timestamp: l.Timestamp}
		if l.Key != nil {
			m.Key = []byte(*l.Key)
		}
		if l.Value != nil {
			m.Value = []byte(*l.Value)
		}
		m.Headers = parseHeaders(t, l.Headers)
		for name, value := range l.HeadersBase64 {
			m.Headers = append(m.Headers, sink.Header{Name: name, Value: value})
		}
		all = append(all, m)
	}
	return all
}

func parseHeaders(t *testing.T, data json.RawMessage) (headers []sink.Header) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := token.(string)
		if !ok {
			continue // the braces
		}
		value, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		h := sink.Header{Name: name}
		if text, ok := value.(string); ok {
			h.Value = []byte(text)
		}
		headers = append(headers, h)
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 13, 34, 56, 123999999, time.FixedZone("", 3600))
	for _, c := range []struct {
		name string
		give sink.Message
		want string
	}{
		{
			"text", sink.Message{
				Topic: "orders", Key: []byte("42"), Value: []byte(`{"a":"<ü>"}`), Timestamp: at,
				Headers: []sink.Header{{Name: "id", Value: []byte("7")}, {Name: "none"}, {Name: "empty", Value: []byte{}}},
			},
			`{"topic":"orders","key":"42","headers":{"id":"7","none":null,"empty":""},"timestamp":"2026-11-30T12:34:56.123Z","value":"{\"a\":\"<ü>\"}"}`,
		},
		{
			"partition asked for", sink.Message{Topic: "t", Pinned: true, Partition: 3, Key: []byte("k"), Value: []byte("v"), Timestamp: at},
			`{"topic":"t","partition":3,"key":"k","headers":{},"timestamp":"2026-11-30T12:34:56.123Z","value":"v"}`,
		},
		{
			"tombstone without a key", sink.Message{Topic: "t", Timestamp: at},
			`{"topic":"t","key":null,"headers":{},"timestamp":"2026-11-30T12:34:56.123Z","value":null}`,
		},
		{
			"empty is not null", sink.Message{Topic: "t", Key: []byte{}, Value: []byte{}, Timestamp: at},
			`{"topic":"t","key":"","headers":{},"timestamp":"2026-11-30T12:34:56.123Z","value":""}`,
		},
		{
			"bytes", sink.Message{
				Topic: "t", Key: []byte{0xff}, Value: []byte{0xfe, 0}, Timestamp: at,
				Headers: []sink.Header{{Name: "a", Value: []byte{0xff}}, {Name: "b", Value: []byte("x")}, {Name: "c", Value: []byte{0xfe}}},
			},
			`{"topic":"t","key_base64":"/w==","headers":{"b":"x"},"headers_base64":{"a":"/w==","c":"/g=="},"timestamp":"2026-11-30T12:34:56.123Z","value_base64":"/gA="}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			New(&out).Publish(t.Context(), []sink.Message{c.give}, func(err error) {
				if err != nil {
					t.Errorf("done(%v)", err)
				}
				if out.String() != c.want+"\n" {
					t.Errorf("at done, written was\n%s\nwant\n%s", out.String(), c.want)
				}
			})
		})
	}
}

func TestOwnClock(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	before := time.Now().Truncate(time.Millisecond)
	New(&out).Publish(t.Context(), []sink.Message{{Topic: "t"}}, func(error) {})
	if at := parse(t, out.String())[0].Timestamp; at.Before(before) || at.After(time.Now()) {
		t.Fatalf("timestamp %v", at)
	}
}

// After half a line nothing may follow, or it would be glued to it.
func TestNothingFollowsHalfALine(t *testing.T) {
	t.Parallel()
	p := &pipe{broken: true, room: 10}
	s := New(p)
	for range 2 {
		s.Publish(t.Context(), []sink.Message{{Topic: "t"}}, func(err error) {
			if !errors.Is(err, io.ErrClosedPipe) {
				t.Fatalf("done(%v)", err)
			}
		})
		p.room = 100
	}
	if p.Len() != 10 {
		t.Fatalf("written: %q", p.String())
	}
}

func TestNothingIsWrittenAfterClose(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := New(&out)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 1<<20) // more than any buffer
	s.Publish(t.Context(), []sink.Message{{Topic: "t", Value: big}}, func(error) {})
	if out.Len() != 0 {
		t.Fatalf("%d bytes were written", out.Len())
	}
}
