package config

import (
	"fmt"
	"os"
	"strings"
)

// Secret gives a secret's present value. One that was given as a file is read
// again at each call, because whoever rotates it only replaces the file.
type Secret func() (string, error)

func plain(s string) Secret { return func() (string, error) { return s, nil } }

// fromFile reads path at each call. One line end at the end belongs to the
// file, not to the secret.
func fromFile(path string) Secret {
	return func() (string, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read secret: %w", err)
		}
		s := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
		if s == "" {
			return "", fmt.Errorf("read secret: file %q is empty", path)
		}
		return s, nil
	}
}
