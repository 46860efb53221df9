package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// router is the goroutine that finds leaders for partitions without one. A
// partition whose tries lead nowhere is looked for less and less often, so that
// many partitions of a dead broker make no storm of connections.
func (s *Sink) router() {
	for {
		timer := time.NewTimer(s.findLeaders())
		select {
		case <-s.kick:
		case <-timer.C:
		case <-s.stop:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// idle is the wait when nothing is looked for: until a kick.
const idle = time.Hour

// seeking is a partition that is looked for, with its count of lost links then.
type seeking struct {
	*partition
	then int
}

// findLeaders looks for every leader that is due, and gives the time to the next try.
func (s *Sink) findLeaders() time.Duration {
	due, stale, wait := s.leaderless()
	if len(stale) > 0 {
		err := s.client.RefreshMetadata(stale...)
		s.complain(err)
		if unreachable(err) { // asking for each partition would ask the same dead brokers again
			return min(wait, s.hold(due))
		}
	}
	for _, p := range due {
		if left := s.pausing(p.partition); left > 0 {
			wait = min(wait, left)
			continue
		}
		broker, err := s.client.Leader(p.topic, p.index)
		if err == nil {
			err = s.renew(p.partition)
		}
		wait = min(wait, s.found(p, broker, err))
	}
	if len(due) > 0 && wait == idle && s.complaint.clear() {
		s.log.Info("all partitions have leaders again")
	}
	return wait
}

// found takes a finding, unless the partition lost its link anew meanwhile. It
// gives the time to the partition's next try.
func (s *Sink) found(p seeking, broker *sarama.Broker, err error) time.Duration {
	s.mu.Lock()
	if err == nil && (p.lost != p.then || p.renew) {
		s.mu.Unlock()
		return 0
	}
	if err == nil {
		p.absent = time.Time{}
		p.link, p.stale = s.linkTo(broker), false
		s.list(p.partition)
		s.mu.Unlock()
		return idle
	}
	p.stale = true
	wait, gone := p.pause.extend(), p.gone(err)
	s.mu.Unlock()
	err = fmt.Errorf("partition %d of topic %q: %w", p.index, p.topic, err)
	s.complain(err)
	if gone != nil { // the engine opens a new sink, which names the topic or makes it
		s.fail(gone, fmt.Errorf("a topic was deleted, or made anew with fewer partitions: %w", err))
	}
	return wait
}

// unreachable tells that no broker answered from an answer about a topic.
func unreachable(err error) bool {
	var answer sarama.KError
	return err != nil && !errors.As(err, &answer)
}

// hold pauses partitions together while no broker answers.
func (s *Sink) hold(due []seeking) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.dark.extend()
	for _, p := range due {
		p.pause.until = s.dark.until
	}
	return d
}

// pausing gives what is left of the pause of p's broker: asking for the leader
// would dial it again, for each partition it has.
func (s *Sink) pausing(p *partition) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	broker := s.pauses[p.leader]
	if broker == nil {
		return 0
	}
	left := time.Until(broker.until)
	if left > 0 {
		p.pause = *broker
	}
	return left
}

// goneAfter is how long a cluster may not know a partition that was there; a
// moment of it is normal while metadata spreads.
const goneAfter = 10 * time.Second

// gone gives a publish that waits for a partition the cluster no longer has. s.mu is held.
func (p *partition) gone(err error) *publish {
	switch {
	case !errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		p.absent = time.Time{}
	case p.absent.IsZero():
		p.absent = time.Now()
	case time.Since(p.absent) >= goneAfter && p.flight != nil:
		return p.flight.pending[0].of
	case time.Since(p.absent) >= goneAfter && len(p.queue) > 0:
		return p.queue[0].of
	}
	return nil
}

const reachFix = "see that the brokers run and can be reached from here by the addresses they advertise, and that each partition has a leader"

// complain tells why events wait, and logs it once until it is over.
func (s *Sink) complain(err error) {
	if err == nil {
		return
	}
	what := "can't reach the leaders of all partitions: " + err.Error()
	if s.complaint.set(what, reachFix) {
		return
	}
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
	b := p.flight
	if b != nil && b.wire {
		return errors.New("an answer to the old producer id is still awaited")
	}
	p.id, p.sequence, p.renew = id, 0, false
	if b != nil {
		b.records, b.doubt = s.encode(p, b.pending), false
	}
	return nil
}

// leaderless lists partitions with something to send, no link, and no pause,
// and topics whose metadata is stale. wait is the time to the end of the next pause.
func (s *Sink) leaderless() (due []seeking, stale []string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	wait = idle
	for topic, ps := range s.partitions {
		asked := false
		for _, p := range ps {
			if p.link != nil || (len(p.queue) == 0 && p.flight == nil) {
				continue
			}
			if left := p.pause.until.Sub(now); left > 0 {
				wait = min(wait, left)
				continue
			}
			due = append(due, seeking{p, p.lost})
			if p.stale && !asked {
				asked = true
				stale = append(stale, topic)
			}
		}
	}
	return due, stale, wait
}
