package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Main is TestMain's whole work: it makes sure that there is a binary, runs the
// tests, and exits. OUTBOXD_TEST_BINARY names one that is built already.
func Main(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const binaryVariable = "OUTBOXD_TEST_BINARY"

func run(m *testing.M) (int, error) {
	if os.Getenv(binaryVariable) != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "outboxd-test-")
	if err != nil {
		return 0, fmt.Errorf("make folder for the binary: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chmod(dir, 0o755); err != nil { // tests run it as another user too
		return 0, fmt.Errorf("open folder of the binary: %w", err)
	}
	binary := filepath.Join(dir, "outboxd")
	root, err := repository()
	if err != nil {
		return 0, err
	}
	build := exec.Command("go", "build", "-o", binary, "./cmd/outboxd")
	build.Dir, build.Stderr = root, os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("build the binary: %w", err)
	}
	if err := os.Setenv(binaryVariable, binary); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// repository is the folder above that holds the product's command.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "cmd", "outboxd")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no folder above holds cmd/outboxd")
		}
		dir = up
	}
}
