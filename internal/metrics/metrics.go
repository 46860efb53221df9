// Package metrics shows the connector to Prometheus. It is the only importer of
// the client library.
//
// Counters and the histogram are fed by the engine's hooks; gauges are read
// from its status when they are asked for, once per scrape, so that all of them
// tell of the same moment (status.go). Every series carries the label name. What they mean
// is told in docs/metrics.md, and a test holds the two together.
package metrics

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/outboxd/outboxd/internal/pipeline"
)

const (
	// maxTopics is how many topics are counted on their own.
	maxTopics = 1000
	// otherTopic counts the rest. No outbox topic of a default template is called so.
	otherTopic = "other"
)

// Metrics is one connector's registry. It is safe for concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	named     prometheus.Registerer // of registry; adds the label name
	now       func() time.Time
	delivered *delivered
	latency   prometheus.Histogram
	restarts  *prometheus.CounterVec
	rejected  *prometheus.CounterVec
	repeats   prometheus.Counter
}

// New makes the registry of the connector called name. status is asked once per
// scrape; now is the clock ages are told by.
func New(name, version, commit string, status func() pipeline.Status, now func() time.Time) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), now: now,
		delivered: &delivered{
			vec: counters("outboxd_events_delivered_total",
				"Events acknowledged by the sink. Topics beyond the first 1000 are counted as other.", "table", "topic"),
			series: map[series]prometheus.Counter{},
			topics: map[string]struct{}{},
		},
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "outboxd_delivery_seconds",
			Help:    "Time from the commit to the sink's acknowledgement, of the oldest event of each batch.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}),
		restarts: counters("outboxd_restarts_total", "Sessions that ended with an error that mends itself.", "reason"),
		rejected: counters("outboxd_events_rejected_total", "Events that could not be published.", "reason"),
		repeats: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outboxd_possible_repeats_total",
			Help: "Events sent again although the broker may have taken them and forgotten that.",
		}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "outboxd_build_info",
		Help:        "Always 1; the labels tell what runs.",
		ConstLabels: prometheus.Labels{"version": text(version), "commit": text(commit), "go_version": runtime.Version()},
	})
	build.Set(1)
	m.named = prometheus.WrapRegistererWith(prometheus.Labels{"name": text(name)}, m.registry)
	m.named.MustRegister(m.delivered.vec, m.latency, m.restarts, m.rejected, m.repeats, build, newGauges(status, now),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Hooks is what the engine calls.
func (m *Metrics) Hooks() pipeline.Hooks {
	return pipeline.Hooks{
		Delivered: m.delivered.add,
		Latency:   func(d time.Duration) { m.latency.Observe(max(0, d.Seconds())) }, // the database's clock may be ahead
		Restart:   func(reason string) { m.restarts.WithLabelValues(text(reason)).Inc() },
		Rejected:  func(reason string) { m.rejected.WithLabelValues(text(reason)).Inc() },
	}
}

// Certificate tells by expiry when the certificate that we show to servers runs
// out. It is asked once per scrape; ok is false when there is none. Called once, before Handler.
func (m *Metrics) Certificate(expiry func() (at time.Time, ok bool)) {
	m.named.MustRegister(certificate{
		desc: prometheus.NewDesc("outboxd_tls_certificate_expiry_seconds", "Time until the certificate that we show to Kafka runs out, negative afterwards.", nil, nil),
		at:   expiry, now: m.now,
	})
}

// certificate is a gauge that is not there when there is no certificate.
type certificate struct {
	desc *prometheus.Desc
	at   func() (time.Time, bool)
	now  func() time.Time
}

// Describe implements prometheus.Collector.
func (c certificate) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c certificate) Collect(out chan<- prometheus.Metric) {
	if at, ok := c.at(); ok {
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, at.Sub(c.now()).Seconds())
	}
}

// PossibleRepeat counts n events that the sink sent again in doubt.
func (m *Metrics) PossibleRepeat(n int) { m.repeats.Add(float64(n)) }

// Handler serves the registry in the formats Prometheus asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// delivered counts by table and topic. It keeps the counters it has handed out,
// because looking one up by its labels costs more than counting.
type delivered struct {
	vec *prometheus.CounterVec

	mu     sync.Mutex
	series map[series]prometheus.Counter
	topics map[string]struct{}
}

type series struct{ table, topic string }

func (d *delivered) add(table, topic string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.series[series{table, topic}]
	if c == nil {
		if _, known := d.topics[topic]; !known {
			if len(d.topics) < maxTopics {
				d.topics[topic] = struct{}{}
			} else {
				topic = otherTopic
			}
		}
		c = d.vec.WithLabelValues(text(table), text(topic))
		d.series[series{table, topic}] = c
	}
	c.Add(float64(n))
}

// text makes a label value of s: anything but UTF-8 would panic in the library.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
