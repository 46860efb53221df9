package load

import (
	"encoding/binary"
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

// binaryAggregateID is 16 bytes; some end in zeros, which a log may leave out.
func binaryAggregateID(n int) []byte {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id, uint64(n)<<(n%3*20))
	if n%2 == 0 {
		binary.BigEndian.PutUint64(id[8:], uint64(n)*0x9e3779b97f4a7c15)
	}
	return id
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

func payload(random *rand.Rand, aggregate int, seq int64, ghost bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"seq": %d, "order_id": %d, "dup": 1, "dup": 2`, seq, aggregate)
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
	hi, lo := uuidBits(random)
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", hi>>32, hi>>16&0xffff, hi&0xffff, lo>>48, lo&(1<<48-1))
}

// binaryUUID ends in a zero now and then.
func binaryUUID(random *rand.Rand) []byte {
	hi, lo := uuidBits(random)
	if random.IntN(20) == 0 {
		lo &^= 0xffff
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)
}

func uuidBits(random *rand.Rand) (hi, lo uint64) {
	return random.Uint64()&^0xf000 | 0x4000, random.Uint64()&^(3<<62) | 2<<62
}
