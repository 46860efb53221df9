package main

import (
	"flag"
	"fmt"
	"strings"
)

// help teaches the way from nothing to a running connector.
func help() string {
	var b strings.Builder
	b.WriteString(`outboxd publishes the rows of a transactional outbox table to Kafka.

usage: outboxd [COMMAND] [--env-file FILE] [FLAGS]

`)
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.short)
		if c.args != "" {
			fmt.Fprintf(&b, "  %-11s   %s\n", "", c.args)
		}
	}
	b.WriteString(`
Everything is set by environment variables. Two are enough to begin with:

  export OUTBOXD_SOURCE_URL=postgres://user:password@host:5432/database   # or mysql://…
  export OUTBOXD_KAFKA_BROKERS=host:9092
  outboxd check     # what is missing, and what mends it
  outboxd run       # SIGTERM stops it cleanly, a second one at once

The position in the log is kept in Kafka too, in the topic outboxd.checkpoints.
To see events without Kafka, set OUTBOXD_SINK=stdout. outboxd config lists all
variables. Results go to stdout, logs to stderr.

exit codes: 0 done; 1 unexpected failure; 2 configuration, or refused by a server;
            3 the stored position can't be used; 4 an event was refused
`)
	return b.String()
}

func commandHelp(f *flag.FlagSet) string {
	var b strings.Builder
	for _, c := range commands() {
		if c.name == f.Name() || strings.HasPrefix(f.Name(), c.name+" ") {
			fmt.Fprintf(&b, "outboxd %s %s\n%s\n\n", c.name, c.args, c.short)
		}
	}
	f.VisitAll(func(f *flag.Flag) {
		if f.Usage == "" {
			return // for makers of the docs only
		}
		value, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(&b, "  %-18s %s\n", strings.TrimSpace("--"+f.Name+" "+value), usage)
	})
	return b.String()
}
