package kafka

import (
	"context"
	"time"
)

// aheadBytes is how much may be queued and on the wire while some broker takes
// records. More makes nothing faster and costs memory.
const aheadBytes = 4 << 20

// stuckAfter is how long a broker may leave all requests without an answer until it counts as stuck.
const stuckAfter = time.Second

// ahead waits while enough is on its way. It returns early when the sink or ctx ends.
func (s *Sink) ahead(ctx context.Context) {
	for s.full() {
		timer := time.NewTimer(stuckAfter / 4) // a broker gets stuck without a word
		select {
		case <-s.room:
		case <-timer.C:
		case <-s.stop:
			return
		case <-ctx.Done():
			return
		}
		timer.Stop()
	}
}

// full reports whether enough is on its way. What waits for a partition that is
// stuck counts only while all brokers are: else it would hold up the partitions that
// move. The engine's own bounds stop what goes on piling up.
func (s *Sink) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unanswered < aheadBytes {
		return false
	}
	now, moves := time.Now(), false
	for _, l := range s.links {
		moves = moves || !l.stuck(now)
	}
	if !moves {
		return true
	}
	moving := 0
	for _, ps := range s.partitions {
		for _, p := range ps {
			if p.link != nil && !p.link.stuck(now) && (p.flight == nil || p.flight.tries == 0) {
				moving += p.bytes
				if p.flight != nil {
					moving += p.flight.bytes
				}
			}
		}
	}
	return moving >= aheadBytes
}

// stuck reports whether the broker has not answered for a while. s.mu is held.
func (l *link) stuck(now time.Time) bool {
	return l.down || !l.asked.IsZero() && now.Sub(l.asked) > stuckAfter
}
