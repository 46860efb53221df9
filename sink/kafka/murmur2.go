package kafka

import "encoding/binary"

// Murmur2 is the hash of a key that Kafka's Java client takes the partition
// from: MurmurHash2, 32 bits, little endian, with Kafka's seed.
func Murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := seed ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k = (k ^ k>>r) * m
		h = h*m ^ k
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

// Partition is the partition, of n, that the Java client gives a record with
// this key. A null key has none: it is spread.
func Partition(key []byte, n int32) int32 {
	return int32(Murmur2(key)&0x7fffffff) % n
}
