package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
)

// Problem is one fault of one setting.
type Problem struct {
	Name   string `json:"name"`            // the variable, as it was set
	Value  string `json:"value,omitempty"` // masked
	Reason string `json:"reason"`          // what is wrong with it
	Legal  string `json:"legal,omitempty"` // what may be set
}

func (p Problem) String() string {
	s := p.Name
	if p.Value != "" {
		s += "=" + quote(p.Value) + ":"
	}
	if reason, ok := strings.CutPrefix(p.Reason, p.Name+" "); ok {
		s = p.Name + " " + reason
	} else {
		s += " " + p.Reason
	}
	if p.Legal != "" {
		s += " (legal: " + p.Legal + ")"
	}
	return s
}

// quote keeps a log line readable whatever somebody has set.
func quote(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return strconv.Quote(string(r[:most])) + "…"
	}
	return strconv.Quote(s)
}

// SettingErrors is every fault that was found, in the table's order.
type SettingErrors []Problem

func (ps SettingErrors) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// fault is nil when there is no problem.
func (ps SettingErrors) fault() error {
	if len(ps) == 0 {
		return nil
	}
	found := "1 setting is wrong"
	if len(ps) > 1 {
		found = fmt.Sprintf("%d settings are wrong", len(ps))
	}
	return fault.Config(fault.CodeConfig, "Correct what is named; `outboxd config` shows every variable, its value and where it comes from.", ps, "%s", found)
}

// Warning is something about one setting that does not stop us.
type Warning struct {
	Name string `json:"name"`
	Text string `json:"text"`
}
