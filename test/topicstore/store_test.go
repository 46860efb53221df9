package topicstore

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/checkpointtest"
	"github.com/outboxd/outboxd/checkpoint/topic"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// solitary gives a topic to the connector that saved first, as a file is one
// connector's. The suite asks for that; TestTwoConnectors has what holds instead.
type solitary struct {
	*topic.Store
	name  string
	owner *string
}

func (s solitary) refuse() error {
	if *s.owner == "" || *s.owner == s.name {
		return nil
	}
	return fault.Position(fault.CodeForeign, "none", nil, "it is %s's", *s.owner)
}

func (s solitary) Load(ctx context.Context) (checkpoint.Checkpoint, error) {
	if err := s.refuse(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	return s.Store.Load(ctx)
}

func (s solitary) Save(ctx context.Context, c checkpoint.Checkpoint) error {
	if err := s.refuse(); err != nil {
		return err
	}
	err := s.Store.Save(ctx, c)
	if err == nil {
		*s.owner = s.name
	}
	return err
}

func (s solitary) Delete(ctx context.Context) error {
	if err := s.refuse(); err != nil {
		return err
	}
	return s.Store.Delete(ctx)
}

func TestContract(t *testing.T) {
	for _, kind := range []struct {
		name string
		on   func(*testing.T) *place
	}{
		{"fake", func(t *testing.T) *place { return onFake(t) }},
		{"real", onReal},
	} {
		t.Run(kind.name, func(t *testing.T) {
			checkpointtest.Run(t, func(t *testing.T) checkpointtest.Place {
				p, owner := kind.on(t), ""
				return checkpointtest.Place{
					Open: func(t *testing.T, name string) checkpoint.Store {
						return solitary{topic.Open(p.config(name), zap.NewNop()), name, &owner}
					},
					Corrupt: func(t *testing.T) {
						key, value := topic.Encode(at("1"))
						p.put(t, string(key), value[:len(value)/2])
					},
				}
			})
		})
	}
}

func TestTwoConnectors(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ours, theirs := p.open(t, name), p.open(t, "x"+name)
		other := at("7")
		other.Name = "x" + name
		save(t, ours, at("1"))
		expectNone(t, theirs)
		save(t, theirs, other)
		for i := range 40 {
			other.SavedAt = other.SavedAt.Add(1)
			save(t, theirs, other)
			if i%10 == 0 {
				expect(t, ours, at("1"))
			}
		}
		save(t, ours, at("2"))
		expect(t, theirs, other)
		if err := theirs.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, p.open(t, name), at("2"))
		expectNone(t, p.open(t, "x"+name))
	})
}

func TestDamagedRecords(t *testing.T) {
	_, good := topic.Encode(at("1"))
	other := at("1")
	other.Name = "somebody-else"
	_, foreign := topic.Encode(other)
	for _, c := range []struct {
		name  string
		value []byte
		code  string
	}{
		{"torn", good[:20], fault.CodeCheckpointUnreadable},
		{"of no bytes", []byte{}, fault.CodeCheckpointUnreadable},
		{"of a later version", []byte(strings.Replace(string(good), `"version":1`, `"version":2`, 1)), fault.CodeCheckpointUnreadable},
		{"for another connector", foreign, fault.CodeForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := onFake(t)
			s := p.open(t, name)
			save(t, s, at("1"))
			p.put(t, name+"/place", c.value)
			for range 2 {
				_, err := s.Load(limited(t))
				expectFault(t, err, c.code, fault.ExitPosition)
				expectFault(t, p.open(t, name).Save(limited(t), at("2")), c.code, fault.ExitPosition)
			}
		})
	}
}

// The checkpoint is gone and the birth record is there: a loss, not a first start (I6).
func TestLostPlace(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		save(t, p.open(t, name), at(""))
		save(t, p.open(t, name), at("1"))
		p.put(t, name+"/place", nil)
		p.foreign(t, 100)

		s := p.open(t, name)
		_, err := s.Load(limited(t))
		expectFault(t, err, fault.CodePositionLost, fault.ExitPosition,
			name, p.topic, "2001-09-09T01:46:40Z", "checkpoint delete", "OUTBOXD_START")
		expectFault(t, s.Save(limited(t), at("2")), fault.CodePositionLost, fault.ExitPosition)
		if err := s.Delete(limited(t)); err != nil {
			t.Fatal(err)
		}
		expectNone(t, s)
		expectNone(t, p.open(t, name))

		// It is born again.
		save(t, s, at("3"))
		p.put(t, name+"/place", nil)
		_, err = p.open(t, name).Load(limited(t))
		expectFault(t, err, fault.CodePositionLost, fault.ExitPosition)
	})
}

// A topic that was deleted takes everything with it, and the guarantees say so.
func TestDeletedTopic(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		running := p.open(t, name)
		save(t, running, at("1"))
		p.delete(t)
		expectNone(t, p.open(t, name))
		if p.exists(t) {
			t.Fatal("Load made the topic")
		}

		// Whoever is active saves its place again, with a birth record.
		save(t, running, at("2"))
		expect(t, p.open(t, name), at("2"))
		p.put(t, name+"/place", nil)
		_, err := p.open(t, name).Load(limited(t))
		expectFault(t, err, fault.CodePositionLost, fault.ExitPosition)
	})
}

// A topic that was made anew by somebody else is looked at before it is written to.
func TestTopicMadeAnew(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		s := p.open(t, name)
		expectNone(t, s)
		other := p.open(t, name)
		save(t, other, at("5"))
		expectPlain(t, s.Save(limited(t), at("1")))
		expect(t, s, at("5"))
		save(t, s, at("6"))
		expect(t, other, at("6"))
	})
}

func TestTextThatJSONWouldAlterIsNotSaved(t *testing.T) {
	p := onFake(t)
	expectPlain(t, p.open(t, name).Save(limited(t), at("\xff")))
	expectNone(t, p.open(t, name))
}

func TestOtherInstancesSaveIsSeen(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		one, two := p.open(t, name), p.open(t, name)
		for i := range 6 {
			c := at(source.Position(strconv.Itoa(i)))
			save(t, one, c)
			expect(t, two, c)
			one, two = two, one
		}
	})
}
