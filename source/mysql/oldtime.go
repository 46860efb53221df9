package mysql

import "strings"

// MariaDB's dates and times of before 10.1, which tables keep that were made then, or with
// mysql56_temporal_format=OFF. The log tells their type and not how many digits of a second they have,
// so that even their length is known from information_schema alone (Field_time, Field_datetime, Field_timestamp
// and their *_hires in sql/field.cc).

const oldFormat = "/* mariadb-5.3 */" // as information_schema marks them

// old reports whether the column is of one of these types.
func (c *column) old() bool {
	return c.kind == typeTime || c.kind == typeDatetime || c.kind == typeTimestamp
}

// oldAs takes the number of digits from the column as it is described now.
func (c *column) oldAs(d describedColumn) bool {
	if typeNames[c.kind] != d.dataType || !strings.HasSuffix(d.columnType, oldFormat) || d.fraction > 6 {
		return false
	}
	c.meta = d.fraction
	return true
}

// oldSizes are the bytes of each type by its digits.
var oldSizes = map[byte][7]int{
	typeTime:      {3, 4, 4, 5, 5, 5, 6},
	typeDatetime:  {8, 6, 6, 7, 7, 7, 8},
	typeTimestamp: {4, 5, 5, 6, 6, 7, 7},
}

func (c *column) printOld(dst, b []byte) []byte {
	switch {
	case c.kind == typeTimestamp && c.meta == 0:
		return appendTimestamp(dst, int64(le.Uint32(b)), 0, 0)
	case c.kind == typeTimestamp:
		return appendTimestamp(dst, int64(be(b[:4])), c.micros(be(b[4:])), c.meta)
	case c.kind == typeDatetime && c.meta == 0: // YYYYMMDDhhmmss as a number
		n := le.Uint64(b)
		date, clock := uint32(n/1e6), uint32(n%1e6)
		dst = append(appendDate(dst, date/10000, date/100%100, date%100), ' ')
		return appendClock(dst, clock/10000, clock/100%100, clock%100)
	case c.kind == typeDatetime:
		us := be(b) * uint64(c.micros(1))
		s := us / 1e6
		days := s / 86400
		dst = append(appendDate(dst, uint32(days/32/13), uint32(days/32%13), uint32(days%32)), ' ')
		dst = appendClock(dst, uint32(s/3600%24), uint32(s/60%60), uint32(s%60))
		return appendFraction(dst, uint32(us%1e6), c.meta)
	}
	return c.printOldTime(dst, b)
}

func (c *column) printOldTime(dst, b []byte) []byte {
	if c.meta == 0 { // hhmmss as a number of 24 bits with a sign
		n := int32(le24(b)<<8) >> 8
		if n < 0 {
			dst, n = append(dst, '-'), -n
		}
		return appendClock(dst, uint32(n/10000), uint32(n/100%100), uint32(n%100))
	}
	const zero = (838*3600 + 59*60 + 59 + 1) * 1e6 // so that it sorts by its bytes
	us := (int64(be(b)) - zero/int64(c.micros(1))) * int64(c.micros(1))
	if us < 0 {
		dst, us = append(dst, '-'), -us
	}
	s := uint32(us / 1e6)
	dst = appendClock(dst, s/3600, s/60%60, s%60)
	return appendFraction(dst, uint32(us%1e6), c.meta)
}

// micros turns a number of the column's smallest parts of a second into microseconds.
func (c *column) micros(n uint64) uint32 {
	for range 6 - c.meta {
		n *= 10
	}
	return uint32(n)
}
