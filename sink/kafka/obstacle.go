package kafka

import (
	"fmt"
	"sync/atomic"
)

// obstacle is what messages wait for, and what an operator can do. One
// goroutine at a time sets it, any may read it.
type obstacle struct{ now atomic.Pointer[hindrance] }

type hindrance struct{ what, fix string }

// set replaces it, and reports whether there was one.
func (o *obstacle) set(what, fix string) bool { return o.now.Swap(&hindrance{what, fix}) != nil }

// clear ends it, and reports whether there was one.
func (o *obstacle) clear() bool { return o.now.Swap(nil) != nil }

// Waiting implements sink.Waiter: a topic that isn't there, partitions without
// a leader or with one that takes nothing, a transaction coordinator that does not act.
func (s *Sink) Waiting() (what, fix string) {
	all := []*obstacle{&s.topics.missed, &s.complaint, &s.unwilling}
	if s.tx != nil {
		all = append(all, &s.tx.uncoordinated)
	}
	for _, o := range all {
		if h := o.now.Load(); h != nil {
			return h.what, h.fix
		}
	}
	return "", ""
}

// several adds how many more topics are missed.
func several(what string, more int) string {
	if more == 0 {
		return what
	}
	return fmt.Sprintf("%s (and %d more topics)", what, more)
}
