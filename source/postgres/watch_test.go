package postgres

import (
	"math"
	"testing"
	"time"
)

func TestTimeToLimit(t *testing.T) {
	t.Parallel()
	var w watch
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	ask := func(after time.Duration, bytes int64) float64 { return w.limit(at.Add(after), &bytes).Seconds() }
	if got := ask(0, 1000); !math.IsInf(got, 1) {
		t.Errorf("asked once: %v", got)
	}
	if got := ask(10*time.Second, 900); got != 90 {
		t.Errorf("100 bytes in 10 s, 900 left: %v", got)
	}
	if got := ask(20*time.Second, 1000); !math.IsInf(got, 1) {
		t.Errorf("the slot moved: %v", got)
	}
	if got := ask(watchWindow+20*time.Second, 880); got != 880 {
		t.Errorf("120 bytes in the last two minutes, 880 left: %v", got)
	}
	if got := ask(time.Hour, -5); got != 0 {
		t.Errorf("past the limit: %v", got)
	}
	if w.limit(at, nil) != nil || len(w.left) != 0 {
		t.Error("a limit where there is none")
	}
}
