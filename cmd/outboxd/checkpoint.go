package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/app"
)

func checkpointCommand(ctx context.Context, p *process, args []string) error {
	if len(args) == 0 || isHelp(args[0]) {
		f, _ := flags("checkpoint")
		return p.print(commandHelp(f))
	}
	verb, args := args[0], args[1:]
	ctx, cancel := p.brief(ctx)
	defer cancel()
	switch {
	case verb == "show":
		return showCheckpoint(ctx, p, args)
	case verb == "delete":
		return deleteCheckpoint(ctx, p, args)
	case slices.Contains([]string{"set", "copy"}, verb):
		return misuse("checkpoint %s is not there yet", verb)
	}
	return misuse("checkpoint %s: there is show and delete", verb)
}

func showCheckpoint(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("checkpoint show")
	asJSON := f.Bool("json", false, "as JSON")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	c, saved, err := app.ShowCheckpoint(ctx, p.cfg)
	if err != nil {
		return err
	}
	if *asJSON {
		if !saved {
			return p.printJSON(nil)
		}
		return p.printJSON(map[string]any{"name": c.Name, "position": c.Position, "intent": c.Intent(), "savedAt": c.SavedAt})
	}
	return p.print(checkpointText(c, saved, p.cfg.Checkpoint.Path))
}

func checkpointText(c checkpoint.Checkpoint, saved bool, path string) string {
	switch {
	case !saved:
		return fmt.Sprintf("nothing was ever saved in %s\n", path)
	case c.Intent():
		return fmt.Sprintf("name      %s\nposition  none: a first start was begun and not finished\nsaved at  %s\n", c.Name, c.SavedAt.Format(time.RFC3339Nano))
	}
	return fmt.Sprintf("name      %s\nposition  %s\nsaved at  %s\n", c.Name, c.Position, c.SavedAt.Format(time.RFC3339Nano))
}

func deleteCheckpoint(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("checkpoint delete")
	yes := f.Bool("yes", false, "ask nothing")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	p.loud()
	if !*yes {
		if !p.terminal {
			return misuse("checkpoint delete asks for confirmation and there is no terminal: give --yes")
		}
		if err := p.confirm(fmt.Sprintf("Delete the checkpoint of %q in %s? The next start is then a first start.", p.cfg.Name, p.cfg.Checkpoint.Path)); err != nil {
			return err
		}
	}
	if err := app.DeleteCheckpoint(ctx, p.cfg, p.log); err != nil {
		return err
	}
	return p.print(fmt.Sprintf("the checkpoint of %q is deleted\n", p.cfg.Name))
}

// confirm asks on the terminal; anything but yes is a no.
func (p *process) confirm(question string) error {
	if _, err := fmt.Fprintf(p.stderr, "%s [yes/no] ", question); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	answer, err := bufio.NewReader(p.stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("read answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "yes" && a != "y" {
		return misuse("not confirmed, nothing was done")
	}
	return nil
}
