package config

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/outboxd/outboxd/internal/fault"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ReadEnvFile reads the file for Load. Its error is a *fault.Error.
func ReadEnvFile(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fault.Config(fault.CodeConfig, "Give --env-file the path of a readable file.", err, "env file")
	}
	defer f.Close()
	vars, err := ParseEnvFile(f)
	if err != nil {
		return nil, fault.Config(fault.CodeConfig, "Write one KEY=VALUE a line.", err, "env file %q", path)
	}
	return vars, nil
}

// ParseEnvFile reads KEY=VALUE lines. Empty lines and lines that begin with #
// are skipped, "export " before a name too. A value within one pair of single
// or double quotes is taken without them and as it stands: nothing is
// expanded. No error repeats a value.
func ParseEnvFile(r io.Reader) ([]string, error) {
	var vars []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "export "); ok {
			line = rest
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		if !ok || !envName.MatchString(name) {
			return nil, fmt.Errorf("line %d is not KEY=VALUE", n)
		}
		value = strings.TrimSpace(value)
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			q := value[0]
			if len(value) < 2 || value[len(value)-1] != q {
				return nil, fmt.Errorf("line %d: the quote of %s is not closed", n, name)
			}
			value = value[1 : len(value)-1]
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("line %d: the value of %s holds a NUL byte", n, name)
		}
		vars = append(vars, name+"="+value)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read line: %w", err)
	}
	return vars, nil
}
