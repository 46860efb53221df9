package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	sampleEvery = 2 * time.Second
	samplesKept = 300 // ten minutes
	feedEvery   = time.Second
	feedWrite   = 10 * time.Second
	maxViewers  = 32
)

// Activity is what the page shows beside the status: the only part that names
// keys, and payloads where they are allowed. Newest first.
type Activity struct {
	Topics []Topic `json:"topics"`
	Events []Event `json:"events"`
	Lines  []Line  `json:"lines"`
}

// Topic counts events that were delivered.
type Topic struct {
	Topic     string `json:"topic"`
	Delivered uint64 `json:"delivered"`
}

// Event is one that was read not long ago.
type Event struct {
	At      time.Time `json:"at"`
	Topic   string    `json:"topic"`
	Key     string    `json:"key,omitempty"`
	NoKey   string    `json:"no_key,omitempty"` // why none is shown
	ID      string    `json:"id"`
	Size    int       `json:"size"`
	Payload *string   `json:"payload,omitempty"`
}

// Line is a warning or an error of the log.
type Line struct {
	At   time.Time `json:"at"`
	Code string    `json:"code,omitempty"`
	Text string    `json:"text"`
}

// sample is one point of the charts.
type sample struct {
	At   time.Time `json:"at"`
	Lag  float64   `json:"lag"`
	Rate float64   `json:"rate"` // events delivered per second
}

// samples remembers the last ten minutes, whether or not somebody looks.
type samples struct {
	mu        sync.Mutex
	kept      []sample
	at        time.Time
	delivered uint64
}

func (s *samples) add(r Report, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var rate float64
	if d := now.Sub(s.at).Seconds(); !s.at.IsZero() && d > 0 && r.EventsDelivered >= s.delivered {
		rate = float64(r.EventsDelivered-s.delivered) / d
	}
	s.at, s.delivered = now, r.EventsDelivered
	if len(s.kept) == samplesKept {
		s.kept = append(s.kept[:0], s.kept[1:]...)
	}
	s.kept = append(s.kept, sample{now, r.Lag.Seconds(), rate})
}

func (s *samples) last() []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sample{}, s.kept...)
}

// watch takes samples until ctx ends.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		s.samples.add(s.cfg.Report(), s.cfg.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// feed sends the page's content once a second, as server-sent events, until the
// client leaves or the server stops.
func (s *Server) feed(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		return
	}
	if s.viewers.Add(1) > maxViewers {
		s.viewers.Add(-1)
		answer(w, http.StatusServiceUnavailable, problem{"too many viewers"})
		return
	}
	defer s.viewers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must not hold it back
	out := http.NewResponseController(w)
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	for {
		b, err := json.Marshal(s.news())
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(feedWrite)) // a recorder in tests has none
		if _, err := w.Write(append(append([]byte("data: "), b...), "\n\n"...)); err != nil {
			return
		}
		if err := out.Flush(); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.quit:
			return
		case <-tick.C:
		}
	}
}

func (s *Server) news() any {
	report, now := s.cfg.Report(), s.cfg.Now()
	a := Activity{}
	if s.cfg.Activity != nil {
		a = s.cfg.Activity()
	}
	return struct {
		At      time.Time `json:"at"`
		Status  Status    `json:"status"`
		Source  string    `json:"source"`
		Sink    string    `json:"sink"`
		Samples []sample  `json:"samples"`
		Topics  []Topic   `json:"topics"`
		Events  []Event   `json:"events"`
		Lines   []Line    `json:"lines"`
	}{now, newStatus(report, s.cfg.Limits.Ready(report, now), now), s.cfg.Source, s.cfg.Sink, s.samples.last(),
		append([]Topic{}, a.Topics...), append([]Event{}, a.Events...), append([]Line{}, a.Lines...)}
}
