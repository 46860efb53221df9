package debezium

import (
	"fmt"
	"slices"
	"strings"
)

var texts = []string{
	`{"id": 1, "amount": 10.50}`, `{"a": {"b": [1, 2.5, "x", null, true]}}`, `[]`, `[1, 2]`, `{}`, `"hello"`, `42`, `-0`, `1e400`, `true`, `null`,
	`{"a": 12345678901234567890, "b": 0.1000}`, `{"a":1,"a":2}`, ` {"a":1} `, `{"a":"\u00e9 \"q\" \\ \/ \n \u0000"}`, `{"a":"é € 😀 <>&'/"}`,
	"plain text", "", " ", "tab\tnewline\nreturn\rform\fback\bslash\\quote\"", "\x01\x1f\x7f\u0080\u009f", "\u2028\u2029\ufeff\ufffd\ue000\uffff", "😀𝄞\U0010ffff", "ä\u0301 日本語",
	strings.Repeat("long ", 3000),
}

func payloads() (all []parity) {
	for _, server := range []string{"jsonb", "jsonb!", "text", "varchar!"} {
		for i, text := range texts {
			if !strings.HasSuffix(server, "!") || i%5 == 0 {
				for _, c := range []string{"string", "json", "json-schema"} {
					all = append(all, parity{name: fmt.Sprintf("%s payload %.30q with %s", server, text, c), question: row("", col("payload", server, text)).with("string", c, "simple")})
				}
			}
		}
	}
	for _, bytes := range []string{"{\"a\":1}", "", "\x00\x00\x00\x00\x07\x02\xff\xfe", "a", "ab"} {
		for _, c := range []string{"json", "json-schema", "bytes", "binary", "string"} {
			p := parity{name: fmt.Sprintf("bytea payload %q with %s", bytes, c), question: row("", col("payload", "bytea", bytes)).with("string", c, "simple")}
			if c == "string" {
				p.deviates, p.instead = "lost bytes", fmt.Sprintf("value %q", bytes)
			}
			all = append(all, p)
		}
	}
	for _, c := range []string{"bytes", "binary"} {
		all = append(all, parity{name: "jsonb payload with " + c, question: row("").with("string", c, "simple"), deviates: "no such converter", instead: `value "{\"id\": 1, \"amount\": 10.50}"`})
	}
	for _, c := range []string{"string", "json", "json-schema"} {
		all = append(all, parity{name: "NULL payload with " + c, question: row("", col("payload", "jsonb", null)).with("string", c, "simple"), deviates: "null payload", instead: "refused: null_payload"})
		for _, text := range []string{null, "", "  ", "null", "{}", "\t\n"} {
			for _, server := range []string{"text", "bytea"} {
				if server == "bytea" && c == "string" {
					continue
				}
				all = append(all, parity{name: fmt.Sprintf("tombstone of %s %q with %s", server, text, c), question: row("route.tombstone.on.empty.payload=true", col("payload", server, text)).with("string", c, "simple")})
			}
		}
	}
	return all
}

func keys() (all []parity) {
	for _, k := range []struct{ server, value string }{
		{"varchar", "1"}, {"varchar!", "1"}, {"text!", ""}, {"text", "a \"b\" é 😀"}, {"integer!", "42"}, {"bigint!", "-9223372036854775808"}, {"bigint", "42"}, {"smallint!", "7"},
		{"uuid!", "406c07f3-26f0-4eea-a50c-109940064b8f"}, {"uuid", "406c07f3-26f0-4eea-a50c-109940064b8f"}, {"numeric(20,0)", "12345678901234567890"},
	} {
		for _, c := range []string{"string", "json", "json-schema"} {
			all = append(all, parity{name: fmt.Sprintf("key %s %q with %s", k.server, k.value, c), question: row("", col("aggregateid", k.server, k.value)).with(c, "string", "simple")})
		}
	}
	all = append(all,
		parity{name: "key of bytes with bytes", question: row("", col("aggregateid", "bytea!", "\x01\xff")).with("bytes", "string", "simple")},
		parity{name: "key of bytes with json", question: row("", col("aggregateid", "bytea!", "\x01\xff")).with("json", "string", "simple")},
		parity{name: "key of another column", question: row("table.field.event.key=type").with("json-schema", "string", "simple")},
	)
	for _, c := range []string{"string", "json", "json-schema"} {
		all = append(all, parity{name: "NULL key with " + c, question: row("", col("aggregateid", "varchar", null)).with(c, "string", "simple"), deviates: "null key", instead: "refused: null_key"})
	}
	return all
}

