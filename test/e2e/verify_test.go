package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// verified is what `outboxd verify --json` prints.
type verified struct {
	Report struct {
		Events, Records, Matched int
		Counts                   map[string]int
		CaughtUp                 bool
		OpenTransactions         []string
	}
	Examples []struct {
		Kind, Topic, ID string
		Offset          int64
	}
}

// verify runs the command and gives what it found.
func (s *scene) verify(want int, args ...string) (v verified) {
	s.t.Helper()
	return s.parse(s.run(want, append([]string{"verify", "--json"}, args...)...))
}

func (s *scene) parse(text string) (v verified) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatalf("verify printed %q: %v", text, err)
	}
	return v
}

func (v verified) require(t *testing.T, what string, counts map[string]int) {
	t.Helper()
	for _, kind := range []string{"missing", "repeated", "out_of_order", "altered", "pending", "expired", "parked", "refused"} {
		if v.Report.Counts[kind] != counts[kind] {
			t.Errorf("%s: %d %s, want %d: %+v", what, v.Report.Counts[kind], kind, counts[kind], v)
		}
	}
}

// idOf is the event's id as the record has it.
func idOf(r checker.Record) string {
	for _, h := range r.Headers {
		if h.Name == "id" {
			return string(h.Value)
		}
	}
	return ""
}

// again sends a record once more, as whom opts make the sender.
func again(t *testing.T, r checker.Record, change func(*kgo.Record), opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(harness.Brokers(t)...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	record := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.Name, Value: h.Value})
	}
	if change != nil {
		change(record)
	}
	if len(opts) > 0 {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return client
}

// A fault of each kind is planted between the tables and the topics, and verify finds it.
func TestVerify(t *testing.T) {
	for _, service := range []string{"postgres17", "mysql"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, stage{service, inTopic, harness.Plain}).withTopics()
			s.env["OUTBOXD_HEADERS"] = "id,eventType,aggregateType,position"
			p := s.active()
			s.commit(2000)
			s.delivered()
			p.Stop(t)
			v := s.verify(0)
			v.require(t, "clean", nil)
			if v.Report.Events != len(s.truth()) || v.Report.Matched != v.Report.Events {
				t.Errorf("%+v", v.Report)
			}

			s.commit(50)
			s.verify(0).require(t, "nothing runs", map[string]int{"pending": 50})
			p = s.active()
			s.delivered()

			records := harness.Records(t, s.topics...)
			id := idOf
			// a re-run of the last record of the log is a repeat, one of the first is one out of order
			last, first := newest(records), records[0]
			again(t, last, nil)
			s.verify(1).require(t, "repeated", map[string]int{"repeated": 1})
			s.verify(0, "--allow-repeats")
			again(t, first, nil)
			s.verify(1).require(t, "an old one again", map[string]int{"repeated": 2, "out_of_order": 1})

			// an event that has another payload, and one that has another id, in the table
			s.exec(`UPDATE outbox SET payload = '{"seq": 0}' WHERE id = ` + id(records[10]))
			s.exec(`UPDATE outbox SET id = 1000000 WHERE id = ` + id(records[20]))
			harness.Eventually(t, "what was committed is saved", func() bool {
				s.commit(1)
				return s.verify(1).Report.CaughtUp
			})
			counts := map[string]int{"repeated": 2, "out_of_order": 1, "altered": 1, "missing": 1}
			out := filepath.Join(t.TempDir(), "found")
			v = s.verify(1, "--out", out)
			v.require(t, "altered and missing", counts)
			written, err := os.ReadFile(out)
			if err != nil || !strings.Contains(string(written), `"kind":"missing","topic":"`+records[20].Topic+`","id":"1000000"`) {
				t.Errorf("the file has %s (%v)", written, err)
			}
			if text := s.run(1, "verify"); strings.Contains(text, "seq") || !strings.Contains(text, "missing      1") {
				t.Errorf("on the screen: %s", text)
			}
			s.verify(0, "--from-id", id(last), "--to-id", id(last), "--allow-repeats")

			// rolled back, the missing event stays missing; parked it is no more
			lost := func(r *kgo.Record) { r.Headers[0].Value = []byte("1000000") }
			tx := again(t, records[20], lost, kgo.TransactionalID(harness.Unique("tx-")))
			open := s.verify(1)
			if len(open.Report.OpenTransactions) != 1 || open.Report.Counts["missing"] != 0 || open.Report.Counts["pending"] != 1 {
				t.Errorf("with an open transaction: %+v", open)
			}
			if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
				t.Fatal(err)
			}
			s.verify(1).require(t, "rolled back", counts)
			parked := harness.Unique("dead-letter-")
			harness.CreateTopics(t, 1, parked)
			again(t, records[20], func(r *kgo.Record) {
				r.Headers = []kgo.RecordHeader{{Key: "outboxd-dl-id", Value: []byte("1000000")}, {Key: "outboxd-dl-topic", Value: []byte(r.Topic)}}
				r.Topic, r.Partition = parked, 0
			})
			counts["missing"], counts["parked"] = 0, 1
			s.verify(1, "--dead-letter", parked).require(t, "parked", counts)

			// what the topic does not keep any more is no loss
			p.Stop(t)
			gone := deleteRecords(t, first.Topic)
			c := s.command()
			c.Args = []string{"verify", "--json", "--dead-letter", parked}
			after := harness.Start(t, c)
			after.Wait(t) // with 0 or 1: some of what was planted is gone too
			if v := s.parse(after.Stdout()); v.Report.Counts["expired"] < gone/2 || v.Report.Counts["missing"] > 0 {
				t.Errorf("after %d records expired: %+v", gone, v.Report)
			}
		})
	}
}

