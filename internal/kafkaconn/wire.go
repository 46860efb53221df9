package kafkaconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"
)

// The requests that make a login, in the versions that every broker since
// Kafka 2.2 has. sarama keeps them to itself, and reads its secrets only once.
const (
	listGroups       = 16
	apiVersions      = 18
	saslHandshake    = 17
	saslAuthenticate = 36

	unsupportedMechanism = 33
	illegalState         = 34
	authenticationFailed = 58
)

// maxAnswer is more than any answer to these.
const maxAnswer = 1 << 20

// ask sends a request and gives what its answer holds.
func ask(c net.Conn, key, version int16, body []byte) (*reader, error) {
	const correlation = 0x6f757462 // so that what is no answer of a broker is known
	b := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, correlation)
	b = append(appendText(b, ClientID), body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	if _, err := c.Write(b); err != nil {
		return nil, err
	}
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if size < 4 || size > maxAnswer || binary.BigEndian.Uint32(head[4:]) != correlation {
		return nil, errors.New("what answers is no Kafka broker")
	}
	answer := make([]byte, size-4)
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, err
	}
	return &reader{b: answer}, nil
}

// handshake asks for a mechanism. When the broker does not have it, the error
// is a mechanismError.
func handshake(c net.Conn, mechanism string) error {
	r, err := ask(c, saslHandshake, 1, appendText(nil, mechanism))
	if err != nil {
		return err
	}
	code, offered := r.int16(), make([]string, max(0, min(r.int32(), maxAnswer/2)))
	for i := range offered {
		if offered[i] = r.text(); r.bad {
			break
		}
	}
	switch {
	case r.bad:
		return io.ErrUnexpectedEOF
	case code == unsupportedMechanism:
		slices.Sort(offered)
		return mechanismError{mechanism, offered}
	case code == illegalState:
		return errNoLogin
	case code != 0:
		return fmt.Errorf("SASL handshake: the broker answers with error code %d", code)
	}
	return nil
}

// authenticate sends one token of a mechanism and gives the broker's, with how
// long the login lasts; 0: for ever. When the broker says no, the error is a
// refusal.
func authenticate(c net.Conn, token []byte) ([]byte, time.Duration, error) {
	r, err := ask(c, saslAuthenticate, 1, append(binary.BigEndian.AppendUint32(nil, uint32(len(token))), token...))
	if err != nil {
		return nil, 0, err
	}
	code, message, answer, lifetime := r.int16(), r.text(), r.bytes(), r.int64()
	switch {
	case code == authenticationFailed:
		return nil, 0, refusal(message)
	case code != 0:
		return nil, 0, fmt.Errorf("SASL authentication: the broker answers with error code %d: %.300q", code, message)
	case r.bad:
		return nil, 0, io.ErrUnexpectedEOF
	}
	return answer, time.Duration(min(lifetime, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond, nil
}

// mechanismError says that the broker does not have a mechanism.
type mechanismError struct {
	asked   string
	offered []string
}

func (e mechanismError) Error() string {
	return fmt.Sprintf("the broker does not take SASL mechanism %s, it offers %q", e.asked, e.offered)
}

// refusal is what a broker says of a login that it does not take.
type refusal string

func (r refusal) Error() string { return fmt.Sprintf("the broker says %.300q", string(r)) }

// errNoLogin says that this listener knows no login.
var errNoLogin = errors.New("the broker takes no login at this listener")

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// reader takes an answer apart. What is too short makes it bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, max(0, min(n, 8)))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) int16() int16  { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *reader) int32() int    { return int(int32(binary.BigEndian.Uint32(r.take(4)))) }
func (r *reader) int64() int64  { return int64(binary.BigEndian.Uint64(r.take(8))) }
func (r *reader) text() string  { return string(r.take(max(0, int(r.int16())))) } // null counts as ""
func (r *reader) bytes() []byte { return r.take(max(0, r.int32())) }
