package mysqlsource

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/source"
)

// specimen is a column with values to write into it, as SQL.
type specimen struct {
	column string // its definition behind the name
	values []string
	text   string // SQL for the hexadecimal form of what the server prints of %s; empty: of CAST(%s AS CHAR)
	only   string // "mysql" or "mariadb", or one server
}

const raw = "HEX(%s)" // binary: the bytes themselves

func bits(bytes int) string { return fmt.Sprintf("LPAD(HEX(%%s), %d, '0')", 2*bytes) }

func integers(name string, bits uint) []specimen {
	sign := uint64(1) << (bits - 1)
	most := sign - 1 + sign
	return []specimen{
		{column: name, values: []string{fmt.Sprintf("-%d", sign), fmt.Sprint(sign - 1), "-1", "0", "1"}},
		{column: name + " UNSIGNED", values: []string{fmt.Sprint(most), fmt.Sprint(sign), fmt.Sprint(sign - 1), "0", fmt.Sprint(most - 1)}},
	}
}

func specimens() []specimen {
	var all []specimen
	for i, name := range []string{"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"} {
		all = append(all, integers(name, []uint{8, 16, 24, 32, 64}[i])...)
	}
	nines := strings.Repeat("9", 38)
	all = append(all,
		specimen{column: "BOOLEAN", values: []string{"TRUE", "FALSE"}},
		specimen{column: "DECIMAL(38,0)", values: []string{nines, "-" + nines, "0", "-1", "10000000000000000000000000000000000001"}},
		specimen{column: "DECIMAL(38,30)", values: []string{"0.000000000000000000000000000001", "-99999999.999999999999999999999999999999", "0"}},
		specimen{column: "DECIMAL(10,2)", values: []string{"1.10", "-1.10", "0.05", "-0.05", "99999999.99", "0", "-0.00"}},
		specimen{column: "DECIMAL(65,30)", values: []string{"12345678901234567890123456789012345.123456789012345678901234567890", "-0.000000000000000000000000000001"}},
		specimen{column: "DECIMAL(1,1)", values: []string{"0.1", "-0.9"}},
		specimen{column: "DECIMAL(18,9)", values: []string{"123456789.123456789", "-0.000000001"}},
		specimen{column: "DECIMAL(19,10) UNSIGNED", values: []string{"1.0000000001", "0"}},
		specimen{column: "DECIMAL(38,38)", values: []string{"0." + nines, "-0." + nines, "0.00000000000000000000000000000000000001"}, only: "mariadb"},
		specimen{column: "FLOAT", values: floats},
		specimen{column: "DOUBLE", values: doubles},
		specimen{column: "FLOAT(7,3)", values: []string{"1.5", "-1.5", "0", "1234.5678", "-0.0004", "9999.999"}},
		specimen{column: "FLOAT(5,0)", values: []string{"7.6", "-0.4", "99999"}},
		specimen{column: "DOUBLE(10,2)", values: []string{"3.14159", "-0.005", "99999999.99", "0.015", "-0.001"}},
		specimen{column: "DOUBLE(53,30)", values: []string{"0.1", "-123456789.123456789", "1e-30"}},
		specimen{column: "TINYINT ZEROFILL", values: []string{"7", "255", "0"}},
		specimen{column: "SMALLINT(9) ZEROFILL", values: []string{"7", "65535"}},
		specimen{column: "MEDIUMINT(3) ZEROFILL", values: []string{"7", "16777215"}},
		specimen{column: "INT(6) ZEROFILL", values: []string{"42", "4294967295", "0", "123456"}},
		specimen{column: "BIGINT ZEROFILL", values: []string{"42", "18446744073709551615"}},
		specimen{column: "DECIMAL(8,2) ZEROFILL", values: []string{"7.5", "999999.99", "0"}},
		specimen{column: "DECIMAL(8,0) ZEROFILL", values: []string{"7"}},
		specimen{column: "FLOAT ZEROFILL", values: []string{"1.25", "3e38", "1e-20"}},
		specimen{column: "DOUBLE ZEROFILL", values: []string{"1.25", "1.7976931348623157e308", "0.30000000000000004"}},
		specimen{column: "DOUBLE(10,2) ZEROFILL", values: []string{"2.5", "99999999.99"}},
		specimen{column: "YEAR", values: []string{"1901", "2155", "'0000'", "2026", "1"}},
		specimen{column: "BIT(1)", values: []string{"b'0'", "b'1'"}, text: bits(1)},
		specimen{column: "BIT(9)", values: []string{"b'100000001'", "b'0'"}, text: bits(2)},
		specimen{column: "BIT(64)", values: []string{"18446744073709551615", "1", "72057594037927936"}, text: bits(8)},
	)
	all = append(all, temporals()...)
	all = append(all, labels()...)
	all = append(all, texts()...)
	all = append(all, mariadb()...)
	return append(all,
		specimen{column: "BINARY(16)", text: raw, values: []string{"x'00112233445566778899AABBCCDDEE00'", "x'000000'", "x'FFFFFFFFFFFFFFFFFFFFFFFFFFFF0000'", "''", "'a '"}},
		specimen{column: "BINARY(255)", text: raw, values: []string{"''", "REPEAT(x'20', 255)", "x'00FF00'"}},
		specimen{column: "BINARY(0)", text: raw, values: []string{"''"}},
		specimen{column: "VARBINARY(10)", text: raw, values: []string{"x'0000'", "''", "x'00FF20'"}},
		specimen{column: "VARBINARY(300)", text: raw, values: []string{"x'0000'", "''", "REPEAT(x'00', 300)"}},
		specimen{column: "TINYBLOB", text: raw, values: []string{"x'00FF'", "''", "REPEAT(x'FF', 255)"}},
		specimen{column: "BLOB", text: raw, values: []string{"x'00FF'", "''", "REPEAT(x'00', 65535)"}},
		specimen{column: "MEDIUMBLOB", text: raw, values: []string{"x'00FF'", "REPEAT(x'80', 70000)"}},
		specimen{column: "LONGBLOB", text: raw, values: []string{"x'00FF'", "REPEAT(x'81', 300000)"}},
		specimen{column: "GEOMETRY", text: raw, values: []string{"ST_GeomFromText('POINT(1 -2.5)')", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)"}},
		specimen{column: "POINT", text: raw, values: []string{"POINT(1, -2.5)"}},
		specimen{column: "POLYGON", text: raw, values: []string{"ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))')"}},
		specimen{column: "GEOMETRYCOLLECTION", text: raw, values: []string{"ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1), MULTIPOINT(1 1, 2 2))')"}},
		specimen{column: "JSON", values: []string{`'{"b": 1, "a": [1.0, 2.50, "\\u20ac"]}'`, `'null'`, `'[]'`, `'{}'`, `'"x"'`, `'-0'`, `'1e20'`}},
		specimen{column: "VECTOR(3)", text: raw, only: "mysql", values: []string{"STRING_TO_VECTOR('[1.05,-17.8,32]')"}},
		specimen{column: "VECTOR", text: raw, only: "mysql", values: []string{"STRING_TO_VECTOR('[1.05]')", "STRING_TO_VECTOR(CONCAT('[0', REPEAT(',1.5', 2000), ']'))"}},
		specimen{column: "VECTOR(3)", text: raw, only: "mariadb118", values: []string{"VEC_FromText('[1.05,-17.8,32]')", "VEC_FromText('[0,0,0]')"}},
	)
}

var floats = []string{
	"0", "1", "-1", "0.1", "-0.1", "16777216", "16777217", "3.402823466e38", "-3.402823466e38", "1.175494351e-38", "1.4e-45", "1e15", "1e14", "1e-5", "1e-4",
	"0.001", "123456", "1234567", "0.5", "0.3333333", "999999.5", "99999.95", "1e6", "1e16", "1e-14", "1e-15", "1e-16", "-0e0",
}

var doubles = []string{
	"0", "1", "-1", "0.1", "1e15", "-1e15", "1e14", "1e16", "1e-5", "1e-14", "1e-15", "1e-16", "16777216", "9007199254740993", "1.7976931348623157e308", "-1.7976931348623157e308",
	"2.2250738585072014e-308", "4.9e-324", "0.30000000000000004", "123456789012345.6", "1234567890123456.7", "12345678901234567", "-1234567890123456.7",
	"0.00012345678901234567", "1.2345678901234567e-10", "-1.2345678901234567e-10", "1.2345678901234567e-5", "-1.2345678901234567e-4", "1e22", "1e23", "123e-7", "-0e0", "1e100", "1e-100",
}

func temporals() []specimen {
	all := []specimen{
		{column: "DATE", values: []string{"'2026-01-02'", "'1000-01-01'", "'9999-12-31'", "'0000-00-00'", "'2026-00-00'", "'0001-01-01'"}},
	}
	for n := range 7 {
		at := func(text, fraction string) string {
			if n > 0 {
				text += "." + fraction[:n]
			}
			return "'" + text + "'"
		}
		all = append(all,
			specimen{column: fmt.Sprintf("TIME(%d)", n), values: []string{
				at("838:59:58", "999999"), at("-838:59:58", "999999"), at("00:00:00", "000000"), at("-00:00:00", "000001"), at("-00:00:01", "900000"),
				at("12:34:56", "123456"), at("-12:34:56", "123456"), at("100:00:00", "000001"), at("-99:59:59", "999999"),
			}},
			specimen{column: fmt.Sprintf("DATETIME(%d)", n), values: []string{
				at("2026-11-30 12:34:56", "123456"), at("9999-12-31 23:59:59", "499999"), at("1000-01-01 00:00:00", "000000"),
				at("0000-00-00 00:00:00", "000000"), at("2026-00-00 00:00:00", "900000"), at("1969-12-31 23:59:59", "999999"),
			}},
			specimen{column: fmt.Sprintf("TIMESTAMP(%d) NULL", n), values: []string{
				at("2026-11-30 12:34:56", "123456"), at("1970-01-01 00:00:01", "000000"), at("0000-00-00 00:00:00", "000000"),
				at("2038-01-19 03:14:07", "499999"), at("2000-02-29 23:59:59", "999999"),
			}},
		)
	}
	return all
}

func labels() []specimen {
	many, last := "", ""
	for i := range 300 {
		last = fmt.Sprintf("'label %d'", i)
		many += "," + last
	}
	flags, all := "", ""
	for i := range 64 {
		flags += fmt.Sprintf(",'f%d'", i)
		all += fmt.Sprintf(",f%d", i)
	}
	return []specimen{
		{column: `ENUM('OrderCreated','it''s','a,b','','back\\slash','"q"','naïve €','日本','x'' y','\n\r\t')`, values: []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "0"}},
		{column: "ENUM(" + many[1:] + ")", values: []string{"1", "255", "256", "300", last}},
		{column: "ENUM('é','€') CHARACTER SET latin1", values: []string{"1", "2"}},
		{column: "ENUM('é','€') CHARACTER SET utf16", values: []string{"1", "2"}},
		{column: "ENUM('中','b') CHARACTER SET gbk", values: []string{"1", "2"}},
		{column: `SET('a','it''s','ü','"q"')`, values: []string{"0", "1", "2", "3", "15", "8"}},
		{column: `SET('','a')`, values: []string{"0", "1", "2", "3"}},
		{column: "SET(" + flags[1:] + ")", values: []string{"18446744073709551615", "1", "9223372036854775808", "'" + all[1:] + "'"}},
		{column: "SET('é','ö','中') CHARACTER SET utf16", values: []string{"1", "3", "7"}},
	}
}

