package transform

import (
	"encoding/base64"
	"unicode/utf8"
)

const hexDigits = "0123456789ABCDEF"

// appendString appends text as a JSON string. What is not UTF-8 becomes U+FFFD.
// escapePairs writes what lies beyond the basic plane as two \u escapes, as Jackson does.
func appendString(b, text []byte, escapePairs bool) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(text[i:])
			switch {
			case r == utf8.RuneError && n == 1:
				b = append(append(b, text[from:i]...), "\uFFFD"...)
				from = i + n
			case r > 0xffff && escapePairs:
				b = append(b, text[from:i]...)
				r -= 0x10000
				b = appendEscape(appendEscape(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
				from = i + n
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		b = append(b, text[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\b':
			b = append(b, `\b`...)
		case '\t':
			b = append(b, `\t`...)
		case '\n':
			b = append(b, `\n`...)
		case '\f':
			b = append(b, `\f`...)
		case '\r':
			b = append(b, `\r`...)
		default:
			b = appendEscape(b, rune(c))
		}
		i++
		from = i
	}
	return append(append(b, text[from:]...), '"')
}

func appendEscape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

// quoted is text as a JSON string, for what is made once per plan.
func quoted(text string) string { return string(appendString(nil, []byte(text), false)) }

func appendBase64(b, data []byte) []byte {
	b = base64.StdEncoding.AppendEncode(append(b, '"'), data)
	return append(b, '"')
}

// sound reports whether text is one whole JSON value.
func sound(text []byte) bool {
	s := scanner{text: text}
	_, ok := s.value(unwanted)
	s.space()
	return ok && s.at == len(text)
}
