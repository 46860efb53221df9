package transform

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Route is Debezium's way to a topic: the value of a column, which a regular
// expression takes apart and a replacement puts together. The zero value is: none.
type Route struct {
	By          string // column; "": that of the aggregate type
	Regex       string // in RE2; "": (?<routedByValue>.*)
	Replacement string // with Java's $1 and ${name}; "": outbox.event.${routedByValue}
}

const (
	defaultRegex       = "(?<routedByValue>.*)"
	defaultReplacement = "outbox.event.${routedByValue}"
)

// rewriter is a compiled Route. It does what Java's matches and replaceFirst
// do: a value that does not match as a whole stays as it is.
type rewriter struct {
	by          string
	whole       *regexp.Regexp // matches all of a value or nothing
	first       *regexp.Regexp // finds what is replaced
	replacement []replacement
	text        string // for messages
}

// replacement is a literal, or a group.
type replacement struct {
	literal string
	group   int // -1: literal
}

func compileRoute(r Route) (*rewriter, error) {
	regex, into := r.Regex, r.Replacement
	if regex == "" {
		regex = defaultRegex
	}
	if into == "" {
		into = defaultReplacement
	}
	if what := onlyJava(regex); what != "" {
		return nil, fmt.Errorf("the pattern %q has %s, which RE2 does not have or takes otherwise", regex, what)
	}
	first, err := regexp.Compile(regex)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q: %s", regex, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	whole, err := regexp.Compile(`\A(?:` + regex + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("the pattern %q: %s", regex, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	w := &rewriter{by: r.By, whole: whole, first: first, text: into}
	w.replacement, err = parseReplacement(into, first)
	if err != nil {
		return nil, fmt.Errorf("the replacement %q %w", into, err)
	}
	return w, nil
}

// onlyJava names the first thing in a pattern that Java has and RE2 either
// lacks or reads as something else; "" if there is none.
func onlyJava(regex string) string {
	class := false
	for i := 0; i < len(regex); i++ {
		rest := regex[i:]
		switch {
		case strings.HasPrefix(rest, `\Q`):
			end := strings.Index(rest, `\E`)
			if end < 0 {
				return ""
			}
			i += end + 1
		case rest[0] == '\\' && len(rest) > 1:
			if found := onlyJavaEscape(rest[1]); found != "" {
				return found
			}
			i++
		case class && strings.HasPrefix(rest, "&&"):
			return "an intersection of classes (&&)"
		case class && rest[0] == '[':
			return "a class within a class ([)"
		case class && rest[0] == ']':
			class = false
		case class:
		case rest[0] == '[':
			class = true
			if strings.HasPrefix(rest[1:], "^") {
				i++
			}
			if strings.HasPrefix(regex[i+1:], "]") { // a literal there for RE2, and for Java an error or literal
				return "a ] at the start of a class"
			}
		default:
			if found := onlyJavaGroup(rest); found != "" {
				return found
			}
			if len(rest) > 1 && rest[1] == '+' && strings.IndexByte("*+?}", rest[0]) >= 0 {
				return fmt.Sprintf("a possessive quantifier (%s)", rest[:2])
			}
		}
	}
	return ""
}

func onlyJavaEscape(c byte) string {
	switch {
	case c >= '1' && c <= '9':
		return fmt.Sprintf(`a back reference (\%c)`, c)
	case strings.IndexByte("GZXRNhHVvkecu", c) >= 0:
		return fmt.Sprintf(`the escape \%c`, c)
	}
	return ""
}

func onlyJavaGroup(rest string) string {
	for _, g := range []struct{ form, what string }{
		{"(?=", "a look-ahead"}, {"(?!", "a look-ahead"}, {"(?<=", "a look-behind"}, {"(?<!", "a look-behind"}, {"(?>", "an atomic group"},
	} {
		if strings.HasPrefix(rest, g.form) {
			return fmt.Sprintf("%s (%s…)", g.what, g.form)
		}
	}
	if flags, ok := strings.CutPrefix(rest, "(?"); ok {
		end := strings.IndexFunc(flags, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
		if end > 0 && (flags[end] == ')' || flags[end] == ':') && strings.ContainsAny(flags[:end], "Uudxc") {
			return fmt.Sprintf("the flags (?%s)", flags[:end])
		}
	}
	return ""
}

// parseReplacement reads a replacement as Java's Matcher does: $ and as many
// digits as still name a group, ${name}, and \ before a literal.
func parseReplacement(s string, re *regexp.Regexp) ([]replacement, error) {
	var all []replacement
	var literal strings.Builder
	group := func(n int) {
		if literal.Len() > 0 {
			all = append(all, replacement{literal.String(), -1})
			literal.Reset()
		}
		all = append(all, replacement{group: n})
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 == len(s):
			return nil, errors.New(`ends with a \`)
		case s[i] == '\\':
			i++
			literal.WriteByte(s[i])
		case s[i] != '$':
			literal.WriteByte(s[i])
		case strings.HasPrefix(s[i:], "${"):
			name, _, closed := strings.Cut(s[i+2:], "}")
			n := re.SubexpIndex(name)
			if !closed || n < 0 {
				return nil, fmt.Errorf("names a group %q that the pattern does not have", name)
			}
			group(n)
			i += len(name) + 2
		default:
			n, used := groupNumber(s[i+1:], re.NumSubexp())
			if used == 0 {
				return nil, errors.New("has a $ before something other than a group of the pattern")
			}
			group(n)
			i += used
		}
	}
	if literal.Len() > 0 {
		all = append(all, replacement{literal.String(), -1})
	}
	return all, nil
}

// groupNumber takes digits as long as they name a group; used is how many.
func groupNumber(s string, groups int) (n, used int) {
	for used < len(s) && s[used] >= '0' && s[used] <= '9' {
		next := 10*n + int(s[used]-'0')
		if next > groups {
			break
		}
		n = next
		used++
	}
	return n, used
}

// topic rewrites one value.
func (w *rewriter) topic(value string) string {
	if !w.whole.MatchString(value) {
		return value
	}
	at := w.first.FindStringSubmatchIndex(value)
	if at == nil {
		return value
	}
	var b strings.Builder
	b.WriteString(value[:at[0]])
	for _, r := range w.replacement {
		switch {
		case r.group < 0:
			b.WriteString(r.literal)
		case at[2*r.group] >= 0:
			b.WriteString(value[at[2*r.group]:at[2*r.group+1]])
		}
	}
	b.WriteString(value[at[1]:])
	return b.String()
}