func texts() []specimen {
	var all []specimen
	for _, c := range []struct {
		charset string
		values  []string
	}{
		{"latin1", []string{"'café'", "_latin1 x'80'", "_latin1 x'818D8F909D'", "_latin1 x'A0FFE4'", "''", "'end  '"}},
		{"utf8mb3", []string{"'café €'", "'日本'", "''"}},
		{"utf8mb4", []string{"'café € 😀'", "_utf8mb4 x'00'", "'tab\\tnl\\n'", "''", "' end '"}},
		{"ascii", []string{"'plain'", "''"}},
		{"gbk", []string{"'中文€'", "'a中'", "''"}},
		{"utf16", []string{"'café 😀'", "'日本'", "''", "'end '"}},
		{"ucs2", []string{"'café'", "'日本'"}},
		{"utf32", []string{"'café 😀'"}},
		{"utf16le", []string{"'café 😀'"}},
		{"sjis", []string{"'日本ｱ'"}},
		{"cp1251", []string{"'привет'"}},
	} {
		for _, form := range []string{"CHAR(20)", "CHAR(120)", "VARCHAR(40)", "VARCHAR(300)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"} {
			all = append(all, specimen{column: form + " CHARACTER SET " + c.charset, values: c.values})
		}
	}
	return all
}

