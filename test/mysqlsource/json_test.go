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

// Documents of every kind are what the server prints of them: key order,
// separators, escapes, numbers and values of SQL types.
func TestJSONProperty(t *testing.T) {
	for _, server := range []string{"mysql", "mysql-nogtid"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, server, "CREATE TABLE outbox (id INT PRIMARY KEY, payload JSON)")
			s := newSource(t, d.config())
			st := stream(t, s, begin(t, s))
			w := d.session(t, "SET SESSION time_zone = '+00:00', sql_mode = ''")
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			g := &generator{rand.New(rand.NewPCG(seed, 0))}
			const batch = 250
			for first := 0; first < harness.Times(3000, 300000); first += batch {
				var values []string
				for i := range batch {
					values = append(values, fmt.Sprintf("(%d, %s)", first+i, g.document()))
				}
				w.exec(t, "INSERT INTO outbox VALUES "+strings.Join(values, ", "))
				got, _ := rows(t, st, batch)
				printed := w.table(t, "SELECT HEX(CAST(payload AS CHAR)) FROM outbox WHERE id >= ? ORDER BY id", first)
				for i := range got {
					check(t, fmt.Sprintf("document %d", first+i), got[i].Values[1], printed[i][0])
				}
				w.exec(t, "DELETE FROM outbox")
				if t.Failed() {
					t.FailNow()
				}
			}
		})
	}
}

// generator makes SQL expressions that give JSON documents.
type generator struct{ *rand.Rand }

// document is a whole value: at times one of more than 64 KiB, which has a form of its own.
func (g *generator) document() string {
	if g.IntN(60) == 0 {
		return g.large()
	}
	return "JSON_EXTRACT(JSON_ARRAY(" + g.value(g.IntN(7)) + "), '$[0]')"
}

func (g *generator) large() string {
	switch g.IntN(4) {
	case 0:
		return fmt.Sprintf("JSON_OBJECT('big', REPEAT('x', %d), 'small', %s)", 65500+g.IntN(100), g.value(3))
	case 1:
		return fmt.Sprintf("JSON_ARRAY(%s, CAST(CONCAT('[1', REPEAT(',%d', %d), ']') AS JSON))", g.value(2), g.IntN(1<<20), 5000+g.IntN(20000))
	case 2:
		return fmt.Sprintf("JSON_OBJECT('deep', JSON_OBJECT('a', REPEAT('ü', 40000), 'b', %s), 'c', %s)", g.value(2), g.value(2))
	}
	return fmt.Sprintf("JSON_ARRAY(%s, CAST(CONCAT('[{}', REPEAT(',{\"k\":[true,null,-1]}', %d), ']') AS JSON))", g.value(2), 3000+g.IntN(3000))
}

func (g *generator) value(depth int) string {
	if depth == 0 || g.IntN(4) == 0 {
		return g.scalar()
	}
	members := make([]string, g.IntN(6))
	object := g.IntN(2) == 0
	for i := range members {
		members[i] = g.value(depth - 1)
		if object {
			members[i] = g.text(0) + ", " + members[i]
		}
	}
	if object {
		return "JSON_OBJECT(" + strings.Join(members, ", ") + ")"
	}
	return "JSON_ARRAY(" + strings.Join(members, ", ") + ")"
}

func (g *generator) scalar() string {
	switch g.IntN(14) {
	case 0:
		return "CAST('" + [...]string{"true", "false", "null", "[]", "{}"}[g.IntN(5)] + "' AS JSON)"
	case 1:
		return strconv.FormatInt(int64(g.Uint64())>>g.IntN(64), 10)
	case 2:
		return "CAST(" + strconv.FormatUint(g.Uint64()>>g.IntN(64), 10) + " AS UNSIGNED)"
	case 3:
		return [...]string{"9223372036854775807", "-9223372036854775808", "18446744073709551615", "32767", "-32768", "32768", "65535", "65536", "2147483647", "-2147483648", "2147483648", "4294967295", "4294967296"}[g.IntN(13)]
	case 4, 5, 6:
		return g.double()
	case 7:
		return g.decimal()
	case 8, 9:
		return g.sqlType()
	}
	return g.text(g.IntN(3))
}

