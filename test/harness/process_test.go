package harness

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// script starts a shell script in the place of the binary.
func script(t *testing.T, text string, env map[string]string) *Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return Start(t, Command{Binary: path, Env: env})
}

func TestProcessLogAndExit(t *testing.T) {
	t.Parallel()
	p := script(t, `echo '{"level":"info","msg":"ready","n":7}' >&2; echo plain >&2; echo out; exit 3`, nil)
	if code := p.Wait(t); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	line, n := p.WaitLog(t, "ready", 0)
	if n != 1 || line.Level != "info" || line.Msg != "ready" || line.Fields["n"] != 7.0 {
		t.Errorf("line %d is %+v", n, line)
	}
	if line, n = p.WaitLog(t, "plain", n); n != 2 || line.Msg != "" {
		t.Errorf("line %d is %+v", n, line)
	}
	if got := p.Stdout(); got != "out\n" {
		t.Errorf("stdout is %q", got)
	}
}

func TestProcessEnvironment(t *testing.T) {
	t.Setenv("OUTBOXD_LEAK", "x")
	p := script(t, "env", map[string]string{"OUTBOXD_SINK": "stdout"})
	p.Wait(t)
	if out := p.Stdout(); strings.Contains(out, "LEAK") || !strings.Contains(out, "OUTBOXD_SINK=stdout\n") || !strings.Contains(out, "OUTBOXD_HTTP_ADDR=127.0.0.1:") {
		t.Errorf("environment is\n%s", out)
	}
}

func TestProcessSignals(t *testing.T) {
	t.Parallel()
	const wait = `trap 'exit 0' TERM; echo up >&2; while :; do sleep 0.05; done`
	p := script(t, wait, nil)
	p.WaitLog(t, "up", 0)
	p.Stop(t)

	p = script(t, wait, nil)
	p.WaitLog(t, "up", 0)
	if !p.Running() {
		t.Error("not running before the signal")
	}
	p.Signal(syscall.SIGKILL)
	if code := p.Wait(t); code != -1 || p.Running() {
		t.Errorf("killed: exit code %d, running %v", code, p.Running())
	}
}
