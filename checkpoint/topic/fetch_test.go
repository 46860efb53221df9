package topic

import (
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// answering is a session with a broker that answers each fetch with block.
func answering(t *testing.T, block *sarama.FetchResponseBlock) *session {
	t.Helper()
	broker := sarama.NewMockBroker(t, 1)
	t.Cleanup(broker.Close)
	answer := &sarama.FetchResponse{Version: 11, Blocks: map[string]map[int32]*sarama.FetchResponseBlock{}}
	if block != nil {
		answer.Blocks["places"] = map[int32]*sarama.FetchResponseBlock{0: block}
	}
	broker.SetHandlerByMap(map[string]sarama.MockResponse{
		"ApiVersionsRequest": sarama.NewMockApiVersionsResponse(t),
		"FetchRequest":       sarama.NewMockWrapper(answer),
	})
	s := newSession(Config{Conn: kafkaconn.Config{Brokers: []string{broker.Addr()}}, Topic: "places"})
	var err error
	if s.leader, err = s.dial(broker.Addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func stored(offset int64, delta int32, records ...*sarama.Record) *sarama.Records {
	b := &sarama.RecordBatch{
		Version: 2, FirstOffset: offset, LastOffsetDelta: delta, Records: records,
		FirstTimestamp: time.Unix(1, 0), MaxTimestamp: time.Unix(1, 0),
	}
	return &sarama.Records{RecordBatch: b}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	const end = 1000
	block := func(all ...*sarama.Records) *sarama.FetchResponseBlock {
		return &sarama.FetchResponseBlock{HighWaterMarkOffset: end, RecordsSet: all}
	}
	for _, c := range []struct {
		name    string
		block   *sarama.FetchResponseBlock
		batches int
		next    int64
		blank   bool
	}{
		{"records", block(stored(10, 0, rec("k", "v")), stored(20, 1, rec("k", "v"))), 2, 22, false},
		{"records, then none", block(stored(10, 4, rec("k", "v")), stored(20, 5)), 1, 15, false},
		{"none, then records", block(stored(20, 5), stored(40, 4, rec("k", "v"))), 1, 45, false},
		{"batches without records", block(stored(20, 5), stored(40, 4)), 0, 45, false},
		{"nothing", block(), 0, end, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := answering(t, c.block).fetch(end)(0, 1)
			if err != nil || len(p.batches) != c.batches || p.next != c.next || p.blank != c.blank {
				t.Fatalf("%d batches, next %d, blank %t, %v", len(p.batches), p.next, p.blank, err)
			}
		})
	}
}

// What is no answer is an error, and never an empty log.
func TestFetchFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		block *sarama.FetchResponseBlock
		says  string
	}{
		{"no partition in it", nil, "response"},
		{"not the leader", &sarama.FetchResponseBlock{Err: sarama.ErrNotLeaderForPartition}, "not the leader"},
		{"a shorter log", &sarama.FetchResponseBlock{HighWaterMarkOffset: 5}, "ends at offset 5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := answering(t, c.block).fetch(1000)(0, 1)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%+v, %v", p, err)
			}
		})
	}
}

// A batch that is cut off by the size asked for is read next time.
func TestFetchThatIsCutOff(t *testing.T) {
	t.Parallel()
	cut := stored(30, 9)
	cut.RecordBatch.PartialTrailingRecord = true
	block := &sarama.FetchResponseBlock{HighWaterMarkOffset: 1000, RecordsSet: []*sarama.Records{cut}}
	answer := &sarama.FetchResponse{Blocks: map[string]map[int32]*sarama.FetchResponseBlock{"places": {0: block}}}
	s := session{cfg: Config{Topic: "places"}}
	if p, err := s.piece(answer, 1000); err != nil || len(p.batches) != 0 || p.next != 30 || p.blank {
		t.Fatalf("%+v, %v", p, err)
	}
}
