package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/pipeline"
	"github.com/outboxd/outboxd/source"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// fixture is a registry whose status and clock a test sets.
type fixture struct {
	*Metrics
	status pipeline.Status
	now    time.Time
}

func newFixture() *fixture {
	f := &fixture{now: start}
	f.Metrics = New("orders", "1.2.3", "abc", func() pipeline.Status { return f.status }, func() time.Time { return f.now })
	return f
}

// want compares the samples of the named series, given without the label name.
func (f *fixture) want(t *testing.T, names string, samples ...string) {
	t.Helper()
	body := f.scrape(t)
	var got []string
	for line := range strings.Lines(body) {
		series, _, _ := strings.Cut(line, "{")
		for name := range strings.FieldsSeq(names) {
			if series == name {
				line = strings.NewReplacer(`name="orders",`, "", `,name="orders"`, "", `{name="orders"}`, "").Replace(strings.TrimSpace(line))
				got = append(got, line)
			}
		}
	}
	if a, b := strings.Join(got, "\n"), strings.Join(samples, "\n"); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func (f *fixture) scrape(t *testing.T) string {
	t.Helper()
	rec := httptest.NewRecorder()
	f.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != 200 {
		t.Fatalf("scrape answers %d: %s", rec.Code, rec.Body)
	}
	return rec.Body.String()
}

func TestState(t *testing.T) {
	t.Parallel()
	lost := fault.Position(fault.CodePositionLost, "", nil, "gone")
	tests := []struct {
		state   pipeline.State
		err     error
		up      int
		active  int
		stopped string
	}{
		{pipeline.Starting, nil, 1, 0, ""},
		{pipeline.Standby, nil, 1, 0, ""},
		{pipeline.Active, nil, 1, 1, ""},
		{pipeline.Waiting, errors.New("no broker"), 1, 0, ""},
		{pipeline.Draining, nil, 1, 0, ""},
		{pipeline.Stopped, nil, 0, 0, ""},
		{pipeline.Stopped, fmt.Errorf("open: %w", lost), 0, 0, "position_lost"},
		{pipeline.Stopped, errors.New("who knows"), 0, 0, "unexpected"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s %v", tt.state, tt.err), func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.status = pipeline.Status{State: tt.state, Err: tt.err}
			want := []string{fmt.Sprint("outboxd_active ", tt.active)}
			if tt.stopped != "" {
				want = append(want, fmt.Sprintf(`outboxd_stopped{code=%q} 1`, tt.stopped))
			}
			f.want(t, "outboxd_up outboxd_active outboxd_stopped", append(want, fmt.Sprint("outboxd_up ", tt.up))...)
		})
	}
}

func TestGauges(t *testing.T) {
	t.Parallel()
	f := newFixture()
	names := "outboxd_lag_seconds outboxd_in_flight_events outboxd_unsaved_events outboxd_checkpoint_age_seconds outboxd_events_read_total"
	f.now = start.Add(9 * time.Second)
	f.want(t, names, "outboxd_checkpoint_age_seconds 9", "outboxd_events_read_total 0", "outboxd_in_flight_events 0", "outboxd_lag_seconds 0", "outboxd_unsaved_events 0")

	f.status = pipeline.Status{State: pipeline.Active, OldestCommit: start, LastSaved: start.Add(7 * time.Second), InFlightEvents: 12, UnsavedEvents: 5, EventsRead: 100}
	f.want(t, names, "outboxd_checkpoint_age_seconds 2", "outboxd_events_read_total 100", "outboxd_in_flight_events 12", "outboxd_lag_seconds 9", "outboxd_unsaved_events 5")
}

func TestHooks(t *testing.T) {
	t.Parallel()
	f := newFixture()
	h := f.Hooks()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			h.Delivered("public.outbox", "order", 10)
			h.Delivered("public.outbox", "invoice", 1)
			h.Latency(40 * time.Millisecond)
			h.Restart("source")
			h.Rejected("null_key")
		})
	}
	wg.Wait()
	h.Latency(-time.Second)
	f.want(t, "outboxd_events_delivered_total outboxd_restarts_total outboxd_events_rejected_total outboxd_delivery_seconds_count outboxd_delivery_seconds_sum",
		"outboxd_delivery_seconds_sum 0.16", "outboxd_delivery_seconds_count 5",
		`outboxd_events_delivered_total{table="public.outbox",topic="invoice"} 4`,
		`outboxd_events_delivered_total{table="public.outbox",topic="order"} 40`,
		`outboxd_events_rejected_total{reason="null_key"} 4`,
		`outboxd_restarts_total{reason="source"} 4`)
}

