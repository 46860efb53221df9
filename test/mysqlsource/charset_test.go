package mysqlsource

import (
	"fmt"
	"strings"
	"testing"
)

// every character set of the servers, with bytes of its own beside ASCII: all of an 8-bit set, and
// what vendors see differently, private characters and unassigned ones in the others.
var foreign = map[string]string{
	"sjis": "815F8160817C81CAB1DF889F8740F040", "cp932": "815F8160817CB1DF8740F040F9FCFA40ED40", "ujis": "A1C0A1C1A1DD8EB18FB0A18FA2B7F5A1", "eucjpms": "A1C0A1C1ADA18EB18FF3F38FF4FEF5A1",
	"big5": "A145A15AA1C3A2CCC6A1C7F2F9D6F9FEF940A440", "gbk": "A140A1A4A1AAA2A1A2E3A844B0A1FE50FE9F8140", "gb2312": "A1A4A1AAB0A1F7FE",
	"euckr": "A1A1A2E6A2E7B0A1C8FE8141C652", "gb18030": "A140A2E3A6D9A8BCFE5081308130813083308336C8318431A439903081309439DA35E3329A35",
}

// Text of every character set is what the server makes of it in UTF-8 (A17).
func TestCharsets(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE unused (id INT)")
		w := d.session(t)
		var names, columns, values, hex []string
		for _, row := range w.table(t, "SELECT CHARACTER_SET_NAME, MAXLEN FROM information_schema.CHARACTER_SETS ORDER BY 1") {
			name, bytes := *row[0], *row[1]
			own := foreign[name]
			switch {
			case name == "binary" || name == "ascii":
				own = "41427F"
			case name == "swe7":
				own = "405B5C5D5E607B7C7D7E41"
			case bytes == "1":
				for b := 0x80; b < 0x100; b++ {
					own += fmt.Sprintf("%02X", b)
				}
			case own == "":
				own = fmt.Sprint(w.value(t, "SELECT HEX(CONVERT('aé€中' USING "+name+"))"))
			default:
				own += "41" + own
			}
			c, label := "c_"+name, own[:min(len(own), 200)]
			if name == "gb18030" {
				label = own[:20] // without what information_schema can't show
			}
			names, columns = append(names, c), append(columns, fmt.Sprintf("%s VARCHAR(400) CHARACTER SET %s, e_%s ENUM(x'%s', 'x') CHARACTER SET %[2]s", c, name, name, label))
			values = append(values, fmt.Sprintf("_%s x'%s', 1", name, own))
			hex = append(hex, fmt.Sprintf("HEX(CONVERT(%s USING utf8mb4)), HEX(CONVERT(e_%s USING utf8mb4))", c, name))
		}
		d.exec(t, "CREATE TABLE outbox (id INT, "+strings.Join(columns, ", ")+")")
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		w.exec(t, "INSERT INTO outbox VALUES (1, "+strings.Join(values, ", ")+")")
		got, _ := rows(t, st, 1)
		printed := w.table(t, "SELECT "+strings.Join(hex, ", ")+" FROM outbox")[0]
		for i, name := range names {
			check(t, name, got[0].Values[1+2*i], printed[2*i])
			check(t, "label of "+name, got[0].Values[2+2*i], printed[1+2*i])
		}
	})
}
