package transform

import (
	"bytes"
	"math"
	"time"
)

// Epochs are told by their size: up to these they are seconds, milliseconds,
// microseconds, and beyond them nanoseconds. The first reaches the year 5138.
const (
	maxSeconds = 1e11
	maxMillis  = 1e14
	maxMicros  = 1e17
)

// parseTime reads a point in time as the servers print it (a time without a
// zone is UTC), as RFC 3339, or as a whole number since 1970. It doesn't
// allocate. ok is false for what has no place on that line: infinity, 0000-00-00, BC.
func parseTime(text []byte) (at time.Time, ok bool) {
	if n, ok := wholeNumber(text); ok {
		return fromEpoch(n), true
	}
	s := digits{text: text}
	year := s.number(4, 6)
	month, day := s.two('-'), s.two('-')
	if s.bad || month < 1 || month > 12 || day < 1 || day > 31 {
		return at, false
	}
	var hour, minute, second, nanos int
	if s.take(' ') || s.take('T') {
		hour, minute = s.number(2, 2), s.two(':')
		if s.take(':') {
			second = s.number(2, 2)
			nanos = s.fraction()
		}
	}
	offset := s.zone()
	if s.bad || len(s.text) > 0 || hour > 24 || minute > 59 || second > 60 {
		return at, false
	}
	at = time.Date(year, time.Month(month), day, hour, minute, second-offset, nanos, time.UTC)
	return at, true
}

// wholeNumber reads one that 64 bits hold, without the allocation of strconv's error.
func wholeNumber(text []byte) (n int64, ok bool) {
	unsigned := bytes.TrimPrefix(text, []byte("-"))
	if len(unsigned) == 0 || len(unsigned) > 19 {
		return 0, false
	}
	for _, c := range unsigned {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if len(unsigned) < len(text) {
		n = -n
	}
	return n, true
}

func fromEpoch(n int64) time.Time {
	size := n
	if size < 0 {
		size = -size
	}
	switch {
	case size < maxSeconds:
		return time.Unix(n, 0)
	case size < maxMillis:
		return time.UnixMilli(n)
	case size < maxMicros:
		return time.UnixMicro(n)
	}
	return time.Unix(0, n)
}

// digits takes a text apart from its start.
type digits struct {
	text []byte
	bad  bool
}

func (s *digits) take(c byte) bool {
	if len(s.text) == 0 || s.text[0] != c {
		return false
	}
	s.text = s.text[1:]
	return true
}

func (s *digits) number(least, most int) int {
	n, i := 0, 0
	for ; i < len(s.text) && i < most && s.text[i] >= '0' && s.text[i] <= '9'; i++ {
		n = 10*n + int(s.text[i]-'0')
	}
	s.bad = s.bad || i < least
	s.text = s.text[i:]
	return n
}

// two takes two digits behind c.
func (s *digits) two(c byte) int {
	if !s.take(c) {
		s.bad = true
	}
	return s.number(2, 2)
}

// fraction gives nanoseconds; digits behind the ninth are dropped.
func (s *digits) fraction() int {
	if !s.take('.') {
		return 0
	}
	n, i := 0, 0
	for ; i < len(s.text) && s.text[i] >= '0' && s.text[i] <= '9'; i++ {
		if i < 9 {
			n = 10*n + int(s.text[i]-'0')
		}
	}
	s.bad = s.bad || i == 0
	s.text = s.text[i:]
	for ; i < 9; i++ {
		n *= 10
	}
	return n
}

// zone gives the offset from UTC in seconds: Z, +HH, +HHMM, +HH:MM, +HH:MM:SS, or nothing.
func (s *digits) zone() int {
	sign := 1
	switch {
	case s.take('Z'), len(s.text) == 0:
		return 0
	case s.take('-'):
		sign = -1
	case !s.take('+'):
		s.bad = true
		return 0
	}
	offset := s.number(2, 2) * 3600
	if s.take(':') || len(s.text) > 0 {
		offset += s.number(2, 2) * 60
	}
	if s.take(':') {
		offset += s.number(2, 2)
	}
	return sign * offset
}
