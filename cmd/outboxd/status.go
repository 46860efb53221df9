package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// statusCommand asks the instance that runs with the same environment.
func statusCommand(ctx context.Context, p *process, args []string) error {
	f, envFile := flags("status")
	asJSON := f.Bool("json", false, "as JSON")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	ctx, cancel := p.brief(ctx)
	defer cancel()
	body, err := p.askStatus(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return p.print(string(bytes.TrimRight(body, "\n")) + "\n")
	}
	text, err := statusText(body)
	if err != nil {
		return err
	}
	return p.print(text)
}

const (
	statusTimeout = 10 * time.Second
	statusMost    = 1 << 20 // bytes
)

func (p *process) askStatus(ctx context.Context) ([]byte, error) {
	if p.cfg.HTTPAddr == "" {
		return nil, fault.Config(fault.CodeConfig, "Set OUTBOXD_HTTP_ADDR for both, the running instance and this command.", nil, "OUTBOXD_HTTP_ADDR is off, so there is nobody to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	url := "http://" + dialable(p.cfg.HTTPAddr) + "/status"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if p.cfg.HTTPViewToken != nil {
		token, err := p.cfg.HTTPViewToken()
		if err != nil {
			return nil, fault.Config(fault.CodeConfig, "Set OUTBOXD_HTTP_VIEW_TOKEN as the running instance has it.", err, "no view token")
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{}} // no proxy stands between us and this machine
	answer, err := client.Do(r)
	if err != nil {
		return nil, &fault.Error{
			Code: fault.CodeNotReached, Exit: fault.ExitFailure, Found: fmt.Sprintf("no instance answers at %s", url), Err: err,
			Fix: "Start one, or set OUTBOXD_HTTP_ADDR to the address where it listens.",
		}
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, statusMost))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", url, err)
	}
	if answer.StatusCode == http.StatusUnauthorized {
		return nil, fault.Config(fault.CodeConfig, "Set OUTBOXD_HTTP_VIEW_TOKEN as the running instance has it.", nil, "%s asks for its view token", url)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: it answers %s", url, answer.Status)
	}
	return body, nil
}

// dialable gives the address to ask of one that is listened on.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("localhost", port)
	}
	return addr
}

// statusText is for people: the sentence, then what is behind it.
func statusText(body []byte) (string, error) {
	var s struct {
		Sentence  string
		Positions struct{ Read, Settled, Saved string }
		InFlight  struct{ Events int } `json:"in_flight"`
		Unsaved   int                  `json:"unsaved_events"`
		Lag       float64              `json:"lag_seconds"`
		Counts    struct{ Read, Delivered uint64 }
	}
	if err := json.Unmarshal(body, &s); err != nil || s.Sentence == "" {
		return "", fmt.Errorf("what answers is no outboxd: %.80q", body)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", s.Sentence)
	for _, row := range [][2]string{
		{"read", s.Positions.Read}, {"confirmed", s.Positions.Settled}, {"saved", s.Positions.Saved},
		{"lag", (time.Duration(s.Lag * float64(time.Second))).Round(time.Millisecond).String()},
		{"in flight", fmt.Sprint(s.InFlight.Events)}, {"not saved", fmt.Sprint(s.Unsaved)},
		{"delivered", fmt.Sprintf("%d of %d read", s.Counts.Delivered, s.Counts.Read)},
	} {
		if row[1] == "" {
			row[1] = "none yet"
		}
		fmt.Fprintf(&b, "%-10s %s\n", row[0], row[1])
	}
	return b.String(), nil
}
