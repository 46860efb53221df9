package app

import (
	"os"
	"testing"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source/sourcetest"
)

func TestSetCheckpoint(t *testing.T) {
	t.Parallel()
	c := configure(t)
	log, seen := logs()
	db := fake{sourcetest.NewFake(), false}
	save(t, c, "here")
	if _, err := setCheckpoint(t.Context(), db, c, "gone", "", log); !fault.Is(err, fault.CodePositionLost) {
		t.Errorf("a place that the source refuses: %v", err)
	}
	holds(t, c, "here")
	if place, err := setCheckpoint(t.Context(), db, c, "7", "after a restore", log); err != nil || place.Position != "fake:7" {
		t.Fatal(place, err)
	}
	holds(t, c, "fake:7")
	audits := seen.FilterMessage("audit").All()
	if len(audits) != 1 {
		t.Fatalf("%d audit lines", len(audits))
	}
	if f := audits[0].ContextMap(); f["before"] != "here" || f["after"] != "fake:7" || f["action"] != "checkpoint set" || f["reason"] != "after a restore" {
		t.Errorf("audit line %v", f)
	}

	if err := os.WriteFile(c.Checkpoint.Path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := setCheckpoint(t.Context(), db, c, "8", "", log); err != nil {
		t.Errorf("over a damaged one: %v", err)
	}
	holds(t, c, "fake:8")

	db.LoseLease(true)
	if _, err := setCheckpoint(t.Context(), db, c, "9", "", log); !fault.Is(err, fault.CodeLeaseHeld) {
		t.Errorf("beside an active instance: %v", err)
	}
	holds(t, c, "fake:8")
}

func TestForeignCheckpointIsNotSet(t *testing.T) {
	t.Parallel()
	c := configure(t)
	other := *c
	other.Name = "other"
	save(t, &other, "there")
	if _, err := setCheckpoint(t.Context(), fake{sourcetest.NewFake(), false}, c, "7", "", zap.NewNop()); !fault.Is(err, fault.CodeForeign) {
		t.Error(err)
	}
	holds(t, &other, "there")
}
