// Package topic keeps checkpoints in a compacted Kafka topic of one partition,
// which any number of connectors share.
//
// A connector has two records there, NAME/place and NAME/birth. Both are written
// by its first save, in one batch; later saves write the place alone. The newest
// record of a key counts, by its offset. The birth record stays until Delete, so
// that a place that was lost is told from a first start (I6).
//
// Nothing is taken for "nothing was ever saved" but a topic that does not exist,
// and a log that was read to its start. A broker that has just started may say
// by mistake that a topic does not exist. Making it finds that out, and it is
// made before the first record is saved.
//
// Load reads backwards from the log's end, see scan; Save goes through producer,
// which tells why a save that failed can't undo a later one.
package topic

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

const variable = "OUTBOXD_CHECKPOINT"

// Config says where the checkpoint is. Every field but CreateTopic is required.
type Config struct {
	Conn  kafkaconn.Config
	Topic string
	Name  string // of the connector; holds no slash
	// CreateTopic lets Save make the topic when it does not exist, with the
	// brokers' default replication. Without it that is a fault with CodeSetupNeeded.
	CreateTopic bool
}

// Store is a checkpoint.Store of one connector. It is not safe for concurrent
// use; other processes may share topic and name as long as only the holder of
// the lease saves. It connects when it has to and keeps the connection.
//
// What Kafka may mend is a plain error: no broker answers, the partition has no
// leader, too few replicas. A missing right, a topic with several partitions or
// one that is not compacted is a *fault.Error.
type Store struct {
	cfg      Config
	log      *zap.Logger
	session  *session // nil until needed, and after an error
	producer producer
	loaded   bool        // what is in the topic may be replaced by a save
	seen     incarnation // the topic that was loaded from
	born     incarnation // the topic that holds our birth record
	told     bool        // that the topic's settings can't be seen
	end      int64       // offset the log is known to have reached
}

// Open returns the store. It connects to nothing yet.
func Open(cfg Config, log *zap.Logger) *Store { return &Store{cfg: cfg, log: log} }

// Load reads the checkpoint. It returns checkpoint.ErrNone when the topic does
// not exist or its whole log holds nothing of this connector; a *fault.Error
// when the place is damaged, or is gone while the birth record is there
// (CodePositionLost). It makes no topic.
func (s *Store) Load(ctx context.Context) (c checkpoint.Checkpoint, err error) {
	err = s.with(ctx, func(t *session) error {
		c, err = s.load(t)
		return err
	})
	return c, err
}

// Save is durable on all replicas in sync when it returns nil. After an error
// it may be there or not, until the next Save.
func (s *Store) Save(ctx context.Context, c checkpoint.Checkpoint) error {
	if c.Name != s.cfg.Name {
		return s.foreign(c.Name)
	}
	if !utf8.ValidString(c.Name) || !utf8.ValidString(string(c.Position)) {
		return errors.New("save checkpoint: name and position must be text") // JSON would alter them
	}
	return s.with(ctx, func(t *session) error {
		if err := s.prepare(ctx, t); err != nil {
			return err
		}
		return s.write(ctx, t, c)
	})
}

// write appends the place, with a birth record when the topic has none.
func (s *Store) write(ctx context.Context, t *session, c checkpoint.Checkpoint) error {
	records := []*sarama.Record{record(place, c)}
	if s.born != t.topic {
		records = []*sarama.Record{record(birth, checkpoint.Checkpoint{Name: c.Name, SavedAt: c.SavedAt}), record(place, c)}
	}
	offset, err := s.producer.send(ctx, t, records...)
	if err != nil {
		return err
	}
	shorter := offset < s.end
	s.end = offset + int64(len(records))
	if shorter && s.born == t.topic {
		// The log does not reach to where it did: the topic was made anew under
		// this connection, or lost its end. Our birth record may be gone too.
		s.born = incarnation{}
		return s.write(ctx, t, c)
	}
	s.born = t.topic
	return nil
}

func record(kind string, c checkpoint.Checkpoint) *sarama.Record {
	k, v := encode(kind, c)
	return &sarama.Record{Key: k, Value: v}
}

