package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// recordTables are two outboxes of different shapes, in the words of each server.
var recordTables = map[string][]string{
	"postgres17": {
		`CREATE TABLE shop_orders (uid bigint PRIMARY KEY, kind text, order_id integer NOT NULL, body jsonb, made timestamptz, shard smallint, meta jsonb)`,
		`CREATE TABLE shop_bills (id uuid PRIMARY KEY, customer text, payload text, amount numeric(10,2), raw bytea)`,
		`ALTER TABLE shop_orders OWNER TO cdc`, `ALTER TABLE shop_bills OWNER TO cdc`,
	},
	"mysql": {
		"CREATE TABLE shop_orders (uid BIGINT PRIMARY KEY, kind VARCHAR(20), order_id INT NOT NULL, body JSON, made DATETIME(6), shard SMALLINT, meta JSON)",
		"CREATE TABLE shop_bills (id CHAR(36) PRIMARY KEY, customer VARCHAR(20), payload TEXT, amount DECIMAL(10,2), raw VARBINARY(10))",
	},
}

// Two tables, each with its own settings, all that a record can be made of, and
// what check shows of it before anything is sent.
func TestRecordsByAlias(t *testing.T) {
	for _, server := range []string{"postgres17", "mysql"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, on(server))
			for _, statement := range recordTables[server] {
				s.exec(statement)
			}
			harness.DeleteTopicsLater(t, s.topics...)
			harness.CreateTopic(t, s.topics[0], partitions, map[string]string{"retention.ms": "86400000"})
			harness.CreateTopic(t, s.topics[1], partitions, nil)
			for name, value := range map[string]string{
				"TABLES": "orders=shop_orders,bills=shop_bills", "NAME": harness.Unique("by-alias-"), "START": "now",
				"TABLE_ORDERS_COLUMN_ID": "uid", "TABLE_ORDERS_COLUMN_AGGREGATE_ID": "order_id", "TABLE_ORDERS_COLUMN_EVENT_TYPE": "kind", "TABLE_ORDERS_COLUMN_PAYLOAD": "body",
				"TABLE_ORDERS_COLUMN_TIMESTAMP": "made", "TABLE_ORDERS_COLUMN_HEADERS": "meta", "TABLE_ORDERS_COLUMN_PLACEMENT": "shard:partition,shard:header:on",
				"TABLE_ORDERS_HEADERS": "id,eventType:kind,position", "TABLE_ORDERS_KEY_FORMAT": "connect-json-schema", "TABLE_ORDERS_TOPIC": s.topics[0],
				"TABLE_BILLS_COLUMN_AGGREGATE_ID": "customer", "TABLE_BILLS_PAYLOAD_FORMAT": "envelope", "TABLE_BILLS_COLUMN_PLACEMENT": "amount:envelope,raw:envelope",
				"TABLE_BILLS_EXPAND_JSON": "true", "TABLE_BILLS_TOPIC_ROUTE_BY": "customer", "TABLE_BILLS_TOPIC_ROUTE_REGEX": "c-(.*)", "TABLE_BILLS_TOPIC_ROUTE_REPLACEMENT": "outbox.event.$1",
			} {
				s.env["OUTBOXD_"+name] = value
			}
			order := func(uid int, made, shard string) {
				s.exec(fmt.Sprintf(`INSERT INTO shop_orders VALUES (%d, 'placed', 42, '{"secret": 1.25}', '%s', %s, '{"tenant": "aä", "n": 7}')`, uid, made, shard))
			}
			order(1, "2018-06-20 15:13:16.945104", "3")
			out := s.run(0, "check")
			for _, want := range []string{
				"record.preview", "topic " + s.topics[0], `headers id="1" kind="placed" position=`, `on="3" n="7" tenant="aä", timestamp 2018-06-20T15:13:16.945104Z, value of 16 bytes`,
				"goes to partition 3", "WARN kafka.retention", "keeps records for 24h0m0s", "OUTBOXD_COLUMN_TIMESTAMP unset",
			} {
				if !strings.Contains(out, want) {
					t.Errorf("check does not show %q", want)
				}
			}
			if strings.Contains(out, "secret") {
				t.Error("check shows the payload")
			}
			if t.Failed() {
				t.Logf("check prints\n%s", out)
			}
			if out := s.run(0, "check", "--show-payload"); !strings.Contains(out, `value "{\"secret\": 1.25}"`) {
				t.Errorf("check does not show the payload:\n%s", out)
			}
			p := s.active()
			order(2, "2026-11-30 12:34:56.000001", "5")
			order(3, "2026-11-30 12:34:56.000001", "NULL")
			s.exec(fmt.Sprintf(`INSERT INTO shop_bills VALUES ('406c07f3-26f0-4eea-a50c-109940064b8f', 'c-%s', '{"sum":  1.50}', 10.50, '%s')`, s.types[1], map[string]string{"mysql": "ab"}[server]))
			s.tail = harness.Follow(t, s.topics...)
			s.tail.WaitRecords(t, 3)
			p.Stop(t)
			s.judgeRecords(harness.Records(t, s.topics...))
		})
	}
}