// mariadb are types that MariaDB alone has.
func mariadb() []specimen {
	var addresses []string
	for i := range 1 << 8 { // each word zero or not
		address := ""
		for word := range 8 {
			address += fmt.Sprintf(":%x", (i>>word&1)*(0x1f<<word))
		}
		addresses = append(addresses, "'"+address[1:]+"'")
	}
	addresses = append(addresses, "'::1.2.3.4'", "'::ffff:1.2.3.4'", "'::ffff:0:1'", "'::1:ffff:1.2.3.4'", "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'", "'::0.1.0.0'")
	all := []specimen{
		{column: "UUID", values: []string{"'123e4567-e89b-12d3-a456-426655440000'", "'123e4567-e89b-72d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'", "'FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFF00'"}},
		{column: "INET4", values: []string{"'1.2.3.0'", "'0.0.0.0'", "'255.255.255.255'"}},
		{column: "INET6", values: addresses},
		{column: "BINARY(4)", values: []string{"x'01020300'", "''"}, text: raw},
	}
	all = append(all, specimen{column: "TIMESTAMP(3) NULL", values: []string{"'1970-01-01 00:00:00.280'", "'2038-01-19 03:14:07.999'"}})
	words := []string{"''", "'a'", "REPEAT('é', 99)", "REPEAT('ab', 200)", "'  '"}
	for _, form := range []string{"VARCHAR(50) COMPRESSED", "VARCHAR(400) COMPRESSED", "VARCHAR(400) COMPRESSED CHARACTER SET latin1", "TINYTEXT COMPRESSED", "TEXT COMPRESSED", "LONGTEXT COMPRESSED CHARACTER SET utf16"} {
		all = append(all, specimen{column: form, values: words})
	}
	all = append(all,
		specimen{column: "VARBINARY(400) COMPRESSED", values: []string{"x'00FF'", "REPEAT(x'00', 400)", "''"}, text: raw},
		specimen{column: "MEDIUMBLOB COMPRESSED", values: []string{"x'00FF'", "REPEAT(x'00', 70000)", "''"}, text: raw},
	)
	for i := range all {
		all[i].only = "mariadb"
	}
	return append(all, specimen{column: "TIMESTAMP(6) NULL", values: []string{"'2038-01-19 03:14:08.000001'", "'2106-02-07 06:28:15.999999'"}, only: "mariadb118"})
}

