package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/sink"
)

// A batch costs a handful of allocations, however many records it has: what is
// allocated per record would be most of the cost of an event.
func TestEncodeAllocates(t *testing.T) {
	s := newSink(Config{}.withDefaults(), sarama.CompressionLZ4, zap.NewNop())
	for _, n := range []int{10, 1000} {
		taken := make([]pending, n)
		for i := range taken {
			id := fmt.Appendf(nil, "%d", i)
			taken[i].message = &sink.Message{
				Topic: "orders", Key: id, Value: []byte(`{"state": "paid"}`), Timestamp: time.UnixMilli(1764500000000),
				Headers: []sink.Header{{Name: "id", Value: id}, {Name: "eventType", Value: []byte("OrderPaid")}, {Name: "aggregateType", Value: []byte("order")}},
			}
		}
		// The batch, its list and slab of records, two of headers, and the three names.
		const budget = 8
		if got := testing.AllocsPerRun(100, func() { s.encode(&partition{}, taken) }); got > budget+1 {
			t.Errorf("%d records: %.0f allocations, the budget is %d and the partition", n, got, budget)
		}
	}
}
