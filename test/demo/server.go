package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// mysqlPort is where test/services/ctl starts MySQL when it is not told otherwise.
const mysqlPort = 25433

// server is a MySQL that test/services/ctl started for this demo alone.
type server struct {
	ctl  string
	env  []string
	dir  string
	addr string
}

// startMySQL fetches MySQL, if need be, and starts it with a folder and a port of its own.
func startMySQL(ctx context.Context) (*server, error) {
	ctl, err := findCtl()
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{ctl: ctl, addr: fmt.Sprintf("127.0.0.1:%d", port)}
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		// Addresses of servers that are there already are for the tests.
		if !strings.HasPrefix(name, "OUTBOXD_TEST_") || name == "OUTBOXD_TEST_CACHE" || name == "OUTBOXD_TEST_BACKEND" {
			s.env = append(s.env, entry)
		}
	}
	cache, err := s.command(ctx, "cache").Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the cache's folder: %w", err)
	}
	s.dir = filepath.Join(strings.TrimSpace(string(cache)), "run", "demo-"+strconv.Itoa(int(port)))
	s.env = append(s.env,
		"OUTBOXD_TEST_RUN="+filepath.Join(s.dir, "demo"),
		"OUTBOXD_TEST_PORT_OFFSET="+strconv.Itoa(int(port)-mysqlPort))
	fmt.Println("starting MySQL (a first run fetches it, 70 MB)")
	if err := s.run(ctx, "fetch", "mysql"); err != nil {
		return nil, err
	}
	// A start takes seconds and is not cut short: a server would be left behind.
	err = s.run(context.Background(), "start", "mysql")
	if err == nil && ctx.Err() != nil {
		err = errInterrupted
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// stop ends the server and deletes its data. Signals wait for it.
func (s *server) stop() error {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := s.run(context.Background(), "stop", "mysql")
	if err == nil {
		err = s.run(context.Background(), "wipe", "mysql")
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *server) run(ctx context.Context, args ...string) error {
	cmd := s.command(ctx, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("%s %s: %w", s.ctl, strings.Join(args, " "), err)
	}
	return nil
}

// command has a process group of its own: Ctrl-C is for the demo, which ends it in turn.
func (s *server) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.ctl, args...)
	cmd.Env = s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

// findCtl looks where make demo, and a run inside the module, have it.
func findCtl() (string, error) {
	candidates := []string{os.Getenv("OUTBOXD_TEST_CTL"), "test/services/ctl", "services/ctl", "../services/ctl"}
	for _, ctl := range candidates {
		if info, err := os.Stat(ctl); ctl != "" && err == nil && !info.IsDir() {
			return filepath.Abs(ctl)
		}
	}
	return "", errors.New("find test/services/ctl, which starts MySQL: run make demo in the top folder")
}
