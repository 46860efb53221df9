package mysql

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// The server prints floating-point numbers with my_gcvt (strings/dtoa.cc): the
// shortest digits that give the same number back, in plain form while the point stands near
// them, else with an exponent without padding.
const (
	plainLimit  = 15 // DBL_DIG: the point may stand this far from the digits in plain form
	doubleWidth = 22 // characters of a DOUBLE's text (MAX_DOUBLE_STR_LENGTH)
	floatDigits = 6  // FLT_DIG
)

// appendDouble prints f as the server prints a DOUBLE.
func appendDouble(dst []byte, f float64) []byte { return appendFloating(dst, f, -1, 64) }

// appendFloat prints f as the server prints a FLOAT: at most six digits.
func appendFloat(dst []byte, f float32) []byte {
	return appendFloating(dst, float64(f), floatDigits-1, 32)
}

func appendFloating(dst []byte, f float64, precision, bits int) []byte {
	if f == 0 {
		if math.Signbit(f) {
			return append(dst, "-0"...)
		}
		return append(dst, '0')
	}
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], f, 'e', precision, bits) // d.ddde±dd
	if text[0] == '-' {
		dst = append(dst, '-')
		text = text[1:]
	}
	digits, exponent := splitExponent(text)
	point := exponent + 1 // where the point stands, counted from the first digit
	if plain(len(digits), point) {
		return appendPlain(dst, digits, point)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	dst = append(dst, 'e')
	return strconv.AppendInt(dst, int64(exponent), 10)
}

// splitExponent takes d.ddde±dd apart, in place, and drops trailing zeros.
func splitExponent(text []byte) (digits []byte, exponent int) {
	for i, c := range text {
		switch c {
		case 'e':
			exponent, _ = strconv.Atoi(string(text[i+1:])) // what strconv wrote
			for len(digits) > 1 && digits[len(digits)-1] == '0' {
				digits = digits[:len(digits)-1]
			}
			return digits, exponent
		case '.':
		default:
			digits = append(digits, c)
		}
	}
	return digits, 0
}

func plain(digits, point int) bool {
	if point < -plainLimit+1 || (point > plainLimit && digits <= point) {
		return false
	}
	width := digits + 1
	switch {
	case point <= 0:
		width = 2 - point + digits
	case digits <= point:
		width = point
	}
	return width <= doubleWidth
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