var values = []struct{ server, value string }{
	{"varchar", "x é \"😀\""}, {"varchar", ""}, {"varchar", null}, {"integer", "3"}, {"integer", null}, {"smallint", "-3"}, {"bigint", "9007199254740993"}, {"boolean", "t"}, {"boolean", "f"}, {"boolean", null},
	{"real", "1.5"}, {"real", "0.1"}, {"real", "1e+20"}, {"real", "3.4028235e+38"}, {"double precision", "1.5"}, {"double precision", "1"}, {"double precision", "1e+20"}, {"double precision", "123456789.25"}, {"double precision", "1234567.5"}, {"double precision", "0.0001"}, {"double precision", "0.001"},
	{"double precision", "-0"}, {"double precision", "NaN"}, {"double precision", "-Infinity"}, {"double precision", "1.7976931348623157e+308"}, {"double precision", "2.2250738585072014e-308"}, {"double precision", null},
	{"numeric(10,2)", "10.50"}, {"numeric(10,2)", "-0.01"}, {"numeric(10,2)", "0.00"}, {"numeric(10,2)", "-128.00"}, {"numeric(10,2)", "1.27"}, {"numeric(10,2)", "1.28"}, {"numeric(10,2)", "-1.28"}, {"numeric(10,2)", "-1.29"}, {"numeric(10,2)", null}, {"numeric(20,0)", "12345678901234567890"},
	{"uuid", "406c07f3-26f0-4eea-a50c-109940064b8f"}, {"jsonb", `{"t": "x"}`}, {"bytea", "\x01\x02\xff"}, {"bytea", ""}, {"bytea", null},
	{"date", "2018-06-20"}, {"date", "1969-12-31"}, {"date", null}, {"time without time zone", "15:13:16.945104"}, {"time without time zone", "00:00:00"},
	{"timestamp without time zone", "2018-06-20 15:13:16.945104"}, {"timestamp without time zone", "1969-12-31 23:59:59.999999"}, {"timestamp(3) without time zone", "2018-06-20 15:13:16.945"}, {"timestamp without time zone", null},
	{"timestamp with time zone", "2018-06-20 15:13:16.945104+00"}, {"timestamp with time zone", "2018-06-20 15:13:16+00"}, {"timestamp with time zone", null},
}

func headerCases() (all []parity) {
	for _, v := range values {
		for _, notNull := range []string{"", "!"} {
			if notNull != "" && v.value == null {
				continue
			}
			for _, c := range []string{"simple", "json", "json-schema"} {
				q := row("table.fields.additional.placement=x:header,type:header:eventType", col("x", v.server+notNull, v.value)).with("string", "string", c)
				all = append(all, parity{name: fmt.Sprintf("header %s %q with %s", v.server+notNull, v.value, c), question: q})
			}
		}
	}
	for _, c := range []string{"simple", "json", "json-schema"} {
		q := row("").with("string", "string", c)
		const context = "__debezium.context."
		q.Context = [][2]string{{context + "connectorLogicalName", "srv"}, {context + "taskId", "0"}, {context + "connectorName", "postgresql"}}
		all = append(all, parity{name: "Debezium's context with " + c, question: q})
		q.Context = append(q.Context, [2]string{context + "runId", "8f2d9bd2-6b5f-4b3e-8f5a-0f0f0f0f0f0f"})
		all = append(all, parity{name: "Debezium's whole context with " + c, question: q, deviates: "run id", instead: context + "taskId:"})
	}
	all = append(all,
		parity{name: "the id placed again", question: row("table.fields.additional.placement=id:header"), deviates: "two headers", instead: ` id:"406c07f3-26f0-4eea-a50c-109940064b8f"`},
		parity{name: "a name twice", question: row("table.fields.additional.placement=type:header:id"), deviates: "two headers", instead: `two headers "id"`},
		parity{name: "a missing column", question: row("table.fields.additional.placement=zz:header"), deviates: "missing column", instead: `no column "zz"`},
		parity{name: "a missing column ignored", question: row("table.fields.additional.placement=zz:header table.field.additional.missing=ignore")},
		parity{name: "no such place", question: row("table.fields.additional.placement=type:body"), deviates: "bad placement", instead: `"body" is no place`},
		parity{name: "another id", question: row("table.field.event.id=type")},
	)
	return all
}

