package mysql

import (
	"strings"
)

// lexer cuts a statement into tokens. Comments are passed over; what stands in
// one that the server executes (/*!50000 … */, /*M! … */) is read.
type lexer struct{ rest string }

// token is a word or sign, or a name or text without its quotes.
type token struct {
	text   string
	quoted bool
}

// word reports whether the token is that keyword.
func (t token) word(keyword string) bool { return !t.quoted && strings.EqualFold(t.text, keyword) }

// one reports whether the token is one of the keywords.
func (t token) one(keywords ...string) bool {
	for _, k := range keywords {
		if t.word(k) {
			return true
		}
	}
	return false
}

// next gives the next token; an empty one that is not quoted is the end.
func (l *lexer) next() token {
	l.space()
	if l.rest == "" {
		return token{}
	}
	c := l.rest[0]
	if c == '`' || c == '\'' || c == '"' {
		return token{l.quoted(c), true}
	}
	n := 0
	for n < len(l.rest) && nameByte(l.rest[n]) {
		n++
	}
	return token{l.cut(max(n, 1)), false}
}

func (l *lexer) cut(n int) string {
	s := l.rest[:n]
	l.rest = l.rest[n:]
	return s
}

func nameByte(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// space passes over what stands between tokens.
func (l *lexer) space() {
	for l.rest != "" {
		switch s := l.rest; {
		case strings.IndexByte(" \t\n\r\f\v", s[0]) >= 0:
			l.rest = s[1:]
		case strings.HasPrefix(s, "/*!"), strings.HasPrefix(s, "/*M!"):
			l.rest = strings.TrimLeft(s[strings.IndexByte(s, '!')+1:], "0123456789")
		case strings.HasPrefix(s, "*/"):
			l.rest = s[2:]
		case strings.HasPrefix(s, "/*"):
			_, l.rest, _ = strings.Cut(s[2:], "*/")
		case strings.HasPrefix(s, "-- "), strings.HasPrefix(s, "--\n"), strings.HasPrefix(s, "--\t"), s[0] == '#':
			_, l.rest, _ = strings.Cut(s, "\n")
		default:
			return
		}
	}
}

// quoted reads a quoted name or text. Two quotes are one; a backslash escapes, but not in a name.
func (l *lexer) quoted(quote byte) string {
	var b strings.Builder
	s := l.rest[1:]
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quote != '`' && i+1 < len(s):
			i++
		case s[i] == quote && i+1 < len(s) && s[i+1] == quote:
			i++
		case s[i] == quote:
			l.rest = s[i+1:]
			return b.String()
		}
		b.WriteByte(s[i])
	}
	l.rest = ""
	return b.String()
}

// name reads [schema.]table. t is its first token.
func (l *lexer) name(t token, schema string) TableName {
	after := *l
	if !after.next().word(".") {
		return TableName{schema, t.text}
	}
	name := after.next()
	*l = after
	return TableName{t.text, name.text}
}

// begins reads the statement's first word, past what MariaDB allows before it:
// SET STATEMENT variable=value, … FOR, and ANALYZE [FORMAT=JSON].
func (l *lexer) begins() token {
	t := l.next()
	for {
		after := *l
		switch {
		case t.word("SET") && after.next().word("STATEMENT"):
			for t = after.next(); !t.word("FOR") && t != (token{}); {
				t = after.next()
			}
			t = after.next()
		case t.one("ANALYZE", "EXPLAIN"):
			if t = after.next(); t.word("FORMAT") {
				after.next()
				after.next()
				t = after.next()
			}
		default:
			return t
		}
		*l = after
	}
}

// inserts gives the table that a statement puts rows into: INSERT, REPLACE, LOAD, and CREATE TABLE … SELECT.
func inserts(text, schema string) (TableName, bool) {
	l := &lexer{text}
	switch t := l.begins(); {
	case t.one("INSERT", "REPLACE"):
		for t = l.next(); t.one("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"); {
			t = l.next()
		}
		return l.name(t, schema), true
	case t.word("LOAD"):
		for ; t != (token{}); t = l.next() {
			if t.word("INTO") && l.next().word("TABLE") {
				return l.name(l.next(), schema), true
			}
		}
	case t.word("CREATE"):
		return l.createdFrom(schema)
	}
	return TableName{}, false
}

// changes gives the table that a statement inserts into, updates or deletes
// from, where it names one alone at its beginning.
func changes(text, schema string) (TableName, bool) {
	l := &lexer{text}
	t := l.begins()
	if !t.one("UPDATE", "DELETE") {
		return inserts(text, schema)
	}
	for t = l.next(); t.one("LOW_PRIORITY", "QUICK", "IGNORE", "FROM"); {
		t = l.next()
	}
	name := l.name(t, schema)
	after := l.next()
	return name, name.Name != "" && !after.one(",", ".", "FROM", "JOIN", "USING")
}

// createdFrom reads CREATE TABLE name … SELECT. Where rows are logged, its text is without the SELECT.
func (l *lexer) createdFrom(schema string) (TableName, bool) {
	t := l.next()
	for t.one("OR", "REPLACE", "TEMPORARY") {
		t = l.next()
	}
	if !t.word("TABLE") {
		return TableName{}, false
	}
	for t = l.next(); t.one("IF", "NOT", "EXISTS"); {
		t = l.next()
	}
	name := l.name(t, schema)
	for ; t != (token{}); t = l.next() {
		if t.word("SELECT") {
			return name, true
		}
	}
	return TableName{}, false
}
