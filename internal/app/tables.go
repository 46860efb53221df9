package app

import (
	"cmp"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/transform"
)

// validator judges each outbox table as the database describes it, and tells
// how it will be read.
func validator(c *config.Config, tell func(transform.Mapping)) (func(*source.Table) error, error) {
	router, err := newRouter(c) // one of its own: the engine's is used by another goroutine
	if err != nil {
		return nil, err
	}
	return func(t *source.Table) error {
		m, err := router.Describe(t)
		if err == nil {
			tell(m)
		}
		return err
	}, nil
}

// aggregateOf tells which columns name a row's aggregate. There is none when
// each event is one of its own, and none is known when a member of the payload does, or
// the table does not fit.
func aggregateOf(c *config.Config) func(*source.Table) ([]string, bool) {
	return func(t *source.Table) ([]string, bool) {
		router, err := newRouter(c)
		if err != nil {
			return nil, false
		}
		m, err := router.Describe(t)
		switch {
		case err != nil || m.AggregateID != "" && t.Column(m.AggregateID) < 0:
			return nil, false
		case m.AggregateID == "":
			return nil, true
		case m.AggregateType == "":
			return []string{m.AggregateID}, true
		}
		return []string{m.AggregateType, m.AggregateID}, true
	}
}

// logMapping logs how a table is read, once per shape: it is asked at each new lease.
func logMapping(log *zap.Logger) func(transform.Mapping) {
	told := map[string]string{}
	return func(m transform.Mapping) {
		text := fmt.Sprint(m)
		if told[m.Table] == text {
			return
		}
		told[m.Table] = text
		log.Info("table", zap.String("table", m.Table), zap.String("id", m.ID), zap.String("aggregate_id", m.AggregateID),
			zap.String("aggregate_type", m.AggregateType), zap.String("event_type", m.EventType), zap.String("payload", m.Payload),
			zap.String("topic", m.Topic), zap.Strings("headers", m.Headers))
		if m.Warning != "" {
			log.Warn("table", zap.String("table", m.Table), zap.String("found", m.Warning))
		}
	}
}

// mappingResult is the same as a line of check.
func mappingResult(m transform.Mapping) preflight.Result {
	r := preflight.Result{Status: preflight.OK, ID: "table.mapping"}
	r.Found = fmt.Sprintf("%s: id %q, key %q, value %q, topic %s, headers %s", m.Table, m.ID, cmp.Or(m.AggregateID, m.ID), m.Payload,
		m.Topic, cmp.Or(strings.Join(m.Headers, ","), "none"))
	if m.Warning != "" {
		r.Status, r.Fix = preflight.Warn, []string{m.Warning}
	}
	return r
}
