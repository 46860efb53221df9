// Package debezium compares outboxd with Debezium: the same rows through the
// real Outbox Event Router with Kafka Connect's converters, in Java, and through outboxd's transform.
package debezium

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// libraries gives the folder of Debezium's and Kafka Connect's jars, which Maven
// fetches once through its own settings.
func libraries(t *testing.T) string {
	t.Helper()
	pom, err := filepath.Abs("testdata/pom.xml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(pom)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := exec.CommandContext(t.Context(), "../services/ctl", "cache").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(strings.TrimSpace(string(cache)), "debezium")
	complete := filepath.Join(folder, "complete") // holds the pom it was fetched for
	if had, err := os.ReadFile(complete); err == nil && bytes.Equal(had, content) {
		return filepath.Join(folder, "libs")
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "mvn", "-B", "-q", "-f", pom, "dependency:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(folder, "libs")).CombinedOutput()
	if err != nil {
		t.Fatalf("Maven could not fetch the jars: %v\n%s", err, out)
	}
	if err := os.WriteFile(complete, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(folder, "libs")
}

// question is one row for Router.java.
type question struct {
	Options map[string]string `json:"options"`
	Key     string            `json:"key"`    // string, json, json-schema, bytes
	Value   string            `json:"value"`  // the same, and binary
	Header  string            `json:"header"` // simple, json, json-schema
	Schema  string            `json:"schema"`
	Table   string            `json:"table"`
	At      int64             `json:"at"`    // ms
	Again   bool              `json:"again"` // by the same router as the one before
	Context [][2]string       `json:"context"`
	Columns []column          `json:"columns"`
}

// column is one column and its value, for both sides.
type column struct {
	Name    string `json:"name"`
	Type    string `json:"type"` // what Debezium makes of it, in Router.java's words
	NotNull bool   `json:"notNull"`
	Value   []byte `json:"value"` // as the server prints it; nil: NULL
	server  string // the server's name of the type
}

// answer is what Debezium makes of a question.
type answer struct {
	Error     string   `json:"error"`
	Topic     string   `json:"topic"`
	Partition *int32   `json:"partition"`
	Timestamp int64    `json:"timestamp"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// ask runs Debezium on all questions, in one process. It takes a JDK: java runs the program from its source.
func ask(t *testing.T, questions []question) []answer {
	t.Helper()
	var in, out, log bytes.Buffer
	enc := json.NewEncoder(&in)
	for i := range questions {
		if err := enc.Encode(&questions[i]); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m",
		"-cp", filepath.Join(libraries(t), "*"), "testdata/Router.java")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = &in, &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%.4000s", err, log.String())
	}
	var answers []answer
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var a answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		answers = append(answers, a)
	}
	if len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions\n%.4000s", len(answers), len(questions), log.String())
	}
	return answers
}
