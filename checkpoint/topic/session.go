package topic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
)

const (
	ackTimeout  = 5 * time.Second // for the replicas, told to the broker
	readTimeout = 8 * time.Second // for any answer: a frozen broker must not eat up all the time there is
)

// incarnation tells a topic from another one made later under the same name.
// Its zero value is no topic. Brokers before Kafka 2.8 give no id.
type incarnation struct {
	exists bool
	id     sarama.Uuid
}

// session is a connection to the leader of the topic's partition. Whoever sees
// an error closes it and opens another one.
type session struct {
	cfg  Config
	conf *sarama.Config
	cut  func() // ends its connections and lets no new one be made; from any goroutine

	seed       *sarama.Broker // some broker, as long as there is no leader
	leader     *sarama.Broker // nil: the topic does not exist
	controller string         // its address
	epoch      int32          // of the leader
	topic      incarnation
	blind      bool // we may not see the topic's settings
}

func newSession(cfg Config) *session {
	life, cut := context.WithCancel(context.Background())
	conf := cfg.Conn.Base(life)
	conf.Net.ReadTimeout = readTimeout
	return &session{cfg: cfg, conf: conf, cut: cut}
}

// open connects, as far as it did not before. The topic may turn out not to
// exist; then it is looked for again next time.
func (t *session) open() error {
	if t.leader != nil {
		return nil
	}
	if t.seed != nil {
		return t.look()
	}
	if err := t.cfg.Conn.Validate(); err != nil {
		return err
	}
	conn := t.cfg.Conn
	conn.Brokers = slices.Clone(conn.Brokers)
	// One that takes connections and says nothing must not come first every time.
	rand.Shuffle(len(conn.Brokers), func(i, j int) {
		conn.Brokers[i], conn.Brokers[j] = conn.Brokers[j], conn.Brokers[i]
	})
	var err error
	if t.seed, err = conn.Reach(t.conf); err != nil {
		return err
	}
	return t.look()
}

func (t *session) close() {
	t.cut()
	for _, b := range []*sarama.Broker{t.seed, t.leader} {
		if b != nil {
			_ = b.Close()
		}
	}
}

func (t *session) dial(address string) (*sarama.Broker, error) {
	conn := t.cfg.Conn
	conn.Brokers = []string{address}
	return conn.Reach(t.conf)
}

var errNoLeader = errors.New("its partition has no leader")

// look asks the seed for the topic, and when there is one connects to its
// leader and judges it.
func (t *session) look() error {
	metadata, err := t.metadata()
	if err != nil {
		return err
	}
	addresses := map[int32]string{}
	for _, b := range metadata.Brokers {
		addresses[b.ID()] = b.Addr()
	}
	t.controller = addresses[metadata.ControllerID]
	found := metadata.Topics[0]
	switch {
	case errors.Is(found.Err, sarama.ErrUnknownTopicOrPartition):
		return nil
	case errors.Is(found.Err, sarama.ErrLeaderNotAvailable):
		return errNoLeader
	case found.Err != sarama.ErrNoError:
		return fmt.Errorf("look it up: %w", found.Err)
	case len(found.Partitions) != 1:
		return t.unfit(fmt.Sprintf("it has %d partitions", len(found.Partitions)),
			"Name another topic in "+variable+", or, when nothing else uses this one, delete it and make it anew: "+t.cfg.Command())
	}
	partition := found.Partitions[0]
	address, ok := addresses[partition.Leader]
	if !ok || partition.Err != sarama.ErrNoError {
		return errNoLeader
	}
	if t.leader, err = t.dial(address); err != nil {
		return err
	}
	_ = t.seed.Close() // it has served
	t.seed = nil
	t.epoch, t.topic = partition.LeaderEpoch, incarnation{true, found.Uuid}
	return t.judge()
}

func (t *session) metadata() (*sarama.MetadataResponse, error) {
	answer, err := t.seed.GetMetadata(sarama.NewMetadataRequest(t.conf.Version, []string{t.cfg.Topic}))
	if err != nil {
		return nil, fmt.Errorf("ask for metadata: %w", err)
	}
	if len(answer.Topics) != 1 {
		return nil, fmt.Errorf("ask for metadata: %w", sarama.ErrIncompleteResponse)
	}
	return answer, nil
}

// refused makes what only the operator can mend a *fault.Error.
func (t *session) refused(err error) error {
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return fault.Config(fault.CodeGrantMissing,
			t.cfg.Rights(), err, "checkpoint topic %q: a right is missing", t.cfg.Topic)
	case errors.Is(err, sarama.ErrInvalidTopic):
		return fault.Config(fault.CodeConfig, "Use 1 to 249 of a-z A-Z 0-9 . _ - in a topic name.", err,
			"%s=kafka:%.300s: it can't be the name of a topic", variable, t.cfg.Topic)
	case errors.Is(err, sarama.ErrPolicyViolation):
		return fault.Config(fault.CodeServerSetting, "Change the brokers' policy, or make the topic by hand: "+t.cfg.Command(), err,
			"checkpoint topic %q", t.cfg.Topic)
	}
	return err
}
