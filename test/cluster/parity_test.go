package cluster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/sink/kafka"
	"github.com/outboxd/outboxd/test/harness"
)

// The Java client and our sink put each of 10,000 keys on the same partition,
// for several numbers of partitions. It takes a JDK: java runs the program from its source.
func TestPartitionsAreJavas(t *testing.T) {
	counts := []int32{1, 3, 6, 12, 50}
	keys := parityKeys(10_000)
	var java, ours []string
	for _, n := range counts {
		java, ours = append(java, harness.Unique("parity-java-")), append(ours, harness.Unique("parity-"))
		harness.CreateTopics(t, n, java[len(java)-1], ours[len(ours)-1])
	}
	for _, topic := range append(java, ours...) {
		inSync(t, topic)
	}
	produceByJava(t, keys, java)

	s, err := kafka.Open(t.Context(), plain(t), zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, len(ours))
	for _, topic := range ours {
		batch := make([]sink.Message, len(keys))
		for i, key := range keys {
			batch[i] = sink.Message{Topic: topic, Key: key, Value: []byte{}}
		}
		s.Publish(t.Context(), batch, func(err error) { done <- err })
	}
	for range ours {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, n := range counts {
		want, got := placesOf(t, java[i]), placesOf(t, ours[i])
		if len(want) != len(keys) || len(got) != len(keys) {
			t.Errorf("%d partitions: Java wrote %d keys, we %d, want %d", n, len(want), len(got), len(keys))
		}
		differ := 0
		for key, at := range want {
			if got[key] != at {
				if differ++; differ <= 5 {
					t.Errorf("%d partitions: key %x is on %d, Java has it on %d", n, key, got[key], at)
				}
			}
		}
		t.Logf("%d partitions: %d keys, %d on another partition than Java's", n, len(keys), differ)
	}
}

// parityKeys are different: ASCII, UTF-8, any bytes, and the empty one.
func parityKeys(n int) [][]byte {
	random := rand.New(rand.NewPCG(1, 2))
	seen, keys := map[string]bool{"": true}, [][]byte{{}}
	for len(keys) < n {
		var key []byte
		switch len(keys) % 3 {
		case 0:
			key = fmt.Appendf(nil, "order-%d", random.Uint64N(1<<40))
		case 1:
			for range 1 + random.IntN(12) {
				key = append(key, string(rune(0x20+random.IntN(0x2f00)))...)
			}
		case 2:
			for range 1 + random.IntN(40) {
				key = append(key, byte(random.Uint32()))
			}
		}
		if !seen[string(key)] {
			seen[string(key)], keys = true, append(keys, key)
		}
	}
	return keys
}

func produceByJava(t *testing.T, keys [][]byte, topics []string) {
	t.Helper()
	var file bytes.Buffer
	for _, key := range keys {
		_ = binary.Write(&file, binary.BigEndian, uint32(len(key))) // a Buffer takes all
		file.Write(key)
	}
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{
		"-cp", harness.Need(t, "OUTBOXD_TEST_KAFKA_LIBS") + "/*", "testdata/Parity.java",
		strings.Join(harness.Brokers(t), ","), path,
	}, topics...)
	if out, err := exec.CommandContext(t.Context(), "java", args...).CombinedOutput(); err != nil {
		t.Fatalf("the Java client (a JDK of 17 or later is needed): %v\n%s", err, out)
	}
}

// placesOf gives the partition of each key.
func placesOf(t *testing.T, topic string) map[string]int32 {
	t.Helper()
	places := make(map[string]int32)
	for _, r := range harness.Records(t, topic) {
		places[string(r.Key)] = r.Partition
	}
	return places
}
