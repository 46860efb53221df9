package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const maxName = 40

// deriveName makes the connector's name from the database and the first
// table. home is the schema that goes without saying. Whatever can't be told from the name alone (cut off, or no usable
// letter left) is told apart by a hash.
func deriveName(database, home string, t Table) string {
	parts := []string{database}
	if t.Schema != "" && t.Schema != home {
		parts = append(parts, t.Schema)
	}
	parts = append(parts, t.Name)
	var kept []string
	lost := false
	for _, p := range parts {
		if s := slug(p); s != "" {
			kept = append(kept, s)
		} else {
			lost = true
		}
	}
	name := strings.Join(kept, "-")
	if name != "" && !lost && len(name) <= maxName {
		return name
	}
	if name == "" {
		name = "outboxd"
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	suffix := "-" + hex.EncodeToString(sum[:4])
	name = name[:min(len(name), maxName-len(suffix))]
	return strings.TrimRight(name, "-") + suffix
}

func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return strings.Trim(s, "-")
}

func validName(s string) bool {
	return s != "" && len(s) <= maxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func validSlot(s string) bool {
	return s != "" && len(s) <= identifierBytes && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
