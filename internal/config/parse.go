package config

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is how a value is read: what is legal, in words, and the setter. set
// is called with a non-empty value; its error says what is wrong with it and
// never repeats a secret.
type kind struct {
	legal string
	set   func(c *Config, v string) error
}

// notYetError is the fault of a value that a later version will bring.
type notYetError struct{ what string }

func (e notYetError) Error() string { return e.what + " is not there yet" }

// choice takes one of the words of legal; those of later are known and refused by name.
func choice(field func(*Config) *string, legal []string, later ...string) kind {
	return kind{strings.Join(legal, ", "), func(c *Config, v string) error {
		switch {
		case slices.Contains(legal, v):
			*field(c) = v
			return nil
		case slices.Contains(later, v):
			return notYetError{v}
		}
		return errors.New("is none of the legal values")
	}}
}

// only takes nothing but the words of legal and keeps none: there is nothing to choose yet.
func only(legal []string, later ...string) kind {
	return choice(func(*Config) *string { return new(string) }, legal, later...)
}

func boolean(field func(*Config) *bool) kind {
	return kind{"true, false", func(c *Config, v string) error {
		if v != "true" && v != "false" {
			return errors.New("is neither true nor false")
		}
		*field(c) = v == "true"
		return nil
	}}
}

func duration(field func(*Config) *time.Duration, least time.Duration) kind {
	legal := fmt.Sprintf("a duration like 500ms, 20s or 1h30m, at least %s", shortDuration(least))
	return kind{legal, func(c *Config, v string) error {
		d, err := parseDuration(v)
		if err != nil {
			return err
		}
		if d < least {
			return errors.New("is too short")
		}
		*field(c) = d
		return nil
	}}
}

func size[T int | int64](field func(*Config) *T, least, most int64) kind {
	legal := fmt.Sprintf("a size like 512KiB or 16MiB, from %s to %s", shortSize(least), shortSize(most))
	return kind{legal, func(c *Config, v string) error {
		n, err := parseSize(v)
		if err != nil {
			return err
		}
		if n < least || n > most {
			return errors.New("is out of range")
		}
		*field(c) = T(n)
		return nil
	}}
}

// integer takes a whole number from 1 to most; and unset, whatever that is.
func integer(field func(*Config) *int, most, unset int) kind {
	legal := fmt.Sprintf("a whole number from 1 to %d", most)
	if unset < 1 {
		legal += fmt.Sprintf(", or %d", unset)
	}
	return kind{legal, func(c *Config, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil {
			return errors.New("is not a whole number")
		}
		if (n < 1 || n > most) && n != unset {
			return errors.New("is out of range")
		}
		*field(c) = n
		return nil
	}}
}

// wholeNumber takes one from 1 to most.
func wholeNumber(field func(*Config) *uint32, most uint32) kind {
	return kind{fmt.Sprintf("a whole number from 1 to %d", most), func(c *Config, v string) error {
		n, err := strconv.ParseUint(v, 10, 64)
		switch {
		case err != nil && !errors.Is(err, strconv.ErrRange):
			return errors.New("is not a whole number")
		case err != nil || n < 1 || n > uint64(most):
			return errors.New("is out of range")
		}
		*field(c) = uint32(n)
		return nil
	}}
}

func parseDuration(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil && s != "0" {
		return 0, errors.New("is a number without a unit")
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is not a duration")
	}
	return d, nil
}

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}, {"", 1},
}

// parseSize reads a whole number of bytes with an optional unit.
func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && n > uint64(math.MaxInt64/u.bytes):
			return 0, errors.New("is out of range")
		case err != nil:
			return 0, errors.New("is not a size")
		}
		return int64(n) * u.bytes, nil
	}
	return 0, errors.New("is not a size")
}

func shortSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func shortDuration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return d.String()
}

