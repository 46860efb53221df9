package admin

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

const hostile = `</script><script>alert(1)</script><img src=x onerror=alert(2)>`

// The policy allows exactly the style and the script that are in the page, and the page asks nobody else.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	rec := ask(newServer(Report{State: active, Since: now, Name: hostile, Waits: hostile}), "GET", "127.0.0.1", "/")
	body, policy := rec.Body.String(), rec.Header().Get("Content-Security-Policy")
	for _, tag := range []string{"style", "script"} {
		parts := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(body, -1)
		if len(parts) != 1 {
			t.Fatalf("%d %s elements", len(parts), tag)
		}
		sum := sha256.Sum256([]byte(parts[0][1]))
		if want := tag + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; !strings.Contains(policy, want) {
			t.Errorf("policy %s lacks %s", policy, want)
		}
	}
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %s", policy)
	}
	for _, bad := range []string{"<img src=x", "alert(1)</script>", " style=", " onclick=", "https://", "@import", "innerHTML", "insertAdjacentHTML"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}

func TestViewToken(t *testing.T) {
	t.Parallel()
	token, failure := "geheim", error(nil)
	s := New(Config{
		Report: func() Report { return Report{State: active, Since: now} }, Now: func() time.Time { return now }, Log: zap.NewNop(),
		ViewToken: func() (string, error) { return token, failure }, Metrics: http.NotFoundHandler(),
	})
	get := func(path, authorization string) int {
		r := httptest.NewRequest(http.MethodHead, path, nil)
		r.Host = "localhost"
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, r)
		return rec.Code
	}
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+password))
	}
	for _, path := range []string{"/", "/status", "/events"} {
		for authorization, want := range map[string]int{"": 401, "Bearer geheim": 200, "Bearer geheim2": 401, "Bearer ": 401, "geheim": 401, basic("geheim"): 200, basic(""): 401} {
			if got := get(path, authorization); got != want {
				t.Errorf("%s with %q answers %d, want %d", path, authorization, got, want)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if got := get(path, ""); got != 200 {
			t.Errorf("%s answers %d: a probe has no token", path, got)
		}
	}
	if token = ""; get("/", "Bearer ") != 401 {
		t.Error("an empty token opens the page")
	}
	if failure = errors.New("gone"); get("/", "Bearer ") != 401 {
		t.Error("a token that can't be read opens the page")
	}
}

// A feed tells at once and ends with the server; a hostile key is data in it.
func TestFeed(t *testing.T) {
	t.Parallel()
	s := New(Config{
		Report: func() Report { return Report{Name: "orders", State: active, Since: time.Now(), EventsDelivered: 7} }, Log: zap.NewNop(), Source: "postgres://a/b", Sink: "kafka k:9092",
		Activity: func() Activity { return Activity{Events: []Event{{Topic: "order", Key: hostile}}} },
	})
	addr, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr.String()+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v %v", lines.Err(), resp.Header)
	}
	var news struct {
		Status  Status
		Source  string
		Samples []sample
		Events  []Event
		Lines   []Line
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(lines.Text(), "data: ")), &news); err != nil {
		t.Fatal(err)
	}
	if news.Status.Name != "orders" || news.Source != "postgres://a/b" || news.Events[0].Key != hostile || news.Lines == nil {
		t.Errorf("%+v", news)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for lines.Scan() {
	}
}

func TestViewersAreBounded(t *testing.T) {
	t.Parallel()
	s := newServer(Report{State: active, Since: now})
	s.viewers.Store(maxViewers)
	if rec := ask(s, "GET", "localhost", "/events"); rec.Code != 503 || s.viewers.Load() != maxViewers {
		t.Errorf("%d with %d viewers", rec.Code, s.viewers.Load())
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	var s samples
	for i := range 2 * samplesKept {
		s.add(Report{EventsDelivered: uint64(10 * i), Lag: time.Second}, now.Add(time.Duration(i)*sampleEvery))
	}
	if got := s.last(); len(got) != samplesKept || got[0].Rate != 5 || got[0].Lag != 1 || !got[samplesKept-1].At.Equal(now.Add((2*samplesKept-1)*sampleEvery)) {
		t.Errorf("%d samples, first %+v", len(got), got[0])
	}
}
