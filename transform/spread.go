package transform

import (
	"fmt"
	"slices"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// members calls each for the members of a JSON object, name unescaped and value as it
// stands. It is false, and tells what is there instead, when text is no whole object.
func members(text []byte, each func(name, value []byte)) (instead string) {
	s := scanner{text: text}
	s.space()
	if s.peek() != '{' {
		if !sound(text) {
			return "no whole JSON"
		}
		return "JSON, but no object"
	}
	s.enter()
	if s.space(); !s.take('}') {
		for {
			s.space()
			from := s.at
			if !s.string() {
				return "no whole JSON"
			}
			name := unquote(text[from:s.at])
			if s.space(); !s.take(':') {
				return "no whole JSON"
			}
			s.space()
			from = s.at
			if _, ok := s.value(unwanted); !ok {
				return "no whole JSON"
			}
			each(name, text[from:s.at])
			if s.space(); s.take('}') {
				break
			}
			if !s.take(',') {
				return "no whole JSON"
			}
		}
	}
	if s.space(); s.at < len(text) {
		return "no whole JSON"
	}
	return ""
}

// spread appends the members of the JSON object in the headers column: a
// string's text, null as a null header, all else as it stands. A name that
// is among the headers already stays with those; of two members of one name the last counts.
func (r *Router) spread(row *source.Row) error {
	p := r.plan
	v := &row.Values[p.spread]
	if v.State != source.Present {
		return nil
	}
	fixed := len(r.headers)
	instead := members(v.Data, func(name, value []byte) {
		at := slices.IndexFunc(r.headers, func(h sink.Header) bool { return h.Name == string(name) }) // does not allocate
		if at >= 0 && at < fixed {
			return
		}
		switch value[0] {
		case '"':
			value = unquote(value)
		case 'n':
			value = nil
		}
		if at >= 0 {
			r.headers[at].Value = value
			return
		}
		r.headers = append(r.headers, sink.Header{Name: r.intern(name), Value: value})
	})
	if instead != "" {
		return p.refuse(row, ReasonBadHeaders, fmt.Sprintf("column %q, the headers, holds %s", p.column(p.spread), instead),
			"Take the column out of "+p.rules.variable("COLUMN_HEADERS")+".")
	}
	return nil
}

// properties calls each for the entries of what java.util.Properties wrote: the
// form of Debezium's tracingspancontext. Lines that begin with # or ! are comments.
func properties(text []byte, each func(name, value []byte)) {
	for len(text) > 0 {
		var line []byte
		line, text = cutLine(text)
		if len(line) == 0 || line[0] == '#' || line[0] == '!' {
			continue
		}
		name, rest := property(line, true)
		value, _ := property(rest, false)
		each(name, value)
	}
}

func cutLine(text []byte) (line, rest []byte) {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			return text[:i], text[i+1:]
		}
	}
	return text, nil
}

// property takes a name up to = or :, or all of a value. Escapes are undone; it
// allocates only where there are any.
func property(s []byte, name bool) (out, rest []byte) {
	end, escaped := len(s), false
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			escaped = true
			i++
		} else if name && (s[i] == '=' || s[i] == ':') {
			end = i
			break
		}
	}
	if end < len(s) {
		rest = s[end+1:]
	}
	if out = s[:end]; !escaped {
		return out, rest
	}
	plain := make([]byte, 0, len(out))
	for i := 0; i < len(out); i++ {
		if out[i] == '\\' && i+1 < len(out) {
			i++
		}
		plain = append(plain, out[i])
	}
	return plain, rest
}
