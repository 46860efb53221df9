package load

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// aggregateID names aggregate n: mostly plain, some with what breaks quoting and counting of bytes.
func aggregateID(n int) string {
	switch n % 10 {
	case 3:
		return fmt.Sprintf("Zürich/日本 %d", n)
	case 6:
		return fmt.Sprintf(`it's "%d" \ %%`, n)
	case 9:
		return fmt.Sprintf("🎉%d", n)
	}
	return fmt.Sprintf("agg-%06d", n)
}

func eventType(random *rand.Rand) string {
	types := []string{"created", "paid", "versandt-ß", "cancelled"}
	return types[random.IntN(len(types))]
}

// values are JSON that a careless relay alters: numbers beyond float64, forms
// of numbers, escapes, and text beyond ASCII.
var values = []string{
	`1`, `-0`, `1.0`, `2.50`, `1e20`, `1E-7`, `12345678901234567890`, `-9007199254740993`, `0.1234567890123456789`,
	`""`, `"plain"`, `"h\u00e9 \ud83d\ude00 日本"`, `"tab\t line\n quote\" back\\ slash\/ <a>&\u2028"`, `"null"`,
	`null`, `true`, `[]`, `{}`, `[1, 2.0, "x", [null, {"b":1,"a":2}]]`, `{"zz":1,"a":{"y":1,"x":[]},"aa":1.10}`,
}

func payload(random *rand.Rand, seq int64, ghost bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"seq": %d, "dup": 1, "dup": 2`, seq)
	if ghost {
		b.WriteString(`, "ghost": true`)
	}
	for i := range 1 + random.IntN(6) {
		fmt.Fprintf(&b, `, "member %d": %s`, i, values[random.IntN(len(values))])
	}
	if random.IntN(50) == 0 { // large enough to be stored out of line
		fmt.Fprintf(&b, `, "large": "%s"`, strings.Repeat(uuid(random), 100))
	}
	b.WriteString("}")
	return b.String()
}

func uuid(random *rand.Rand) string {
	hi, lo := random.Uint64()&^0xf000|0x4000, random.Uint64()&^(3<<62)|2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}
