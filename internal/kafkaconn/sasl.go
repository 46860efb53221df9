package kafkaconn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/xdg-go/scram"

	"github.com/outboxd/outboxd/internal/fault"
)

// The mechanisms of SASL there are.
const (
	Plain       = "PLAIN"
	ScramSHA256 = "SCRAM-SHA-256"
	ScramSHA512 = "SCRAM-SHA-512"
	OAuthBearer = "OAUTHBEARER"
)

// SASL says how to log in. It is safe for concurrent use.
type SASL struct {
	Mechanism string // one of the constants
	Username  string
	// Password is asked for at each login. Not for OAUTHBEARER.
	Password func() (string, error)
	// Tokens gives the token of OAUTHBEARER.
	Tokens Tokens
	// Extensions go with the token.
	Extensions map[string]string
	// AllowPlaintext lets a secret go over the network unencrypted. Without it
	// that is refused unless it stays on this machine.
	AllowPlaintext bool
}

// Tokens gives access tokens. Token is asked at each login.
type Tokens interface {
	Token(ctx context.Context) (string, error)
	// Refused says that a broker did not take the token.
	Refused(token string)
}

// Legible reports whether the mechanism sends a secret that whoever reads along can use.
func Legible(mechanism string) bool { return mechanism == Plain || mechanism == OAuthBearer }

// mayBeSeen refuses to send a legible secret over an unencrypted network.
func (s *SASL) mayBeSeen(remote net.Addr, address string) error {
	if s.AllowPlaintext || !Legible(s.Mechanism) {
		return nil
	}
	if tcp, ok := remote.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	return fault.Config(fault.CodeConfig, "Set OUTBOXD_KAFKA_TLS=on, or use SCRAM-SHA-512, or, when the network is encrypted below, set OUTBOXD_KAFKA_ALLOW_PLAINTEXT=true.", nil,
		"SASL mechanism %s would send a secret unencrypted to broker %s", s.Mechanism, address)
}

// leastPause is more than the second within which a broker takes no further login.
const leastPause = 1050 * time.Millisecond

// slack is left to what is sent just before: it must get there while the login lives.
const slack = time.Second

// login logs in on a connection on which nothing is on the wire, and gives the
// time by which it has to be done again; zero: never.
func (s *SASL) login(ctx context.Context, c net.Conn) (time.Time, error) {
	first, next, err := s.begin(ctx) // before the handshake: a token may take long to get
	if err != nil {
		return time.Time{}, err
	}
	if err := handshake(c, s.Mechanism); err != nil {
		return time.Time{}, err
	}
	for token := first; ; {
		answer, lifetime, err := authenticate(c, token)
		if err != nil {
			return time.Time{}, err
		}
		token, err = next(answer)
		switch {
		case err != nil:
			return time.Time{}, err
		case token == nil && lifetime > 0:
			// Like the Java client, and not all connections at the same time.
			pause := time.Duration(float64(lifetime) * (0.85 + rand.Float64()*0.1))
			return time.Now().Add(max(min(pause, lifetime-slack), leastPause)), nil
		case token == nil:
			return time.Time{}, nil
		}
	}
}

// step takes the broker's answer and gives the next token; nil: that was all.
type step func(answer []byte) ([]byte, error)

// begin gives the first token, and what is done with the answers.
func (s *SASL) begin(ctx context.Context) ([]byte, step, error) {
	if s.Mechanism == OAuthBearer {
		return s.bearer(ctx)
	}
	password, err := s.Password()
	if err != nil {
		return nil, nil, fault.Config(fault.CodeConfig, "Correct OUTBOXD_KAFKA_SASL_PASSWORD_FILE or the file.", err, "the password for Kafka can't be read")
	}
	if s.Mechanism == Plain {
		return []byte("\x00" + s.Username + "\x00" + password), func([]byte) ([]byte, error) { return nil, nil }, nil
	}
	hash := scram.SHA512
	if s.Mechanism == ScramSHA256 {
		hash = scram.SHA256
	}
	client, err := hash.NewClient(s.Username, password, "")
	if err != nil { // it does not say more than that a character is not allowed
		return nil, nil, fault.Config(fault.CodeConfig, "Use no control characters in user and password.", nil, "user or password hold characters that %s can't carry", s.Mechanism)
	}
	talk := client.NewConversation()
	first, err := talk.Step("")
	return []byte(first), func(answer []byte) ([]byte, error) {
		text, err := talk.Step(string(answer))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", s.Mechanism, err)
		case talk.Done():
			return nil, nil
		}
		return []byte(text), nil
	}, err
}

func (s *SASL) bearer(ctx context.Context) ([]byte, step, error) {
	token, err := s.Tokens.Token(ctx)
	if err != nil {
		return nil, nil, err
	}
	b := []byte("n,,\x01auth=Bearer " + token)
	for _, name := range slices.Sorted(maps.Keys(s.Extensions)) {
		b = append(b, "\x01"+name+"="+s.Extensions[name]...)
	}
	said := ""
	return append(b, "\x01\x01"...), func(answer []byte) ([]byte, error) {
		switch {
		case len(answer) == 0:
			return nil, nil
		case said != "":
			return nil, errors.New("the broker goes on after the end of the login")
		}
		// It says why not. The answer to that is one byte, and then the broker ends it with an error.
		s.Tokens.Refused(token)
		said = string(answer)
		return []byte{1}, nil
	}, nil
}
