package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/pipeline"
)

// gauges turns one pipeline.Status into samples at each scrape.
type gauges struct {
	status  func() pipeline.Status
	now     func() time.Time
	started time.Time

	up, active, stopped, read, lag, inFlight, unsaved, checkpointAge, retained, toLimit, oldestOpen *prometheus.Desc
}

func newGauges(status func() pipeline.Status, now func() time.Time) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &gauges{
		status: status, now: now, started: now(),
		up:            desc("outboxd_up", "1 while the connector works or tries to, 0 once it has stopped."),
		active:        desc("outboxd_active", "1 while this instance reads and publishes."),
		stopped:       desc("outboxd_stopped", "1 when the connector stopped for a reason that someone must act on; not there otherwise.", "code"),
		read:          desc("outboxd_events_read_total", "Events read from the log."),
		lag:           desc("outboxd_lag_seconds", "Age of the oldest committed event that is not delivered; 0 when caught up with the log's end."),
		inFlight:      desc("outboxd_in_flight_events", "Events read and not yet acknowledged."),
		unsaved:       desc("outboxd_unsaved_events", "Events acknowledged and not yet covered by a saved checkpoint."),
		checkpointAge: desc("outboxd_checkpoint_age_seconds", "Time since the last save of the checkpoint, or since the start when there was none."),
		retained:      desc("outboxd_source_retained_bytes", "Log that the database keeps for this connector; not there when it doesn't say."),
		toLimit:       desc("outboxd_source_seconds_to_limit", "Time until the database drops log that this connector needs, at the rate of the last minutes; +Inf when it comes no nearer, not there without a limit."),
		oldestOpen:    desc("outboxd_source_oldest_transaction_seconds", "Age of the oldest open transaction, which holds log; 0 when none is older than a few seconds."),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.up, g.active, g.stopped, g.read, g.lag, g.inFlight, g.unsaved, g.checkpointAge, g.retained, g.toLimit, g.oldestOpen} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (g *gauges) Collect(out chan<- prometheus.Metric) {
	s, now := g.status(), g.now()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(g.up, one(s.State != pipeline.Stopped))
	gauge(g.active, one(s.State == pipeline.Active))
	if s.State == pipeline.Stopped && s.Err != nil {
		gauge(g.stopped, 1, code(s.Err))
	}
	out <- prometheus.MustNewConstMetric(g.read, prometheus.CounterValue, float64(s.EventsRead))
	gauge(g.lag, s.Lag(now).Seconds())
	gauge(g.inFlight, float64(s.InFlightEvents))
	gauge(g.unsaved, float64(s.UnsavedEvents))
	saved := s.LastSaved
	if saved.IsZero() {
		saved = g.started
	}
	gauge(g.checkpointAge, max(0, now.Sub(saved)).Seconds())
	if r := s.Retention; !r.AskedAt.IsZero() {
		gauge(g.retained, float64(r.Bytes))
		if r.Limit != nil {
			gauge(g.toLimit, r.Limit.Seconds())
		}
		var age float64
		if r.Oldest != nil {
			age = max(0, now.Sub(r.Oldest.Since)).Seconds()
		}
		gauge(g.oldestOpen, age)
	}
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func code(err error) string {
	if f := fault.As(err); f != nil {
		return text(f.Code)
	}
	return fault.CodeUnexpected
}
