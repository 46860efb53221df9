package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/sink"
)

// transaction is the sink's side of exactly-once delivery, by the protocol of
// KIP-98: one producer id for as long as the sink lives, partitions are added to the
// open transaction before anything is sent to them, and Commit ends it.
//
// There is no abort. Whatever goes wrong finishes the sink, and opening the next one
// ends what was left open: the coordinator gives it a new epoch, by which the
// brokers refuse all that the old one may still send (fencing).
type transaction struct {
	id      string
	timeout time.Duration
	gate    chan struct{} // held by Publish while it takes a batch, and by Commit until it is over
	number  int           // counts transactions, from 1

	uncoordinated obstacle // why the coordinator does not act
}

// commitPause is between questions while the last transaction is being ended.
const commitPause = 5 * time.Millisecond

// errVoid is why a transaction can't be committed any more. It is worth a new try.
var errVoid = errors.New("the transaction is void")

// begin asks the coordinator for the producer id, with a new epoch. It waits
// until what the last producer of this id left open is ended.
func (s *Sink) begin(ctx context.Context) (id producerID, err error) {
	t := s.tx
	err = s.coordinated(ctx, "begin transactions", func(b *sarama.Broker) error {
		r, err := b.InitProducerID(&sarama.InitProducerIDRequest{
			Version: 4, TransactionalID: &t.id, TransactionTimeout: t.timeout, ProducerID: -1, ProducerEpoch: -1,
		})
		if err != nil {
			return err
		}
		id = producerID{r.ProducerID, r.ProducerEpoch}
		return code(r.Err)
	})
	if errors.Is(err, sarama.ErrInvalidTransactionTimeout) {
		return id, fault.Config(fault.CodeConfig, "Lower it, or raise transaction.max.timeout.ms of the brokers.", err, "OUTBOXD_TRANSACTION_TIMEOUT=%s is more than the brokers allow", t.timeout)
	}
	return id, err
}

// enter waits for the gate.
func (t *transaction) enter(ctx context.Context, stop <-chan struct{}) error {
	select {
	case t.gate <- struct{}{}:
		return nil
	case <-stop:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *transaction) leave() { <-t.gate }

// join adds the partitions of msgs to the transaction that are not in it yet. The gate is held.
func (s *Sink) join(ctx context.Context, msgs []sink.Message) error {
	added := s.outside(msgs)
	if added == nil {
		return nil
	}
	for over := time.Now().Add(s.cfg.RejectAfter); ; {
		denied, err := s.add(ctx, added)
		if !errors.Is(err, sarama.ErrTopicAuthorizationFailed) {
			return err
		}
		if time.Now().After(over) {
			i := slices.IndexFunc(msgs, func(m sink.Message) bool { return m.Topic == denied })
			return s.cfg.failure(err, &msgs[max(i, 0)])
		}
		select { // the right may be on its way
		case <-time.After(minPause):
		case <-s.stop:
			return errClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add adds partitions to the transaction. denied is the topic that err is about.
func (s *Sink) add(ctx context.Context, added map[string][]int32) (denied string, err error) {
	t := s.tx
	err = s.coordinated(ctx, "add partitions to the transaction", func(b *sarama.Broker) error {
		r, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
			Version: 3, TransactionalID: t.id, ProducerID: s.id.id, ProducerEpoch: s.id.epoch, TopicPartitions: added,
		})
		if err != nil {
			return err
		}
		for topic, all := range r.Errors {
			for _, p := range all {
				// This one says only that it is not about the partition itself.
				if p.Err != sarama.ErrNoError && p.Err != sarama.ErrOperationNotAttempted {
					denied = topic
					return fmt.Errorf("partition %d of topic %q: %w", p.Partition, topic, p.Err)
				}
			}
		}
		return nil
	})
	return denied, err
}

// outside lists the partitions of msgs that are not in the transaction, and
// counts them in. A failure to add them finishes the sink.
func (s *Sink) outside(msgs []sink.Message) (added map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sticky := s.sticky // records without a key come to the same partitions again
	for i := range msgs {
		p := s.route(&msgs[i])
		if p.joined == s.tx.number {
			continue
		}
		p.joined = s.tx.number
		if added == nil {
			added = map[string][]int32{}
		}
		added[p.topic] = append(added[p.topic], p.index)
	}
	s.sticky = sticky
	return added
}

// Commit implements sink.Committer.
func (s *Sink) Commit(ctx context.Context, record func() sink.Message) error {
	err := s.commit(ctx, record)
	if err != nil {
		s.finish(err)
	}
	return err
}

func (s *Sink) commit(ctx context.Context, record func() sink.Message) error {
	t := s.tx
	if err := t.enter(ctx, s.stop); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	defer t.leave()
	if err := s.settled(ctx); err != nil {
		return err
	}
	answer := make(chan error, 1)
	s.publish(ctx, []sink.Message{record()}, func(err error) { answer <- err })
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("publish the checkpoint: %w", err)
		}
	case <-ctx.Done():
		return fmt.Errorf("publish the checkpoint: %w", ctx.Err())
	}
	if !s.allowed() {
		return fmt.Errorf("commit: %w", errClosed)
	}
	if err := s.endTransaction(ctx); err != nil {
		return err
	}
	t.number++
	return nil
}

