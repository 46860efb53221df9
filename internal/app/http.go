package app

import (
	"context"
	"math"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/activity"
	"github.com/outboxd/outboxd/internal/admin"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/metrics"
	"github.com/outboxd/outboxd/internal/pipeline"
	"github.com/outboxd/outboxd/source"
)

// serve starts HTTP, unless it is off. Calling the result ends it.
func serve(c *config.Config, b Build, e *pipeline.Engine, m *metrics.Metrics, seen *activity.Activity, log *zap.Logger) (shut func(), err error) {
	if c.HTTPAddr == "" {
		return func() {}, nil
	}
	log = log.Named("http")
	s := admin.New(admin.Config{
		Report:   func() admin.Report { return report(c.Name, b.Version, e.Status(), snapshotOf(e.Source), time.Now()) },
		Activity: seen.Seen, Source: c.Source.URL, Sink: sinkText(c), ViewToken: c.HTTPViewToken,
		Metrics: m.Handler(), Hosts: c.HTTPHosts, Log: log,
	})
	addr, err := s.Start(c.HTTPAddr)
	if err != nil {
		return nil, err
	}
	log.Info("listening", zap.Stringer("address", addr))
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			log.Debug("shut down", zap.Error(err))
		}
	}, nil
}

// sinkText names where events go.
func sinkText(c *config.Config) string {
	if c.Sink == "kafka" {
		return "kafka " + strings.Join(c.Kafka.Brokers, ",")
	}
	return c.Sink
}

// snapshotOf tells of a first snapshot, if the source has such a thing.
func snapshotOf(s source.Source) *source.Snapshot {
	if s, ok := s.(source.Snapshotter); ok {
		return s.Snapshot()
	}
	return nil
}

// report is the engine's status in admin's words.
func report(name, version string, s pipeline.Status, snapshot *source.Snapshot, now time.Time) admin.Report {
	r := admin.Report{
		Name: name, Version: version,
		State: string(s.State), Since: s.Since, Holder: s.Holder, Err: s.Err,
		Read: string(s.Read), Settled: string(s.Settled), Saved: string(s.Saved),
		Waits: s.Waits, WaitsFix: s.WaitsFix,
		InFlightEvents: s.InFlightEvents, InFlightBytes: s.InFlightBytes, UnsavedEvents: s.UnsavedEvents,
		OldestCommit: s.OldestCommit, Lag: s.Lag(now), CaughtUp: s.CaughtUp,
		LastHeard: s.LastRead, LastRead: s.LastRead, LastDelivered: s.LastDelivered, LastSaved: s.LastSaved, SaveErr: s.SaveErr, WindowFull: s.WindowFull,
		RetainedBytes: s.Retention.Bytes, RetentionAskedAt: s.Retention.AskedAt,
		EventsRead: s.EventsRead, EventsDelivered: s.EventsDelivered, Sessions: s.Sessions,
	}
	if l := s.Retention.Limit; l != nil && !math.IsInf(l.Seconds(), 1) { // JSON has no infinity
		seconds := l.Seconds()
		r.SecondsToLimit = &seconds
	}
	if o := s.Retention.Oldest; o != nil {
		r.OldestOpen, r.OldestOpenSince = o.Name, o.Since
	}
	if snapshot != nil {
		r.Snapshot = &admin.Snapshot{Table: snapshot.Table, Rows: snapshot.Rows, Estimate: snapshot.Estimate, Since: snapshot.Since}
	}
	return r
}
