package mysql

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// charset turns a column's bytes into UTF-8.
type charset struct {
	name   string
	binary bool // raw bytes
	append func(dst, b []byte) ([]byte, error)
}

var errText = errors.New("text is not well-formed")

// charsetNamed knows the character sets that need no table.
func charsetNamed(name string) (*charset, bool) {
	c := &charset{name: name}
	switch name {
	case "binary":
		c.binary, c.append = true, appendBytes
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		c.append = appendBytes
	case "latin1":
		c.append = appendLatin1
	case "utf16", "ucs2":
		c.append = func(dst, b []byte) ([]byte, error) { return appendUTF16(dst, b, 0) }
	case "utf16le":
		c.append = func(dst, b []byte) ([]byte, error) { return appendUTF16(dst, b, 1) }
	case "utf32":
		c.append = appendUTF32
	default:
		return nil, false
	}
	return c, true
}

func appendBytes(dst, b []byte) ([]byte, error) { return append(dst, b...), nil }

// appendLatin1 knows that the server's latin1 is Windows-1252, with the five bytes
// that this leaves open standing for the control characters of the same number.
func appendLatin1(dst, b []byte) ([]byte, error) {
	for _, c := range b {
		switch {
		case c < 0x80:
			dst = append(dst, c)
		case c < 0xa0:
			dst = utf8.AppendRune(dst, windows1252[c-0x80])
		default:
			dst = utf8.AppendRune(dst, rune(c))
		}
	}
	return dst, nil
}

// windows1252 are the characters 0x80 to 0x9f.
var windows1252 = [...]rune{
	'€', 0x81, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0x8d, 'Ž', 0x8f,
	0x90, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0x9d, 'ž', 'Ÿ',
}