// Two relays read one table: what the one published is what the other did.
func TestVerifyAgainst(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17")).withTopics()
	prefix := harness.Unique("shadow-") + "."
	var shadows []string
	for _, topic := range s.topics {
		shadows = append(shadows, prefix+topic)
	}
	harness.CreateTopics(t, partitions, shadows...)
	p := s.active()
	s.commit(300)
	shadow := s.active("OUTBOXD_TOPIC="+prefix+"outbox.event.{aggregate_type}", "OUTBOXD_NAME=shadow", "OUTBOXD_CHECKPOINT=file:shadow", "OUTBOXD_START=now")
	tail := harness.Follow(t, shadows...)
	s.commit(500)
	s.delivered()
	tail.WaitEvents(t, 500)
	p.Stop(t)
	shadow.Stop(t)
	if v := s.verify(0, "--against", prefix); v.Report.Matched < 500 || v.Report.Counts["expired"] != v.Report.Events-v.Report.Matched {
		t.Errorf("%+v", v)
	}
	records := harness.Records(t, shadows...)
	again(t, newest(records), func(r *kgo.Record) { r.Value = []byte("{}") })
	s.verify(1, "--against", prefix).require(t, "another value", map[string]int{"repeated": 1, "altered": 1, "expired": 300})
}

// newest is the last record of its key, and of all keys the one committed last.
func newest(records []checker.Record) checker.Record {
	last := records[0]
	number := func(r checker.Record) (n int) {
		_, _ = fmt.Sscan(idOf(r), &n)
		return n
	}
	for _, r := range records {
		if number(r) > number(last) {
			last = r
		}
	}
	return last
}

// deleteRecords deletes the older half of each partition, as retention does.
func deleteRecords(t *testing.T, topic string) (gone int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(harness.Brokers(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	offsets := ends.Offsets()
	offsets.Each(func(o kadm.Offset) {
		o.At /= 2
		gone += int(o.At)
		offsets.Add(o)
	})
	if _, err := admin.DeleteRecords(t.Context(), offsets); err != nil {
		t.Fatal(err)
	}
	return gone
}
