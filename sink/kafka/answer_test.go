package kafka

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/IBM/sarama"
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
