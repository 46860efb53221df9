package config

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// matches reports whether a row NAME_* stands for name.
func (v *Variable) matches(name string) bool {
	prefix, ok := strings.CutSuffix(v.Name, "*")
	return ok && len(name) > len(prefix) && strings.HasPrefix(name, prefix)
}

// hint is the nearest right name, as a half sentence.
func hint(name string, rows []Variable) string {
	if base, ok := strings.CutSuffix(name, fileSuffix); ok {
		if slices.ContainsFunc(rows, func(v Variable) bool { return v.Name == base && !v.Secret }) {
			return "; only secrets may be given as a file, set " + base
		}
	}
	best, least := "", len(name)
	for _, known := range knownNames(rows) {
		if d := distance(name, known); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return ""
	}
	return "; the nearest is " + best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// Kubernetes injects these for a Service whose name begins with outboxd.
var (
	linkHost  = regexp.MustCompile(`^OUTBOXD(_[A-Z0-9_]+)?_SERVICE_HOST$`)
	linkPort  = regexp.MustCompile(`^(OUTBOXD(?:_[A-Z0-9_]+?)?)_SERVICE_PORT(_[A-Z0-9_]+)?$`)
	linkURL   = regexp.MustCompile(`^OUTBOXD(_[A-Z0-9_]+)?_PORT$`)
	linkProto = regexp.MustCompile(`^(OUTBOXD(?:_[A-Z0-9_]+)?_PORT_([0-9]+)_(TCP|UDP|SCTP))(?:_(PROTO|PORT|ADDR))?$`)
)

// serviceLink reports whether a variable is one of those, by its name and by
// its value: a mistyped setting must not hide behind such a name.
func serviceLink(name string, vars map[string]string) bool {
	value := vars[name]
	if linkHost.MatchString(name) && isIP(value) || linkURL.MatchString(name) && isLinkURL(value, "", "") {
		return true
	}
	if m := linkPort.FindStringSubmatch(name); m != nil {
		return isPort(value) && isIP(vars[m[1]+"_SERVICE_HOST"])
	}
	m := linkProto.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	base, port, proto := m[1], m[2], strings.ToLower(m[3])
	if !isLinkURL(vars[base], proto, port) {
		return false
	}
	switch m[4] {
	case "PROTO":
		return value == proto
	case "PORT":
		return value == port
	case "ADDR":
		return isIP(value)
	}
	return true // base itself
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// isLinkURL takes PROTO://IP:PORT; an empty proto or port takes any.
func isLinkURL(s, proto, port string) bool {
	p, rest, ok := strings.Cut(s, "://")
	if !ok || (p != "tcp" && p != "udp" && p != "sctp") || (proto != "" && p != proto) {
		return false
	}
	a, err := netip.ParseAddrPort(rest)
	return err == nil && (port == "" || strconv.Itoa(int(a.Port())) == port)
}
