package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/sink"
)

// topics knows which topics exist. An unknown one is named in the log at once,
// made when that is allowed, and else waited for: the producer alone would
// retry it for ever in silence. It is used by the goroutine that publishes.
type topics struct {
	cfg    Config
	client sarama.Client // gives up at once; the waiting is ours
	log    *zap.Logger
	known  map[string]bool
	said   map[string]string    // topic -> what the log last said of it
	why    map[string]hindrance // topic -> the same with its particulars, for the status
	denied map[string]time.Time // topic -> since when we may not see it
	last   string               // the topic last found known, so a run of events costs no look-up
	missed obstacle             // what is waited for
}

// wait returns when every topic of msgs is there, or stop is closed (with nil), or
// with why not. Everything in the batch waits, and what comes behind it.
func (t *topics) wait(ctx context.Context, stop <-chan struct{}, msgs []sink.Message) error {
	missing := t.missing(msgs)
	if len(missing) == 0 {
		return nil
	}
	defer t.missed.clear()
	pause := 100 * time.Millisecond
	for {
		var left []*sink.Message
		for _, m := range missing {
			there, err := t.look(m)
			if err != nil {
				return err
			}
			if !there {
				left = append(left, m)
			}
		}
		if len(left) == 0 {
			return nil
		}
		missing = left
		first := t.why[left[0].Topic]
		t.missed.set(several(first.what, len(left)-1), first.fix)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, 5*time.Second)
		case <-stop:
			timer.Stop()
			return nil
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for topic %q: %w", missing[0].Topic, ctx.Err())
		}
	}
}

// missing gives the first message of each topic that isn't known.
func (t *topics) missing(msgs []sink.Message) (first []*sink.Message) {
next:
	for i := range msgs {
		topic := msgs[i].Topic
		if topic == t.last {
			continue
		}
		if t.known[topic] {
			t.last = topic
			continue
		}
		for _, m := range first {
			if m.Topic == topic {
				continue next
			}
		}
		first = append(first, &msgs[i])
	}
	return first
}

// look asks for the topic of m, and makes it where that is allowed. The error
// is a refusal: asking again is no use.
func (t *topics) look(m *sink.Message) (bool, error) {
	_, err := t.client.Partitions(m.Topic)
	switch {
	case err == nil:
		t.found(m.Topic)
		return true, nil
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed) && t.deniedFor(m.Topic) < t.cfg.RejectAfter:
		t.say(m.Topic, "not allowed to look up topic, trying on for OUTBOXD_REJECT_AFTER", "", t.cfg.mayWrite(m.Topic))
		return false, nil
	case errors.Is(err, sarama.ErrInvalidTopic), errors.Is(err, sarama.ErrTopicAuthorizationFailed):
		return false, t.cfg.failure(err, m)
	case !errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		t.say(m.Topic, "can't look up topic, waiting", err.Error(), reachFix)
		return false, nil
	}
	if !t.cfg.CreateTopics {
		t.say(m.Topic, "topic does not exist, waiting for it", "", fmt.Sprintf(
			"create it, or set OUTBOXD_KAFKA_CREATE_TOPICS=true, or run: outboxd setup --topics %s", m.Topic))
		return false, nil
	}
	if t.said[m.Topic] == "" {
		t.say(m.Topic, "topic does not exist, creating it", "OUTBOXD_KAFKA_CREATE_TOPICS=true", "nothing yet")
	}
	if _, err := createTopic(t.client, t.cfg, m.Topic); err != nil {
		fix := "create it, or allow outboxd to; see OUTBOXD_KAFKA_TOPIC_PARTITIONS and OUTBOXD_KAFKA_TOPIC_REPLICATION"
		if denied(err) {
			fix = "create it, or: " + t.cfg.conn().Grant("Create", kafkaconn.Topic, m.Topic)
		}
		t.say(m.Topic, "can't create topic, waiting for it", err.Error(), fix)
	}
	return false, nil // its partitions have leaders a moment later
}

// deniedFor is how long the right on a topic has been missing.
func (t *topics) deniedFor(topic string) time.Duration {
	since, ok := t.denied[topic]
	if !ok {
		since = time.Now()
		t.denied[topic] = since
	}
	return time.Since(since)
}

func (t *topics) found(topic string) {
	delete(t.denied, topic)
	t.known[topic] = true
	if _, waited := t.said[topic]; waited {
		delete(t.said, topic)
		delete(t.why, topic)
		t.log.Info("topic is there", zap.String("topic", topic))
	}
}

// say logs a line about a topic unless it was the last one said, and notes it
// for the status. What was found doesn't count: it may hold a port that is
// another one each time.
func (t *topics) say(topic, what, found, fix string) {
	h := hindrance{fmt.Sprintf("%s: %q", what, topic), fix}
	if found != "" {
		h.what += ": " + found
	}
	t.why[topic] = h
	if t.said[topic] != what {
		t.said[topic] = what
		t.log.Warn(what, zap.String("topic", topic), zap.String("detail", cmp.Or(found, fix)))
	}
}

// createTopic makes a topic and reports whether it was made rather than there.
func createTopic(client sarama.Client, cfg Config, topic string) (bool, error) {
	admin, err := sarama.NewClusterAdminFromClient(client) // closing it would close client
	if err != nil {
		return false, err
	}
	err = admin.CreateTopic(topic, &sarama.TopicDetail{
		NumPartitions:     cfg.TopicPartitions,
		ReplicationFactor: cfg.TopicReplication,
	}, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return false, nil
	}
	return err == nil, err
}
