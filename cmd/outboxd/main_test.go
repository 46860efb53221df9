package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/config"
)

// run executes one command line as a process would, without a terminal.
func run(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return answer(t, nil, environ, args...)
}

// answer is run with somebody at a terminal who types input; nil: nobody is.
func answer(t *testing.T, input *string, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &process{environ: environ, stdin: strings.NewReader(""), stdout: &out, stderr: &errs, stop: make(chan struct{})}
	if input != nil {
		p.stdin, p.terminal = strings.NewReader(*input), true
	}
	code = p.execute(context.Background(), args)
	return code, out.String(), errs.String()
}

// env is a whole configuration; nothing listens at its addresses.
func env(t *testing.T, more ...string) []string {
	return append([]string{
		"OUTBOXD_SOURCE_URL=postgres://relay:geheim@127.0.0.1:1/shop",
		"OUTBOXD_KAFKA_BROKERS=127.0.0.1:1",
		"OUTBOXD_CHECKPOINT=file:" + filepath.Join(t.TempDir(), "place"),
	}, more...)
}

// lastLine is the last log line, as JSON.
func lastLine(t *testing.T, stderr string) map[string]any {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	var fields map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &fields); err != nil {
		t.Fatalf("last line of %q: %v", stderr, err)
	}
	return fields
}

func TestMistakesEndWithTwo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		args  []string
		more  string
		found string
	}{
		{"unknown command", []string{"rum"}, "", `no command "rum"`},
		{"later command", []string{"pause"}, "", "pause is not there yet"},
		{"no file to import", []string{"import-debezium"}, "", "give the FILE"},
		{"unknown flag", []string{"check", "--payload"}, "", "payload"},
		{"argument too many", []string{"version", "please"}, "", `"please"`},
		{"unknown start", []string{"setup", "--start", "then"}, "", "the legal values are now and snapshot"},
		{"place to set left out", []string{"checkpoint", "set"}, "", "give --to POSITION"},
		{"unknown verb", []string{"checkpoint", "move"}, "", "there is show, set, copy and delete"},
		{"copy to nowhere", []string{"checkpoint", "copy"}, "", "give --to"},
		{"copy to what is no store", []string{"checkpoint", "copy", "--to", "place"}, "", "neither kafka:TOPIC nor file:PATH"},
		{"no terminal", []string{"checkpoint", "delete"}, "", "give --yes"},
		{"no terminal", []string{"checkpoint", "set", "--to", "0/1"}, "", "give --yes"},
		{"no such env file", []string{"--env-file", "/does/not/exist"}, "", "env file"},
		{"flag before its command", []string{"--json", "check"}, "", "flags stand behind the command: outboxd check --json"},
		{"flags before their command", []string{"--env-file=x", "--yes", "setup"}, "", "flags stand behind the command: outboxd setup"},
		{"bad setting", nil, "OUTBOXD_START=later", "OUTBOXD_START"},
		{"bad setting", []string{"config"}, "OUTBOXD_START=later", "OUTBOXD_START"},
		{"topics without kafka", []string{"setup", "--topics", "a"}, "OUTBOXD_SINK=stdout", "the sink is stdout"},
		{"folder of the checkpoint", []string{"run"}, "OUTBOXD_CHECKPOINT=file:/does/not/exist/place", "/does/not/exist"},
		{"address of the status page", []string{"run"}, "OUTBOXD_HTTP_ADDR=192.0.2.1:80", "192.0.2.1:80"},
	} {
		t.Run(tc.name+" "+strings.Join(tc.args, " "), func(t *testing.T) {
			t.Parallel()
			code, _, stderr := run(t, env(t, tc.more), tc.args...)
			last := lastLine(t, stderr)
			found, _ := last["found"].(string)
			if code != 2 || !strings.Contains(found, tc.found) || last["code"] != "config_invalid" || last["fix"] == "" || last["exit"] != 2.0 {
				t.Errorf("exit %d, last line %v", code, last)
			}
			if strings.Contains(stderr, "geheim") {
				t.Errorf("a secret is logged: %s", stderr)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {"setup", "-h"}, {"run", "--help"}, {"checkpoint", "-h"}, {"checkpoint", "delete", "-h"}} {
		code, stdout, stderr := run(t, nil, args...)
		if code != 0 || !strings.Contains(stdout, "outboxd") || stderr != "" {
			t.Errorf("%v: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, _ := run(t, []string{"OUTBOXD_RUBBISH=1"}, "version", "--json")
	var v versionInfo
	if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil || v.Version == "" || v.Commit == "" || !strings.HasPrefix(v.Go, "go1.") {
		t.Errorf("exit %d, %v, %s", code, err, stdout)
	}
	if code, stdout, _ = run(t, nil, "version"); code != 0 || !strings.HasPrefix(stdout, "outboxd ") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, []byte("OUTBOXD_SINK=stdout\nOUTBOXD_START=resume\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := env(t, "OUTBOXD_START=now")
	code, stdout, stderr := run(t, environ, "config", "--json", "--env-file", file)
	var values []config.Value
	if err := json.Unmarshal([]byte(stdout), &values); err != nil || code != 0 || stderr != "" {
		t.Fatalf("exit %d, %v: %s%s", code, err, stdout, stderr)
	}
	for _, args := range [][]string{{"--env-file", file, "config", "--json"}, {"-env-file=" + file, "config", "--json"}} {
		if _, again, stderr := run(t, environ, args...); again != stdout {
			t.Errorf("%v: %s%s", args, again, stderr)
		}
	}
	got := map[string]config.Value{}
	for _, v := range values {
		got[v.Name] = v
	}
	for name, want := range map[string][2]string{
		"OUTBOXD_SOURCE_URL": {"postgres://relay:***@127.0.0.1:1/shop", "environment"},
		"OUTBOXD_START":      {"now", "environment"},
		"OUTBOXD_SINK":       {"stdout", "env-file"},
		"OUTBOXD_NAME":       {"shop-outbox", "derived"},
		"OUTBOXD_LOG_LEVEL":  {"info", "default"},
	} {
		if v := got[name]; v.Value != want[0] || v.Origin != want[1] {
			t.Errorf("%s is %+v, want %v", name, v, want)
		}
	}
	if _, stdout, _ = run(t, env(t), "config"); strings.Contains(stdout, "geheim") || !strings.Contains(stdout, "OUTBOXD_SETUP_URL") {
		t.Errorf("%s", stdout)
	}
}

// TestConfigShowsWhatIsWrong: this is where one looks when nothing starts.
func TestConfigShowsWhatIsWrong(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, env(t, "OUTBOXD_KAFKA_LINGER=5", "OUTBOXD_TOPICS=x"), "config")
	found := lastLine(t, stderr)["found"].(string)
	if code != 2 || !strings.Contains(stdout, "OUTBOXD_KAFKA_LINGER") || !strings.Contains(found, "OUTBOXD_KAFKA_LINGER") || !strings.Contains(found, "OUTBOXD_TOPICS") {
		t.Errorf("exit %d: %s, %s", code, stdout, found)
	}
}

func TestDocsCommand(t *testing.T) {
	t.Parallel()
	if code, stdout, _ := run(t, nil, "config", "--markdown"); code != 0 || stdout != config.Markdown() {
		t.Errorf("exit %d", code)
	}
}

func TestUnknownVariableCanBeAWarning(t *testing.T) {
	t.Parallel()
	code, _, stderr := run(t, env(t, "OUTBOXD_STRICT_ENV=false", "OUTBOXD_TOPICS=x"), "config")
	if last := lastLine(t, stderr); code != 0 || last["level"] != "warn" || last["variable"] != "OUTBOXD_TOPICS" {
		t.Errorf("exit %d, %v", code, last)
	}
}

func TestSetupDryRunNeedsNoServer(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, env(t, "OUTBOXD_TABLES=sales.outbox"), "setup", "--dry-run", "--start", "now", "--topics", "a, b")
	for _, want := range []string{`CREATE PUBLICATION "shop_sales_outbox" FOR TABLE "sales"."outbox"`, `slot "shop_sales_outbox"`, `-- topic "a", as by: kafka-topics.sh --bootstrap-server 127.0.0.1:1 --create --if-not-exists --topic a` + "\n", "--topic b\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %s in %s", want, stdout)
		}
	}
	if code != 0 || strings.Contains(stdout, "search_path") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	_, stdout, _ = run(t, env(t, "OUTBOXD_KAFKA_TOPIC_PARTITIONS=6", "OUTBOXD_KAFKA_TOPIC_REPLICATION=3"), "setup", "--dry-run", "--topics", "a")
	for _, want := range []string{"--topic a --partitions 6 --replication-factor 3\n", `FOR TABLE "outbox"`, `schema of table "outbox" is not known here`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %s in %s", want, stdout)
		}
	}
}

// TestSetupOfMySQL: there is no SQL, and it says so.
func TestSetupOfMySQL(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, env(t, "OUTBOXD_SOURCE_URL=mysql://relay@127.0.0.1:1/shop", "OUTBOXD_CHECKPOINT=kafka:places"), "setup", "--dry-run", "--start", "now")
	want := []string{"-- mysql needs no SQL", `-- checkpoint topic "places", as by: kafka-topics.sh`, "cleanup.policy=compact", "the end of the binary log is saved in kafka:places"}
	for _, w := range want {
		if !strings.Contains(stdout, w) {
			t.Errorf("no %s in %s", w, stdout)
		}
	}
	if code != 0 || strings.Contains(stdout, "slot") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
}

