package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// payloadMember is what a path into the payload begins with as Columns.AggregateID.
const payloadMember = "payload:"

// path leads to one member of a JSON text, by the names of the members on the way.
type path struct {
	text  string // as it was set
	names []string
}

// parsePath reads a JSONPath of member names: $.a.b, $['a name'], $["a name"].
func parsePath(text string) (*path, error) {
	p := &path{text: text}
	rest, ok := strings.CutPrefix(text, "$")
	if !ok || !utf8.ValidString(text) {
		return nil, errors.New("does not begin with $")
	}
	for rest != "" {
		var name string
		var err error
		switch {
		case strings.HasPrefix(rest, "['"), strings.HasPrefix(rest, `["`):
			name, rest, err = bracketed(rest)
		case rest[0] == '.':
			name, rest = shorthand(rest[1:])
			if name == "" {
				err = errors.New("has something other than a member's name behind a dot")
			}
		default:
			err = errors.New("names something other than a member: only .name and ['name'] are known")
		}
		if err != nil {
			return nil, err
		}
		p.names = append(p.names, name)
	}
	if len(p.names) == 0 {
		return nil, errors.New("names no member")
	}
	return p, nil
}

// shorthand takes a name that needs no quotes.
func shorthand(s string) (name, rest string) {
	end := strings.IndexFunc(s, func(r rune) bool {
		return !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r > 0x7f)
	})
	if end < 0 {
		end = len(s)
	}
	if end > 0 && s[0] >= '0' && s[0] <= '9' {
		end = 0
	}
	return s[:end], s[end:]
}

// bracketed takes ['name'] or ["name"], with the escapes of JSON.
func bracketed(s string) (name, rest string, err error) {
	quote := s[1]
	literal := []byte{'"'}
	for i := 2; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			rest, ok := strings.CutPrefix(s[i+1:], "]")
			if !ok || json.Unmarshal(append(literal, '"'), &name) != nil {
				return "", "", fmt.Errorf("has a malformed %c…%c]", s[0], quote)
			}
			return name, rest, nil
		case c == '\\' && i+1 < len(s):
			if i++; s[i] != '\'' {
				literal = append(literal, '\\')
			}
			literal = append(literal, s[i])
		case c == '"':
			literal = append(literal, '\\', c)
		default:
			literal = append(literal, c)
		}
	}
	return "", "", errors.New("has a bracket or quote that is not closed")
}

// What is found in place of a value that can be a key.
const (
	isMissing = "missing"
	isNull    = "null"
	isObject  = "an object"
	isArray   = "an array"
	isBroken  = "not to be found, for the column holds no whole JSON"
)

// find gives the string, unescaped, or the number, true or false, as it stands,
// that the path leads to. The result shares text's memory where it can. When it
// is nil, instead says what is there. Of members of one name the last one
// counts, as it does for the servers.
func (p *path) find(text []byte) (value []byte, instead string) {
	s := scanner{text: text, names: p.names}
	f, ok := s.value(0)
	s.space()
	switch {
	case !ok || s.at < len(text):
		return nil, isBroken
	case f.instead != "":
		return nil, f.instead
	case text[f.from] == '"':
		return unquote(text[f.from:f.to]), ""
	}
	return text[f.from:f.to], ""
}

// unquote takes a sound JSON string.
func unquote(literal []byte) []byte {
	inner := literal[1 : len(literal)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	var s string
	_ = json.Unmarshal(literal, &s) // it is sound
	return []byte(s)
}

// scanner passes over a JSON text once, checks its form and keeps nothing but
// where the path's value is. It takes and refuses what encoding/json does.
type scanner struct {
	text  []byte
	at    int
	depth int
	names []string
}

// unwanted as a level is for values the path does not go through.
const unwanted = -1

const maxDepth = 10000

// finding is a scalar's place, or what is there instead.
type finding struct {
	instead  string
	from, to int
}

// value passes over the space and the value ahead. level is how many names led
// here. It is false when the text is not JSON.
func (s *scanner) value(level int) (f finding, ok bool) {
	s.space()
	from := s.at
	switch s.peek() {
	case '{':
		f, ok = s.object(level)
		if level == len(s.names) {
			f.instead = isObject
		}
		return f, ok
	case '[':
		f.instead = isMissing
		if level == len(s.names) {
			f.instead = isArray
		}
		return f, s.array()
	case '"':
		ok = s.string()
	case 't':
		ok = s.word("true")
	case 'f':
		ok = s.word("false")
	case 'n':
		f.instead = isNull
		ok = s.word("null")
	default:
		ok = s.number()
	}
	if level != len(s.names) {
		f.instead = isMissing
	}
	f.from, f.to = from, s.at
	return f, ok
}

func (s *scanner) object(level int) (f finding, ok bool) {
	f.instead = isMissing
	if !s.enter() {
		return f, false
	}
	if s.space(); s.take('}') {
		return f, s.leave()
	}
	for {
		s.space()
		from := s.at
		if !s.string() {
			return f, false
		}
		inner := unwanted
		if level >= 0 && level < len(s.names) && string(unquote(s.text[from:s.at])) == s.names[level] {
			inner = level + 1
		}
		if s.space(); !s.take(':') {
			return f, false
		}
		in, ok := s.value(inner)
		if !ok {
			return f, false
		}
		if inner != unwanted {
			f = in
		}
		if s.space(); s.take('}') {
			return f, s.leave()
		}
		if !s.take(',') {
			return f, false
		}
	}
}

func (s *scanner) array() bool {
	if !s.enter() {
		return false
	}
	if s.space(); s.take(']') {
		return s.leave()
	}
	for {
		if _, ok := s.value(unwanted); !ok {
			return false
		}
		if s.space(); s.take(']') {
			return s.leave()
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) enter() bool {
	s.at++
	s.depth++
	return s.depth <= maxDepth
}

func (s *scanner) leave() bool {
	s.depth--
	return true
}

func (s *scanner) string() bool {
	if !s.take('"') {
		return false
	}
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return true
		case c < ' ':
			return false
		case c == '\\' && !s.escape():
			return false
		}
	}
	return false
}

func (s *scanner) escape() bool {
	c := s.peek()
	s.at++
	if c != 'u' {
		return strings.IndexByte(`"\/bfnrt`, c) >= 0
	}
	for range 4 {
		c := s.peek()
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
		s.at++
	}
	return true
}

func (s *scanner) number() bool {
	s.take('-')
	if !s.take('0') && !s.digits() {
		return false
	}
	if s.take('.') && !s.digits() {
		return false
	}
	if s.take('e') || s.take('E') {
		if !s.take('-') {
			s.take('+')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return s.at > from
}

func (s *scanner) word(w string) bool {
	if !bytes.HasPrefix(s.text[s.at:], []byte(w)) {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// peek gives 0 at the end, which is not legal anywhere outside of a string.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}
