package config

import "strings"

// laterRows are the variables a later version will bring. A row with a
// harmless value takes that one: it says what holds anyway.
func laterRows() []Variable {
	type row struct{ name, meaning, harmless string }
	rows := []row{
		{"DEAD_LETTER_TOPIC", "where refused events are parked", ""},
		{"PARK_MAX", "how many events may be parked", ""},
		{"HTTP_TOKEN", "acting endpoints", ""},
	}
	out := make([]Variable, len(rows))
	for i, r := range rows {
		name := Prefix + r.name
		out[i] = Variable{Name: name, Unset: "not there yet", Meaning: r.meaning, Later: true, Secret: secretWord(name), kind: later(name, r.harmless)}
	}
	return out
}

func later(name, harmless string) kind {
	legal := "leave it unset"
	if harmless != "" {
		legal += ", or " + harmless
	}
	return kind{legal, func(_ *Config, v string) error {
		if harmless != "" && v == harmless {
			return nil
		}
		return notYetError{name}
	}}
}

// secretWord tells by its name whether a variable's value must be masked even
// though nothing reads it.
func secretWord(name string) bool {
	for _, w := range []string{"PASSWORD", "TOKEN", "SECRET", "OAUTH"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}
