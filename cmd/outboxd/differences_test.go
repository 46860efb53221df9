package main

import (
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/verify"
)

// What counts as a difference depends on what is compared and what is expected.
func TestDifferences(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		kind                  verify.Kind
		against, allowRepeats bool
		differs               bool
	}{
		{verify.Missing, false, true, true},
		{verify.Altered, false, true, true},
		{verify.Disordered, false, true, true},
		{verify.Repeated, false, false, true},
		{verify.Repeated, false, true, false},
		{verify.Extra, false, false, false},
		{verify.Extra, true, false, true},
	} {
		err := differences(verify.Report{Counts: map[verify.Kind]int64{tc.kind: 2}}, tc.against, tc.allowRepeats)
		if fault.Is(err, fault.CodeVerifyDiffers) != tc.differs || tc.differs && fault.ExitCode(err) != fault.ExitFailure || !tc.differs && err != nil {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