// endTransaction commits. When the coordinator's answer is lost nobody knows
// the outcome, and it is not asked again: the next sink and the checkpoint tell.
func (s *Sink) endTransaction(ctx context.Context) error {
	t := s.tx
	return s.coordinated(ctx, "commit", func(b *sarama.Broker) error {
		r, err := b.EndTxn(&sarama.EndTxnRequest{
			Version: 3, TransactionalID: t.id, ProducerID: s.id.id, ProducerEpoch: s.id.epoch, TransactionResult: true,
		})
		if err != nil {
			return fmt.Errorf("%w: its outcome is not known: %w", errVoid, err)
		}
		return code(r.Err)
	})
}

// settled waits until everything published was answered and its done has returned.
func (s *Sink) settled(ctx context.Context) error {
	for {
		s.mu.Lock()
		open, err := len(s.open), s.err
		s.mu.Unlock()
		switch {
		case err != nil:
			return err
		case open == 0:
			s.calls.Wait()
			return nil
		}
		select {
		case <-s.drained:
		case <-s.stop:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d batches to be acknowledged: %w", open, ctx.Err())
		}
	}
}

func (s *Sink) allowed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.may()
}

func code(err sarama.KError) error {
	if err == sarama.ErrNoError {
		return nil
	}
	return err
}

// coordinated asks the transaction's coordinator, again as long as it is busy or
// elsewhere. What it asks may be asked twice, unless the error says errVoid.
func (s *Sink) coordinated(ctx context.Context, what string, ask func(*sarama.Broker) error) error {
	over := time.Now().Add(s.tx.timeout)
	defer s.tx.uncoordinated.clear()
	for tries := 0; ; tries++ {
		b, err := s.client.TransactionCoordinator(s.tx.id)
		if err == nil {
			err = ask(b)
		}
		switch {
		case err == nil:
			return nil
		case verdict(err) == fatal:
			return s.cfg.permanent(fmt.Errorf("%s: %w", what, err))
		case !s.busy(b, err) || time.Now().After(over):
			return fmt.Errorf("%s: %w", what, err)
		}
		s.log.Debug("asking the transaction coordinator again", zap.String("to", what), zap.Error(err))
		if tries >= hesitant {
			s.tx.uncoordinated.set(fmt.Sprintf("the transaction coordinator does not %s: %v", what, err), coordinatorFix)
		}
		pause := jittered(minPause << min(tries, 4))
		if errors.Is(err, sarama.ErrConcurrentTransactions) { // the last commit is being written to its partitions
			pause = commitPause
		}
		select {
		case <-time.After(pause):
		case <-s.stop:
			return fmt.Errorf("%s: %w", what, errClosed)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w (last answer: %w)", what, ctx.Err(), err)
		}
	}
}

const coordinatorFix = "see that the brokers run and that enough replicas of the topic __transaction_state are in sync; it goes on by itself"

// busy tells whether asking again is of use, and looks for the coordinator anew where it is to be.
func (s *Sink) busy(b *sarama.Broker, err error) bool {
	var answer sarama.KError
	switch {
	case errors.Is(err, errVoid):
		return false
	case errors.Is(err, sarama.ErrConcurrentTransactions), errors.Is(err, sarama.ErrOffsetsLoadInProgress),
		errors.Is(err, sarama.ErrUnknownTopicOrPartition), errors.Is(err, sarama.ErrRequestTimedOut):
		return true
	case errors.Is(err, sarama.ErrNotCoordinatorForConsumer), errors.Is(err, sarama.ErrConsumerCoordinatorNotAvailable),
		errors.Is(err, sarama.ErrNotEnoughReplicas), errors.Is(err, sarama.ErrBrokerNotAvailable):
		_ = s.client.RefreshTransactionCoordinator(s.tx.id)
		return true
	case errors.As(err, &answer):
		return false
	}
	if b != nil { // the connection
		_ = b.Close()
	}
	_ = s.client.RefreshTransactionCoordinator(s.tx.id)
	return true
}
