package main

import (
	"context"
	"strings"

	"github.com/outboxd/outboxd/internal/app"
)

func setupCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("setup")
	start := f.String("start", "", "make slot and first position too: `now`, from here on, or snapshot, with the rows that are there")
	topics := f.String("topics", "", "create these event topics too: `NAME,…`")
	dryRun := f.Bool("dry-run", false, "print what would be done; connects to nothing")
	asJSON := f.Bool("json", false, "as JSON")
	yes := f.Bool("yes", false, "ask nothing")
	if err := p.parse(f, args); err != nil {
		return err
	}
	o := app.SetupOptions{Start: *start, DryRun: *dryRun}
	switch o.Start {
	case "", "now", "snapshot":
	default:
		return misuse("setup --start %s: the legal values are now and snapshot", *start)
	}
	for t := range strings.SplitSeq(*topics, ",") {
		if t = strings.TrimSpace(t); t != "" {
			o.Topics = append(o.Topics, t)
		}
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	p.loud()
	ctx, cancel := p.brief(ctx)
	defer cancel()
	if !*dryRun && !*yes && p.terminal {
		plan, err := app.Setup(ctx, p.cfg, app.SetupOptions{Start: o.Start, Topics: o.Topics, DryRun: true}, p.log)
		if err != nil {
			return err
		}
		if err := p.confirm("Make what is missing of this?\n  " + strings.Join(plan, "\n  ")); err != nil {
			return err
		}
	}
	done, err := app.Setup(ctx, p.cfg, o, p.log)
	if *asJSON {
		if werr := p.printJSON(done); err == nil {
			err = werr
		}
		return err
	}
	for _, line := range done {
		if werr := p.print(line + "\n"); err == nil {
			err = werr
		}
	}
	return err
}