// parseBrokers fills in Kafka's usual port.
func parseBrokers(s string) ([]string, error) {
	var brokers []string
	for b := range strings.SplitSeq(s, ",") {
		b = strings.TrimSpace(b)
		if strings.Contains(b, "://") {
			return nil, errors.New("has a listener name or scheme before a host")
		}
		host, port, err := splitHostPort(b)
		if err != nil {
			return nil, err
		}
		if port == "" {
			port = "9092"
		}
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if b = host + ":" + port; !slices.Contains(brokers, b) {
			brokers = append(brokers, b)
		}
	}
	return brokers, nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

func parseHosts(s string) ([]string, error) {
	var hosts []string
	for h := range strings.SplitSeq(s, ",") {
		if h = strings.TrimSpace(h); !hostName.MatchString(h) {
			return nil, fmt.Errorf("has %q, which is no host name", h)
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// memberPath is the form of a path into the payload; what its quotes hold is
// judged where it is used.
var memberPath = regexp.MustCompile(`^payload:\$(\.[^.\[\]'"\s]+|\['([^'\\]|\\.)*'\]|\["([^"\\]|\\.)*"\])+$`)

// Headers by the name of what they carry; those of the second list stand for several.
var (
	headerNames  = []string{"id", "eventType", "aggregateType", "position", "source"}
	headerGroups = []string{"traceparent", "debezium-context"}
)

// parseHeaders reads NAME[:ALIAS][,…], or none.
func parseHeaders(s string) ([]Header, error) {
	if s == None {
		return []Header{{Name: None}}, nil
	}
	var headers []Header
	seen := map[string]bool{}
	for p := range strings.SplitSeq(s, ",") {
		name, alias, renamed := strings.Cut(strings.TrimSpace(p), ":")
		if !renamed {
			alias = name
		}
		group := slices.Contains(headerGroups, name)
		switch {
		case group && renamed:
			return nil, fmt.Errorf("renames %s, which stands for several headers", name)
		case !group && !slices.Contains(headerNames, name):
			return nil, fmt.Errorf("names the unknown header %q", name)
		case !usableName(alias):
			return nil, fmt.Errorf("gives the header %s an unusable name", name)
		case seen[alias]:
			return nil, fmt.Errorf("has the header %q twice", alias)
		}
		seen[alias] = true
		headers = append(headers, Header{Name: name, Alias: alias})
	}
	return headers, nil
}

func usableName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}

// parsePlacement reads COLUMN:PLACE[:ALIAS][,…].
func parsePlacement(s string) ([]Placement, error) {
	if s == None {
		return nil, nil
	}
	var list []Placement
	for p := range strings.SplitSeq(s, ",") {
		parts := strings.Split(p, ":")
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		switch {
		case len(parts) < 2 || len(parts) > 3 || parts[0] == "":
			return nil, fmt.Errorf("has %q, which is not column:place or column:place:alias", strings.TrimSpace(p))
		case parts[1] != "header" && parts[1] != "envelope" && parts[1] != "partition":
			return nil, fmt.Errorf("places column %s as %q", parts[0], parts[1])
		case len(parts) == 3 && (!usableName(parts[2]) || parts[1] == "partition"):
			return nil, fmt.Errorf("gives column %s an unusable alias", parts[0])
		}
		at := Placement{Column: parts[0], Place: parts[1]}
		if len(parts) == 3 {
			at.Alias = parts[2]
		}
		list = append(list, at)
	}
	return list, nil
}

var placeholders = []string{"aggregate_type", "event_type", "schema", "table"}

// checkTopic judges a template's form. What the placeholders hold is judged per event.
func checkTopic(s string) error {
	for rest := s; ; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			break
		}
		end := strings.IndexByte(rest[open:], '}')
		if rest[open] == '}' || end < 0 {
			return errors.New("has a brace without its partner")
		}
		name := rest[open+1 : open+end]
		column, isColumn := strings.CutPrefix(name, "column:")
		if !slices.Contains(placeholders, name) && (!isColumn || column == "") {
			return fmt.Errorf("has the unknown placeholder {%s}", name)
		}
		rest = rest[open+end+1:]
	}
	return nil
}
