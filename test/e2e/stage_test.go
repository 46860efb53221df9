package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// stage is where a test takes place: a server, the store of the checkpoint, and
// the outbox table.
type stage struct {
	service string
	store   store
	shape   harness.Shape
}

// store is where the connector keeps its checkpoint.
type store string

const (
	inFile  store = "file"
	inTopic store = "topic"
)

func (at stage) String() string { return fmt.Sprintf("%s/%s/%s", at.service, at.store, at.shape) }

func (at stage) postgres() bool { return strings.HasPrefix(at.service, "postgres") }

// on is a stage with a plain table and a file, where neither matters.
func on(service string) stage { return stage{service, inFile, harness.Plain} }

// servers are the databases that everything about delivery is shown on.
var servers = []string{"postgres15", "postgres16", "postgres17", "postgres18", "mysql", "mysql-nogtid", "mariadb1011", "mariadb118"}

// everywhere gives a stage on each server. At the next turn each has the other
// store, and another table.
func everywhere(turn int) []stage {
	shapes := []harness.Shape{harness.Plain, harness.Debezium, harness.Binary}
	var all []stage
	for i, service := range servers {
		at := stage{service: service, store: [...]store{inFile, inTopic}[(i+turn)%2]}
		n := len(shapes)
		if at.postgres() {
			n--
		}
		at.shape = shapes[(i+turn)%n]
		all = append(all, at)
	}
	return all
}

// families gives a stage on one server of each kind. At the next turn each has
// the other store, and another table.
func families(turn int) []stage {
	var some []stage
	for _, at := range everywhere(turn) {
		switch at.service {
		case "postgres17", "mysql", "mariadb118":
			some = append(some, at)
		}
	}
	return some
}

// each runs a test on each stage, one after the other.
func each(t *testing.T, stages []stage, test func(t *testing.T, at stage)) {
	t.Helper()
	for _, at := range stages {
		t.Run(at.String(), func(t *testing.T) { test(t, at) })
	}
}

// eachParallel runs a test on all stages, beside other parallel tests.
func eachParallel(t *testing.T, stages []stage, test func(t *testing.T, at stage)) {
	t.Helper()
	t.Parallel()
	together(t, stages, test)
}

// together runs a test on all stages at once.
func together(t *testing.T, stages []stage, test func(t *testing.T, at stage)) {
	t.Helper()
	for _, at := range stages {
		t.Run(at.String(), func(t *testing.T) {
			t.Parallel()
			test(t, at)
		})
	}
}