// Dates and times that MariaDB stored before 10.1, in a format of which the log tells half.
func TestOldTemporals(t *testing.T) {
	for _, server := range []string{"mariadb1011", "mariadb118"} {
		d := newDatabase(t, server, "CREATE TABLE unused (id INT)")
		var columns, printed []string
		var values [5][]string
		for n := range 7 {
			at := func(text string) string {
				if n == 0 {
					return "'" + text + "'"
				}
				return "'" + text + "." + "987654"[:n] + "'"
			}
			columns = append(columns, fmt.Sprintf("t%d TIME(%[1]d), d%[1]d DATETIME(%[1]d), s%[1]d TIMESTAMP(%[1]d) NULL", n))
			printed = append(printed, fmt.Sprintf("HEX(CAST(t%d AS CHAR)), HEX(CAST(d%[1]d AS CHAR)), HEX(CAST(s%[1]d AS CHAR))", n))
			for i, of := range [][]string{
				{at("838:59:58"), at("9999-12-31 23:59:59"), at("2038-01-19 03:14:06")}, {at("-838:59:58"), at("1000-01-01 00:00:01"), at("1970-01-01 00:00:01")},
				{at("-00:00:00"), at("0000-00-00 00:00:00"), "'0000-00-00 00:00:00'"}, {at("12:34:56"), at("2026-02-00 12:34:56"), at("2000-02-29 23:59:59")}, {"NULL", "NULL", "NULL"},
			} {
				values[i] = append(values[i], of...)
			}
		}
		d.exec(t, "SET GLOBAL mysql56_temporal_format = OFF") // there is no such setting of a session; no other test runs now
		t.Cleanup(func() { _, _ = d.db.Exec("SET GLOBAL mysql56_temporal_format = ON") })
		d.exec(t, "CREATE TABLE outbox (id INT, "+strings.Join(columns, ", ")+", behind INT)")
		d.exec(t, "SET GLOBAL mysql56_temporal_format = ON")
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		w := d.session(t, "SET SESSION sql_mode = '', time_zone = '+00:00'")
		for i, v := range values {
			w.exec(t, fmt.Sprintf("INSERT INTO outbox VALUES (%d, %s, 7)", i, strings.Join(v, ", ")))
		}
		if n := w.value(t, "SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND COLUMN_TYPE LIKE '%mariadb-5.3%'"); n != "21" {
			t.Errorf("%s columns of the old format", n)
		}
		got, _ := rows(t, st, len(values))
		for i, row := range w.table(t, "SELECT "+strings.Join(printed, ", ")+", HEX(CAST(behind AS CHAR)) FROM outbox ORDER BY id") {
			for c, text := range row {
				column := got[i].Table.Columns[c+1]
				check(t, fmt.Sprintf("%s: %s, row %d", server, column.Name, i), got[i].Values[c+1], text)
			}
		}
	}
}

