package kafka

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"
)

// From org.apache.kafka.common.utils.UtilsTest.
var javaVectors = map[string]int32{
	"21":                         -973932308,
	"foobar":                     -790332482,
	"a-little-bit-long-string":   -985981536,
	"a-little-bit-longer-string": -1486304829,
	"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	"abc": 479470107,
}

func TestMurmur2IsJavas(t *testing.T) {
	t.Parallel()
	for key, want := range javaVectors {
		if got := int32(Murmur2([]byte(key))); got != want {
			t.Errorf("Murmur2(%q) = %d, want %d", key, got, want)
		}
		for _, n := range []int32{1, 3, 12, 50, 97, 1000003} {
			if got, want := Partition([]byte(key), n), (want&0x7fffffff)%n; got != want {
				t.Errorf("Partition(%q, %d) = %d, want %d", key, n, got, want)
			}
		}
	}
}

// A second opinion: sarama's port of the same function.
func TestPartitionAgreesWithSarama(t *testing.T) {
	t.Parallel()
	p := sarama.NewMurmur2Partitioner("t")
	for i := range 1000 {
		key := fmt.Appendf(nil, "%*x", i%17, i*7919)[:i%17] // every length, the empty key too
		for _, n := range []int32{1, 6, 12, 97} {
			got, err := p.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
			if err != nil || got != Partition(key, n) {
				t.Fatalf("key %q of %d: sarama %d (%v), Partition %d", key, n, got, err, Partition(key, n))
			}
		}
	}
}

func FuzzMurmur2AgainstSarama(f *testing.F) {
	for key := range javaVectors {
		f.Add([]byte(key))
	}
	p := sarama.NewMurmur2Partitioner("t")
	f.Fuzz(func(t *testing.T, key []byte) {
		if key == nil {
			return
		}
		if got, err := p.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, 1<<30); err != nil || got != Partition(key, 1<<30) {
			t.Fatalf("%q: %d, %v", key, got, err)
		}
	})
}
