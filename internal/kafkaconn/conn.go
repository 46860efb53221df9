// Package kafkaconn is how outboxd reaches Kafka: the settings of sarama that
// have to do with connections and metadata, shared by everything that talks to
// brokers. TLS and SASL belong here.
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

const dialTimeout = 10 * time.Second

// Config says where the brokers are.
type Config struct {
	Brokers []string // host:port, at least one
}

// Base gives sarama's settings for connections that live no longer than life:
// when it ends every connection is closed, no new one is made, and nobody waits
// between tries any more. That alone ends a client whose brokers are down; its own
// Close would wait for them.
func (c Config) Base(life context.Context) *sarama.Config {
	s := sarama.NewConfig()
	s.ClientID = ClientID
	s.Version = sarama.MaxVersion // each request is negotiated down to what the broker has
	s.Net.Proxy.Enable = true
	s.Net.Proxy.Dialer = dialer(life, nil)
	s.Metadata.Full = false // asks for the topics in use, needs no right on others
	s.Metadata.AllowAutoTopicCreation = false
	s.Metadata.Retry.BackoffFunc = Backoff(life, 100*time.Millisecond)
	return s
}

// Hush changes the settings that Base gave for life: once quiet is closed no
// connection of theirs sends any more. Answers to what was sent still arrive. A write then
// blocks until life ends; a failed one would make sarama hang up on the answers.
func Hush(life context.Context, s *sarama.Config, quiet <-chan struct{}) {
	s.Net.Proxy.Dialer = dialer(life, quiet)
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

type dialFunc func(network, address string) (net.Conn, error)

func (f dialFunc) Dial(network, address string) (net.Conn, error) { return f(network, address) }

func dialer(life context.Context, quiet <-chan struct{}) dialFunc {
	d := net.Dialer{Timeout: dialTimeout}
	return func(network, address string) (net.Conn, error) {
		c, err := d.DialContext(life, network, address)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(life, func() { _ = c.Close() })
		return &conn{Conn: c, stop: stop, quiet: quiet, over: life.Done()}, nil
	}
}

type conn struct {
	net.Conn
	stop  func() bool // lets go of life when closed before its end
	quiet <-chan struct{}
	over  <-chan struct{}
}

func (c *conn) Write(b []byte) (int, error) {
	select {
	case <-c.quiet:
		<-c.over
		return 0, net.ErrClosed
	default:
		return c.Conn.Write(b)
	}
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}