func TestNothingIsDoneWithoutAYes(t *testing.T) {
	t.Parallel()
	for _, input := range []string{"no\n", "\n", ""} {
		for _, args := range [][]string{{"setup"}, {"checkpoint", "delete"}, {"checkpoint", "copy", "--to", "file:other"}} {
			code, stdout, stderr := answer(t, &input, env(t), args...)
			if code != 2 || stdout != "" || !strings.Contains(stderr, "not confirmed, nothing was done") {
				t.Errorf("%v %q: exit %d, %s%s", args, input, code, stdout, stderr)
			}
		}
	}
}

func TestCheckpointShow(t *testing.T) {
	t.Parallel()
	environ := env(t)
	code, stdout, _ := run(t, environ, "checkpoint", "show")
	if code != 0 || !strings.Contains(stdout, "nothing was ever saved") {
		t.Errorf("exit %d, %s", code, stdout)
	}
	file := filepath.Join(t.TempDir(), "env")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := run(t, environ, "--env-file", file, "checkpoint", "show", "--json"); code != 0 || strings.TrimSpace(stdout) != "null" {
		t.Errorf("flag before the command: exit %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, _ = run(t, environ, "checkpoint", "show", "--json"); code != 0 || strings.TrimSpace(stdout) != "null" {
		t.Errorf("exit %d, %s", code, stdout)
	}
	_, path, _ := strings.Cut(environ[2], "file:")
	if err := os.WriteFile(path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := run(t, environ, "checkpoint", "show")
	if last := lastLine(t, stderr); code != 3 || last["code"] != "checkpoint_unreadable" {
		t.Errorf("exit %d, %v", code, last)
	}
}
