// Command demo shows outboxd at work on a bare machine: it brings a Postgres, or
// a MySQL with DEMO_DB=mysql, a Kafka and an order service, runs the real outboxd
// binary between them, kills it in mid stream, starts it again, and compares what
// came out of Kafka with what the database holds. It exits 0 only if every promise was kept.
//
// The order service in the folder orders is the part to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options say how to run. Those that are not for users are set by asNobody.
type options struct {
	binary     string
	orders     int
	sabotage   string
	work       string
	cache      string
	repository string
	mysql      string
}

var errInterrupted = errors.New("interrupted")

func main() {
	o, err := parseOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch db := os.Getenv("DEMO_DB"); {
	case db == "mysql" && o.mysql == "":
		os.Exit(onMySQL(o))
	case db != "" && db != "mysql" && db != "postgres":
		fmt.Fprintf(os.Stderr, "DEMO_DB=%s: it is postgres or mysql\n", db)
		os.Exit(2)
	}
	os.Exit(start(o))
}

// onMySQL starts a MySQL around the demo.
func onMySQL(o options) int {
	ctx, forget := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	s, err := startMySQL(ctx)
	forget()
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, err)
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, "start mysql:", err)
		return 1
	}
	o.mysql = s.addr
	code := start(o)
	if err := s.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop mysql:", err)
		return 1
	}
	return code
}

func parseOptions() (options, error) {
	binary := os.Getenv("OUTBOXD_TEST_BINARY")
	if binary == "" {
		binary = filepath.Join("..", "bin", "outboxd")
	}
	var o options
	flag.StringVar(&o.binary, "binary", binary, "the outboxd to run")
	flag.IntVar(&o.orders, "orders", 120, "how many orders are placed")
	flag.StringVar(&o.sabotage, "sabotage", "", "spoil what was consumed, to see the demo fail: drop, swap, alter, repeat or invent")
	flag.StringVar(&o.work, "work", "", "an empty folder to work in; made and removed when not given")
	flag.StringVar(&o.cache, "cache", "", "where the Postgres archive is kept")
	flag.StringVar(&o.repository, "repository", mavenMirror(), "the Maven repository with the Postgres archive")
	flag.StringVar(&o.mysql, "mysql", "", "host:port of a MySQL that is there for this demo alone; DEMO_DB=mysql starts one")
	flag.Parse()

	var err error
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return o, err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return o, fmt.Errorf("find outboxd: %w (run make demo in the top folder, which builds it)", err)
	}
	if o.orders < 10 {
		return o, errors.New("-orders must be 10 or more, or there is no mid stream")
	}
	return o, nil
}

// start makes the folders, runs the demo in them and removes what is temporary.
func start(o options) int {
	if o.work == "" {
		work, err := os.MkdirTemp("", "outboxd-demo-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(work) }()
		o.work = work
	}
	if os.Geteuid() == 0 {
		return asNobody(o)
	}
	if o.cache == "" {
		o.cache = userCache(o.work)
	}
	if err := os.Setenv("TMPDIR", o.work); err != nil { // libraries leave files there
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return show(o)
}

// show runs the demo and prints how it went.
func show(o options) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() { // later signals are swallowed: cleaning up is under way and takes seconds
		for range signals {
			cancel(errInterrupted)
		}
	}()

	began := time.Now()
	board := newBoard(os.Stdout, began)
	v, err := play(ctx, o, board)
	board.close()
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, err)
		return 130
	case err != nil:
		fmt.Fprintln(os.Stderr, board.red("demo failed: "+err.Error()))
		return 1
	}
	fmt.Println()
	v.print(os.Stdout, board.paint)
	fmt.Println()
	if !v.ok() {
		fmt.Println(board.red("FAILED"))
		return 1
	}
	fmt.Printf("%s in %.0f s. The order service to copy: test/demo/orders\n", board.green("OK"), time.Since(began).Seconds())
	return 0
}

// userCache is the folder of this user in which the Postgres archive is kept.
func userCache(work string) string {
	if dir, err := os.UserCacheDir(); err == nil {
		dir = filepath.Join(dir, "outboxd-demo")
		if os.MkdirAll(dir, 0o755) == nil {
			return dir
		}
	}
	return filepath.Join(work, "cache")
}
