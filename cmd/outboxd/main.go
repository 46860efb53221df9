// Command outboxd publishes the rows of a transactional outbox to Kafka.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Set by the linker: -X main.version=… -X main.commit=…
var version, commit string

func main() {
	ctx, cut := context.WithCancel(context.Background())
	stop := make(chan struct{})
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-signals
		close(stop) // the first drains
		<-signals
		signal.Reset() // a third ends the process at once
		cut()          // the second cuts the drain
	}()
	p := &process{
		environ:  os.Environ(),
		stdin:    os.Stdin,
		stdout:   os.Stdout,
		stderr:   os.Stderr,
		terminal: isTerminal(os.Stdin),
		colour:   isTerminal(os.Stderr),
		stop:     stop,
	}
	os.Exit(p.execute(ctx, os.Args[1:]))
}

// isTerminal takes a character device for a terminal, but for the one everybody uses to give nothing.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