// appendUTF16 takes the low byte of each unit first (low 1) or last (low 0).
func appendUTF16(dst, b []byte, low int) ([]byte, error) {
	if len(b)%2 != 0 {
		return dst, errText
	}
	for ; len(b) > 0; b = b[2:] {
		r := rune(b[low])<<8 | rune(b[1-low])
		if utf16.IsSurrogate(r) {
			if len(b) < 4 {
				return dst, errText
			}
			b = b[2:]
			if r = utf16.DecodeRune(r, rune(b[low])<<8|rune(b[1-low])); r == utf8.RuneError {
				return dst, errText
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, nil
}

func appendUTF32(dst, b []byte) ([]byte, error) {
	if len(b)%4 != 0 {
		return dst, errText
	}
	for ; len(b) > 0; b = b[4:] {
		dst = utf8.AppendRune(dst, rune(be(b[:4])))
	}
	return dst, nil
}

// span is a range of values of one byte.
type span struct{ first, last byte }

var (
	upper  = [][]span{{{0x80, 0xff}}} // one byte, the lower half is ASCII
	shift  = [][]span{{{0xa1, 0xdf}}, {{0x81, 0x9f}, {0x40, 0x7e}}, {{0x81, 0x9f}, {0x80, 0xfc}}, {{0xe0, 0xfc}, {0x40, 0x7e}}, {{0xe0, 0xfc}, {0x80, 0xfc}}}
	euc    = [][]span{{{0xa1, 0xfe}, {0xa1, 0xfe}}, {{0x8e, 0x8e}, {0xa1, 0xdf}}, {{0x8f, 0x8f}, {0xa1, 0xfe}, {0xa1, 0xfe}}}
	gbPair = [][]span{{{0x81, 0xfe}, {0x40, 0x7e}}, {{0x81, 0xfe}, {0x80, 0xfe}}}
)

// tabled are the character sets whose table the server is asked for, with
// the forms of their characters beside ASCII (ishead and istail in strings/ctype-*.cc). A table of ours
// would differ from the server's in what vendors and standards see differently.
var tabled = map[string][][]span{
	"latin2": upper, "latin5": upper, "latin7": upper, "greek": upper, "hebrew": upper, "cp850": upper, "cp852": upper, "cp866": upper,
	"cp1250": upper, "cp1251": upper, "cp1256": upper, "cp1257": upper, "koi8r": upper, "koi8u": upper, "macroman": upper, "macce": upper,
	"armscii8": upper, "dec8": upper, "geostd8": upper, "hp8": upper, "keybcs2": upper, "tis620": upper,
	"swe7": {{{0x00, 0x7f}}},
	"sjis": shift, "cp932": shift, "ujis": euc, "eucjpms": euc,
	"euckr": {{{0x81, 0xfe}, {0x41, 0x5a}}, {{0x81, 0xfe}, {0x61, 0x7a}}, {{0x81, 0xfe}, {0x81, 0xfe}}},
	"big5":  {{{0xa1, 0xf9}, {0x40, 0x7e}}, {{0xa1, 0xf9}, {0xa1, 0xfe}}},
	"gbk":   gbPair, "gb2312": {{{0xa1, 0xf7}, {0xa1, 0xfe}}},
	"gb18030": append([][]span{{{0x81, 0x84}, {0x30, 0x39}, {0x81, 0xfe}, {0x30, 0x39}}}, gbPair...),
}

// codes lists the characters of one form, one after the other.
func codes(form []span) []byte {
	list := [][]byte{nil}
	for _, s := range form {
		var longer [][]byte
		for _, code := range list {
			for b := int(s.first); b <= int(s.last); b++ {
				longer = append(longer, append(code[:len(code):len(code)], byte(b)))
			}
		}
		list = longer
	}
	var all []byte
	for _, code := range list {
		all = append(all, code...)
	}
	return all
}

// runes is a character set's table: its codes as big-endian numbers.
type runes map[uint32]rune

// charsetTable asks the server for the table of a character set.
func (q *session) charsetTable(ctx context.Context, name string) (runes, error) {
	table := runes{}
	for _, form := range tabled[name] {
		list := codes(form)
		text, err := q.value(ctx, fmt.Sprintf("SELECT CONVERT(_%s x'%s' USING utf8mb4)", name, hex.EncodeToString(list)))
		if err != nil {
			return nil, fmt.Errorf("ask for the characters of %s: %w", name, err)
		}
		if utf8.RuneCountInString(text)*len(form) != len(list) {
			return nil, fmt.Errorf("ask for the characters of %s: the server gives %d for %d", name, utf8.RuneCountInString(text), len(list)/len(form))
		}
		for _, r := range text {
			table[uint32(be(list[:len(form)]))] = r
			list = list[len(form):]
		}
	}
	return table, nil
}

// charset makes a character set of the table.
func (t runes) charset(name string) *charset {
	return &charset{name: name, append: func(dst, b []byte) ([]byte, error) {
		for len(b) > 0 {
			r, n := t.first(b)
			if n == 0 {
				return dst, errText
			}
			dst, b = utf8.AppendRune(dst, r), b[n:]
		}
		return dst, nil
	}}
}

// first is the first character in b and its length; 0 when there is none.
func (t runes) first(b []byte) (rune, int) {
	var code uint32
	most := 4
	if b[0] == 0 { // with more bytes it would be taken for the code that follows it
		most = 1
	}
	for i, c := range b[:min(most, len(b))] {
		code = code<<8 | uint32(c)
		if r, ok := t[code]; ok {
			return r, i + 1
		}
	}
	switch {
	case b[0] < 0x80:
		return rune(b[0]), 1
	case len(b) >= 4 && code >= 0x90308130 && code <= 0xe3329a35: // GB18030 beyond the BMP is linear
		linear := ((int(b[0]-0x90)*10+int(b[1]-0x30))*126+int(b[2]-0x81))*10 + int(b[3]-0x30)
		return rune(0x10000 + linear), 4
	}
	return 0, 0
}