// prepare makes sure that the topic is there and that a save buries nothing
// that nobody looked at.
func (s *Store) prepare(ctx context.Context, t *session) error {
	if !s.loaded {
		if _, err := s.load(t); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
	}
	if !t.topic.exists {
		made, err := s.create(ctx, t)
		if err != nil {
			return err
		}
		if made {
			s.seen, s.born, s.producer = t.topic, incarnation{}, producer{}
		}
	}
	if s.seen == t.topic {
		return nil
	}
	s.producer = producer{}
	// It came into being, or was made anew, since we looked.
	switch _, err := s.load(t); {
	case errors.Is(err, checkpoint.ErrNone):
		return nil
	case err != nil:
		return err
	}
	s.loaded = false
	return errChanged
}

var errChanged = errors.New("it holds a checkpoint that was not there before, which has to be loaded first")

func (s *Store) create(ctx context.Context, t *session) (made bool, err error) {
	if !s.cfg.CreateTopic {
		return false, t.setupNeeded()
	}
	if made, err = t.create(false); err != nil {
		return false, err
	}
	if err := t.await(ctx); err != nil {
		return false, err
	}
	if made {
		s.log.Info("checkpoint topic created", zap.String("topic", s.cfg.Topic))
	}
	return made, nil
}

// Create makes the topic when it does not exist, whatever CreateTopic says,
// and reports whether it did. One that exists is judged as Load and Save do.
func (s *Store) Create(ctx context.Context) (made bool, err error) {
	err = s.with(ctx, func(t *session) error {
		if t.topic.exists {
			return nil
		}
		if made, err = t.create(false); err != nil {
			return err
		}
		return t.await(ctx)
	})
	return made, err
}

// Check tells whether a save is possible, and changes nothing: the topic can be
// used, or may be made. What it can't try is the right to write.
func (s *Store) Check(ctx context.Context) error {
	return s.with(ctx, func(t *session) error {
		switch {
		case t.topic.exists:
			return nil
		case !s.cfg.CreateTopic:
			return t.setupNeeded()
		}
		_, err := t.create(true)
		return err
	})
}

// Delete removes the checkpoint, damaged or not, and the birth record. It
// leaves other connectors' alone, and the topic.
func (s *Store) Delete(ctx context.Context) error {
	return s.with(ctx, func(t *session) error {
		_, err := s.load(t)
		switch {
		case errors.Is(err, checkpoint.ErrNone):
			if !t.topic.exists || s.producer.doubt == 0 {
				return nil
			}
		case err != nil && !fault.Is(err, fault.CodeCheckpointUnreadable) && !fault.Is(err, fault.CodePositionLost):
			return err
		}
		_, err = s.producer.send(ctx, t, &sarama.Record{Key: []byte(key(s.cfg.Name, birth))}, &sarama.Record{Key: []byte(key(s.cfg.Name, place))})
		if err != nil {
			return err
		}
		s.loaded, s.born = true, incarnation{}
		return nil
	})
}

// Close ends the connection.
func (s *Store) Close() error {
	if s.session != nil {
		s.session.close()
		s.session = nil
	}
	return nil
}

// with runs do on an open session. One that was kept may have died since, of
// idleness or because the leader moved: then do runs once more, on a new one.
func (s *Store) with(ctx context.Context, do func(*session) error) error {
	kept := s.session != nil
	err := s.once(ctx, do)
	if kept && s.session == nil && ctx.Err() == nil && err != nil && fault.As(err) == nil && !errors.Is(err, errChanged) {
		err = s.once(ctx, do)
	}
	if err == nil || fault.As(err) != nil || errors.Is(err, checkpoint.ErrNone) {
		return err
	}
	return fmt.Errorf("checkpoint topic %q: %w", s.cfg.Topic, err)
}

func (s *Store) once(ctx context.Context, do func(*session) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := s.session
	if t == nil {
		t = newSession(s.cfg)
	}
	release := context.AfterFunc(ctx, t.cut)
	err := t.open()
	if err == nil {
		err = do(t)
	}
	whole := release()
	if t.blind && !s.told {
		s.told = true
		s.log.Warn("not allowed to see whether the checkpoint topic is compacted; where it is not, Kafka deletes checkpoints after a while",
			zap.String("topic", s.cfg.Topic), zap.String("fix", s.cfg.Conn.Grant("DescribeConfigs", kafkaconn.Topic, s.cfg.Topic)))
	}
	if whole && (err == nil || errors.Is(err, checkpoint.ErrNone)) {
		s.session = t
		return err
	}
	t.close()
	s.session = nil
	err = t.refused(err)
	if err != nil && !whole { // its end is the reason, closed connections are not
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return err
}
