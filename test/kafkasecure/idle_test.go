package kafkasecure

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// What stands between has forgotten every connection, and says nothing: the
// next event arrives within 5 s, once.
func TestIdleLinksAreForgotten(t *testing.T) {
	t.Parallel()
	advertised, behind, _ := strings.Cut(harness.Need(t, "OUTBOXD_TEST_KAFKA_SECURE_PROXIED"), "=")
	proxy, err := faultproxy.Listen(advertised, behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	type connector struct {
		*harness.Outbox
		*harness.Process
	}
	names := []string{"at least once", "exactly once"}
	var all []connector
	for i := range names {
		o := scene(t, advertised, i == 1)
		o.Env["OUTBOXD_CHECKPOINT_INTERVAL"] = "1m" // or now and then idle progress would be saved
		p := harness.Start(t, harness.Command{Env: o.Env})
		p.WaitActive(t)
		o.Commit(t, 20)
		all = append(all, connector{o, p})
	}
	for _, c := range all {
		c.Tail.WaitEvents(t, len(c.DB.Truth(t, harness.Plain.Checker())))
	}
	passed, since := int64(0), time.Now()
	harness.Eventually(t, "nothing has gone over the links for longer than the 10 s after which they count as idle", func() bool {
		if now := proxy.Passed(faultproxy.ToServer); now != passed {
			passed, since = now, time.Now()
		}
		return time.Since(since) > 11*time.Second
	})
	proxy.Forget()
	begun := time.Now()
	for _, c := range all {
		c.Commit(t, 1)
	}
	for i, c := range all {
		c.Tail.WaitEvents(t, len(c.DB.Truth(t, harness.Plain.Checker())))
		took := time.Since(begun)
		t.Logf("%s: the event arrived after %v", names[i], took.Round(time.Millisecond))
		if took > 5*time.Second {
			t.Errorf("%s: the event arrived after %v", names[i], took)
		}
	}
	for i, c := range all {
		c.Commit(t, 20)
		c.Finish(t, c.Process, "idle links that were forgotten, "+names[i], 0)
	}
}
