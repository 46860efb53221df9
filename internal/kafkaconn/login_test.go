package kafkaconn

import (
	"net"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

// A broker may advertise another host than the one in the settings.
func TestSecretStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, c := range []struct {
		name, mechanism string
		allow           bool
		remote          net.Addr
		refused         bool
	}{
		{"PLAIN here", Plain, false, here, false},
		{"PLAIN elsewhere", Plain, false, there, true},
		{"PLAIN elsewhere as asked", Plain, true, there, false},
		{"OAUTHBEARER elsewhere", OAuthBearer, false, there, true},
		{"SCRAM elsewhere", ScramSHA512, false, there, false},
		{"PLAIN at IPv6's own", Plain, false, &net.TCPAddr{IP: net.IPv6loopback}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := SASL{Mechanism: c.mechanism, AllowPlaintext: c.allow}
			if err := s.mayBeSeen(c.remote, "kafka:9092"); fault.Is(err, fault.CodeConfig) != c.refused {
				t.Fatal(err)
			}
		})
	}
}

// Answers are counted however their bytes are cut.
func TestFrames(t *testing.T) {
	t.Parallel()
	stream := []byte{0, 0, 0, 2, 1, 2, 0, 0, 0, 0, 0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0}
	for size := 1; size <= len(stream); size++ {
		var f frame
		whole := 0
		for at := 0; at < len(stream); at += size {
			whole += f.take(stream[at:min(at+size, len(stream))])
		}
		if whole != 3 || f.have != 2 {
			t.Errorf("in pieces of %d: %d answers, %d bytes of a size", size, whole, f.have)
		}
	}
}

// An answer that is cut short or claims too much is found out.
func TestAnswersThatLie(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]*reader{
		"nothing":            {},
		"half a number":      {b: []byte{0}},
		"a text too long":    {b: []byte{0x7f, 0xff, 'x'}},
		"a negative text":    {b: []byte{0xff, 0xff, 0, 0, 0, 9}},
		"more bytes than go": {b: []byte{0, 0, 0x7f, 0xff, 0xff, 0xff}},
	} {
		_, _, _ = r.text(), r.bytes(), r.int64()
		if !r.bad {
			t.Errorf("%s: taken", name)
		}
	}
}