func envelopes() (all []parity) {
	for _, v := range values {
		for _, c := range []string{"json", "json-schema"} {
			q := row("table.fields.additional.placement=type:envelope:eventType,x:envelope", col("x", v.server, v.value)).with("string", c, "simple")
			all = append(all, parity{name: fmt.Sprintf("envelope %s %q with %s", v.server, v.value, c), question: q})
		}
	}
	for _, c := range []string{"json", "json-schema"} {
		place := "table.fields.additional.placement=type:envelope "
		all = append(all,
			parity{name: "envelope with a version, " + c, question: row(place+"table.field.event.schema.version=ver", col("ver", "integer!", "3")).with("string", c, "simple")},
			parity{name: "version without envelope, " + c, question: row("table.field.event.schema.version=ver", col("ver", "integer!", "3")).with("string", c, "simple")},
			parity{name: "envelope of bytes, " + c, question: row(place, col("payload", "bytea!", "\x00\x01")).with("string", c, "simple")},
			parity{name: "envelope of text, " + c, question: row(place, col("payload", "text!", "a \"b\" 😀")).with("string", c, "simple")},
			parity{name: "envelope of another type, " + c, question: row(place, col("aggregatetype", "varchar!", "Bill é \"x\"")).with("string", c, "simple")},
			parity{name: "envelope and tombstone, " + c, question: row(place+"route.tombstone.on.empty.payload=true", col("payload", "jsonb", null)).with("string", c, "simple")},
			parity{name: "envelope and NULL, " + c, question: row(place, col("payload", "jsonb", null)).with("string", c, "simple"), deviates: "null payload", instead: "refused: null_payload"},
			parity{name: "envelope, header and partition, " + c, question: row("table.fields.additional.placement=type:envelope,type:header:kind,p:partition", col("p", "integer", "5")).with("json", c, "json")},
		)
	}
	return all
}

func timestamps() (all []parity) {
	at := "table.field.event.timestamp=made"
	for _, v := range []struct{ server, value, deviates, instead string }{
		{"timestamp without time zone", "2018-06-20 15:13:16.945104", "", ""},
		{"timestamp(3) without time zone", "2018-06-20 15:13:16.945", "", ""},
		{"timestamp without time zone", "2018-06-20 15:13:16.9999", "", ""},
		{"timestamp without time zone", null, "", ""},
		{"timestamp without time zone", "1970-01-01 00:00:00", "", ""},
		{"timestamp without time zone", "1969-12-31 23:59:59.9985", "no point in time", "at -2 "},
		{"timestamp with time zone", "2018-06-20 15:13:16.945104+00", "timestamp", "at 1529507596945 "},
		{"date", "2018-06-20", "timestamp", "at 1529452800000 "},
		{"bigint", "1529507596945", "timestamp", "at 1529507596945 "},
		{"integer", "1529507596", "timestamp", "at 1529507596000 "},
	} {
		all = append(all, parity{name: "timestamp " + v.server + " " + v.value, question: row(at, col("made", v.server, v.value)), deviates: v.deviates, instead: v.instead})
	}
	return all
}

func partitions() (all []parity) {
	for _, v := range []struct{ server, value, deviates, instead string }{
		{"integer", "3", "", ""}, {"integer", null, "", ""}, {"integer!", "0", "", ""},
		{"smallint", "3", "partition", " partition 3 "}, {"bigint", "3", "partition", " partition 3 "},
		{"integer", "-1", "negative partition", "refused: bad_partition"},
	} {
		all = append(all, parity{name: "partition " + v.server + " " + v.value, question: row("table.fields.additional.placement=p:partition", col("p", v.server, v.value)), deviates: v.deviates, instead: v.instead})
	}
	return all
}

