package topicstore

import (
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

func TestTopicIsMade(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		s := p.open(t, name)
		expectNone(t, s)
		if err := s.Check(limited(t)); err != nil {
			t.Fatalf("Check: %v", err)
		}
		if p.exists(t) {
			t.Fatal("Load or Check made the topic")
		}
		save(t, s, at(""))
		ends, err := p.admin.ListEndOffsets(limited(t), p.topic)
		if err != nil || len(ends[p.topic]) != 1 {
			t.Fatalf("%+v, %v; want one partition", ends, err)
		}
		configs, err := p.admin.DescribeTopicConfigs(limited(t), p.topic)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, c := range configs[0].Configs {
			got[c.Key] = c.MaybeValue()
		}
		if got["cleanup.policy"] != "compact" || got["segment.bytes"] != "1048576" {
			t.Fatalf("settings %v", got)
		}

		before := p.end(t)
		if err := s.Check(limited(t)); err != nil {
			t.Fatalf("Check: %v", err)
		}
		if p.end(t) != before {
			t.Fatal("Check wrote something")
		}
	})
}

func TestCreate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		cfg := p.config(name)
		cfg.CreateTopic = false
		s := open(t, cfg)
		for _, want := range []bool{true, false} {
			if made, err := s.Create(limited(t)); err != nil || made != want {
				t.Fatalf("Create: %t, %v; want %t", made, err, want)
			}
		}
		expectNone(t, s)
		save(t, s, at("1"))
		expect(t, s, at("1"))
	})
}

func TestTopicThatMayNotBeMade(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		cfg := p.config(name)
		cfg.CreateTopic = false
		s := open(t, cfg)
		expectNone(t, s)
		for _, err := range []error{s.Check(limited(t)), s.Save(limited(t), at(""))} {
			expectFault(t, err, fault.CodeSetupNeeded, fault.ExitConfig, "kafka-topics.sh", "cleanup.policy=compact", p.topic)
		}
		if err := s.Delete(limited(t)); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		if p.exists(t) {
			t.Fatal("the topic was made")
		}
	})
}

func TestUnfitTopics(t *testing.T) {
	for _, c := range []struct {
		name       string
		partitions int32
		policy     string
		found, fix string
	}{
		{"two partitions", 2, "compact", "2 partitions", "--partitions 1"},
		{"not compacted", 1, "delete", `cleanup.policy is "delete"`, "--alter --topic"},
		{"compacted and deleted", 1, "compact,delete", `cleanup.policy is "compact,delete"`, "--add-config cleanup.policy=compact"},
	} {
		t.Run(c.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) {
				p.create(t, c.partitions, map[string]string{"cleanup.policy": c.policy})
				s := p.open(t, name)
				_, load := s.Load(limited(t))
				_, create := s.Create(limited(t))
				for _, err := range []error{load, create, s.Check(limited(t)), s.Save(limited(t), at("1")), s.Delete(limited(t))} {
					expectFault(t, err, fault.CodeConfig, fault.ExitConfig, c.found, p.topic, c.fix)
				}
			})
		})
	}
}

// What the operator mends is found mended without a restart.
func TestMendedTopic(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		p.create(t, 1, map[string]string{"cleanup.policy": "delete"})
		s := p.open(t, name)
		_, err := s.Load(limited(t))
		expectFault(t, err, fault.CodeConfig, fault.ExitConfig)
		p.set(t, "cleanup.policy", "compact")
		expectNone(t, s)
		save(t, s, at("1"))
	})
}

func TestBadTopicName(t *testing.T) {
	cfg := onReal(t).config(name)
	cfg.Topic = "what/ever"
	_, err := open(t, cfg).Load(limited(t))
	expectFault(t, err, fault.CodeConfig, fault.ExitConfig)
}
