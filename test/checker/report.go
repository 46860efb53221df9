package checker

import (
	"fmt"
	"strings"
	"testing"
)

// Report is the outcome of a Check.
type Report struct {
	Committed int // events the database holds
	Records   int // records the topics hold
	Delivered int // events with at least one record

	Missing        Finding // DIFF: committed, not in Kafka
	Phantom        Finding // DIFF: in Kafka, not committed
	Repeated       Finding // further copies of an event
	Inversions     Finding // ORDER: places where the rule of order is broken
	WrongBytes     Finding // BYTES: key, value or headers differ from what the server prints
	WrongPartition Finding // not where the Java client would put this key
	Truth          Finding // the test's own data is unusable
}

// Finding is one kind of fault: how often, and the first cases.
type Finding struct {
	Count    int
	Examples []string // at most 20
}

const maxExamples = 20

func (f *Finding) add(format string, args ...any) {
	f.Count++
	if len(f.Examples) < maxExamples {
		f.Examples = append(f.Examples, fmt.Sprintf(format, args...))
	}
}

// Sound reports whether nothing is wrong, repeats aside.
func (r *Report) Sound() bool {
	for _, f := range r.faults() {
		if f.Count > 0 {
			return false
		}
	}
	return true
}

type named struct {
	name string
	Finding
}

func (r *Report) faults() []named {
	return []named{
		{"missing", r.Missing},
		{"phantom", r.Phantom},
		{"inversions", r.Inversions},
		{"wrong bytes", r.WrongBytes},
		{"wrong partition", r.WrongPartition},
		{"unusable truth", r.Truth},
	}
}

// String prints one table, and under it the first cases of each kind.
func (r *Report) String() string {
	all := append(r.faults(), named{"repeated", r.Repeated})
	var head, row, cases strings.Builder
	cell := func(name string, n int) {
		fmt.Fprintf(&head, " %s |", name)
		fmt.Fprintf(&row, " %*d |", len(name), n)
	}
	cell("committed", r.Committed)
	cell("records", r.Records)
	cell("delivered", r.Delivered)
	for _, f := range all {
		cell(f.name, f.Count)
		for _, e := range f.Examples {
			fmt.Fprintf(&cases, "\n  %s: %s", f.name, e)
		}
		if more := f.Count - len(f.Examples); more > 0 {
			fmt.Fprintf(&cases, "\n  %s: and %d more", f.name, more)
		}
	}
	return "|" + head.String() + "\n|" + row.String() + cases.String()
}

// Summary is the one line that is printed per fault.
func (r *Report) Summary() string {
	return fmt.Sprintf("produced %d, missing %d, phantom %d, repeated %d, inverted %d, wrong bytes %d, wrong partition %d",
		r.Committed, r.Missing.Count, r.Phantom.Count, r.Repeated.Count, r.Inversions.Count, r.WrongBytes.Count, r.WrongPartition.Count)
}

// Require fails the test unless the report is sound and has at most window repeats.
func Require(t testing.TB, r *Report, window int) {
	t.Helper()
	if r.Committed == 0 {
		t.Errorf("nothing was committed: the check proves nothing")
	}
	if !r.Sound() {
		t.Errorf("unsound:\n%s", r)
	}
	if r.Repeated.Count > window {
		t.Errorf("%d repeats, the window is %d:\n%s", r.Repeated.Count, window, r)
	}
}
