package app

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/source"
)

// maxShown is how much of a value a preview shows, in bytes.
const maxShown = 2000

// previews tell what record the newest row of each table would be. payload
// shows its value.
func previews(ctx context.Context, c *config.Config, db database, payload bool) []preflight.Result {
	const id = "record.preview"
	sampler, ok := db.(source.Sampler)
	if !ok {
		return nil
	}
	router, err := newRouter(c)
	if err != nil {
		return nil // told already
	}
	rows, err := sampler.Newest(ctx)
	now := time.Now()
	var results []preflight.Result
	for _, row := range rows {
		row.Tx.CommitAt = now // a record without a timestamp of its own has the commit's
		messages, err := router.Route([]source.Row{row}, nil)
		if err != nil {
			results = append(results, refusedPreview(row.Table, err))
			continue
		}
		m := &messages[0]
		results = append(results, preflight.Result{Status: preflight.OK, ID: id, Found: fmt.Sprintf("the newest row of %s would be: %s", row.Table, preview(m, now, payload))})
		if c.Sink == "kafka" {
			results = append(results, topicResults(ctx, c, m)...)
		}
	}
	switch {
	case err != nil:
		results = append(results, preflight.Result{Status: preflight.OK, ID: id, Found: "not shown, for the newest row can't be read, which nothing but this and a first snapshot needs: " + strings.Join(strings.Fields(err.Error()), " ")})
	case len(rows) == 0:
		results = append(results, preflight.Result{Status: preflight.OK, ID: id, Found: "not shown: the tables hold no row"})
	}
	return results
}

// refusedPreview is a warning: it may be the one row that is so, and it may be delivered long ago.
func refusedPreview(t *source.Table, err error) preflight.Result {
	r := preflight.Result{Status: preflight.Warn, ID: "record.preview", Found: fmt.Sprintf("the newest row of %s would be refused: %v", t, err)}
	if refusal, ok := refusalOf(err); ok {
		r.Found = fmt.Sprintf("the newest row of %s would be refused: %s", t, refusal.Detail)
		r.Fix = []string{refusal.Fix}
	}
	return r
}

// preview writes a record in one line, without its value unless that is asked for.
func preview(m *sink.Message, now time.Time, payload bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic %s, key %s", m.Topic, shown(m.Key))
	if m.Pinned {
		fmt.Fprintf(&b, ", partition %d", m.Partition)
	}
	for i, h := range m.Headers {
		b.WriteString(map[bool]string{true: ", headers ", false: " "}[i == 0])
		fmt.Fprintf(&b, "%s=%s", h.Name, shown(h.Value))
	}
	if !m.Timestamp.Equal(now) {
		fmt.Fprintf(&b, ", timestamp %s", m.Timestamp.UTC().Format(time.RFC3339Nano))
	}
	switch {
	case m.Value == nil:
		b.WriteString(", a tombstone")
	case payload:
		fmt.Fprintf(&b, ", value %s", shown(m.Value))
	default:
		fmt.Fprintf(&b, ", value of %d bytes", len(m.Value))
	}
	fmt.Fprintf(&b, ", %d bytes in all", m.Size())
	return b.String()
}

func shown(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case len(b) > maxShown:
		return shown(b[:maxShown]) + fmt.Sprintf("… (%d bytes)", len(b))
	case utf8.Valid(b):
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("0x%x", b)
}

// topicResults tell of the topic that a record goes to.
func topicResults(ctx context.Context, c *config.Config, m *sink.Message) []preflight.Result {
	r := preflight.Result{Status: preflight.OK, ID: "kafka.topic"}
	cfg := kafkaConfig(c)
	if right := kafka.CheckRights(ctx, cfg, "kafka.acl.write", m.Topic, "Write"); right.Status != preflight.OK {
		return []preflight.Result{right}
	}
	topic, err := kafka.Inspect(ctx, cfg, m.Topic)
	switch {
	case err != nil:
		r.Status, r.Found = preflight.Warn, err.Error()
		return []preflight.Result{r}
	case topic.Partitions == 0 && c.Kafka.CreateTopics:
		r.Found = fmt.Sprintf("topic %q does not exist; it is made before its first event", m.Topic)
		return []preflight.Result{r}
	case topic.Partitions == 0:
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("topic %q does not exist: everything would wait for it", m.Topic)
		r.Fix = []string{"outboxd setup --topics " + m.Topic, kafka.CreateCommand(cfg, m.Topic)}
		return []preflight.Result{r}
	case m.Pinned && m.Partition >= topic.Partitions:
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("the newest row asks for partition %d, and topic %q has %d", m.Partition, m.Topic, topic.Partitions)
		r.Fix = []string{"Add partitions to the topic, or take the partition out of OUTBOXD_COLUMN_PLACEMENT."}
		return []preflight.Result{r}
	}
	partition := m.Partition
	if !m.Pinned && m.Key != nil {
		partition = kafka.Partition(m.Key, topic.Partitions)
	}
	r.Found = fmt.Sprintf("topic %q has %d partitions; the newest row's record goes to partition %d", m.Topic, topic.Partitions, partition)
	results := []preflight.Result{r}
	if age := time.Since(m.Timestamp); topic.Retention > 0 && age > topic.Retention {
		results = append(results, preflight.Result{
			Status: preflight.Warn, ID: "kafka.retention",
			Found: fmt.Sprintf("the newest row's timestamp is %s, and topic %q keeps records for %s after theirs: Kafka may delete such a record at once", m.Timestamp.UTC().Format(time.RFC3339), m.Topic, topic.Retention),
			Fix: []string{
				"Leave OUTBOXD_COLUMN_TIMESTAMP unset: the commit time then counts.",
				fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config retention.ms=-1", strings.Join(cfg.Brokers, ","), m.Topic),
			},
		})
	}
	return results
}
