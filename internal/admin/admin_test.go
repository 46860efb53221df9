package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/internal/fault"
)

func newServer(r Report) *Server {
	return New(Config{
		Report:  func() Report { return r },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "metrics here") }),
		Limits:  limits,
		Hosts:   []string{"Relay.example"},
		Now:     func() time.Time { return now },
		Log:     zap.NewNop(),
	})
}

// ask sends one request and returns status and body.
func ask(s *Server, method, host, target string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, r)
	return rec
}

func TestPaths(t *testing.T) {
	t.Parallel()
	moving := Report{State: active, Since: now}
	stuck := Report{State: active, Since: ago(time.Hour)}
	lost := Report{State: stopped, Err: fault.Position(fault.CodePositionLost, "", nil, "gone")}
	tests := []struct {
		name   string
		report Report
		method string
		target string
		code   int
		body   string // part of it
	}{
		{"alive", moving, "GET", "/livez", 200, `"live": true`},
		{"alive while stuck", stuck, "GET", "/livez", 200, `"state": "active"`},
		{"alive while held", lost, "GET", "/livez", 200, `"state": "stopped"`},
		{"ready", moving, "GET", "/readyz", 200, `"role": "active"`},
		{"ready, strictly", moving, "GET", "/readyz?role=active", 200, `"ready": true`},
		{"stuck", stuck, "GET", "/readyz", 503, `"reason": "nothing heard from the source for 1h0m0s"`},
		{"standby", Report{State: standby}, "GET", "/readyz", 200, `"role": "standby"`},
		{"standby, strictly", Report{State: standby}, "GET", "/readyz?role=active", 503, `"ready": false`},
		{"unknown role", moving, "GET", "/readyz?role=leader", 400, "role can only be active"},
		{"held", lost, "GET", "/readyz", 503, "position_lost: gone"},
		{"metrics", moving, "GET", "/metrics", 200, "metrics here"},
		{"status", moving, "GET", "/status", 200, `"sentence": `},
		{"head", moving, "HEAD", "/readyz", 200, ""},
		{"post", moving, "POST", "/readyz", 405, "only GET and HEAD"},
		{"delete nowhere", moving, "DELETE", "/nowhere", 405, "only GET and HEAD"},
		{"nowhere", moving, "GET", "/nowhere", 404, ""},
		{"page", moving, "GET", "/", 200, "<title>"},
		{"page, head", moving, "HEAD", "/", 200, ""},
		{"feed, head", moving, "HEAD", "/events", 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := ask(newServer(tt.report), tt.method, "127.0.0.1:8080", tt.target)
			if rec.Code != tt.code || !strings.Contains(rec.Body.String(), tt.body) {
				t.Errorf("got %d %s, want %d with %s", rec.Code, rec.Body, tt.code, tt.body)
			}
			if rec.Code == 405 && rec.Header().Get("Allow") != "GET, HEAD" {
				t.Error("405 without Allow")
			}
			if rec.Header().Get("X-Content-Type-Options") != "nosniff" || rec.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", rec.Header())
			}
		})
	}
}

