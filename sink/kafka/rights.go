package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/internal/preflight"
)

// denied reports whether an authorizer said no.
func denied(err error) bool {
	return errors.Is(err, sarama.ErrTopicAuthorizationFailed) || errors.Is(err, sarama.ErrClusterAuthorizationFailed) || errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed)
}

// mayWrite is the command that lets us write a topic. Write includes Describe.
func (c Config) mayWrite(topic string) string {
	return c.conn().Grant("Write", kafkaconn.Topic, topic)
}

// mayCommit is the command that lets us use the transactional id.
func (c Config) mayCommit() string {
	return c.conn().Grant("Write", kafkaconn.TransactionalID, c.TransactionalID)
}

// Rights are the commands that give the rights which publishing needs, and no other.
func Rights(c Config) []string {
	operations := "Write"
	if c.CreateTopics {
		operations += " Create"
	}
	all := []string{c.conn().Grant(operations, kafkaconn.Topic, c.TopicPrefix+"*")}
	if c.TransactionalID != "" {
		all = append(all, c.mayCommit())
	}
	return all
}

// permanent is what no other try of ours mends.
func (c Config) permanent(err error) error {
	switch {
	case errors.Is(err, sarama.ErrTransactionalIDAuthorizationFailed):
		return fault.Config(fault.CodeGrantMissing, c.mayCommit(), err, "the right Write on transactional id %q is missing", c.TransactionalID)
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return fault.Config(fault.CodeGrantMissing, c.mayWrite(c.TopicPrefix+"*"), err, "the right Write on topics is missing, or IdempotentWrite on the cluster where Kafka is older than 3.0")
	}
	return fault.Config(fault.CodeAccessDenied, "See what Kafka says: a right on the cluster, the login, or a broker that is too old for this client.", err, "Kafka refuses to take anything from us")
}

// mayProduce asks for a producer id, which takes the right to write some topic.
func mayProduce(b *sarama.Broker) error {
	answer, err := b.InitProducerID(&sarama.InitProducerIDRequest{Version: 1})
	if err != nil {
		return err
	}
	return code(answer.Err)
}

// checkTransactions looks for the coordinator, and asks it for something that
// can't be, which takes the right to Write the transactional id. Asking it for a
// producer id would fence off a running instance.
func checkTransactions(b *sarama.Broker, conf *sarama.Config, cfg Config) preflight.Result {
	id := cfg.TransactionalID
	r := preflight.Result{ID: "kafka.transactional_id", Status: preflight.OK}
	answer, err := b.FindCoordinator(&sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: id, CoordinatorType: sarama.CoordinatorTransaction})
	if err == nil {
		err = code(answer.Err)
	}
	if err == nil {
		err = mayAdd(answer.Coordinator, conf, id)
	}
	switch {
	case err == nil:
		r.Found = fmt.Sprintf("transactional id %q has a coordinator, %s, and may be used", id, answer.Coordinator.Addr())
	case errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable): // the first one ever makes the brokers' own topic
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("transactional id %q has no coordinator yet", id)
		r.Fix = []string{"Run check again in a moment; when it stays so, see whether the topic __transaction_state can be made: transaction.state.log.replication.factor, and as many brokers."}
	default:
		r.Status, r.Found = preflight.Fail, fmt.Sprintf("look for the coordinator of transactional id %q: %v", id, err)
		r.Fix = []string{cfg.mayCommit()}
	}
	return r
}

// mayAdd reports whether the coordinator lets us use an id. It asks it to take up a
// partition for a producer that there can't be.
func mayAdd(b *sarama.Broker, conf *sarama.Config, id string) error {
	if err := b.Open(conf); err != nil && !errors.Is(err, sarama.ErrAlreadyConnected) {
		return err
	}
	defer b.Close() //nolint:errcheck // it was opened to ask
	answer, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
		Version: 3, TransactionalID: id, ProducerID: math.MaxInt64, TopicPartitions: map[string][]int32{"outboxd.check": {0}},
	})
	if err != nil {
		return err
	}
	for _, all := range answer.Errors {
		for _, p := range all {
			if errors.Is(p.Err, sarama.ErrTransactionalIDAuthorizationFailed) {
				return p.Err
			}
		}
	}
	return nil
}

// operations are the bits by which a broker tells what we may do with a topic (KIP-430).
var operations = map[string]int{"Read": 3, "Write": 4}

// CheckRights reports as id, for `outboxd check`, whether we have the rights on a topic,
// "Read Write". One that does not exist is told by others.
func CheckRights(ctx context.Context, cfg Config, id, topic, rights string) preflight.Result {
	cfg = cfg.withDefaults()
	r := preflight.Result{ID: id, Status: preflight.OK, Found: fmt.Sprintf("%s on topic %q is allowed", strings.Join(strings.Fields(rights), " and "), topic)}
	b, err := cfg.conn().Reach(cfg.lookup(ctx))
	if err != nil {
		return failed(id, err)
	}
	defer b.Close() //nolint:errcheck // it was opened to ask
	answer, err := b.GetMetadata(&sarama.MetadataRequest{Version: 8, Topics: []string{topic}, IncludeTopicAuthorizedOperations: true})
	if err != nil || len(answer.Topics) != 1 {
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("ask for the rights on topic %q: %v", topic, err)
		return r
	}
	found := answer.Topics[0]
	var missing []string
	for _, right := range strings.Fields(rights) {
		if found.TopicAuthorizedOperations&(1<<operations[right]) == 0 {
			missing = append(missing, right)
		}
	}
	switch {
	case errors.Is(found.Err, sarama.ErrTopicAuthorizationFailed):
		missing = strings.Fields(rights)
	case errors.Is(found.Err, sarama.ErrUnknownTopicOrPartition):
		r.Found = fmt.Sprintf("topic %q does not exist", topic)
		return r
	case found.Err != sarama.ErrNoError, found.TopicAuthorizedOperations == math.MinInt32:
		r.Found = fmt.Sprintf("the broker does not tell the rights on topic %q", topic)
		return r
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		r.Status, r.Found = preflight.Fail, fmt.Sprintf("the right to %s topic %q is missing", strings.Join(missing, " and "), topic)
		r.Fix = []string{cfg.conn().Grant(strings.Join(missing, " "), kafkaconn.Topic, topic)}
	}
	return r
}
