package mysqlsource

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// Outbox tables of any columns, made anew again and again while the log is read, beside other tables of any
// columns and engines in the same transactions: every value is what the server prints, and nothing stops the stream.
// The writer's time zone is another one.
func TestGeneratedTables(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		g := &tables{generator{rand.New(rand.NewPCG(seed, 0))}, server}
		d, st := opened(t, server, "CREATE TABLE outbox (id INT)")
		w := d.session(t, "SET SESSION sql_mode = '', time_zone = '-05:30'")
		beside := d.session(t, "SET SESSION sql_mode = ''") // for engines that may not share a transaction
		printer := d.session(t, "SET SESSION time_zone = '+00:00'")
		for i := range harness.Times(12, 2000) {
			other, columns := fmt.Sprintf("other_%d", i), g.columns()
			w.exec(t, "DROP TABLE outbox")
			w.exec(t, "CREATE TABLE outbox "+definition(columns))
			foreign := g.columns()
			others := w
			if _, err := w.ExecContext(t.Context(), "CREATE TABLE "+other+" "+definition(foreign)+g.pick(" ENGINE=MyISAM", " ENGINE=BLACKHOLE", " ENGINE=MEMORY", " PARTITION BY HASH (id) PARTITIONS 3")); err == nil {
				others = beside
			} else { // not every engine takes every type
				w.exec(t, "CREATE TABLE "+other+" "+definition(foreign))
			}
			w.exec(t, "START TRANSACTION")
			others.exec(t, g.insert(other, foreign, 3))
			for range 2 {
				w.exec(t, g.insert("outbox", columns, 4))
				others.exec(t, g.insert(other, foreign, 1+g.IntN(3)))
			}
			others.exec(t, "UPDATE "+other+" SET id = id + 1000")
			others.exec(t, "DELETE FROM "+other)
			w.exec(t, "COMMIT")
			got, _ := rows(t, st, 8)
			want := printer.table(t, "SELECT "+strings.Join(printed(columns), ", ")+" FROM outbox ORDER BY id")
			for row := range want {
				for c, s := range columns {
					v := got[row].Values[got[row].Table.Column(fmt.Sprintf("c%d", c))]
					check(t, fmt.Sprintf("table %d: %s, row %d", i, s.column, row), v, want[row][c])
				}
			}
			w.exec(t, "DROP TABLE "+other)
			if t.Failed() {
				t.FailNow()
			}
		}
	})
}

// tables makes tables of any columns, and rows.
type tables struct {
	generator
	server string
}

// made is a column and how to make a value of it.
type made struct {
	specimen
	value func() string
}

func (g *tables) columns() []made {
	columns := make([]made, 1+g.IntN(14))
	for i := range columns {
		columns[i] = g.column()
	}
	return columns
}

func definition(columns []made) string {
	var b strings.Builder
	b.WriteString("(id INT AUTO_INCREMENT PRIMARY KEY")
	for i, c := range columns {
		fmt.Fprintf(&b, ", c%d %s", i, c.column)
	}
	return b.String() + ")"
}

func printed(columns []made) []string {
	var all []string
	for i, c := range columns {
		text := c.text
		if text == "" {
			text = "HEX(CAST(CAST(%s AS CHAR) AS CHAR CHARACTER SET utf8mb4))"
		}
		all = append(all, fmt.Sprintf(text, fmt.Sprintf("c%d", i)))
	}
	return all
}

func (g *tables) insert(table string, columns []made, n int) string {
	var names, all []string
	for i := range columns {
		names = append(names, fmt.Sprintf("c%d", i))
	}
	for range n {
		var values []string
		for _, c := range columns {
			v := "NULL"
			if g.IntN(8) > 0 {
				v = c.value()
			}
			values = append(values, v)
		}
		all = append(all, "("+strings.Join(values, ", ")+")")
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES " + strings.Join(all, ", ")
}

func (g *tables) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *tables) column() made {
	switch g.IntN(12) {
	case 0, 1:
		return g.integer()
	case 2, 3:
		return g.fraction()
	case 4, 5:
		return g.temporal()
	case 6, 7:
		return g.textual()
	case 8:
		return g.binary()
	case 9:
		return g.labelled()
	case 10:
		return g.bits()
	}
	return g.special()
}

