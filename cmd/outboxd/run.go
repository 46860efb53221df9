package main

import (
	"context"

	"github.com/outboxd/outboxd/internal/app"
)

func runCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("run")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	v := readVersion()
	return app.Run(ctx, p.stop, p.cfg, app.Build{Version: v.Version, Commit: v.Commit}, p.stdout, p.log)
}
