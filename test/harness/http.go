package harness

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What is asked for every 10 ms must not cost the process a compression each time.
var client = http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableCompression: true}}

// Get asks the process's HTTP endpoint; code 0: no answer.
func (p *Process) Get(path string) (code int, body string) {
	resp, err := client.Get(p.HTTP + path)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(b)
}

// WaitReady waits until /readyz is 200: an active instance that moves, or a standby.
func (p *Process) WaitReady(t testing.TB) { t.Helper(); p.WaitCode(t, "/readyz", http.StatusOK) }

// WaitActive waits until the process is the active one and ready.
func (p *Process) WaitActive(t testing.TB) {
	t.Helper()
	p.WaitCode(t, "/readyz?role=active", http.StatusOK)
}

// WaitCode waits until path answers with that code. It ends the test when the process ends.
func (p *Process) WaitCode(t testing.TB, path string, want int) {
	t.Helper()
	var code int
	var body string
	ok := within(Patience, func() bool {
		code, body = p.Get(path)
		return code == want || !p.Running()
	})
	if !ok || code != want {
		t.Fatalf("%s answers %d %.300q, want %d; running: %v", path, code, body, want, p.Running())
	}
}

// Status is /status as a JSON object; nil: no answer.
func (p *Process) Status() map[string]any {
	_, body := p.Get("/status")
	var status map[string]any
	_ = json.Unmarshal([]byte(body), &status)
	return status
}

// Metric sums the samples of one metric whose labels hold all of the texts
// ("code=\"foreign\""); ok is false when there is none.
func (p *Process) Metric(name string, labels ...string) (sum float64, ok bool) {
	_, body := p.Get("/metrics")
	lines := bufio.NewScanner(strings.NewReader(body))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		line := lines.Text()
		rest, is := strings.CutPrefix(line, name)
		if !is || rest == "" || (rest[0] != '{' && rest[0] != ' ') {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			continue
		}
		sum, ok = sum+v, true
	}
	return sum, ok
}
