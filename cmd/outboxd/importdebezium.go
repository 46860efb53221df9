package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/outboxd/outboxd/internal/app"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/debezium"
	"github.com/outboxd/outboxd/internal/fault"
)

// importCommand prints or writes the env file, and with --apply stores the place too.
func importCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("import-debezium")
	out := f.String("out", "", "write the env file to `FILE`, for its owner alone, instead of the screen")
	apply := f.Bool("apply", false, "store the place the connector is at; it must be stopped")
	offset := f.String("offset", "", "MySQL, MariaDB: its offset, as `JSON`")
	topic := f.String("offsets-topic", "connect-offsets", "MySQL, MariaDB: the `TOPIC` in which Kafka Connect keeps offsets")
	yes := f.Bool("yes", false, "ask nothing")
	if len(args) > 0 && isHelp(args[0]) {
		return p.parse(f, args)
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return misuse("import-debezium: give the FILE with the connector's JSON, or the properties of Debezium Server, before the flags")
	}
	if err := p.parse(f, args[1:]); err != nil {
		return err
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return misuse("import-debezium: %v", err)
	}
	i, err := debezium.Read(text)
	if err != nil {
		return misuse("import-debezium: %s: %v", args[0], err)
	}
	if *out == "" && !*apply {
		err = p.print(i.EnvFile())
	} else if *out != "" {
		err = os.WriteFile(*out, []byte(i.EnvFile()), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the env file: %w", err)
	}
	if len(i.Refused) > 0 {
		names := make([]string, len(i.Refused))
		for n, r := range i.Refused {
			names[n] = r.Option + " " + r.Reason
		}
		return fault.Config(fault.CodeConfig, "Solve what is said of each, in the connector's file or in the env file.", nil, "options that can't be taken over: %s", strings.Join(names, "; "))
	}
	if !*apply {
		return nil
	}
	return applyImport(ctx, p, i, *envFile, *offset, *topic, *yes)
}

func applyImport(ctx context.Context, p *process, i *debezium.Import, envFile, offset, topic string, yes bool) error {
	// What the environment and --env-file say wins over the connector's file, as with run.
	var file []string
	if envFile != "" {
		var err error
		if file, err = config.ReadEnvFile(envFile); err != nil {
			return err
		}
	} else {
		for _, s := range i.Settings {
			file = append(file, s.Name+"="+s.Value)
		}
	}
	cfg, _, err := config.Load(p.environ, file...)
	if p.cfg = cfg; err != nil {
		return err
	}
	p.loud()
	ctx, cancel := p.brief(ctx)
	defer cancel()
	place, repeats := debezium.SlotPlace, "what Debezium published and had not confirmed to the slot yet (offset.flush.interval.ms), at most"
	if i.Kind != "postgres" {
		stored := []byte(offset)
		if offset == "" {
			if stored, err = app.DebeziumOffset(ctx, cfg, topic, i.Name, i.TopicPrefix); err != nil {
				return err
			}
		}
		o, err := debezium.ParseOffset(stored)
		if err == nil {
			place, err = o.Place(i.Kind)
		}
		if err != nil {
			return misuse("import-debezium: %v", err)
		}
		repeats = o.Repeats()
	}
	question := fmt.Sprintf("Let %q go on from %s? The connector must be stopped. Repeats: %s.", cfg.Name, place, repeats)
	if err := p.agreed(yes, "import-debezium --apply", question); err != nil {
		return err
	}
	c, err := app.SetCheckpoint(ctx, cfg, place, "import-debezium", p.log)
	if err != nil {
		return err
	}
	return p.print(checkpointText(c, true, cfg.Checkpoint.String()) + "repeats   " + repeats + "\n")
}