func (g *tables) integer() made {
	n := g.IntN(5)
	bits := []int{8, 16, 24, 32, 64}[n]
	name := []string{"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"}[n]
	kind := g.IntN(3)
	return made{specimen{column: name + g.pick("", " UNSIGNED", " ZEROFILL")}, func() string {
		if v := g.Uint64() >> (64 - bits) >> g.IntN(bits); kind > 0 {
			return strconv.FormatUint(v, 10)
		}
		return strconv.FormatInt(int64(g.Uint64())>>(64-bits)>>g.IntN(bits), 10) // a negative one is clipped where it must be
	}}
}

func (g *tables) fraction() made {
	switch g.IntN(5) {
	case 0:
		return made{specimen{column: "FLOAT"}, func() string {
			f := math.Float32frombits(g.Uint32())
			if f != f || math.IsInf(float64(f), 0) {
				return "0.1"
			}
			return strconv.FormatFloat(float64(f), 'e', -1, 32)
		}}
	case 1:
		return made{specimen{column: "DOUBLE"}, func() string { return strings.TrimSuffix(strings.TrimPrefix(g.double(), "CAST('"), "' AS JSON)") }}
	case 2:
		scale := g.IntN(8)
		return made{specimen{column: fmt.Sprintf("%s(%d,%d)", g.pick("FLOAT", "DOUBLE"), scale+1+g.IntN(8), scale)}, func() string {
			return strconv.FormatFloat((g.Float64()-0.5)*math.Pow10(g.IntN(10)), 'f', -1, 64)
		}}
	}
	scale := g.IntN(31)
	whole := g.IntN(66 - max(scale, 1))
	precision := max(whole+scale, 1)
	return made{specimen{column: fmt.Sprintf("DECIMAL(%d,%d)%s", precision, scale, g.pick("", "", " UNSIGNED", " ZEROFILL"))}, func() string {
		digits := []byte(g.pick("", "-"))
		for range 1 + g.IntN(whole+1) {
			digits = append(digits, byte('0'+g.IntN(10)))
		}
		digits = append(digits, '.')
		for range 1 + g.IntN(scale+1) {
			digits = append(digits, byte('0'+g.IntN(10)))
		}
		return string(digits)
	}}
}

func (g *tables) temporal() made {
	n := g.IntN(7)
	clock := func(hours int) string {
		return fmt.Sprintf("%02d:%02d:%02d.%06d", g.IntN(hours), g.IntN(60), g.IntN(60), g.IntN(1000000))
	}
	switch g.IntN(5) {
	case 0:
		return made{specimen{column: "DATE"}, func() string { return fmt.Sprintf("'%04d-%02d-%02d'", g.IntN(10000), g.IntN(13), g.IntN(29)) }}
	case 1:
		return made{specimen{column: "YEAR"}, func() string { return strconv.Itoa(1901 + g.IntN(255)) }}
	case 2:
		return made{specimen{column: fmt.Sprintf("TIME(%d)", n)}, func() string { return "'" + g.pick("", "-") + clock(839) + "'" }}
	case 3:
		return made{specimen{column: fmt.Sprintf("DATETIME(%d)", n)}, func() string {
			return fmt.Sprintf("'%04d-%02d-%02d %s'", g.IntN(9999), g.IntN(13), g.IntN(29), clock(24))
		}}
	}
	return made{specimen{column: fmt.Sprintf("TIMESTAMP(%d) NULL", n)}, func() string {
		return fmt.Sprintf("'%04d-%02d-%02d %s'", 1969+g.IntN(70), 1+g.IntN(12), 1+g.IntN(28), clock(24))
	}}
}