func TestTopicsAreCapped(t *testing.T) {
	t.Parallel()
	f := newFixture()
	deliver := f.Hooks().Delivered
	for round := range 2 {
		for i := range maxTopics + 500 {
			deliver("outbox", fmt.Sprint("topic-", i), 1)
		}
		if n := testutil.CollectAndCount(f.delivered.vec); n != maxTopics+1 {
			t.Errorf("round %d: %d series, want %d", round, n, maxTopics+1)
		}
	}
	if n := testutil.ToFloat64(f.delivered.vec.WithLabelValues("outbox", otherTopic)); n != 1000 {
		t.Errorf("other counts %v, want 1000", n)
	}
	if n := len(f.delivered.series); n != maxTopics+1 {
		t.Errorf("%d counters are kept, want %d", n, maxTopics+1)
	}
	deliver("second", "topic-0", 3) // a known topic of another table keeps its name
	if n := testutil.ToFloat64(f.delivered.vec.WithLabelValues("second", "topic-0")); n != 3 {
		t.Errorf("second table counts %v, want 3", n)
	}
}

// Topics and reasons may hold any bytes; a label may not.
func TestLabelsThatAreNotText(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.Hooks().Delivered("t\xff", "a\xfe\xfdb", 2)
	f.Hooks().Restart("\xff")
	f.want(t, "outboxd_events_delivered_total", "outboxd_events_delivered_total{table=\"t\uFFFD\",topic=\"a\uFFFDb\"} 2")
}

// The series is there only with a certificate, and follows its file.
func TestCertificateExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture()
	var at time.Time
	f.Certificate(func() (time.Time, bool) { return at, !at.IsZero() })
	f.want(t, "outboxd_tls_certificate_expiry_seconds")
	at = start.Add(time.Hour)
	f.want(t, "outboxd_tls_certificate_expiry_seconds", "outboxd_tls_certificate_expiry_seconds 3600")
}

func TestBuildInfo(t *testing.T) {
	t.Parallel()
	body := newFixture().scrape(t)
	if !regexp.MustCompile(`outboxd_build_info\{commit="abc",go_version="go1[^"]*",name="orders",version="1.2.3"\} 1`).MatchString(body) {
		t.Error("no build info")
	}
}

// Every series carries the label name, and the docs tell of each with its
// type and labels, and of no other.
func TestDocs(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.status = pipeline.Status{State: pipeline.Stopped, Err: errors.New("x"), Retention: source.Retention{AskedAt: start, Limit: &source.Limit{}}}
	f.Certificate(func() (time.Time, bool) { return start.Add(time.Hour), true })
	h := f.Hooks()
	h.Delivered("t", "t", 1)
	h.Restart("x")
	h.Rejected("x")
	families, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		labels := ""
		named := false
		for _, l := range family.GetMetric()[0].GetLabel() {
			if l.GetName() == "name" {
				named = l.GetValue() == "orders"
				continue
			}
			labels += " `" + l.GetName() + "`"
		}
		if !named {
			t.Errorf("%s has no label name", family.GetName())
		}
		if n := family.GetName(); strings.HasPrefix(n, "outboxd_") {
			got = append(got, fmt.Sprintf("`%s` %s%s", n, strings.ToLower(family.GetType().String()), sorted(labels)))
		} else if !strings.HasPrefix(n, "go_") && !strings.HasPrefix(n, "process_") {
			t.Errorf("%s is of no known family", n)
		}
	}
	want := documented(t)
	for _, g := range got {
		if !want[g] {
			t.Errorf("docs/metrics.md lacks %s", g)
		}
		delete(want, g)
	}
	for w := range want {
		t.Errorf("docs/metrics.md tells of %s, which is not served", w)
	}
}

// documented reads the table of series as "`name` type `label` …", labels sorted.
func documented(t *testing.T) map[string]bool {
	t.Helper()
	raw, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`outboxd_[a-z_]+`) \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(raw), -1) {
		rows[row[1]+" "+row[2]+sorted(" "+strings.ReplaceAll(row[3], ",", ""))] = true
	}
	return rows
}

// sorted gives the words of s in order, each behind a space.
func sorted(s string) string {
	words := strings.Fields(s)
	slices.Sort(words)
	return strings.Join(append([]string{""}, words...), " ")
}
