package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/app"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
)

// process is one run of the program: what it was given, and what it says.
type process struct {
	environ        []string
	stdin          io.Reader
	stdout, stderr io.Writer
	terminal       bool // somebody may answer on stdin
	colour         bool // somebody reads stderr
	stop           <-chan struct{}

	cfg *config.Config // once load was called
	log *zap.Logger    // never nil within a command
}

// command is one subcommand. run is given the arguments behind its name.
type command struct {
	name  string
	args  string // as the help shows them
	short string
	run   func(ctx context.Context, p *process, args []string) error
}

func commands() []command {
	return []command{
		{"run", "", "run the connector in the foreground (also without any command)", runCommand},
		{"check", "[--json]", "try everything run needs, change nothing", checkCommand},
		{"setup", "[--start now] [--topics A,B] [--dry-run] [--yes]", "make what is missing", setupCommand},
		{"status", "[--json]", "ask the running instance for its state and what to do", statusCommand},
		{"checkpoint", "show [--json] | set --to POSITION [--reason TEXT] [--yes] | copy --to STORE [--yes] | delete [--yes]", "read, set, copy or delete the stored position", checkpointCommand},
		{"verify", "[--since TIME] [--until TIME] [--from-id ID] [--to-id ID] [--table T] [--id WHERE] [--against PREFIX] [--out FILE] [--json]", "compare outbox rows with what is in Kafka, or two relays' topics", verifyCommand},
		{"skip", "--id ID [--reason TEXT] [--yes]", "leave out the one event that stops the stream", skipCommand},
		{"import-debezium", "FILE [--out FILE] [--apply [--offset JSON | --offsets-topic TOPIC] [--yes]]", "turn a Debezium connector's configuration into an env file, and take over its place", importCommand},
		{"config", "[--json]", "print every variable with its value and origin", configCommand},
		{"completion", "bash | zsh | fish", "print a completion script for a shell", completionCommand},
		{"version", "[--json]", "print version, commit and Go version", versionCommand},
	}
}

// later are the commands a later version brings.
var later = []string{"pause", "resume", "parked", "replay", "recover", "purge", "teardown"}

// execute runs one command and gives the exit code.
func (p *process) execute(ctx context.Context, args []string) int {
	p.log = p.logger("info", "")
	err := p.dispatch(ctx, args)
	if errors.Is(err, flag.ErrHelp) {
		err = nil
	}
	if err != nil {
		p.last(err)
	}
	_ = p.log.Sync() // stderr can't always be synced
	return fault.ExitCode(err)
}

func (p *process) dispatch(ctx context.Context, args []string) error {
	name := "run"
	switch {
	case len(args) == 0:
	case isHelp(args[0]):
		name = "help"
	case !strings.HasPrefix(args[0], "-"):
		name, args = args[0], args[1:]
	default:
		if behind, rest := behindFlags(args); rest != nil {
			name, args = behind, rest
		} else if behind != "" {
			return misuse("flags stand behind the command: outboxd %s %s …", behind, args[0])
		}
	}
	if name == "help" {
		return p.print(help())
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, p, args)
		}
	}
	for _, l := range later {
		if l == name {
			return misuse("the command %s is not there yet", name)
		}
	}
	return misuse("there is no command %q", name)
}

// behindFlags finds a command behind flags. rest is its arguments: --env-file may
// stand before a command, for all have it. Behind any other flag rest is nil.
func behindFlags(args []string) (name string, rest []string) {
	flag, _, joined := strings.Cut(strings.TrimPrefix(args[0], "-"), "=")
	lead := 1
	if flag = strings.TrimPrefix(flag, "-"); flag == "env-file" && !joined {
		lead = min(2, len(args))
	}
	at := slices.IndexFunc(args[lead:], func(a string) bool {
		return slices.ContainsFunc(commands(), func(c command) bool { return c.name == a })
	})
	switch {
	case at < 0:
		return "", nil
	case at == 0 && flag == "env-file":
		return args[lead], slices.Concat(args[lead+1:], args[:lead]) // last, for checkpoint has a verb before its flags
	}
	return args[lead+at], nil
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

// misuse is a mistake on the command line.
func misuse(found string, args ...any) error {
	return fault.Config(fault.CodeConfig, "See outboxd help.", nil, found, args...)
}

// parse reads a command's flags. An argument behind them is a mistake.
func (p *process) parse(f *flag.FlagSet, args []string) error {
	f.SetOutput(io.Discard)
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_ = p.print(commandHelp(f))
		return err
	}
	if err != nil {
		return misuse("%s: %v", f.Name(), err)
	}
	if f.NArg() > 0 {
		return misuse("%s: %q is one argument too many", f.Name(), f.Arg(0))
	}
	return nil
}

// flags begins the flags of a command; all of them read the environment.
func flags(name string) (f *flag.FlagSet, envFile *string) {
	f = flag.NewFlagSet(name, flag.ContinueOnError)
	return f, f.String("env-file", "", "read variables from `FILE`; those of the environment win")
}

// load reads the configuration and turns the logger to what it says. After an
// error p.cfg is fit to be shown only.
func (p *process) load(envFile string) error {
	var file []string
	if envFile != "" {
		var err error
		if file, err = config.ReadEnvFile(envFile); err != nil {
			return err
		}
	}
	cfg, warnings, err := config.Load(p.environ, file...)
	p.cfg = cfg
	p.log = p.logger(cfg.LogLevel, cfg.LogFormat)
	for _, w := range warnings {
		p.log.Warn("configuration", zap.String("variable", w.Name), zap.String("found", w.Text))
	}
	return err
}

// loud is for commands that change something: whatever the level, their audit line is written.
func (p *process) loud() {
	if p.cfg.LogLevel != "debug" {
		p.log = p.logger("info", p.cfg.LogFormat)
	}
}

func (p *process) logger(level, format string) *zap.Logger {
	if format == "" && p.colour {
		format = "console"
	}
	return app.NewLogger(p.stderr, level, format)
}

// last writes the last log line of a non-zero exit: what was found and what to do.
func (p *process) last(err error) {
	code, fix, found := fault.CodeUnexpected, "Often a server that was not reached: check its address and that it runs, then try again. If it stays, report it with the log lines above.", err.Error()
	if f := fault.As(err); f != nil {
		code, fix = f.Code, f.Fix
		found = strings.TrimPrefix(f.Error(), f.Code+": ")
	}
	p.log.Error("stopped", zap.String("code", code), zap.String("found", found), zap.String("fix", fix), zap.Int("exit", fault.ExitCode(err)))
}

func (p *process) print(s string) error {
	if _, err := io.WriteString(p.stdout, s); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

func (p *process) printJSON(v any) error {
	e := json.NewEncoder(p.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}

// brief gives a context for a command other than run: the first signal ends it.
func (p *process) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-p.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
