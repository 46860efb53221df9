// Package page looks at the status page with a real browser: that it comes
// alive under its own policy, that what a stranger wrote into a key stays text, and
// that no width makes it scroll sideways. Pictures are kept in bin/page.
package page

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/admin"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/test/harness"
)

const hostile = `</script><script>document.title='owned'</script><img src=x onerror="document.title='owned'">`

// visit loads the page in a new browser and waits until its feed has arrived.
func visit(t *testing.T, url string) *browser {
	t.Helper()
	b := open(t)
	b.call(t, "Page.navigate", map[string]any{"url": url})
	harness.Eventually(t, "the page lives", func() bool { return b.eval(t, "document.documentElement.dataset.live") == "yes" })
	return b
}

func busy(delivered func() uint64) admin.Report {
	now := time.Now()
	return admin.Report{
		Name: "orders", Version: "1.0.0", State: "active", Since: now.Add(-26 * time.Hour), Read: "postgres1?lsn=0/1A2B3C8", Settled: "postgres1?lsn=0/1A2B300", Saved: "postgres1?lsn=0/1A2A000",
		InFlightEvents: 412, InFlightBytes: 388 << 10, UnsavedEvents: 950, OldestCommit: now.Add(-70 * time.Millisecond), Lag: 70 * time.Millisecond,
		LastHeard: now, LastRead: now, LastDelivered: now.Add(-20 * time.Millisecond), LastSaved: now.Add(-700 * time.Millisecond),
		RetainedBytes: 18 << 20, RetentionAskedAt: now.Add(-2 * time.Second), EventsRead: delivered() + 412, EventsDelivered: delivered(), Sessions: 2,
	}
}

func activity() admin.Activity {
	now := time.Now()
	return admin.Activity{
		Topics: []admin.Topic{{Topic: "outbox.event.order", Delivered: 181204}, {Topic: "outbox.event.invoice", Delivered: 9120}},
		Events: []admin.Event{
			{At: now, Topic: "outbox.event.order", Key: "order-118", ID: "0190f6c2-6b1e-7cc1-b1a8-52b0a1d2c001", Size: 412},
			{At: now, Topic: "outbox.event.order", Key: hostile, ID: "0190f6c2-6b1e-7cc1-b1a8-52b0a1d2c002", Size: 17 << 10},
			{At: now, Topic: "outbox.event.invoice", NoKey: "no key", ID: "0190f6c2-6b1e-7cc1-b1a8-52b0a1d2c003", Size: 96},
		},
		Lines: []admin.Line{{At: now.Add(-26 * time.Hour), Text: "pipeline: interrupted, will try again: open sink: connect to broker: connection refused"}},
	}
}

func serve(t *testing.T, report func() admin.Report) string {
	t.Helper()
	s := admin.New(admin.Config{
		Report: report, Activity: activity, Log: zap.NewNop(), Metrics: http.NotFoundHandler(),
		Source: "postgres://relay@db.internal:5432/shop", Sink: "kafka broker-1:9092,broker-2:9092",
	})
	addr, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	return "http://" + addr.String() + "/"
}

// want fails for each part that the text lacks.
func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the page lacks %q", p)
		}
	}
}

func TestThePageLives(t *testing.T) {
	var n atomic.Uint64
	b := visit(t, serve(t, func() admin.Report { n.Add(700); return busy(n.Load) }))
	harness.Eventually(t, "a line is drawn", func() bool { return b.eval(t, "document.querySelectorAll('#rate-chart .line').length") == "1" })
	want(t, b.eval(t, "document.body.innerText"), "publishing, 412 events in flight", "live", "postgres://relay@db.internal:5432/shop", "postgres1?lsn=0/1A2B300",
		"181,204", "order-118", "connection refused", hostile)
	if title := b.eval(t, "document.title"); title != "orders · outboxd" || b.eval(t, "document.images.length") != "0" || b.eval(t, "document.scripts.length") != "1" {
		t.Errorf("a key became markup: title %q", title)
	}
	if mood := b.eval(t, "document.getElementById('hero').dataset.mood"); mood != "good" {
		t.Errorf("mood %q", mood)
	}
	before := b.eval(t, "document.getElementById('delivered').textContent")
	harness.Eventually(t, "figures move", func() bool { return b.eval(t, "document.getElementById('delivered').textContent") != before })
	for _, scheme := range []string{"light", "dark"} {
		b.call(t, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
		for _, width := range []int{320, 412, 1200} {
			b.size(t, width, 1500)
			if got := b.eval(t, "document.documentElement.scrollWidth"); got != fmt.Sprint(width) {
				t.Errorf("%d wide, the page is %s wide", width, got)
			}
			b.picture(t, fmt.Sprintf("active-%s-%d", scheme, width))
		}
	}
}

func TestThePageTellsWhatToDo(t *testing.T) {
	lost := fault.Position(fault.CodePositionLost, "See outboxd checkpoint show, then docs/operations.md, position_lost.", nil, "slot %q is gone", "orders")
	b := visit(t, serve(t, func() admin.Report {
		return admin.Report{Name: "orders", Version: "1.0.0", State: "stopped", Since: time.Now().Add(-time.Minute), Err: lost}
	}))
	b.size(t, 1200, 1200)
	want(t, b.eval(t, "document.body.innerText"), "Stopped", `slot "orders" is gone`, "To do: See outboxd checkpoint show")
	if mood := b.eval(t, "document.getElementById('hero').dataset.mood"); mood != "bad" {
		t.Errorf("mood %q", mood)
	}
	b.picture(t, "stopped")
}
