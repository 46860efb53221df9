package mysql

import (
	"math"
	"strings"
	"testing"
)

// What the servers print was read from them (test/mysqlsource compares with theirs); here it is for runs without one.

func TestAppendFloating(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f                    float64
		double, maria, float string
	}{
		{0, "0", "0", "0"}, {math.Copysign(0, -1), "-0", "-0", "-0"}, {1, "1", "1", "1"}, {-0.1, "-0.1", "-0.1", "-0.1"},
		{1e14, "100000000000000", "100000000000000", "1e14"}, {1e15, "1e15", "1e15", "1e15"}, {1e11, "100000000000", "100000000000", "100000000000"},
		{1e-14, "0.00000000000001", "0.00000000000001", "1e-14"}, {1e-15, "0.000000000000001", "0.000000000000001", "1e-15"}, {1e-16, "1e-16", "1e-16", "1e-16"},
		{16777217, "16777217", "16777217", "16777200"}, {123456789012345.6, "123456789012345.6", "123456789012345.6", "1.23457e14"},
		{1234567890123456.7, "1234567890123456.8", "1234567890123456.8", "1.23457e15"}, {12345678901234567, "1.2345678901234568e16", "1.2345678901234568e16", "1.23457e16"},
		{1.2345678901234567e-5, "0.000012345678901234568", "0.000012345678901234568", "0.0000123457"}, {-1.2345678901234567e-6, "-1.2345678901234567e-6", "-0.0000012345678901234567", "-1.23457e-6"},
		{math.MaxFloat64, "1.7976931348623157e308", "1.7976931348623157e308", ""}, {-2.2250738585072014e-308, "-2.2250738585072014e-308", "-2.2250738585072014e-308", ""}, {5e-324, "5e-324", "5e-324", ""},
		{999999.5, "999999.5", "999999.5", "1000000"}, {3.402823466e38, "3.402823466e38", "3.402823466e38", "3.40282e38"},
	} {
		equal(t, "DOUBLE", string(appendDouble(nil, c.f, doubleWidth)), c.double)
		equal(t, "DOUBLE of MariaDB", string(appendDouble(nil, c.f, wideWidth)), c.maria)
		if c.float != "" {
			equal(t, "FLOAT", string(appendFloating(nil, c.f, floatDigits, floatWidth)), c.float)
		}
	}
}

