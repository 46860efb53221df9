package main

import (
	"context"
	"fmt"

	"github.com/outboxd/outboxd/internal/app"
)

func skipCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("skip")
	id := f.String("id", "", "the `ID` of the event, as the last log line and checkpoint show name it")
	reason := f.String("reason", "", "`TEXT` for the audit line")
	yes := f.Bool("yes", false, "ask nothing")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if *id == "" {
		return misuse("skip: give --id ID")
	}
	ctx, cancel := p.brief(ctx)
	defer cancel()
	if err := p.load(*envFile); err != nil {
		return err
	}
	p.loud()
	if err := p.agreed(*yes, "skip", fmt.Sprintf("Leave event %q out? It is not published any more; later events of its aggregate are.", *id)); err != nil {
		return err
	}
	r, err := app.SkipEvent(ctx, p.cfg, *id, *reason, p.log)
	if err != nil {
		return err
	}
	return p.print(fmt.Sprintf("event %q of %s (row %d of transaction %s) is left out at the next start\n", r.ID, r.Table, r.Row, r.Tx))
}