func (s *scene) judgeRecords(records []checker.Record) {
	s.t.Helper()
	pinned := map[string]int32{"2": 5, "3": checker.Partition([]byte(`{"schema":{"type":"int32","optional":false},"payload":42}`), partitions)}
	position := regexp.MustCompile(`^\S+#\d+$`)
	for _, r := range records {
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Name] = string(h.Value)
		}
		if r.Topic == s.topics[1] {
			want := fmt.Sprintf(`{"id":"406c07f3-26f0-4eea-a50c-109940064b8f","aggregateId":"c-%s","occurredAt":"…","payload":{"sum":  1.50},"amount":10.50,"raw":"%s"}`,
				s.types[1], map[string]string{"mysql": "YWI="}[s.service])
			value := regexp.MustCompile(`"occurredAt":"[^"]*"`).ReplaceAllString(string(r.Value), `"occurredAt":"…"`)
			if value != want || !json.Valid(r.Value) || string(r.Key) != "c-"+s.types[1] {
				s.t.Errorf("bill %s %s, want %s", r.Key, value, want)
			}
			continue
		}
		id := headers["id"]
		if r.Partition != pinned[id] || r.Timestamp.UnixMilli() != 1796042096000 || string(r.Value) != `{"secret": 1.25}` ||
			string(r.Key) != `{"schema":{"type":"int32","optional":false},"payload":42}` {
			s.t.Errorf("order %s on partition %d at %s: %s %s", id, r.Partition, r.Timestamp, r.Key, r.Value)
		}
		if headers["kind"] != "placed" || headers["tenant"] != "aä" || headers["n"] != "7" || !position.MatchString(headers["position"]) || headers["on"] != map[string]string{"2": "5"}[id] {
			s.t.Errorf("order %s has headers %v", id, headers)
		}
	}
}

// A change of the table that the mapping does not fit is told with the columns
// there are, the row behind it is not lost, and another mapping goes on from it.
func TestMappingIsJudgedAfterASchemaChange(t *testing.T) {
	for _, server := range []string{"postgres17", "mysql"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, on(server)).withTopics()
			s.exec("ALTER TABLE outbox ADD COLUMN tenant varchar(10) NOT NULL DEFAULT 'a'")
			s.env["OUTBOXD_COLUMN_PLACEMENT"] = "tenant:header"
			p := s.active()
			s.commit(20)
			s.delivered()
			s.exec("ALTER TABLE outbox RENAME COLUMN tenant TO customer")
			s.commit(1)
			if code := p.Wait(t); code != 4 || !strings.Contains(p.Log(), `no column \"tenant\", which is placed as header; its columns are id`) || !strings.Contains(p.Log(), "OUTBOXD_COLUMN_PLACEMENT") {
				t.Fatalf("exit code %d\n%s", code, p.Log())
			}
			if out := s.run(2, "check"); !strings.Contains(out, `no column "tenant"`) || !strings.Contains(out, "customer") {
				t.Errorf("check does not tell:\n%s", out)
			}
			s.env["OUTBOXD_COLUMN_PLACEMENT"] = "customer:header:tenant"
			p = s.active()
			s.delivered()
			p.Stop(t)
			for _, r := range harness.Records(t, s.topics...) {
				if last := r.Headers[len(r.Headers)-1]; last.Name != "tenant" || string(last.Value) != "a" {
					t.Errorf("headers %v", r.Headers)
				}
			}
		})
	}
}