func routes() (all []parity) {
	patterns := [][2]string{
		{"", ""}, {`(.*)\.(.*)`, `$1.events.$2`}, {`^x(.*)$`, `evt.$1`}, {`(?<kind>[a-z]+)-(\d+)`, `${kind}_$2`}, {`a|ab`, `X`}, {`.*?`, `X`}, {`(a)(b)?(.*)`, `$1-$2-$3`}, {`(.)(.*)`, `$11.$0`},
		{`(?i)order`, `o`}, {`(.*)`, `\$1.\\$1`}, {`\Q.\E|(\w+)`, `$1!`}, {`[^\d]+`, `none`}, {`(o|Or)(der)?.*`, `$1$2`}, {`\p{Lu}(.*)`, `u$1`}, {`()`, `empty`}, {`x*`, `y`},
	}
	for _, p := range patterns {
		for _, value := range []string{"Order", "shop.order", "x", "xOrder", "bill-7", "ab", "My Order", "Or$1der", `a\b`, "é😀"} {
			var options []string
			if p[0] != "" {
				options = []string{"route.topic.regex=" + p[0], "route.topic.replacement=" + p[1]}
			}
			all = append(all, parity{name: fmt.Sprintf("route %q by %v", value, p), question: row(strings.Join(options, " "), col("aggregatetype", "varchar!", value))})
		}
	}
	all = append(all,
		parity{name: "route by another column", question: row("route.by.field=type")},
		parity{name: "route by an integer", question: row("route.by.field=n", col("n", "integer!", "3")), deviates: "route type", instead: `topic "outbox.event.3"`},
		parity{name: "route by NULL", question: row("", col("aggregatetype", "varchar", null)), deviates: "null route", instead: "refused: unroutable"},
		parity{name: "route by nothing", question: row("", col("aggregatetype", "varchar", "")), deviates: "empty route", instead: "refused: unroutable"},
	)
	return all
}

// expansions: what a consumer of expanded JSON gets from outboxd is the payload as it is, in the format raw or connect-json.
func expansions() (all []parity) {
	for _, text := range []string{
		`{"id": 1, "amount": 10.50}`, `{"a":1,"b":null}`, `{"a":1,"items":[]}`, `[{"a":1},{"a":2}]`, `[1,2]`, `{"n":12345678901234567890}`, `{"amount":12345678901234567.89}`,
		`{"xs":[{"a":1},{"a":"x"}]}`, `{"a":1e400}`, `{"a":1,"a":2}`, `{"xs":[{"k":{"a":1}},{"k":{"b":2}}]}`, `{"a":[1,"x"]}`,
	} {
		all = append(all, parity{name: "expanded " + text, question: row("table.expand.json.payload=true", col("payload", "jsonb", text)).with("string", "json", "simple"), deviates: "expanded", instead: fmt.Sprintf("value %q", text)})
	}
	for _, text := range []string{`{"id":1,"s":"é","x":{"y":true}}`, `{}`, `"x"`, ``, `{"a":1`} {
		q := row("table.expand.json.payload=true table.fields.additional.placement=type:envelope", col("payload", "text", text)).with("string", "json", "simple")
		all = append(all, parity{name: "expanded in an envelope " + text, question: q})
	}
	for _, text := range []string{`{"id":1,"s":"é","x":{"y":true}}`, `{"z":1,"a":2}`, `{}`, `{"a":[[1],[2,3]]}`, `"hello"`, `42`, ``, `{"a":1`} {
		all = append(all, parity{name: "expanded alike " + text, question: row("table.expand.json.payload=true", col("payload", "text", text)).with("string", "json", "simple")})
	}
	return all
}

func others() []parity {
	bill := row("table.fields.additional.placement=type:envelope", col("aggregatetype", "varchar!", "Bill")).with("string", "json-schema", "simple")
	bill.Again = true
	missing := row("")
	missing.Columns = slices.DeleteFunc(missing.Columns, func(c column) bool { return c.Name == "aggregateid" })
	return []parity{
		{name: "envelope of one type", question: row("table.fields.additional.placement=type:envelope").with("string", "json-schema", "simple")},
		{name: "envelope of another type after it", question: bill, deviates: "schema name", instead: "srv.public.outbox.Bill.Value"},
		{name: "no key column", question: missing, deviates: "missing column", instead: `no column "aggregateid"`},
		{name: "no payload column", question: row("table.field.event.payload=body"), deviates: "missing column", instead: `no column "body"`},
	}
}
