package kafka

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/sink"
)

// What its topic takes only when compressed is sent alone; near the limit each table is warned of once.
func TestIsolate(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	s := newSink(Config{MaxMessageBytes: 1 << 20}.withDefaults(), sarama.CompressionNone, zap.New(core))
	s.sizes.limit["narrow"] = 100_000
	for _, tt := range []struct {
		topic, table string
		size         int
		alone        bool
		warned       int
	}{
		{"narrow", "a", 100, false, 0},
		{"narrow", "a", 79_000, false, 0},
		{"narrow", "a", 81_000, false, 1},
		{"narrow", "a", 99_999, true, 1},
		{"narrow", "b", 200_000, true, 2},
		{"unknown", "c", 200_000, false, 2},
		{"unknown", "c", 900_000, false, 3},
	} {
		m := sink.Message{Topic: tt.topic, Table: tt.table, Value: make([]byte, tt.size)}
		if alone := s.Isolate(&m); alone != tt.alone || logs.Len() != tt.warned {
			t.Errorf("%s, %d bytes: alone %t, %d warnings; want %t, %d", tt.topic, tt.size, alone, logs.Len(), tt.alone, tt.warned)
		}
	}
}