var charsets = []string{"latin1", "utf8mb3", "utf8mb4", "ascii", "gbk", "utf16", "ucs2", "utf32", "utf16le", "sjis", "cp1251", "latin2", "big5", "euckr", "ujis", "koi8r"}

func (g *tables) textual() made {
	form := g.pick("CHAR(%d)", "CHAR(%d)", "VARCHAR(%d)", "VARCHAR(%d)", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT")
	if strings.Contains(form, "%") {
		form = fmt.Sprintf(form, g.IntN(150))
	}
	if g.server != "mysql" && g.server != "mysql-nogtid" && !strings.HasPrefix(form, "CHAR") && form != "VARCHAR(0)" {
		form += g.pick("", "", " COMPRESSED")
	}
	return made{specimen{column: form + " CHARACTER SET " + g.pick(charsets...)}, func() string { return g.text(g.IntN(3)) }}
}

func (g *tables) binary() made {
	form := g.pick("BINARY(%d)", "BINARY(%d)", "VARBINARY(%d)", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB")
	if strings.Contains(form, "%") {
		form = fmt.Sprintf(form, g.IntN(256))
	}
	return made{specimen{column: form, text: raw}, g.bytes}
}

// labelled is an ENUM or SET, with labels that differ in their first characters.
func (g *tables) labelled() made {
	most := map[string]int{"ENUM": 400, "SET": 64}
	kind := g.pick("ENUM", "SET")
	n := 1 + g.IntN(1+g.IntN(most[kind]))
	labels := make([]string, n)
	for i := range labels {
		labels[i] = fmt.Sprintf("'%d%s'", i, g.pick("", "é", " of 'em", "\\\\", "\"", "日", "\\n"))
		labels[i] = "'" + strings.ReplaceAll(strings.Trim(labels[i], "'"), "'", "''") + "'"
	}
	column := kind + "(" + strings.Join(labels, ",") + ") CHARACTER SET " + g.pick("utf8mb4", "utf8mb3", "ujis", "gbk", "utf16", "ucs2")
	return made{specimen{column: column}, func() string {
		if kind == "ENUM" {
			return strconv.Itoa(g.IntN(n + 1))
		}
		return strconv.FormatUint(g.Uint64()>>(64-n)&g.Uint64(), 10)
	}}
}

func (g *tables) bits() made {
	n := 1 + g.IntN(64)
	return made{specimen{column: fmt.Sprintf("BIT(%d)", n), text: bits((n + 7) / 8)}, func() string { return strconv.FormatUint(g.Uint64()>>(64-n), 10) }}
}

// special are types of few servers, and JSON.
func (g *tables) special() made {
	mysql := flavor(g.server) == "mysql"
	switch n := g.IntN(4); {
	case n == 0:
		return made{specimen{column: "GEOMETRY", text: raw}, func() string {
			return g.pick("NULL", fmt.Sprintf("POINT(%d, %d)", g.IntN(100), g.IntN(100)), fmt.Sprintf("ST_GeomFromText('LINESTRING(0 0, %d 1.5)')", g.IntN(100)))
		}}
	case n == 1 && mysql:
		return made{specimen{column: "VECTOR(4)", text: raw}, func() string {
			return "x'" + hex.EncodeToString([]byte("\x00\x00\x80\x3f\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x80\xbf")) + "'"
		}}
	case n == 1:
		return made{specimen{column: "UUID"}, func() string { return "UUID()" }}
	case n == 2 && !mysql:
		return made{specimen{column: "INET6"}, func() string {
			return g.pick("'::'", "'::1'", fmt.Sprintf("'%x::%x'", g.IntN(0x10000), g.IntN(0x10000)), fmt.Sprintf("'::ffff:1.2.3.%d'", g.IntN(256)))
		}}
	case mysql:
		return made{specimen{column: "JSON"}, g.document}
	}
	return made{specimen{column: "JSON"}, func() string { return `'{"b": 1.0, "a" : [2, "€"]}'` }}
}
