package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/outboxd/outboxd/internal/app"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
)

func checkCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("check")
	asJSON := f.Bool("json", false, "as JSON")
	payload := f.Bool("show-payload", false, "show the value of the newest row's record, too")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	ctx, cancel := p.brief(ctx)
	defer cancel()
	results, err := app.Check(ctx, p.cfg, *payload, p.log)
	if err != nil {
		return err
	}
	if *asJSON {
		err = p.printJSON(results)
	} else {
		err = p.print(checkText(results))
	}
	if err != nil {
		return err
	}
	if failed := failures(results); len(failed) > 0 {
		return fault.Config(fault.CodeConfig, "Apply the fix lines of the result, then check again.", nil,
			"check failed: %s", strings.Join(failed, ", "))
	}
	return nil
}

func checkText(results []preflight.Result) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%-4s %-22s %s\n", r.Status, r.ID, r.Found)
		for _, fix := range r.Fix {
			fmt.Fprintf(&b, "     fix: %s\n", strings.ReplaceAll(fix, "\n", "\n          "))
		}
	}
	return b.String()
}

func failures(results []preflight.Result) []string {
	var ids []string
	for _, r := range results {
		if r.Status == preflight.Fail {
			ids = append(ids, r.ID)
		}
	}
	return ids
}
