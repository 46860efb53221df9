package mysql

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// The server prints floating-point numbers with my_gcvt (strings/dtoa.cc): the
// shortest digits that give the same number back (a FLOAT: at most six), in the plain form while
// the point stands near them and the width allows, else with an exponent. All widths hold that.
const (
	floatDigits = 6  // FLT_DIG
	plainPoint  = 15 // MAX_DECPT_FOR_F_FORMAT: how far the point may stand from the first digit in the plain form

	floatWidth  = 12 // MySQL's CAST of a FLOAT (MAX_FLOAT_STR_LENGTH)
	doubleWidth = 24 // MySQL's CAST of a DOUBLE (MAX_DOUBLE_STR_LENGTH)
	wideWidth   = 34 // room for any plain form: JSON (MY_GCVT_MAX_FIELD_WIDTH), and all of MariaDB
)

// floatingWidth is how many characters a server gives a FLOAT's or DOUBLE's text.
func floatingWidth(kind byte, mariadb bool) int {
	switch {
	case mariadb:
		return wideWidth
	case kind == typeFloat:
		return floatWidth
	}
	return doubleWidth
}

// appendDouble prints f as the server prints a DOUBLE in so many characters.
func appendDouble(dst []byte, f float64, width int) []byte { return appendFloating(dst, f, -1, width) }

// appendFloat prints f as the server prints a FLOAT: at most six digits.
func appendFloat(dst []byte, f float32, width int) []byte {
	return appendFloating(dst, float64(f), floatDigits, width)
}

func appendFloating(dst []byte, f float64, most, width int) []byte {
	if math.Signbit(f) {
		dst = append(dst, '-')
		f = -f
		if f != 0 {
			width--
		}
	}
	if f == 0 {
		return append(dst, '0')
	}
	var buf [32]byte
	digits, point := significant(buf[:0], f, most)
	if plain(len(digits), point, width) {
		return appendPlain(dst, digits, point)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'e'), int64(point-1), 10)
}

// appendFixed prints f with so many digits behind the point, as my_fcvt does: none of them is one that
// tells nothing of f, zeros take their place.
func appendFixed(dst []byte, f float64, digits int) []byte {
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	_, fraction, point := bytes.Cut(dst[start:], []byte{'.'})
	if len(fraction) > digits {
		return strconv.AppendFloat(dst[:start], f, 'f', digits, 64)
	}
	if !point && digits > 0 {
		dst = append(dst, '.')
	}
	for range digits - len(fraction) {
		dst = append(dst, '0')
	}
	return dst
}

// significant gives f's digits without zeros at the end, at most so many (-1: the
// fewest that tell it from its neighbours), and where the point stands, counted from the first.
func significant(buf []byte, f float64, most int) (digits []byte, point int) {
	text := strconv.AppendFloat(buf, f, 'e', max(most-1, -1), 64) // d.ddde±dd
	digits = text[:0]
	for i, c := range text {
		if c == 'e' {
			point = exponent(text[i+1:]) + 1
			break
		}
		if c != '.' {
			digits = append(digits, c)
		}
	}
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	return digits, point
}

// exponent reads ±dd.
func exponent(text []byte) int {
	n := 0
	for _, c := range text[1:] {
		n = 10*n + int(c-'0')
	}
	if text[0] == '-' {
		return -n
	}
	return n
}

// plain is my_gcvt's choice of the form without an exponent.
func plain(digits, point, width int) bool {
	return plainLength(digits, point) <= width && point > -plainPoint && (point <= plainPoint || digits > point)
}

func plainLength(digits, point int) int {
	switch {
	case point <= 0:
		return 2 - point + digits
	case point < digits:
		return digits + 1
	}
	return point
}

func appendPlain(dst, digits []byte, point int) []byte {
	switch {
	case point <= 0:
		dst = append(dst, '0', '.')
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	case len(digits) <= point:
		dst = append(dst, digits...)
		for range point - len(digits) {
			dst = append(dst, '0')
		}
		return dst
	}
	dst = append(dst, digits[:point]...)
	return append(append(dst, '.'), digits[point:]...)
}

// decimalBytes is how many bytes hold 0 to 9 decimal digits.
var decimalBytes = [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// decimalSize is the length of a DECIMAL(precision, scale) (strings/decimal.cc, decimal_bin_size).
func decimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/9*4 + decimalBytes[whole%9] + scale/9*4 + decimalBytes[scale%9]
}

// appendDecimal prints a DECIMAL from its binary form (decimal2bin): groups of
// nine digits, big-endian; the first bit is the sign, inverted; a negative number has
// all bits inverted.
func appendDecimal(dst, data []byte, precision, scale int) ([]byte, error) {
	if precision <= 0 || scale < 0 || scale > precision || len(data) < decimalSize(precision, scale) {
		return dst, fmt.Errorf("decode DECIMAL(%d,%d): %d bytes", precision, scale, len(data))
	}
	var invert byte
	if data[0]&0x80 == 0 {
		invert = 0xff
		dst = append(dst, '-')
	}
	flip := byte(0x80)
	group := func(n int) uint32 {
		var v uint32
		for _, b := range data[:n] {
			v = v<<8 | uint32(b^flip^invert)
			flip = 0
		}
		data = data[n:]
		return v
	}
	start := len(dst)
	whole := precision - scale
	if n := whole % 9; n > 0 {
		dst = appendDigits(dst, group(decimalBytes[n]), n)
	}
	for range whole / 9 {
		dst = appendDigits(dst, group(4), 9)
	}
	dst = trimZeros(dst, start)
	if scale == 0 {
		return dst, nil
	}
	dst = append(dst, '.')
	for range scale / 9 {
		dst = appendDigits(dst, group(4), 9)
	}
	if n := scale % 9; n > 0 {
		dst = appendDigits(dst, group(decimalBytes[n]), n)
	}
	return dst, nil
}

// trimZeros drops leading zeros from dst[start:], and leaves one digit.
func trimZeros(dst []byte, start int) []byte {
	i := start
	for i < len(dst)-1 && dst[i] == '0' {
		i++
	}
	if i == start {
		if len(dst) == start {
			return append(dst, '0')
		}
		return dst
	}
	return append(dst[:start], dst[i:]...)
}

// appendDigits prints v with n digits, zeros in front.
func appendDigits(dst []byte, v uint32, n int) []byte {
	var buf [10]byte
	for i := n - 1; i >= 0; i-- {
		buf[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, buf[:n]...)
}

func le24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

func be(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

var le = binary.LittleEndian
