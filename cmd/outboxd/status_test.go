package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	answer := `{"sentence":"orders is active: nothing to do.","positions":{"read":"p1","settled":"","saved":"p0"},"in_flight":{"events":3},"unsaved_events":2,"lag_seconds":1.5,"counts":{"read":9,"delivered":6}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer seesam" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprintln(w, answer)
	}))
	defer server.Close()
	addr := "OUTBOXD_HTTP_ADDR=" + strings.TrimPrefix(server.URL, "http://")
	environ := append(env(t, addr), "OUTBOXD_HTTP_VIEW_TOKEN=seesam")
	code, stdout, stderr := run(t, environ, "status")
	for _, part := range []string{"orders is active: nothing to do.\n\n", "read       p1\n", "confirmed  none yet\n", "lag        1.5s\n", "delivered  6 of 9 read\n"} {
		if code != 0 || !strings.Contains(stdout, part) {
			t.Errorf("exit %d, %s%s lacks %q", code, stdout, stderr, part)
		}
	}
	if code, stdout, _ = run(t, environ, "status", "--json"); code != 0 || stdout != answer+"\n" {
		t.Errorf("exit %d, %s", code, stdout)
	}
	if code, _, stderr = run(t, env(t, addr), "status"); code != 2 || !strings.Contains(lastLine(t, stderr)["found"].(string), "view token") {
		t.Errorf("without the token: exit %d, %s", code, stderr)
	}
	server.Close()
	if code, _, stderr = run(t, environ, "status"); code != 1 || lastLine(t, stderr)["code"] != "not_reached" || strings.Contains(stderr, "seesam") {
		t.Errorf("nobody there: exit %d, %s", code, stderr)
	}
	if code, _, _ = run(t, env(t, "OUTBOXD_HTTP_ADDR=off"), "status"); code != 2 {
		t.Errorf("off: exit %d", code)
	}
}

func TestDialable(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{":8080": "localhost:8080", "0.0.0.0:1": "localhost:1", "[::]:1": "localhost:1", "127.0.0.1:1": "127.0.0.1:1", "db:1": "db:1"} {
		if got := dialable(addr); got != want {
			t.Errorf("%s is asked at %s, want %s", addr, got, want)
		}
	}
}

// A real bash completes commands, verbs, flags and files by the script.
func TestCompletion(t *testing.T) {
	t.Parallel()
	code, script, stderr := run(t, nil, "completion", "bash")
	if code != 0 {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	path := filepath.Join(t.TempDir(), "completion")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{"outboxd che": "check checkpoint", "outboxd checkpoint co": "copy", "outboxd setup --dr": "--dry-run", "outboxd stat": "status", "outboxd completion f": "fish"} {
		words := strings.Fields(line)
		try := fmt.Sprintf(`. %q; COMP_WORDS=(%s); COMP_CWORD=%d; _outboxd; echo "${COMPREPLY[*]}"`, path, line, len(words)-1)
		out, err := exec.CommandContext(t.Context(), "bash", "-c", try).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s gives %q, want %q; %v", line, got, want, err)
		}
	}
	for _, shell := range []string{"zsh", "fish"} {
		if code, stdout, _ := run(t, nil, "completion", shell); code != 0 || !strings.Contains(stdout, "checkpoint") {
			t.Errorf("%s: exit %d, %s", shell, code, stdout)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "tcsh"}, {"completion", "bash", "x"}} {
		if code, _, _ := run(t, nil, args...); code != 2 {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}
