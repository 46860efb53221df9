package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseTables(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]Table{
		"outbox":                      {{Name: "outbox"}},
		"Shop.OutBox":                 {{"shop", "outbox", ""}},
		`"Shop"."Out.Box", b`:         {{"Shop", "Out.Box", ""}, {Name: "b"}},
		"`a``b`.`c\"d`":               {{"a`b", `c"d`, ""}},
		`"none"`:                      {{Name: "none"}},
		`"a""b"`:                      {{Name: `a"b`}},
		`a . b ,c`:                    {{"a", "b", ""}, {Name: "c"}},
		"ÄB.my$table_1-x":             {{"Äb", "my$table_1-x", ""}},
		`"a=b"`:                       {{Name: "a=b"}},
		`A_1 = "S"."x=y", b=c.D`:      {{"S", "x=y", "a_1"}, {"c", "d", "b"}},
		`o.outbox,p.outbox,"O"."out"`: {{"o", "outbox", ""}, {"p", "outbox", ""}, {"O", "out", ""}},
	} {
		got, err := parseTables(in, namesOf(Source{Scheme: "postgres"}))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v; want %v", in, got, err, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "1KB": 1000, "1KiB": 1024, "16MiB": 16 << 20, "2MB": 2e6, "3GB": 3e9, "1GiB": 1 << 30, "9223372036854775807": 1<<63 - 1,
	} {
		if got, err := parseSize(in); got != want || err != nil {
			t.Errorf("%s: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "B", "-1", "1.5MiB", "1 MiB", "1mib", "1M", "0x10", "1_000", "+1", "9223372036854775808", "9007199254740992KiB"} {
		if got, err := parseSize(in); err == nil {
			t.Errorf("%q gave %d", in, got)
		}
	}
}

func TestParseEnvFile(t *testing.T) {
	t.Parallel()
	got, err := ParseEnvFile(strings.NewReader("\ufeff# head\n\nA=1\n export B = two words \nC='\"x\"'\r\nD=\"a # b=c\"\nE=\nF=a#b\n"))
	want := []string{"A=1", "B=two words", `C="x"`, "D=a # b=c", "E=", "F=a#b"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for in, reason := range map[string]string{
		"A=1\nrubbish":   "line 2 is not",
		"=x":             "line 1 is not",
		"A B=x":          "line 1 is not",
		"A=\"geheim":     "quote of A is not closed",
		"A='":            "quote of A is not closed",
		"A=geheim\x00ab": "NUL",
	} {
		_, err := ParseEnvFile(strings.NewReader(in))
		if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"16MiB", "1", "9GB", "99999999999999999999B"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := parseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q gave %d", s, n)
		}
		if again, err := parseSize(shortSize(n)); err != nil || again != n {
			t.Fatalf("%q: %d is written %s and read %d, %v", s, n, shortSize(n), again, err)
		}
	})
}

func FuzzParseTables(f *testing.F) {
	for _, s := range []string{"outbox", `"A"."b.c",d`, "`x`", "a=b", `"`, "shop.a,A"} {
		f.Add(s, "mysql")
		f.Add(s, "postgres")
	}
	f.Fuzz(func(t *testing.T, s, scheme string) {
		as := namesOf(Source{Scheme: scheme, Database: "shop"})
		tables, err := parseTables(s, as)
		if err != nil {
			return
		}
		var quoted []string
		for _, table := range tables {
			q := `"` + strings.ReplaceAll(table.Name, `"`, `""`) + `"`
			if table.Schema != "" {
				q = `"` + strings.ReplaceAll(table.Schema, `"`, `""`) + `".` + q
			}
			if table.Alias != "" {
				q = table.Alias + "=" + q
			}
			quoted = append(quoted, q)
		}
		again, err := parseTables(strings.Join(quoted, ","), as)
		if err != nil || !reflect.DeepEqual(again, tables) {
			t.Fatalf("%q: %v read again as %v, %v", s, tables, again, err)
		}
	})
}

func FuzzParseEnvFile(f *testing.F) {
	f.Add("A=1\nexport B='x'\n# c\n")
	f.Add("A=\"")
	f.Fuzz(func(t *testing.T, s string) {
		vars, err := ParseEnvFile(strings.NewReader(s))
		if err != nil {
			return
		}
		for _, v := range vars {
			name, value, ok := strings.Cut(v, "=")
			if !ok || !envName.MatchString(name) || strings.ContainsAny(value, "\n\x00") {
				t.Fatalf("%q gave %q", s, v)
			}
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"postgres://u:p@h/d?sslmode=require", "postgres://u:p%40@a:1,[::1]:2/d?password=x",
		"mysql://u:p@a,[::1]:2/d?ssl-mode=required&ssl-ca=%2Fca", "mariadb:///d?socket=/s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseURL(s)
		if err != nil {
			return
		}
		again, err := parseURL(a.String())
		if err != nil || again.password != "" || again.database != a.database || again.String() != a.String() {
			t.Fatalf("%q: %q read again as %+v, %v", s, a.String(), again, err)
		}
	})
}
