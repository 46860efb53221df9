// Package kafkaconn is how outboxd reaches Kafka: the settings of sarama that
// have to do with connections and metadata, shared by everything that talks to
// brokers.
//
// TLS and SASL are done here, by the dialer, and sarama sees a connection that is
// open and logged in. So files and secrets are read anew for each connection and
// each login, an error tells what was wrong, and a login that the broker lets run
// out is made again on the same connection.
package kafkaconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
)

// ClientID is the name brokers see, in their logs, quotas and metrics.
const ClientID = "outboxd"

// dialTimeout is for all that comes before a connection can be used.
const dialTimeout = 10 * time.Second

// Config says where the brokers are and how they are spoken to.
type Config struct {
	Brokers []string // host:port, at least one
	Security
}

// Security says what is trusted and who we are. Its zero value is neither TLS nor a login.
type Security struct {
	TLS  *TLS  // nil: plaintext
	SASL *SASL // nil: no login
}

// Base gives sarama's settings for connections that live no longer than life:
// when it ends every connection is closed, no new one is made, and nobody waits
// between tries any more. That alone ends a client whose brokers are down; its own
// Close would wait for them.
func (c Config) Base(life context.Context) *sarama.Config {
	s := sarama.NewConfig()
	s.ClientID = ClientID
	s.Version = sarama.MaxVersion // each request is negotiated down to what the broker has
	s.Net.Proxy.Enable = true     // it is no proxy, but every connection is made by it
	s.Net.Proxy.Dialer = c.dialer(life, nil)
	s.Metadata.Full = false // asks for the topics in use, needs no right on others
	s.Metadata.AllowAutoTopicCreation = false
	s.Metadata.Retry.BackoffFunc = Backoff(life, 100*time.Millisecond)
	return s
}

// Hush changes the settings that Base gave for life: once quiet is closed no
// connection of theirs sends any more. Answers to what was sent still arrive: a write then
// fails only when no answer is awaited on its connection, or life has ended, for sarama
// hangs up after one that failed.
func (c Config) Hush(life context.Context, s *sarama.Config, quiet <-chan struct{}) {
	s.Net.Proxy.Dialer = c.dialer(life, quiet)
}

// Validate names the setting that is wrong, as a *fault.Error.
func (c Config) Validate() error {
	const variable = "OUTBOXD_KAFKA_BROKERS"
	if len(c.Brokers) == 0 {
		return fault.Config(fault.CodeConfig, "Set "+variable+" to host:port[,host:port].", nil, "%s is empty", variable)
	}
	for _, address := range c.Brokers {
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return fault.Config(fault.CodeConfig, "Write each broker as host:port.", nil, "%s: %q is no host:port", variable, address)
		}
	}
	return nil
}

// Backoff is a constant pause for sarama that is over when life is.
func Backoff(life context.Context, pause time.Duration) func(retries, maxRetries int) time.Duration {
	return func(int, int) time.Duration {
		if life.Err() != nil {
			return 0
		}
		return pause
	}
}

// Reach returns an open connection to the first broker that answers, and
// otherwise what each of them did.
func (c Config) Reach(s *sarama.Config) (*sarama.Broker, error) {
	var all []error
	for _, address := range c.Brokers {
		b := sarama.NewBroker(address)
		if err := b.Open(s); err != nil {
			return nil, fmt.Errorf("connect to broker %s: %w", address, err)
		}
		up, err := b.Connected()
		if up {
			return b, nil
		}
		all = append(all, fmt.Errorf("connect to broker %s: %w", address, err))
	}
	return nil, errors.Join(all...)
}
