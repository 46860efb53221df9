package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/source"
)

// SetupOptions says how much Setup makes.
type SetupOptions struct {
	Start  string   // now or snapshot: slot and first position too; empty: neither
	Topics []string // event topics too
	DryRun bool     // only tell; needs no connection and no rights
}

// Setup makes what is missing and gives one line for each thing. It may be
// called again, also after it stopped half way: the lines tell how far it came.
func Setup(ctx context.Context, c *config.Config, o SetupOptions, log *zap.Logger) ([]string, error) {
	if len(o.Topics) > 0 && c.Sink != "kafka" {
		return nil, fault.Config(fault.CodeConfig, "Leave --topics away, or set OUTBOXD_SINK=kafka.", nil, "topics were asked for and the sink is %s", c.Sink)
	}
	allowed := *c
	allowed.AutoSetup = true // run may not, this command is asked to
	s := setup{c: &allowed, asked: c.AutoSetup, log: log}
	var err error
	if s.run, err = newSource(s.c, c.Source.Login, nil, log); err != nil {
		return nil, err
	}
	s.admin = s.run
	if c.SetupURL.URL != "" {
		if s.admin, err = newSource(s.c, c.SetupURL, nil, log); err != nil {
			return nil, err
		}
	}
	if o.DryRun {
		s.tell(o)
		return s.lines, nil
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	err = s.make(ctx, o)
	return s.lines, err
}

type setup struct {
	c     *config.Config
	asked bool // run too may make what is missing
	log   *zap.Logger
	run   database // as the connector logs in
	admin database // as setup logs in
	lines []string
}

func (s *setup) add(line string, args ...any) { s.lines = append(s.lines, fmt.Sprintf(line, args...)) }

func (s *setup) tell(o SetupOptions) {
	statements := s.admin.Statements()
	for _, statement := range statements {
		s.add("%s;", statement)
	}
	for _, t := range s.c.Tables {
		if len(statements) > 0 && t.Schema == "" {
			s.add("-- the schema of table %q is not known here: run this where search_path finds it, or name it in OUTBOXD_TABLES", t.Name)
		}
	}
	if len(statements) == 0 {
		s.add("-- %s needs no SQL: its binary log is read as it is", s.c.Source.Scheme)
	}
	if s.c.Checkpoint.Topic != "" {
		s.add("-- checkpoint topic %q, as by: %s", s.c.Checkpoint.Topic, topicConfig(s.c).Command())
	}
	if s.c.Sink == "kafka" {
		for _, command := range kafka.Rights(kafkaConfig(s.c)) {
			s.add("-- a right, where Kafka has an authorizer, as by: %s", command)
		}
	}
	if s.c.Checkpoint.Topic != "" {
		t := topicConfig(s.c)
		t.CreateTopic = s.asked
		s.add("-- a right, where Kafka has an authorizer, as by: %s", t.Rights())
	}
	if o.Start != "" {
		s.add("-- then %s saved in %s", s.firstPlace(source.Start(o.Start)), s.c.Checkpoint)
	}
	for _, t := range o.Topics {
		s.add("-- topic %q, as by: %s", t, kafka.CreateCommand(kafkaConfig(s.c), t))
	}
}

func (s *setup) make(ctx context.Context, o SetupOptions) error {
	made, err := s.admin.Setup(ctx)
	if err != nil {
		return noAnswer(fmt.Errorf("set up the source: %w", err), databaseSilent, databaseFix)
	}
	if s.c.Source.MySQL() {
		s.add("nothing to make in %s: its binary log is read as it is", s.c.Source.Scheme)
	} else {
		s.done(made, "publication "+strconv.Quote(s.c.Postgres.Publication))
	}
	if err := s.checkpointTopic(ctx); err != nil {
		return err
	}
	if err := s.topics(ctx, o.Topics); err != nil {
		return err
	}
	if o.Start != "" {
		return alone(ctx, s.run, func(ctx context.Context) error { return s.begin(ctx, source.Start(o.Start)) })
	}
	return nil
}

// firstPlace says what begin makes.
func (s *setup) firstPlace(mode source.Start) string {
	if s.c.Source.MySQL() {
		if mode == source.StartSnapshot {
			return "the end of the binary log, and what there is to read before it, is"
		}
		return "the end of the binary log is"
	}
	return fmt.Sprintf("slot %q is made, and its position", s.c.Postgres.Slot)
}

func (s *setup) checkpointTopic(ctx context.Context) (err error) {
	if s.c.Checkpoint.Topic == "" {
		return nil
	}
	t := topic.Open(topicConfig(s.c), s.log.Named("checkpoint"))
	defer func() { err = errors.Join(err, t.Close()) }()
	made, err := t.Create(ctx)
	if err != nil {
		return noAnswer(err, brokersSilent, brokersFix)
	}
	s.done(made, "checkpoint topic "+strconv.Quote(s.c.Checkpoint.Topic))
	return nil
}

func (s *setup) topics(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	made, existing, err := kafka.CreateTopics(ctx, kafkaConfig(s.c), names)
	for _, t := range made {
		s.done(true, "topic "+strconv.Quote(t))
	}
	for _, t := range existing {
		s.done(false, "topic "+strconv.Quote(t))
	}
	return noAnswer(err, brokersSilent, brokersFix)
}

// done tells of one thing, and leaves a trace of what was made.
func (s *setup) done(made bool, what string) {
	if !made {
		s.add("%s is there already", what)
		return
	}
	s.add("%s created", what)
	audit(s.log, "setup", what, "absent", "created")
}

// begin makes the first place, as run would, under the lease.
func (s *setup) begin(ctx context.Context, mode source.Start) (err error) {
	st := newStore(s.c, s.log)
	defer func() { err = errors.Join(err, st.Close()) }()
	place, err := load(ctx, st, s.c)
	intended := err == nil
	switch {
	case err != nil && !errors.Is(err, checkpoint.ErrNone):
		return err
	case intended && !place.Intent():
		s.add("position %s is there already, saved in %s", place.Position, s.c.Checkpoint)
		return nil
	case !intended: // before anything is made on the server (I6)
		if err := st.Save(ctx, checkpoint.Checkpoint{Name: s.c.Name, SavedAt: time.Now().UTC()}); err != nil {
			return fmt.Errorf("save intent: %w", err)
		}
	}
	pos, err := s.run.Begin(ctx, source.First{Mode: mode, Intended: intended})
	if err != nil {
		return fmt.Errorf("make the first position: %w", err)
	}
	if err := st.Save(ctx, checkpoint.Checkpoint{Name: s.c.Name, Position: pos, SavedAt: time.Now().UTC()}); err != nil {
		return fmt.Errorf("save the first position: %w", err)
	}
	made := fmt.Sprintf("position %s", pos)
	if !s.c.Source.MySQL() {
		made = fmt.Sprintf("slot %q and %s", s.c.Postgres.Slot, made)
	}
	s.add("%s saved in %s", made, s.c.Checkpoint)
	audit(s.log, "setup", s.c.Name+" in "+s.c.Checkpoint.String(), "none", string(pos))
	return nil
}
