package app

import (
	"context"
	"errors"
	"io"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/activity"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/metrics"
	"github.com/outboxd/outboxd/internal/pipeline"
	"github.com/outboxd/outboxd/source"
)

// Build says what is running.
type Build struct{ Version, Commit string }

// Run moves events until stop is closed (it then drains), ctx is cancelled
// (the drain is cut), or something happens that does not mend itself. stdout
// is where the stdout sink writes.
func Run(ctx context.Context, stop <-chan struct{}, c *config.Config, b Build, stdout io.Writer, log *zap.Logger) (err error) {
	seen := activity.New(activity.Config{HideKeys: c.HideKeys, ShowPayloads: c.ShowPayloads})
	log = log.WithOptions(zap.WrapCore(seen.Core)).With(zap.String("name", c.Name))
	st := newStore(c, log)
	defer func() { err = errors.Join(err, st.Close()) }()
	if c.Checkpoint.Topic == "" { // a topic is judged when it is loaded from, for brokers may have to be waited for
		if err := st.Check(ctx); err != nil { // a save that can't work must not be found out under load
			return err
		}
	}
	engine, m, err := build(c, b, st, seen, stdout, log)
	if err != nil {
		return err
	}
	shut, err := serve(c, b, engine, m, seen, log)
	if err != nil {
		return err
	}
	defer shut()
	log.Info("starting", zap.String("version", b.Version), zap.String("source", c.Source.URL), zap.Stringers("tables", c.Tables),
		zap.String("sink", c.Sink), zap.Stringer("checkpoint", c.Checkpoint), zap.String("http", c.HTTPAddr))
	if err := engine.Run(ctx, stop); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// build makes everything that needs no connection.
func build(c *config.Config, b Build, st store, seen *activity.Activity, stdout io.Writer, log *zap.Logger) (*pipeline.Engine, *metrics.Metrics, error) {
	validate, err := validator(c, logMapping(log))
	if err != nil {
		return nil, nil, err
	}
	db, err := newSource(c, c.Source.Login, validate, log)
	if err != nil {
		return nil, nil, err
	}
	router, err := newRouter(c)
	if err != nil {
		return nil, nil, err
	}
	var engine *pipeline.Engine
	m := metrics.New(c.Name, b.Version, b.Commit, func() pipeline.Status { return engine.Status() }, time.Now)
	m.Certificate(certificateExpiry(c))
	open, err := openSink(c, stdout, m.PossibleRepeat, log)
	if err != nil {
		return nil, nil, err
	}
	hooks := m.Hooks()
	count := hooks.Delivered
	hooks.Delivered = func(table, topic string, n int) {
		count(table, topic, n)
		seen.Delivered(topic, n)
	}
	engine = pipeline.New(pipeline.Config{
		Name: c.Name, Source: db, OpenSink: open, Store: st, Route: seen.Watch(router.Route), Start: source.Start(c.Start), OnReject: pipeline.OnReject(c.OnReject),
		BufferEvents: c.BufferEvents, BufferBytes: c.BufferBytes,
		CheckpointInterval: c.Checkpoint.Interval, CheckpointMaxEvents: c.Checkpoint.MaxEvents,
		DrainTimeout: c.DrainTimeout, StartTimeout: c.StartTimeout, Transactions: newTransactions(c), Hooks: hooks, Log: log.Named("pipeline"),
	})
	return engine, m, nil
}
