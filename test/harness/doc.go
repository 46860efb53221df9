// Package harness runs the real binary against real services: it builds and
// starts the binary, makes databases and topics for one test and removes them,
// stops and kills services, and waits for what must happen.
//
// The services' addresses come from the environment, as `make test` sets it:
// OUTBOXD_TEST_KAFKA, OUTBOXD_TEST_POSTGRES15 and so on, and OUTBOXD_TEST_CTL, the
// program that stops and starts them. A service that is missing fails the test.
package harness

import (
	"crypto/rand"
	"encoding/hex"
	"os"
	"testing"
	"time"
)

// Patience is how long anything may take before a test gives up. Waits end when
// what they wait for happens, so it only bounds what is broken.
const Patience = 90 * time.Second

// Long reports whether full repetition counts and real durations are asked for.
func Long() bool { return os.Getenv("OUTBOXD_TEST_LONG") != "" }

// Times is the number of repetitions: the second in a long run, else the first.
func Times(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// Unique returns prefix with a random end: a name nobody else uses.
func Unique(prefix string) string {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	return prefix + hex.EncodeToString(b)
}

// Need returns a variable of the environment, or ends the test.
func Need(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run `make test`, which starts the services and sets it", name)
	}
	return v
}

// Eventually asks until done says yes, or ends the test.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !within(Patience, done) {
		t.Fatalf("waited %v for this: %s", Patience, what)
	}
}

// Never watches for a while that something does not happen. A wrong answer
// takes a fault that shows itself later than that.
func Never(t testing.TB, what string, bad func() bool) {
	t.Helper()
	if within(2*time.Second, bad) {
		t.Errorf("this happened: %s", what)
	}
}

func within(limit time.Duration, done func() bool) bool {
	late := time.After(limit)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !done() {
		select {
		case <-again.C:
		case <-late:
			return done()
		}
	}
	return true
}
