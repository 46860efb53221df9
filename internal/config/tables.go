package config

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const tablesLegal = "[alias=][schema.]table[,…], with \"…\" or `…` where a name holds dots, or on Postgres capitals"

// identifierBytes is the longest name Postgres keeps whole.
const identifierBytes = 63

// identifierRunes is the longest name MySQL takes.
const identifierRunes = 64

// names is how a database takes names.
type names struct {
	home    string // the schema of a table without one; empty: not known here
	fold    bool   // unquoted names are lower-cased
	tooLong func(name string) error
}

func namesOf(s Source) names {
	if s.MySQL() {
		return names{home: s.Database, tooLong: func(name string) error {
			if n := utf8.RuneCountInString(name); n > identifierRunes {
				return fmt.Errorf("has a name of %d characters, the limit is %d", n, identifierRunes)
			}
			return nil
		}}
	}
	return names{fold: true, tooLong: func(name string) error {
		if len(name) > identifierBytes {
			return fmt.Errorf("has a name of %d bytes, the limit is %d", len(name), identifierBytes)
		}
		return nil
	}}
}

// Table names one outbox table. Schema and name are meant literally.
type Table struct {
	Schema string // empty: found by the server
	Name   string
	Alias  string // [a-z0-9_]+: of its own settings and its metric label; empty: none
}

// Variables is what the names of the table's own variables begin with.
func (t Table) Variables() string { return Prefix + "TABLE_" + strings.ToUpper(t.Alias) + "_" }

func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

// parseTables reads OUTBOXD_TABLES.
func parseTables(s string, as names) ([]Table, error) {
	if strings.Trim(s, " \t") == None {
		return nil, nil
	}
	var tables []Table
	seen := map[Table]bool{}
	aliases := map[string]bool{"": true}
	rest := s
	for {
		var parts []string
		var err error
		var alias string
		alias, rest = cutAlias(rest)
		if alias != "" && aliases[alias] {
			return nil, fmt.Errorf("has the alias %s twice", alias)
		}
		aliases[alias] = true
		parts, rest, err = parseTable(rest, as)
		if err != nil {
			return nil, err
		}
		t := Table{Name: parts[len(parts)-1]}
		if len(parts) == 2 {
			t.Schema = parts[0]
		}
		whole := t
		if whole.Schema == "" {
			whole.Schema = as.home
		}
		if seen[whole] {
			return nil, fmt.Errorf("names %s twice", t)
		}
		seen[whole] = true
		t.Alias = alias
		tables = append(tables, t)
		if rest == "" {
			return tables, nil
		}
		rest = rest[1:] // the comma
	}
}

var tableAlias = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_]{1,40})[ \t]*=`)

// cutAlias takes what stands before an equals sign, in lower case.
func cutAlias(s string) (alias, rest string) {
	m := tableAlias.FindStringSubmatch(s)
	if m == nil {
		return "", s
	}
	return strings.ToLower(m[1]), s[len(m[0]):]
}

// parseTable reads one [schema.]table and stops at the end or at a comma.
func parseTable(s string, as names) (parts []string, rest string, err error) {
	rest = s
	for {
		name, quoted, after, err := parseIdentifier(rest, as)
		if err != nil {
			return nil, "", err
		}
		parts = append(parts, name)
		rest = strings.TrimLeft(after, " \t")
		end := rest == "" || rest[0] == ','
		switch {
		case end && len(parts) == 1 && !quoted && name == None:
			return nil, "", errors.New("has none beside a table")
		case end:
			return parts, rest, nil
		case rest[0] == '=':
			return nil, "", errors.New("has an alias that is not made of letters, digits and _")
		case rest[0] != '.':
			return nil, "", fmt.Errorf("has something other than a dot or a comma after %q", name)
		case len(parts) == 2:
			return nil, "", errors.New("has a name of more than two parts")
		}
		rest = rest[1:]
	}
}

// parseIdentifier reads one name. Within quotes a doubled quote is a quote.
func parseIdentifier(s string, as names) (name string, quoted bool, rest string, err error) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] == ',' || s[0] == '.' {
		return "", false, "", errors.New("has an empty name")
	}
	if q := s[0]; q == '"' || q == '`' {
		name, rest, err = unquote(s[1:], q)
		quoted = true
	} else {
		end := strings.IndexAny(s, ".,= \t\"`")
		if end < 0 {
			end = len(s)
		}
		name, rest = s[:end], s[end:]
		if as.fold {
			name = lowerASCII(name)
		}
	}
	switch {
	case err != nil:
	case name == "":
		err = errors.New("has an empty name")
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }):
		err = errors.New("has a control character or malformed UTF-8 in a name")
	default:
		err = as.tooLong(name)
	}
	return name, quoted, rest, err
}

// lowerASCII folds as Postgres does in a multibyte encoding: ASCII letters only.
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func unquote(s string, q byte) (name, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != q {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == q {
			b.WriteByte(q)
			i++
			continue
		}
		return b.String(), s[i+1:], nil
	}
	return "", "", errors.New("has a quote that is not closed")
}

// WithTable is the configuration for one of its tables alone, by its alias or name.
func (c *Config) WithTable(name string) (*Config, error) {
	for _, t := range c.Tables {
		if name == t.Alias || name == t.Name || name == t.String() {
			only := *c
			only.Tables = []Table{t}
			return &only, nil
		}
	}
	return nil, fmt.Errorf("%q is not in OUTBOXD_TABLES", name)
}
