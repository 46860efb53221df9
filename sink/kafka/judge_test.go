package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/sink"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	s := &Sink{cfg: Config{MaxMessageBytes: 100}}
	at := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, c := range []struct {
		name   string
		give   sink.Message
		reason string
		says   string
	}{
		{"fits exactly", sink.Message{Topic: "a", Value: make([]byte, 100)}, "", ""},
		{"one byte over", sink.Message{Topic: "a", Value: make([]byte, 101)}, ReasonTooLarge, "101 bytes, the limit is 100"},
		{"key and headers count", sink.Message{Topic: "a", Key: make([]byte, 50), Value: make([]byte, 40), Headers: []sink.Header{{Name: "12345", Value: []byte("123456")}}}, ReasonTooLarge, "101 bytes"},
		{"tombstone", sink.Message{Topic: "a"}, "", ""},
		{"every legal character", sink.Message{Topic: "azAZ09._-"}, "", ""},
		{"249 characters", sink.Message{Topic: strings.Repeat("a", 249)}, "", ""},
		{"250 characters", sink.Message{Topic: strings.Repeat("a", 250)}, ReasonBadTopic, "250 bytes"},
		{"no topic", sink.Message{}, ReasonBadTopic, "empty"},
		{"dot", sink.Message{Topic: "."}, ReasonBadTopic, "reserved"},
		{"dots", sink.Message{Topic: ".."}, ReasonBadTopic, "reserved"},
		{"three dots", sink.Message{Topic: "..."}, "", ""},
		{"blank", sink.Message{Topic: "a b"}, ReasonBadTopic, `" "`},
		{"slash", sink.Message{Topic: "a/b"}, ReasonBadTopic, `"/"`},
		{"umlaut", sink.Message{Topic: "ä"}, ReasonBadTopic, `holds`},
		{"own clock", sink.Message{Topic: "a", Timestamp: time.Time{}}, "", ""},
		{"epoch", sink.Message{Topic: "a", Timestamp: at(1970)}, "", ""},
		{"before the epoch", sink.Message{Topic: "a", Timestamp: at(1969)}, ReasonBadTimestamp, "1969-01-01"},
		{"last year", sink.Message{Topic: "a", Timestamp: at(2200)}, "", ""},
		{"infinity", sink.Message{Topic: "a", Timestamp: at(9999)}, ReasonBadTimestamp, "9999-01-01"},
	} {
		r := s.Judge(&c.give)
		switch {
		case c.reason == "" && r != nil:
			t.Errorf("%s: refused: %v", c.name, r)
		case c.reason == "":
		case r == nil:
			t.Errorf("%s: not refused", c.name)
		case r.Reason != c.reason || !strings.Contains(r.Detail, c.says) || r.Fix == "":
			t.Errorf("%s: %+v, want %s and %q", c.name, r, c.reason, c.says)
		}
	}
}

func TestJudgeCostsNothing(t *testing.T) {
	s := &Sink{cfg: Config{MaxMessageBytes: 100}}
	m := sink.Message{Topic: "orders", Key: []byte("1"), Value: []byte("v"), Timestamp: time.Now()}
	if n := testing.AllocsPerRun(100, func() { _ = s.Judge(&m) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}
