package mysql

// Dates and times as the server prints them. The packed forms are those of
// sql-common/my_time.cc (my_datetime_packed_from_binary and its like).

// appendFraction prints n digits (0 to 6) of microseconds.
func appendFraction(dst []byte, us uint32, n int) []byte {
	if n == 0 {
		return dst
	}
	for range 6 - n {
		us /= 10
	}
	return appendDigits(append(dst, '.'), us, n)
}

func appendDate(dst []byte, year, month, day uint32) []byte {
	dst = append(appendDigits(dst, year, 4), '-')
	dst = append(appendDigits(dst, month, 2), '-')
	return appendDigits(dst, day, 2)
}

func appendClock(dst []byte, hour, minute, second uint32) []byte {
	if hour >= 100 {
		dst = appendDigits(dst, hour, 3)
	} else {
		dst = appendDigits(dst, hour, 2)
	}
	dst = append(appendDigits(append(dst, ':'), minute, 2), ':')
	return appendDigits(dst, second, 2)
}

// appendPackedDatetime prints year*13+month, day, hour, minute and second packed into bits, as DATETIME stores them.
func appendPackedDatetime(dst []byte, packed uint64, us uint32, digits int) []byte {
	ymd, hms := packed>>17, packed&(1<<17-1)
	ym := ymd >> 5
	dst = append(appendDate(dst, uint32(ym/13), uint32(ym%13), uint32(ymd&31)), ' ')
	dst = appendClock(dst, uint32(hms>>12), uint32(hms>>6&63), uint32(hms&63))
	return appendFraction(dst, us, digits)
}

// fraction reads the (digits+1)/2 bytes behind a temporal value.
func fraction(b []byte, digits int) uint32 {
	switch n := (digits + 1) / 2; n {
	case 1:
		return uint32(b[0]) * 10000
	case 2:
		return uint32(be(b[:2])) * 100
	case 3:
		return uint32(be(b[:3]))
	}
	return 0
}

// appendDatetime2 prints DATETIME(digits) from its 5 + (digits+1)/2 bytes.
func appendDatetime2(dst, b []byte, digits int) []byte {
	packed := be(b[:5]) - 0x8000000000
	return appendPackedDatetime(dst, packed, fraction(b[5:], digits), digits)
}

// appendTimestamp2 prints TIMESTAMP(digits) in UTC from its 4 + (digits+1)/2 bytes.
func appendTimestamp2(dst, b []byte, digits int) []byte {
	return appendTimestamp(dst, int64(be(b[:4])), fraction(b[4:], digits), digits)
}

func appendTimestamp(dst []byte, seconds int64, us uint32, digits int) []byte {
	if seconds == 0 && us == 0 {
		return appendPackedDatetime(dst, 0, 0, digits) // the zero value, not 1970
	}
	days, rest := seconds/86400, uint32(seconds%86400)
	year, month, day := civil(days)
	dst = append(appendDate(dst, year, month, day), ' ')
	dst = appendClock(dst, rest/3600, rest/60%60, rest%60)
	return appendFraction(dst, us, digits)
}

// civil turns days since 1970-01-01 into a date (H. Hinnant, "chrono-Compatible
// Low-Level Date Algorithms", civil_from_days, for days >= 0).
func civil(days int64) (year, month, day uint32) {
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	d := doy - (153*mp+2)/5 + 1
	m := mp + 3
	if m > 12 {
		m -= 12
	}
	y := yoe + era*400
	if m <= 2 {
		y++
	}
	return uint32(y), uint32(m), uint32(d)
}

// appendTime2 prints TIME(digits) from its 3 + (digits+1)/2 bytes: the whole is
// one big-endian number around an offset, so that it sorts by its bytes.
func appendTime2(dst, b []byte, digits int) []byte {
	n := (digits + 1) / 2
	v := int64(be(b[:3+n])) - 0x800000<<(8*n)
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	hms := v >> (8 * n)
	part := uint32(v & (1<<(8*n) - 1))
	for range 3 - n {
		part *= 100
	}
	dst = appendClock(dst, uint32(hms>>12&1023), uint32(hms>>6&63), uint32(hms&63))
	return appendFraction(dst, part, digits)
}

// appendPackedTime prints a TIME inside a JSON document: hms << 24 + microseconds, signed.
func appendPackedTime(dst []byte, v int64) []byte {
	if v < 0 {
		v = -v
		dst = append(dst, '-')
	}
	hms := v >> 24
	dst = appendClock(dst, uint32(hms>>12&1023), uint32(hms>>6&63), uint32(hms&63))
	return appendFraction(dst, uint32(v&(1<<24-1)), 6)
}

// appendDate3 prints DATE from its three bytes: day in 5 bits, month in 4, year.
func appendDate3(dst, b []byte) []byte {
	v := le24(b)
	return appendDate(dst, v>>9, v>>5&15, v&31)
}
