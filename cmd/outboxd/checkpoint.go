package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
	case verb == "copy":
		return copyCheckpoint(ctx, p, args)
	case verb == "set":
		return setCheckpoint(ctx, p, args)
	}
	return misuse("checkpoint %s: there is show, set, copy and delete", verb)
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
	c, saved, err := app.ShowCheckpoint(ctx, p.cfg, p.log)
	if err != nil {
		return err
	}
	if *asJSON {
		if !saved {
			return p.printJSON(nil)
		}
		return p.printJSON(map[string]any{"name": c.Name, "position": c.Position, "intent": c.Intent(), "savedAt": c.SavedAt, "store": p.cfg.Checkpoint.String()})
	}
	return p.print(checkpointText(c, saved, p.cfg.Checkpoint.String()))
}

func checkpointText(c checkpoint.Checkpoint, saved bool, store string) string {
	if !saved {
		return fmt.Sprintf("nothing was ever saved in %s\n", store)
	}
	position := string(c.Position)
	if c.Intent() {
		position = "none: a first start was begun and not finished"
	}
	text := fmt.Sprintf("name      %s\nposition  %s\nsaved at  %s\nstore     %s\n", c.Name, position, c.SavedAt.Format(time.RFC3339Nano), store)
	if r := c.Refused; r != nil {
		text += fmt.Sprintf("refused   event %q of %s, row %d of transaction %s: %s\n", r.ID, r.Table, r.Row, r.Tx, r.Reason)
	}
	return text
}

func copyCheckpoint(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("checkpoint copy")
	where := f.String("to", "", "the `STORE` to copy to, kafka:TOPIC or file:PATH")
	yes := f.Bool("yes", false, "ask nothing, and replace another position that is there")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if *where == "" {
		return misuse("checkpoint copy: give --to kafka:TOPIC or --to file:PATH")
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	p.loud()
	to, err := p.cfg.WithCheckpoint(*where)
	if err != nil {
		return misuse("checkpoint copy: --to %s %v", *where, err)
	}
	if !*yes && p.terminal {
		if err := p.confirm(fmt.Sprintf("Copy the checkpoint of %q from %s to %s?", p.cfg.Name, p.cfg.Checkpoint, to.Checkpoint)); err != nil {
			return err
		}
	}
	c, copied, err := app.CopyCheckpoint(ctx, p.cfg, to, *yes, p.log)
	if err != nil {
		return err
	}
	done := "is there already"
	if copied {
		done = "copied"
	}
	return p.print(checkpointText(c, true, to.Checkpoint.String()) +
		fmt.Sprintf("%s; set OUTBOXD_CHECKPOINT=%s for the next start, the one in %s stays and gets older\n", done, to.Checkpoint, p.cfg.Checkpoint))
}

func setCheckpoint(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("checkpoint set")
	where := f.String("to", "", "the `POSITION`: as checkpoint show prints it, for Postgres an LSN, for MySQL and MariaDB a set of GTIDs, FILE:OFFSET or oldest")
	reason := f.String("reason", "", "`TEXT` for the audit line")
	yes := f.Bool("yes", false, "ask nothing")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if *where == "" {
		return misuse("checkpoint set: give --to POSITION")
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	p.loud()
	if err := p.agreed(*yes, "checkpoint set", fmt.Sprintf("Let %q go on from %s? What was committed before it is not published any more.", p.cfg.Name, *where)); err != nil {
		return err
	}
	c, err := app.SetCheckpoint(ctx, p.cfg, *where, *reason, p.log)
	if err != nil {
		return err
	}
	return p.print(checkpointText(c, true, p.cfg.Checkpoint.String()))
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
	if err := p.agreed(*yes, "checkpoint delete", fmt.Sprintf("Delete the checkpoint of %q in %s? The next start is then a first start.", p.cfg.Name, p.cfg.Checkpoint)); err != nil {
		return err
	}
	if err := app.DeleteCheckpoint(ctx, p.cfg, p.log); err != nil {
		return err
	}
	return p.print(fmt.Sprintf("the checkpoint of %q is deleted\n", p.cfg.Name))
}

// agreed asks unless yes was given; a command that nobody can answer for does nothing.
func (p *process) agreed(yes bool, command, question string) error {
	switch {
	case yes:
		return nil
	case !p.terminal:
		return misuse("%s asks for confirmation and there is no terminal: give --yes", command)
	}
	return p.confirm(question)
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
