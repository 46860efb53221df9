// Package stdout is a sink that writes one JSON object a line. It is also the
// example to copy for a new sink: the whole contract in one short file.
//
//	{"topic":"…","key":"…","headers":{"id":"…"},"timestamp":"2026-11-30T12:34:56.123Z","value":"…"}
//
// A partition the row asks for stands behind the topic. Key, value and header values are strings, or null. Bytes that aren't UTF-8
// stand in key_base64, value_base64 and headers_base64 instead. Delivered means written
// and flushed; the word given ends at the pipe.
package stdout

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/outboxd/outboxd/sink"
)

const milliseconds = "2006-01-02T15:04:05.000Z07:00"

var errClosed = errors.New("sink is closed")

// Sink is a sink.Sink on a writer.
type Sink struct {
	out    *bufio.Writer
	line   []byte
	quoted bytes.Buffer
	quote  *json.Encoder // to quoted
	err    error         // why the sink is finished
}

// New returns a sink that writes to w and leaves it open.
func New(w io.Writer) *Sink {
	s := &Sink{out: bufio.NewWriterSize(w, 64<<10)}
	s.quote = json.NewEncoder(&s.quoted)
	s.quote.SetEscapeHTML(false)
	return s
}

// Guard has nothing to guard: nothing is sent outside of Publish.
func (s *Sink) Guard(func() bool) {}

// Publish writes the batch and settles it before it returns. A write error
// finishes the sink: a part of a line may be out, so nothing may follow it.
func (s *Sink) Publish(_ context.Context, batch []sink.Message, done func(error)) {
	for i := 0; i < len(batch) && s.err == nil; i++ {
		s.line = s.append(s.line[:0], &batch[i])
		_, err := s.out.Write(s.line)
		s.fail(err)
	}
	if s.err == nil {
		s.fail(s.out.Flush())
	}
	done(s.err)
}

// Close finishes the sink. Nothing is left to settle.
func (s *Sink) Close(context.Context) error {
	if s.err == nil {
		s.err = errClosed
	}
	return nil
}

func (s *Sink) fail(err error) {
	if err != nil {
		s.err = fmt.Errorf("write event: %w", err)
	}
}

func (s *Sink) append(b []byte, m *sink.Message) []byte {
	at := m.Timestamp
	if at.IsZero() {
		at = time.Now()
	}
	b = s.text(append(b, `{"topic":`...), m.Topic)
	if m.Pinned {
		b = strconv.AppendInt(append(b, `,"partition":`...), int64(m.Partition), 10)
	}
	b = s.bytes(append(b, ','), "key", m.Key)
	b = s.headers(append(b, ','), m.Headers)
	b = append(b, `,"timestamp":"`...)
	b = at.UTC().AppendFormat(b, milliseconds)
	b = s.bytes(append(b, `",`...), "value", m.Value)
	return append(b, "}\n"...)
}

func (s *Sink) headers(b []byte, headers []sink.Header) []byte {
	b = append(b, `"headers":{`...)
	n, encoded := 0, 0
	for _, h := range headers {
		if !utf8.Valid(h.Value) {
			encoded++
			continue
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = append(s.text(b, h.Name), ':')
		if h.Value == nil {
			b = append(b, "null"...)
		} else {
			b = s.text(b, string(h.Value))
		}
	}
	if encoded == 0 {
		return append(b, '}')
	}
	b = append(b, `},"headers_base64":{`...)
	for _, h := range headers {
		if utf8.Valid(h.Value) {
			continue
		}
		b = appendBase64(append(s.text(b, h.Name), ':'), h.Value)
		if encoded--; encoded > 0 {
			b = append(b, ',')
		}
	}
	return append(b, '}')
}

// bytes appends "name":null, "name":"text" or "name_base64":"…".
func (s *Sink) bytes(b []byte, name string, value []byte) []byte {
	b = append(append(b, '"'), name...)
	switch {
	case value == nil:
		return append(b, `":null`...)
	case utf8.Valid(value):
		return s.text(append(b, `":`...), string(value))
	}
	return appendBase64(append(b, `_base64":`...), value)
}

func (s *Sink) text(b []byte, value string) []byte {
	s.quoted.Reset()
	_ = s.quote.Encode(value) // a string into memory can't fail
	return append(b, bytes.TrimSuffix(s.quoted.Bytes(), []byte("\n"))...)
}

func appendBase64(b, value []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, '"'), value)
	return append(b, '"')
}
