package kafka

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/IBM/sarama"
	"go.uber.org/zap"
)

// Every answer a broker can give to a produce request is decided, and one that
// is not known is told from one that is.
func TestVerdict(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]kind{
		nil:                                        taken,
		sarama.ErrDuplicateSequenceNumber:          taken,
		sarama.ErrRequestTimedOut:                  again,
		sarama.ErrNotEnoughReplicas:                again,
		sarama.ErrInvalidMessage:                   again,
		sarama.ErrUnknown:                          again,
		sarama.ErrThrottlingQuotaExceeded:          again,
		sarama.ErrNotLeaderForPartition:            elsewhere,
		sarama.ErrFencedLeaderEpoch:                elsewhere,
		sarama.ErrKafkaStorageError:                elsewhere,
		sarama.ErrUnknownTopicOrPartition:          elsewhere,
		errors.New("EOF"):                          elsewhere,
		sarama.ErrNotConnected:                     elsewhere,
		sarama.ErrOutOfOrderSequenceNumber:         anew,
		sarama.ErrUnknownProducerID:                anew,
		sarama.ErrInvalidProducerEpoch:             anew,
		sarama.ErrMessageSizeTooLarge:              refusedNow,
		sarama.ErrInvalidTimestamp:                 refusedNow,
		sarama.ErrInvalidTopic:                     refusedNow,
		sarama.ErrInvalidRecord:                    refusedLater,
		sarama.ErrPolicyViolation:                  refusedLater,
		sarama.ErrTopicAuthorizationFailed:         refusedLater,
		sarama.ErrUnsupportedVersion:               fatal,
		sarama.ErrClusterAuthorizationFailed:       fatal,
		sarama.PacketEncodingError{Info: "broken"}: fatal,
		sarama.ErrNonEmptyGroup:                    unknown,
		sarama.KError(9999):                        unknown,
	} {
		if got := verdict(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
		if err != nil {
			if got := verdict(fmt.Errorf("wrapped: %w", err)); got != want {
				t.Errorf("%v wrapped: %d, want %d", err, got, want)
			}
		}
	}
}

// Whatever a partition was waiting for when its leader's connection is lost,
// somebody acts on it afterwards: the router now, or its own timer or answer later.
func TestLostLinkForgetsNoPartition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set  func(l *link, p *partition)
		kick bool
	}{
		"records queued":          {func(_ *link, p *partition) { p.queue = make([]pending, 1) }, true},
		"listed with records":     {func(l *link, p *partition) { p.queue, p.listed, l.ready = make([]pending, 1), true, []*partition{p} }, true},
		"listed to be sent again": {func(l *link, p *partition) { p.flight, p.listed, l.ready = &batch{due: true}, true, []*partition{p} }, true},
		"pausing: its timer will": {func(_ *link, p *partition) { p.flight = &batch{} }, false},
		"on the wire: its answer": {func(_ *link, p *partition) { p.flight, p.queue = &batch{}, make([]pending, 1) }, false},
		"nothing to send":         {func(*link, *partition) {}, false},
	} {
		s := newSink(Config{}, 0, zap.NewNop())
		l := &link{sink: s, broker: sarama.NewBroker("127.0.0.1:1"), kick: make(chan struct{}, 1)}
		p := &partition{topic: "t", link: l}
		s.partitions["t"] = []*partition{p}
		c.set(l, p)
		s.orphan(l)
		if p.link != nil || p.listed || !p.stale {
			t.Errorf("%s: still with the lost link: %+v", name, p)
		}
		if kicked := len(s.kick) == 1; kicked != c.kick {
			t.Errorf("%s: router woken %t, want %t", name, kicked, c.kick)
		}
	}
}

func TestSequenceWraps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from int32
		n    int
		want int32
	}{
		{0, 5, 5}, {math.MaxInt32 - 1, 1, math.MaxInt32}, {math.MaxInt32, 1, 0}, {math.MaxInt32, 10, 9}, {math.MaxInt32 - 2, 5, 2},
	} {
		if got := wrapped(c.from, c.n); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.from, c.n, got, c.want)
		}
	}
}
