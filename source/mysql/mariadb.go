package mysql

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// Types that MariaDB alone has. UUID, INET6 and INET4 are BINARY to the log,
// with the name of their type in information_schema alone.

// hidden reports whether the log may show a UUID, INET6 or INET4 as this column.
func (c *column) hidden() bool {
	return c.kind == typeString && c.charset != nil && c.charset.binary && (c.meta == 16 || c.meta == 4)
}

// uncover makes the column one of the type that information_schema tells.
func (c *column) uncover(dataType string) {
	switch dataType {
	case "uuid", "inet6", "inet4":
		c.as = dataType
	}
}

// appendAs prints the bytes of a UUID, INET6 or INET4.
func appendAs(dst, b []byte, dataType string) []byte {
	switch {
	case dataType == "uuid" && len(b) == 16:
		for i, n := range [...]int{4, 2, 2, 2, 6} {
			if i > 0 {
				dst = append(dst, '-')
			}
			dst, b = hex.AppendEncode(dst, b[:n]), b[n:]
		}
		return dst
	case dataType == "inet6" && len(b) == 16:
		return appendINET6(dst, b)
	case dataType == "inet4" && len(b) == 4:
		return appendINET4(dst, b)
	}
	return append(dst, b...)
}

func appendINET4(dst, b []byte) []byte {
	for i, c := range b {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return dst
}

// appendINET6 leaves the first of the longest runs of zeros out, and prints the
// end of an IPv4 address in another form (Inet6::to_string in plugin/type_inet/sql_type_inet.cc).
func appendINET6(dst, b []byte) []byte {
	word := func(i int) uint64 { return be(b[2*i : 2*i+2]) }
	gap, length := 8, 0
	for i := 0; i < 8; i++ {
		n := 0
		for i+n < 8 && word(i+n) == 0 {
			n++
		}
		if n > length {
			gap, length = i, n
		}
		i += n
	}
	for i := 0; i < 8; i++ {
		switch {
		case i == gap:
			dst = append(dst, ':', ':')
			i += length - 1
			continue
		case i == 6 && gap == 0 && (length == 6 || length == 5 && word(5) == 0xffff):
			if length == 5 {
				dst = append(dst, ':')
			}
			return appendINET4(dst, b[12:])
		case i > 0 && i != gap+length:
			dst = append(dst, ':')
		}
		dst = strconv.AppendUint(dst, word(i), 16)
	}
	return dst
}

var errCompressed = errors.New("compressed value is damaged")

// uncompressed gives the value of a COMPRESSED column. A byte tells the method
// and how many bytes of length follow (compress_zlib in sql/field_comp.cc).
func uncompressed(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	method, n := b[0], int(b[0]&7)
	switch {
	case method == 0:
		return b[1:], nil
	case method&0x80 == 0 || n == 0 || n > 4 || len(b) < 1+n:
		return nil, errCompressed
	}
	size, data := be(b[1:1+n]), bytes.NewReader(b[1+n:])
	r := flate.NewReader(data)
	if method&8 == 0 {
		var err error
		if r, err = zlib.NewReader(data); err != nil {
			return nil, fmt.Errorf("decompress: %w", err)
		}
	}
	var out bytes.Buffer
	err := inflate(&out, r, size)
	return out.Bytes(), err
}

// inflate reads exactly size bytes. What is claimed is not believed before it is there.
func inflate(out *bytes.Buffer, r io.Reader, size uint64) error {
	n, err := out.ReadFrom(io.LimitReader(r, int64(min(size, 1<<31))+1))
	if err != nil {
		return fmt.Errorf("decompress: %w", err)
	}
	if uint64(n) != size {
		return errCompressed
	}
	return nil
}

// inflater unpacks what log_bin_compress packs, event after event. The state of the
// format is some 40 KB, which costs more to make than most events to unpack.
type inflater struct {
	packed bytes.Reader
	zlib   io.ReadCloser
	out    bytes.Buffer
}

// decompress unpacks the body of an event. A byte tells how many bytes of
// length follow (binlog_buf_uncompress in sql/log_event.cc). The result holds until the next call.
func (i *inflater) decompress(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errShort
	}
	n := int(b[0] & 7)
	if b[0]&0x70 != 0 || n == 0 || n > 4 || len(b) < 1+n {
		return nil, errCompressed
	}
	i.packed.Reset(b[1+n:])
	var err error
	if again, ok := i.zlib.(zlib.Resetter); ok {
		err = again.Reset(&i.packed, nil)
	} else {
		i.zlib, err = zlib.NewReader(&i.packed)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if i.out.Cap() > keptBytes {
		i.out = bytes.Buffer{}
	}
	i.out.Reset()
	err = inflate(&i.out, i.zlib, be(b[1:1+n]))
	return i.out.Bytes(), err
}

const keptBytes = 1 << 20 // of an inflater's memory
