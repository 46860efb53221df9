package kafka

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// countEvery is how often the partitions of the topics in use are counted, in
// what the client was last told of them: no request.
const countEvery = time.Second

// widen takes up partitions that were added to topics in use. A key may be
// another partition's from then on, so its events there must not pass those that are
// on the way to the old one: all of the topic are awaited first. Fewer partitions are
// not taken up: those that are gone end the sink when events wait for them.
func (s *Sink) widen(ctx context.Context) error {
	now := time.Now()
	if now.Before(s.count) {
		return nil
	}
	s.count = now.Add(min(countEvery, s.cfg.Refresh))
	for topic, ps := range s.partitions {
		ids, err := s.client.Partitions(topic)
		if err != nil || len(ids) <= len(ps) {
			continue
		}
		s.log.Warn("the topic has more partitions than before; keys move to others, and the order of their events across the change is not kept",
			zap.String("topic", topic), zap.Int("before", len(ps)), zap.Int("now", len(ids)))
		if err := s.acknowledged(ctx, ps); err != nil {
			return fmt.Errorf("take up partitions of topic %q: %w", topic, err)
		}
		s.mu.Lock()
		all := ps[:len(ps):len(ps)]
		for i := len(ps); i < len(ids); i++ {
			all = append(all, &partition{topic: topic, index: int32(i), id: s.id})
		}
		s.partitions[topic] = all
		s.lastTopic, s.last = "", nil
		s.mu.Unlock()
	}
	return nil
}

// acknowledged returns when nothing is left to be acknowledged in partitions, or the sink is halted.
func (s *Sink) acknowledged(ctx context.Context, ps []*partition) error {
	for {
		left := false
		s.mu.Lock()
		for _, p := range ps {
			left = left || p.flight != nil || len(p.queue) > 0
		}
		s.mu.Unlock()
		if !left {
			return nil
		}
		select {
		case <-s.empty:
		case <-s.stop:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
