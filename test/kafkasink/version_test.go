package kafkasink

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

// A broker that lacks an API the sink needs is refused at the start, with the
// API's name; one that is not of the tested range is warned of, once.
func TestBrokerVersions(t *testing.T) {
	for _, c := range []struct {
		name        string
		versions    *kversion.Versions
		compression string
		refused     string // API
		warned      bool
	}{
		{"0.10.2", kversion.V0_10_2(), "", "Produce", false},
		{"2.0 and zstd", kversion.V2_0_0(), "zstd", "Produce", false},
		{"2.0", kversion.V2_0_0(), "", "", false}, // tells no metadata.version
		{"3.8", kversion.V3_8_0(), "", "", true},
		{"3.9", kversion.V3_9_0(), "", "", false},
		{"4.0", kversion.V4_0_0(), "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := fake(t, kfake.MaxVersions(c.versions))
			log, heard := lines()
			cfg := kafka.Config{Brokers: cluster.ListenAddrs(), Compression: c.compression}
			s, err := kafka.Open(limited(t), cfg, log)
			if err == nil {
				a := newAnswers()
				a.publish(t.Context(), s, numbered(topic, 0, 100))
				a.wantDelivered(t)
				if err := s.Close(limited(t)); err != nil {
					t.Fatal(err)
				}
			}
			f := fault.As(err)
			switch {
			case c.refused == "" && err != nil:
				t.Fatal(err)
			case c.refused != "" && (f == nil || f.Exit != fault.ExitConfig || !strings.Contains(f.Found, c.refused)):
				t.Fatalf("Open: %v", err)
			}
			warnings := 0
			for len(heard) > 0 {
				if line := <-heard; strings.Contains(line, "not tested") {
					warnings++
				}
			}
			if warned := warnings == 1; warned != c.warned || warnings > 1 {
				t.Errorf("%d warnings", warnings)
			}
			want := preflight.OK
			if c.refused != "" {
				want = preflight.Fail
			} else if c.warned {
				want = preflight.Warn
			}
			results := kafka.Check(limited(t), cfg)
			if r := results[len(results)-1]; r.ID != "kafka.version" || r.Status != want {
				t.Errorf("check says %+v", r)
			}
		})
	}
}

func TestTestedVersionIsNotWarnedOf(t *testing.T) {
	log, heard := lines()
	s := open(t, kafka.Config{Brokers: harness.Brokers(t)}, log)
	if err := s.Close(limited(t)); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 0 {
		t.Errorf("log says %s", <-heard)
	}
}