func flavor(server string) string {
	name, _, _ := strings.Cut(server, "-")
	return strings.TrimRight(name, "0123456789")
}

// Every value of every type is what the server itself prints of it: text as
// CAST(column AS CHAR) in UTF-8 and UTC, binary strings as they are.
// BIT is its bits as bytes, the highest first; GEOMETRY is four bytes of SRID and the WKB; VECTOR its
// four-byte floats: the bytes that selecting the column gives.
func TestValues(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		for i, group := range inTables(specimens(), server) {
			t.Run(fmt.Sprint("table ", i), func(t *testing.T) { compare(t, server, group) })
		}
	})
}

// inTables divides specimens so that a row is not larger than a server allows.
func inTables(all []specimen, server string) (groups [][]specimen) {
	for _, s := range all {
		if s.only != "" && s.only != flavor(server) && s.only != server {
			continue
		}
		if n := len(groups); n == 0 || len(groups[n-1]) == 40 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], s)
	}
	return groups
}

// compare writes each specimen's values, one to a row, and reads them back both ways.
func compare(t *testing.T, server string, group []specimen) {
	var columns, want []string
	most := 0
	for i, s := range group {
		name := fmt.Sprintf("c%d", i)
		columns = append(columns, name+" "+s.column)
		text := s.text
		if text == "" {
			text = "HEX(CAST(CAST(%s AS CHAR) AS CHAR CHARACTER SET utf8mb4))"
		}
		want = append(want, fmt.Sprintf(text, name))
		most = max(most, len(s.values))
	}
	d := newDatabase(t, server, "CREATE TABLE outbox (id INT PRIMARY KEY, "+strings.Join(columns, ", ")+")")
	source := newSource(t, d.config())
	st := stream(t, source, begin(t, source))
	w := d.session(t, "SET SESSION sql_mode = '', time_zone = '+00:00'")
	for row := range most + 1 { // the last one is NULL everywhere
		if flavor(server) == "mariadb" { // the two forms of a COMPRESSED column
			w.exec(t, "SET SESSION column_compression_zlib_wrap = ?", row%2)
		}
		names, values := []string{"id"}, []string{fmt.Sprint(row)}
		for i, s := range group {
			if row < len(s.values) {
				names, values = append(names, fmt.Sprintf("c%d", i)), append(values, s.values[row])
			}
		}
		w.exec(t, fmt.Sprintf("INSERT INTO outbox (%s) VALUES (%s)", strings.Join(names, ", "), strings.Join(values, ", ")))
	}
	got, _ := rows(t, st, most+1)
	printed := w.table(t, "SELECT "+strings.Join(want, ", ")+" FROM outbox ORDER BY id")
	for row := range printed {
		for i, s := range group {
			v := got[row].Values[got[row].Table.Column(fmt.Sprintf("c%d", i))]
			check(t, fmt.Sprintf("%s, row %d", s.column, row), v, printed[row][i])
		}
	}
}

// check compares a value with the hexadecimal form of what the server prints.
func check(t *testing.T, what string, v source.Value, printed *string) {
	t.Helper()
	if printed == nil {
		if v.State != source.Null {
			t.Errorf("%.60s: %.60q (%d), want NULL", what, v.Data, v.State)
		}
		return
	}
	want, err := hex.DecodeString(*printed)
	if err != nil {
		t.Fatal(err)
	}
	if v.State == source.Present && string(v.Data) == string(want) {
		return
	}
	at := 0
	for at < len(v.Data) && at < len(want) && v.Data[at] == want[at] {
		at++
	}
	from := max(0, at-20)
	t.Errorf("%.60s: (%d) …%.60q of %d bytes, the server prints …%.60q of %d", what, v.State, v.Data[from:], len(v.Data), want[from:], len(want))
}
