package topic

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
)

// load reads what the topic holds of us.
func (s *Store) load(t *session) (checkpoint.Checkpoint, error) {
	s.loaded, s.seen, s.born, s.end = false, t.topic, incarnation{}, 0
	if !t.topic.exists {
		s.loaded = true
		return checkpoint.Checkpoint{}, checkpoint.ErrNone
	}
	found, err := s.look(t)
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	c, err := s.judge(found)
	switch {
	case err == nil:
		s.loaded, s.born = true, t.topic // no place was ever saved without a birth
	case errors.Is(err, checkpoint.ErrNone):
		s.loaded = true
	}
	return c, err
}

// look finds our newest records, or that there are none.
func (s *Store) look(t *session) (*scan, error) {
	end, err := t.offset(sarama.OffsetNewest) // once: what is saved while we read is not ours to know
	if err != nil {
		return nil, err
	}
	s.end = end
	start, err := t.offset(sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	ours := key(s.cfg.Name, place)
	all := newScan(t.fetch(end), ours, key(s.cfg.Name, birth))
	if err := all.backwards(start, end, ours); err != nil {
		return nil, err
	}
	if !all.has(ours) {
		if err := s.doubt(t, all, end); err != nil {
			return nil, err
		}
	}
	s.log.Debug("checkpoint topic read", zap.String("topic", s.cfg.Topic),
		zap.Int("fetches", all.cost.fetches), zap.Int("records", all.cost.records))
	return all, nil
}

// doubt looks for reasons why nothing of ours was seen other than that nothing
// is there.
func (s *Store) doubt(t *session, all *scan, end int64) error {
	if all.blank {
		first, err := t.offset(0)
		if err != nil {
			return err
		}
		if first >= 0 && first < all.lowest {
			return fmt.Errorf("the broker has a record at offset %d and did not give it", first)
		}
	}
	// Another instance saved while we read: compaction may have removed what
	// we were about to come to, and what replaced it is behind the end.
	now, err := t.offset(sarama.OffsetNewest)
	if err != nil || now == end {
		return err
	}
	late := newScan(t.fetch(now), key(s.cfg.Name, place), key(s.cfg.Name, birth))
	if err := late.window(end, now); err != nil {
		return err
	}
	for k, v := range late.newest {
		if v != nil {
			all.newest[k] = v
		}
	}
	return nil
}

// judge tells what was found.
func (s *Store) judge(found *scan) (checkpoint.Checkpoint, error) {
	if k := key(s.cfg.Name, place); found.has(k) {
		return s.decode(place, *found.newest[k])
	}
	k := key(s.cfg.Name, birth)
	if !found.has(k) {
		return checkpoint.Checkpoint{}, checkpoint.ErrNone
	}
	born, err := s.decode(birth, *found.newest[k])
	if err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return checkpoint.Checkpoint{}, fault.Position(fault.CodePositionLost,
		"Find out what removed it and which events were missed. Then `outboxd checkpoint delete` forgets the connector, and the next start is a first one: OUTBOXD_START decides.",
		nil, "the checkpoint of connector %q is gone from topic %q, although the connector was born at %s",
		s.cfg.Name, s.cfg.Topic, born.SavedAt.Format(time.RFC3339))
}

func (s *Store) decode(kind string, value []byte) (checkpoint.Checkpoint, error) {
	c, err := decode(kind, value)
	if err != nil {
		return checkpoint.Checkpoint{}, fault.Position(fault.CodeCheckpointUnreadable,
			"Remove it with `outboxd checkpoint delete`; one that a later version saved can be read by that version.",
			err, "record %q of topic %q can't be read back", key(s.cfg.Name, kind), s.cfg.Topic)
	}
	if c.Name != s.cfg.Name {
		return checkpoint.Checkpoint{}, s.foreign(c.Name)
	}
	return c, nil
}

func (s *Store) foreign(name string) error {
	return fault.Position(fault.CodeForeign,
		"Name another topic in "+variable+", or set OUTBOXD_NAME to the name the checkpoint was saved under.",
		nil, "checkpoint topic %q: the checkpoint is for connector %q, this one is %q", s.cfg.Topic, name, s.cfg.Name)
}
