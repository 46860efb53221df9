package mysql

import (
	"fmt"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// charset turns a column's bytes into UTF-8.
type charset struct {
	name     string
	binary   bool // raw bytes
	utf8     bool // as they are
	latin1   bool
	encoding encoding.Encoding
}

// charsetNamed knows the server's character sets by their names. One that is
// not known is an error when a value of it is met, never bytes of another meaning.
func charsetNamed(name string) *charset {
	c := &charset{name: name}
	switch name {
	case "binary":
		c.binary = true
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		c.utf8 = true
	case "latin1":
		c.latin1 = true
	case "latin2":
		c.encoding = charmap.ISO8859_2
	case "latin5":
		c.encoding = charmap.ISO8859_9
	case "latin7":
		c.encoding = charmap.ISO8859_13
	case "greek":
		c.encoding = charmap.ISO8859_7
	case "hebrew":
		c.encoding = charmap.ISO8859_8
	case "cp850":
		c.encoding = charmap.CodePage850
	case "cp852":
		c.encoding = charmap.CodePage852
	case "cp866":
		c.encoding = charmap.CodePage866
	case "cp1250":
		c.encoding = charmap.Windows1250
	case "cp1251":
		c.encoding = charmap.Windows1251
	case "cp1256":
		c.encoding = charmap.Windows1256
	case "cp1257":
		c.encoding = charmap.Windows1257
	case "koi8r":
		c.encoding = charmap.KOI8R
	case "koi8u":
		c.encoding = charmap.KOI8U
	case "macroman":
		c.encoding = charmap.Macintosh
	case "gbk", "gb2312":
		c.encoding = simplifiedchinese.GBK
	case "gb18030":
		c.encoding = simplifiedchinese.GB18030
	case "big5":
		c.encoding = traditionalchinese.Big5
	case "sjis", "cp932":
		c.encoding = japanese.ShiftJIS
	case "ujis", "eucjpms":
		c.encoding = japanese.EUCJP
	case "euckr":
		c.encoding = korean.EUCKR
	case "ucs2", "utf16":
		c.encoding = unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	case "utf16le":
		c.encoding = unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case "utf32":
		c.encoding = utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM)
	}
	return c
}

// append puts b onto dst as UTF-8, or as it is when binary.
func (c *charset) append(dst, b []byte) ([]byte, error) {
	switch {
	case c.utf8, c.binary:
		return append(dst, b...), nil
	case c.latin1:
		return appendLatin1(dst, b), nil
	case c.encoding == nil:
		return dst, fmt.Errorf("character set %q is not supported", c.name)
	}
	text, err := c.encoding.NewDecoder().Bytes(b)
	if err != nil {
		return dst, fmt.Errorf("decode %s: %w", c.name, err)
	}
	return append(dst, text...), nil
}

// appendLatin1 knows that the server's latin1 is cp1252, with the five bytes
// that cp1252 leaves open standing for the control characters of the same number.
func appendLatin1(dst, b []byte) []byte {
	for _, c := range b {
		switch {
		case c < 0x80:
			dst = append(dst, c)
		case c == 0x81, c == 0x8d, c == 0x8f, c == 0x90, c == 0x9d:
			dst = append(dst, 0xc2, c)
		default:
			dst = append(dst, string(charmap.Windows1252.DecodeByte(c))...)
		}
	}
	return dst
}
