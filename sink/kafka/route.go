package kafka

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
)

// route is the goroutine that finds leaders for partitions without one.
func (s *Sink) route() {
	pause := minPause
	for {
		select {
		case <-s.kick:
		case <-s.stop:
			return
		}
		for {
			left := s.findLeaders()
			if left == 0 {
				pause = minPause
				break
			}
			timer := time.NewTimer(jittered(pause))
			select {
			case <-timer.C:
				pause = min(2*pause, maxPause)
			case <-s.stop:
				timer.Stop()
				return
			}
		}
	}
}

// findLeaders asks for what is not known and gives the number of partitions
// that are still without a leader and have something to send.
func (s *Sink) findLeaders() int {
	lost, stale := s.leaderless()
	if len(stale) > 0 {
		s.complain(s.client.RefreshMetadata(stale...))
	}
	left := 0
	for _, p := range lost {
		broker, err := s.client.Leader(p.topic, p.index)
		if err == nil {
			err = s.renew(p)
		}
		s.mu.Lock()
		if err != nil {
			p.stale = true
			left++
		} else {
			p.link, p.stale = s.linkTo(broker), false
			s.list(p)
		}
		s.mu.Unlock()
		if err != nil {
			s.complain(fmt.Errorf("partition %d of topic %q: %w", p.index, p.topic, err))
		}
	}
	if left == 0 && s.complaint != "" {
		s.complaint = ""
		s.log.Info("all partitions have leaders again")
	}
	return left
}

// complain logs why events wait, once until it changes or is over.
func (s *Sink) complain(err error) {
	if err == nil || s.complaint != "" {
		return
	}
	s.complaint = err.Error()
	s.log.Warn("can't reach the leaders of all partitions; their events wait", zap.Error(err))
}

// renew gives a partition a new producer id when the broker no longer knows
// the old one's state. What is in doubt is sent again, and may be a repeat.
func (s *Sink) renew(p *partition) error {
	s.mu.Lock()
	needed := p.renew
	s.mu.Unlock()
	if !needed {
		return nil
	}
	id, err := s.freshID()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.id, p.sequence, p.renew = id, 0, false
	if b := p.flight; b != nil {
		b.records = s.encode(p, b.pending)
	}
	return nil
}

// leaderless lists partitions with something to send and no link, and topics whose metadata is stale.
func (s *Sink) leaderless() (lost []*partition, stale []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ps := range s.partitions {
		asked := false
		for _, p := range ps {
			if p.link != nil || (len(p.queue) == 0 && p.flight == nil) {
				continue
			}
			lost = append(lost, p)
			if p.stale && !asked {
				asked = true
				stale = append(stale, topic)
			}
		}
	}
	return lost, stale
}

var _ interface {
	sink.Sink
	sink.Judge
	sink.Halter
} = (*Sink)(nil)