// double is of any magnitude, as text and as a number of few or all digits.
func (g *generator) double() string {
	f := math.Float64frombits(g.Uint64())
	switch g.IntN(4) {
	case 0:
		f = float64(int64(g.Uint64())>>g.IntN(64)) / math.Pow10(g.IntN(25))
	case 1:
		f = math.Trunc(math.Ldexp(g.Float64()-0.5, g.IntN(80)))
	case 2:
		f = float64(g.IntN(2000)-1000) * math.Pow10(g.IntN(60)-30)
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = math.MaxFloat64
	}
	return "CAST('" + strconv.FormatFloat(f, 'e', -1, 64) + "' AS JSON)"
}

func (g *generator) decimal() string {
	scale := g.IntN(31)
	whole := g.IntN(66 - scale)
	var b strings.Builder
	if g.IntN(2) == 0 {
		b.WriteByte('-')
	}
	for range whole {
		b.WriteByte(byte('0' + g.IntN(10)))
	}
	if whole == 0 {
		b.WriteByte('0')
	}
	if scale > 0 {
		b.WriteByte('.')
		for range scale {
			b.WriteByte(byte('0' + g.IntN(10)))
		}
	}
	return fmt.Sprintf("CAST(%s AS DECIMAL(%d,%d))", b.String(), max(whole+scale, 1), scale)
}

// sqlType is a value that JSON has no type for.
func (g *generator) sqlType() string {
	clock := fmt.Sprintf("%02d:%02d:%02d.%06d", g.IntN(24), g.IntN(60), g.IntN(60), g.IntN(1000000)*g.IntN(2))
	date := fmt.Sprintf("%04d-%02d-%02d", 1+g.IntN(9999), 1+g.IntN(12), 1+g.IntN(28))
	switch g.IntN(9) {
	case 0:
		return "CAST('" + date + "' AS DATE)"
	case 1:
		return fmt.Sprintf("CAST('%s' AS TIME(%d))", clock, g.IntN(7))
	case 2:
		return fmt.Sprintf("CAST('%s%d:%s' AS TIME(6))", [...]string{"", "-"}[g.IntN(2)], g.IntN(838), clock[3:])
	case 3:
		return fmt.Sprintf("CAST('%s %s' AS DATETIME(%d))", date, clock, g.IntN(7))
	case 4:
		return "TIMESTAMP '" + date + " " + clock + "'"
	case 5:
		return "FROM_UNIXTIME(" + strconv.Itoa(g.IntN(1<<31)) + "." + strconv.Itoa(g.IntN(1000000)) + ")"
	case 6:
		return "CAST(" + g.bytes() + " AS BINARY(7))"
	case 7:
		return "b'" + strconv.FormatUint(g.Uint64()>>g.IntN(64), 2) + "'"
	}
	return "_binary " + g.bytes()
}

func (g *generator) bytes() string {
	b := make([]byte, g.IntN(40))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return "x'" + hex.EncodeToString(b) + "'"
}

// text is a string literal: of letters and digits (a key), of all that needs an escape, or of any character. Some are long.
func (g *generator) text(kind int) string {
	n := g.IntN(12)
	if g.IntN(20) == 0 {
		n = 100 + g.IntN(400)
	}
	var b strings.Builder
	for range n {
		switch {
		case kind == 0 && g.IntN(10) > 0:
			b.WriteByte("abcdefghijklmnopqrstuvwxyzABC019_$."[g.IntN(35)])
		case kind == 1:
			b.WriteByte(byte(g.IntN(128)))
		default:
			r := rune(g.IntN(0x110000))
			if g.IntN(2) == 0 {
				r = rune(g.IntN(0x3000))
			}
			b.WriteRune(r) // a surrogate becomes U+FFFD
		}
	}
	return "CONVERT(x'" + hex.EncodeToString([]byte(b.String())) + "' USING utf8mb4)"
}
