package kafkasink

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
)

// A row may ask for its partition; the others go by their keys beside it.
func TestPinnedPartition(t *testing.T) {
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	var batch []sink.Message
	for i := range 24 {
		batch = append(batch, sink.Message{Topic: topic, Pinned: i%2 == 0, Partition: int32(i / 2), Key: []byte("one key"), Value: fmt.Append(nil, i)})
	}
	a.publish(t.Context(), s, batch)
	a.wantDelivered(t)
	byKey := kafka.Partition([]byte("one key"), 12)
	for _, r := range read(t, cluster.ListenAddrs(), topic) {
		var i int
		if _, err := fmt.Sscan(string(r.Value), &i); err != nil {
			t.Fatal(err)
		}
		if want := int32(i / 2); i%2 == 0 && r.partition != want || i%2 == 1 && r.partition != byKey {
			t.Errorf("message %d is on partition %d", i, r.partition)
		}
	}
	beyond := sink.Message{Topic: topic, Pinned: true, Partition: 12}
	if r := s.Judge(&beyond); r == nil || r.Reason != kafka.ReasonBadPartition {
		t.Errorf("judged %v", r)
	}
}

// A topic's partitions are not known before it is published to.
func TestPinnedPartitionOfATopicNotYetKnown(t *testing.T) {
	cluster := fake(t)
	s := open(t, kafka.Config{Brokers: cluster.ListenAddrs()}, zap.NewNop())
	a := newAnswers()
	batch := []sink.Message{{Topic: topic, Value: []byte("a")}, {Topic: topic, Pinned: true, Partition: 12, Value: []byte("b")}}
	if r := s.Judge(&batch[1]); r != nil {
		t.Fatalf("judged %v", r)
	}
	a.publish(t.Context(), s, batch)
	var refusal *sink.Refusal
	if err := a.all(t)[0]; !errors.As(err, &refusal) || refusal.Reason != kafka.ReasonBadPartition || refusal.Message != &batch[1] {
		t.Fatalf("done(%v)", err)
	}
	if got := read(t, cluster.ListenAddrs(), topic); len(got) != 0 {
		t.Errorf("%d messages of a batch that was refused", len(got))
	}
}