func TestNoMetrics(t *testing.T) {
	t.Parallel()
	s := New(Config{Report: func() Report { return Report{} }, Log: zap.NewNop()})
	if rec := ask(s, "GET", "localhost", "/metrics"); rec.Code != 404 {
		t.Errorf("got %d, want 404", rec.Code)
	}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		host string
		ok   bool
	}{
		{"127.0.0.1:8080", true},
		{"10.1.2.3", true},
		{"[::1]:8080", true},
		{"[fe80::1]", true},
		{"localhost:8080", true},
		{"LocalHost.", true},
		{"", true},
		{"relay.example:80", true},
		{"RELAY.example", true},
		{"evil.example:8080", false},
		{"relay.example.evil.example", false},
		{"localhost.evil.example", false},
		{"127.0.0.1.evil.example", false},
		{"2130706433", false},
		{"a:b:c", false},
	}
	for _, tt := range tests {
		t.Run(tt.host, func(t *testing.T) {
			t.Parallel()
			for _, path := range []string{"/livez", "/metrics", "/nowhere"} {
				if rec := ask(newServer(Report{State: active}), "GET", tt.host, path); (rec.Code != 403) != tt.ok {
					t.Errorf("%s answers %d, want allowed %v", path, rec.Code, tt.ok)
				}
			}
		})
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	cause := errors.New("server said no")
	r := Report{
		Name: "orders", Version: "1.2.3", State: waiting, Since: ago(time.Minute),
		Err:  fmt.Errorf("open: %w", fault.Config(fault.CodeGrantMissing, "GRANT it.", cause, "role lacks a right")),
		Read: "r", Settled: "s", Saved: "v",
		InFlightEvents: 1, InFlightBytes: 2, UnsavedEvents: 3, Lag: 1500 * time.Millisecond,
		LastDelivered: ago(time.Second), SaveErr: errors.New("disk full"),
		EventsRead: 10, EventsDelivered: 9, Sessions: 2,
	}
	rec := ask(newServer(r), "GET", "127.0.0.1", "/status")
	body := rec.Body.String()
	if !strings.HasPrefix(body, "{\n  \"sentence\": \"orders is waiting since ") {
		t.Errorf("does not lead with the sentence: %.80s", body)
	}
	dec := json.NewDecoder(strings.NewReader(body))
	dec.DisallowUnknownFields()
	var got Status
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := Status{
		Sentence: got.Sentence, Name: "orders", Version: "1.2.3", State: waiting, Since: ago(time.Minute),
		Blocked:       "waiting: open: grant_missing: role lacks a right: server said no",
		UnsavedEvents: 3, LagSeconds: 1.5, SaveError: "disk full",
	}
	want.Positions.Read, want.Positions.Settled, want.Positions.Saved = "r", "s", "v"
	want.InFlight.Events, want.InFlight.Bytes = 1, 2
	want.Counts.Read, want.Counts.Delivered, want.Counts.Sessions = 10, 9, 2
	want.Last.Delivered = ago(time.Second)
	wantErr := Failure{"grant_missing", "role lacks a right", "GRANT it.", "open: grant_missing: role lacks a right: server said no"}
	if got.Error == nil || *got.Error != wantErr {
		t.Errorf("error %+v, want %+v", got.Error, wantErr)
	}
	if got.Error = nil; got != want {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if strings.Contains(body, "0001-01-01") {
		t.Errorf("shows a time that never was: %s", body)
	}
}

func TestPlainErrorHasTextAlone(t *testing.T) {
	t.Parallel()
	if f := newFailure(errors.New("lost connection")); *f != (Failure{Text: "lost connection"}) {
		t.Errorf("got %+v", f)
	}
}

// An engine that does not tell its state can't help itself.
func TestStuckEngine(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/livez", "/readyz", "/status"} {
		synctest.Test(t, func(t *testing.T) {
			free := make(chan struct{})
			s := newServer(Report{})
			s.cfg.Report = func() Report { <-free; return Report{} }
			if rec := ask(s, "GET", "localhost", path); rec.Code != 503 || !strings.Contains(rec.Body.String(), "does not answer") {
				t.Errorf("%s: got %d %s", path, rec.Code, rec.Body)
			}
			close(free)
		})
	}
}

func TestStartAndShutdown(t *testing.T) {
	t.Parallel()
	s := newServer(Report{State: standby})
	core, logged := observer.New(zap.InfoLevel)
	s.cfg.Log = zap.New(core)
	addr, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get("http://" + addr.String() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "standby") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}

	_, err = newServer(Report{}).Start(addr.String())
	if f := fault.As(err); f == nil || f.Code != fault.CodeConfig || !strings.Contains(f.Fix, "OUTBOXD_HTTP_ADDR") {
		t.Errorf("a taken address: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", addr.String()); err == nil {
		t.Error("still listening")
	}
	if logged.Len() > 0 {
		t.Errorf("a clean stop logs %v", logged.All())
	}
	if err := newServer(Report{}).Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown without start: %v", err)
	}
}

// A request that does not end is cut when the time is up.
func TestShutdownCuts(t *testing.T) {
	t.Parallel()
	asked, free := make(chan struct{}), make(chan struct{})
	s := newServer(Report{})
	s.http.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-free })
	addr, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		resp, err := http.Get("http://" + addr.String() + "/status")
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("shutdown gives %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the request was answered")
	}
	close(free)
}

func TestLimitsOfARequest(t *testing.T) {
	t.Parallel()
	s := newServer(Report{State: active})
	if s.http.ReadHeaderTimeout <= 0 || s.http.ReadTimeout <= 0 || s.http.WriteTimeout <= answerLimit || s.http.IdleTimeout <= 0 {
		t.Error("a timeout is missing")
	}
	addr, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown(context.Background()) }()
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Big: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	}()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "431") {
		t.Errorf("a header of 64 KiB: %q, %v", line, err)
	}
}

func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	got := New(Config{Limits: Limits{Sink: time.Second}, Log: zap.NewNop()}).cfg.Limits
	if want := (Limits{time.Minute, time.Second, time.Minute}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
