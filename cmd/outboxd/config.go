package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/outboxd/outboxd/internal/config"
)

// configCommand prints what holds even when something in it is wrong: that is
// when it is looked for.
func configCommand(_ context.Context, p *process, args []string) error {
	f, envFile := flags("config")
	asJSON := f.Bool("json", false, "as JSON")
	markdown := f.Bool("markdown", false, "")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if *markdown {
		return p.print(config.Markdown())
	}
	wrong := p.load(*envFile)
	if p.cfg == nil {
		return wrong
	}
	var err error
	if *asJSON {
		err = p.printJSON(p.cfg.Values())
	} else {
		err = p.print(valueTable(p.cfg.Values()))
	}
	if wrong != nil {
		return wrong
	}
	return err
}

func valueTable(values []config.Value) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, v := range values {
		shown := v.Value
		if shown == "" {
			shown = "(" + v.Unset + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", v.Name, shown, v.Origin)
	}
	_ = w.Flush() // to memory
	return b.String()
}