func TestAppendDecimal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		precision, scale int
		data             wire
		want             string
	}{
		{10, 2, wire{0x80, 0, 0, 1, 10}, "1.10"}, {10, 2, wire{0x7f, 0xff, 0xff, 0xfe, 0xf5}, "-1.10"}, {1, 0, wire{0x80}, "0"}, {1, 1, wire{0x89}, "0.9"},
		{14, 4, wire{0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2}, "1234567890.1234"}, {14, 4, wire{0x7e, 0xf2, 0x04, 0xc7, 0x2d, 0xfb, 0x2d}, "-1234567890.1234"},
	} {
		got, err := appendDecimal(nil, c.data, c.precision, c.scale)
		if err != nil || string(got) != c.want {
			t.Errorf("DECIMAL(%d,%d): %s (%v), want %s", c.precision, c.scale, got, err, c.want)
		}
		if _, err := appendDecimal(nil, c.data[:len(c.data)-1], c.precision, c.scale); err == nil {
			t.Errorf("DECIMAL(%d,%d) cut short passes", c.precision, c.scale)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	opaque := func(kind int, data wire) wire { return append(wire{jsonOpaque}.u8(kind).u8(len(data)), data...) }
	for want, doc := range map[string]wire{
		`null`: {}, `true`: {jsonLiteral, 1}, `-2`: wire{jsonInt16}.le(2, 0xfffe), `65535`: wire{jsonUint16}.le(2, 0xffff), `18446744073709551615`: wire{jsonUint64}.le(8, math.MaxUint64),
		`1.0`: wire{jsonDouble}.le(8, math.Float64bits(1)), `1e20`: wire{jsonDouble}.le(8, math.Float64bits(1e20)), `"a\"\\\b\f\n\r\t\u0001/é"`: wire{jsonString}.u8(12).str("a\"\\\b\f\n\r\t\x01/é"),
		`[]`: {jsonSmallArray, 0, 0, 4, 0}, `{}`: {jsonLargeObject, 0, 0, 0, 0, 8, 0, 0, 0}, `{"a": -7}`: smallJSON(-7),
		`[null, -1]`:                   wire{jsonLargeArray}.le(4, 2).le(4, 18).u8(jsonLiteral).le(4, 0).u8(jsonInt32).le(4, 0xffffffff),
		`[70000]`:                      wire{jsonSmallArray}.le(2, 1).le(2, 11).u8(jsonInt32).le(2, 7).le(4, 70000),
		`1.10`:                         opaque(typeNewDecimal, wire{10, 2, 0x80, 0, 0, 1, 10}),
		`"base64:type15:AP8="`:         opaque(typeVarchar, wire{0, 0xff}),
		`"-838:59:59.000000"`:          opaque(typeTime, wire{}.le(8, math.MaxUint64-(838<<12|59<<6|59)<<24+1)),
		`"2026-11-30 12:34:56.123456"`: opaque(typeDatetime, wire{}.le(8, (2026*13+11)<<46|30<<41|12<<36|34<<30|56<<24|123456)),
		`"2026-11-30"`:                 opaque(typeDate, wire{}.le(8, (2026*13+11)<<46|30<<41)),
	} {
		got, err := appendJSON(nil, doc)
		if err != nil || string(got) != want {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
	}
	deep := wire{jsonSmallArray, 0, 0, 4, 0}
	for range jsonMaxDepth + 1 {
		deep = append(wire{jsonSmallArray}.le(2, 1).le(2, uint64(len(deep)-1+7)).u8(int(deep[0])).le(2, 7), deep[1:]...)
	}
	if _, err := appendJSON(nil, deep); err == nil {
		t.Error("a document deeper than the server allows")
	}
	tangled := wire{jsonSmallArray, 0, 0, 4, 0} // 2^60 arrays, of two that are the same each
	for range 60 {
		tangled = append(wire{jsonSmallArray}.le(2, 2).le(2, uint64(len(tangled)-1+10)).u8(jsonSmallArray).le(2, 10).u8(jsonSmallArray).le(2, 10), tangled[1:]...)
	}
	if _, err := appendJSON(nil, tangled); err == nil {
		t.Error("a document that holds the same over and over")
	}
}

func TestCharsetForms(t *testing.T) {
	t.Parallel()
	table := runes{0xb0: '°', 0x8140: '丂', 0x8130: 'x'}
	for _, c := range []struct{ name, in, want string }{
		{"latin1", "caf\xe9 \x80\x81\x9f", "café €\u0081Ÿ"}, {"utf16", "\x00a\xd8\x3d\xde\x00", "a😀"}, {"utf16le", "a\x00\x3d\xd8\x00\xde", "a😀"},
		{"utf32", "\x00\x01\xf6\x00", "😀"}, {"utf16", "a", "!"}, {"utf16", "\xd8\x3d", "!"}, {"utf16", "\xd8\x3d\x00a", "!"}, {"utf32", "\x00", "!"},
		{"tabled", "a\xb0\x81\x40", "a°丂"}, {"tabled", "\x90\x30\x81\x30", "\U00010000"}, {"tabled", "\xe3\x32\x9a\x35", "\U0010ffff"}, {"tabled", "a\x00\x81\x40\x00", "a\x00丂\x00"}, {"tabled", "\x81", "!"}, {"tabled", "\xff\xff\xff\xff\xff", "!"},
	} {
		set, ok := charsetNamed(c.name)
		if !ok {
			set = table.charset(c.name)
		}
		got, err := set.append(nil, []byte(c.in))
		if (err != nil) != (c.want == "!") || err == nil && string(got) != c.want {
			t.Errorf("%s of %x: %q (%v), want %q", c.name, c.in, got, err, c.want)
		}
	}
	if list := codes([]span{{0x81, 0x82}, {0x40, 0x41}}); string(list) != "\x81\x40\x81\x41\x82\x40\x82\x41" {
		t.Errorf("codes %x", list)
	}
}

func TestUncompressed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ab", 300)
	for want, in := range map[string]wire{"": {}, "abc": wire{0}.str("abc"), long: deflated([]byte(long))} {
		if got, err := uncompressed(in); err != nil || string(got) != want {
			t.Errorf("%x: %q (%v)", in, got, err)
		}
	}
	lie := deflated([]byte(long))
	lie[2]++
	for _, in := range []wire{{0x82}, {0x80}, {0x87, 1, 1, 1, 1, 1, 1, 1}, {0x01, 5}, lie, deflated([]byte(long))[:20]} {
		if got, err := uncompressed(in); err == nil {
			t.Errorf("%x passes as %q", in, got)
		}
	}
}
