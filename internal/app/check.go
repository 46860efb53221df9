package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/transform"
)

// Check tries what Run needs and changes nothing. An error means that it could
// not even begin. payload shows the value of the record that is previewed.
func Check(ctx context.Context, c *config.Config, payload bool, log *zap.Logger) ([]preflight.Result, error) {
	var mappings []preflight.Result
	validate, err := validator(c, func(m transform.Mapping) { mappings = append(mappings, mappingResult(m)) })
	if err != nil {
		return nil, err
	}
	db, err := newSource(c, c.Source.Login, validate, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	results := append(db.Check(ctx, source.Start(c.Start)), mappings...)
	readable := !slices.ContainsFunc(results, func(r preflight.Result) bool { return r.Status == preflight.Fail })
	if c.Sink == "kafka" {
		results = append(results, kafka.Check(ctx, kafkaConfig(c))...)
	}
	results = append(results, checkStore(ctx, c, log)...)
	if c.Checkpoint.Topic != "" {
		results = append(results, kafka.CheckRights(ctx, kafkaConfig(c), "kafka.acl.checkpoint", c.Checkpoint.Topic, "Read Write"))
	}
	results = mended(results)
	if readable {
		results = append(results, previews(ctx, c, db, payload)...)
	}
	return results, nil
}

// mended puts each finding on one line and gives what is not OK something to
// do, where whoever looked knew nothing: mostly somebody was not reached.
func mended(results []preflight.Result) []preflight.Result {
	for i := range results {
		r := &results[i]
		r.Found = strings.Join(strings.Fields(r.Found), " ")
		if r.Status != preflight.OK && len(r.Fix) == 0 {
			r.Fix = []string{fixOf(r.ID)}
		}
	}
	return results
}

func fixOf(id string) string {
	part, _, _ := strings.Cut(id, ".")
	server := map[string]string{"pg": "a PostgreSQL server, a primary,", "mysql": "a MySQL or MariaDB server"}[part]
	switch {
	case server != "":
		return "Check host and port in OUTBOXD_SOURCE_URL: that " + server + " listens there, nothing else, and that the network lets this host connect."
	case part == "kafka":
		return "Check OUTBOXD_KAFKA_BROKERS: that Kafka listens there, nothing else, and that the network lets this host connect."
	}
	return "Check OUTBOXD_CHECKPOINT: that it can be read and written."
}

// checkStore tries the checkpoint's store, and tells what it holds.
func checkStore(ctx context.Context, c *config.Config, log *zap.Logger) []preflight.Result {
	s := newStore(c, log)
	r := preflight.Result{Status: preflight.OK, ID: "checkpoint.writable", Found: c.Checkpoint.String() + " can be saved to"}
	if c.Checkpoint.Topic != "" {
		r.ID, r.Found = "kafka.checkpoint_topic", c.Checkpoint.String()+" has one partition and is compacted, or may be made"
	}
	if err := s.Check(ctx); err != nil {
		return []preflight.Result{failed(r.ID, errors.Join(err, s.Close()))}
	}
	place, err := s.Load(ctx)
	if err = errors.Join(err, s.Close()); err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return []preflight.Result{r, failed("checkpoint.place", err)}
	}
	next := preflight.Result{Status: preflight.OK, ID: "checkpoint.place", Found: fmt.Sprintf("position %s, saved at %s", place.Position, place.SavedAt.Format(time.RFC3339))}
	if place.Intent() {
		next.Found = "none: the next start is a first one, OUTBOXD_START=" + c.Start
	}
	return []preflight.Result{r, next}
}

func refusalOf(err error) (*sink.Refusal, bool) {
	var refusal *sink.Refusal
	return refusal, errors.As(err, &refusal)
}

func failed(id string, err error) preflight.Result {
	r := preflight.Result{Status: preflight.Fail, ID: id, Found: err.Error()}
	if f := fault.As(err); f != nil && f.Fix != "" {
		r.Fix = []string{f.Fix}
	}
	return r
}
