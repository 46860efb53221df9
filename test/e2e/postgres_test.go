package e2e

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// Several outbox tables of different shapes, one of them partitioned, under
// names that need quoting, in one connector, with a crash in the middle.
func TestTablesOfDifferentShapes(t *testing.T) {
	eachParallel(t, ends, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.exec(`CREATE SCHEMA "My Shop" AUTHORIZATION cdc`)
		s.exec(`CREATE TYPE "My Shop"."Kind" AS ENUM ('created', 'paid')`)
		s.exec(`CREATE DOMAIN "My Shop"."Key" AS text CHECK (VALUE <> '')`)
		s.exec(`CREATE TABLE "My Shop"."Outbox.Events" (payload json NOT NULL, type "My Shop"."Kind", aggregateid uuid NOT NULL, aggregatetype text NOT NULL, id uuid PRIMARY KEY DEFAULT gen_random_uuid())`)
		s.exec(`CREATE TABLE "発信箱" (event_id bigint GENERATED ALWAYS AS IDENTITY (START WITH 1000001), event_type char(10), aggregate_type varchar, aggregate_id "My Shop"."Key", payload text, made timestamptz DEFAULT now()) PARTITION BY RANGE (event_id)`)
		s.exec(`CREATE TABLE p1 PARTITION OF "発信箱" FOR VALUES FROM (1000001) TO (1000050)`)
		for _, table := range []string{`"My Shop"."Outbox.Events"`, `"発信箱"`} {
			s.exec("ALTER TABLE " + table + " OWNER TO cdc")
		}
		s.env["OUTBOXD_TABLES"] = `public.outbox,"My Shop"."Outbox.Events","発信箱"`
		s.env["OUTBOXD_NAME"] = harness.Unique("shapes-")
		write := func(from, to int) {
			s.exec(fmt.Sprintf(`INSERT INTO "My Shop"."Outbox.Events" (payload, type, aggregateid, aggregatetype)
				SELECT format('{"seq":  %%s, "seq2": 1.0}', i)::json, 'paid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '%s' FROM generate_series(%d, %d) i`, s.types[0], from, to))
			s.exec(fmt.Sprintf(`INSERT INTO "発信箱" (event_type, aggregate_type, aggregate_id, payload)
				SELECT 'created', '%s', 'k', format('{ "seq" : %%s}', i) FROM generate_series(%d, %d) i`, s.types[1], from, to))
		}
		p := s.active()
		s.commit(50)
		write(1, 40)
		s.tail.WaitEvents(t, 130)
		p.Kill()
		s.exec(`CREATE TABLE p2 PARTITION OF "発信箱" FOR VALUES FROM (1000050) TO (1000500)`)
		write(41, 100)
		s.commit(50)
		p = s.active()
		truth := append(s.truth(), s.db.Truth(t, checker.Table{
			Name: `"My Shop"."Outbox.Events"`, ID: "id", AggregateType: "aggregatetype", AggregateID: "aggregateid", EventType: "type", Payload: "payload", Topic: "outbox.event.",
		})...)
		truth = append(truth, s.db.Truth(t, checker.Table{
			// ::text takes the padding of char(n) away, the output function doesn't.
			Name: `"発信箱"`, ID: "event_id", AggregateType: "aggregate_type", AggregateID: "aggregate_id", EventType: "concat(event_type)", Payload: "payload::json", Topic: "outbox.event.",
		})...)
		s.tail.WaitEvents(t, len(truth))
		p.Stop(t)
		checker.Require(t, s.compare("tables of different shapes", truth), window)
	})
}

// Payloads of 50 MB, in line with what Kafka is told to take.
func TestLargePayloads(t *testing.T) {
	each(t, ends, func(t *testing.T, at stage) {
		s := newScene(t, at)
		s.exec("DROP TABLE outbox")
		s.exec("CREATE TABLE outbox (id bigint, aggregate_type text, aggregate_id text, event_type text, payload bytea)")
		s.exec("ALTER TABLE outbox OWNER TO cdc")
		s.topics = s.topics[:1]
		const size = 50 << 20
		harness.DeleteTopicsLater(t, s.topics...)
		harness.CreateTopic(t, s.topics[0], 1, map[string]string{"max.message.bytes": fmt.Sprint(size + 1<<20)})
		p := s.active("OUTBOXD_KAFKA_MAX_MESSAGE_BYTES=51MiB")
		const random = "(SELECT string_agg(sha512((g * i)::text::bytea), '' ORDER BY g) FROM generate_series(1, %d) g)"
		s.exec(fmt.Sprintf(`INSERT INTO outbox SELECT i, '%s', 'a', 'large', `+random+` FROM generate_series(1, %d) i`, s.types[0], size/64, harness.Times(1, 5)))
		s.exec(fmt.Sprintf(`INSERT INTO outbox VALUES (100, '%s', 'a', 'small', '\x00')`, s.types[0]))
		harness.Eventually(t, "both are there", func() bool {
			delivered, _ := p.Metric("outboxd_events_delivered_total")
			return delivered == float64(harness.Times(1, 5)+1)
		})
		p.Stop(t)
		for _, r := range harness.Records(t, s.topics...) {
			var id string
			for _, h := range r.Headers {
				if h.Name == "id" {
					id = string(h.Value)
				}
			}
			var same bool
			if err := s.db.SQL().QueryRow("SELECT sha256(payload) = sha256($1) FROM outbox WHERE id = $2::bigint", r.Value, id).Scan(&same); err != nil {
				t.Fatal(err)
			}
			if !same {
				t.Errorf("event %s: %d bytes that are not those of the table", id, len(r.Value))
			}
		}
	})
}

// The URL may name a Unix socket, as libpq's does.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17")).withTopics()
	dir := t.TempDir()
	socket(t, filepath.Join(dir, ".s.PGSQL.5432"), s.db.Addr())
	u, err := url.Parse(s.db.URL("cdc"))
	if err != nil {
		t.Fatal(err)
	}
	u.Host, u.RawQuery = "", url.Values{"host": {dir}, "port": {"5432"}}.Encode()
	s.env["OUTBOXD_SOURCE_URL"] = u.String()
	p := s.active()
	s.commit(500)
	s.delivered()
	p.Stop(t)
	s.commit(20000)
	p = s.active()
	s.finish(p, "through a Unix socket", 0)
}

// socket listens on a Unix socket and forwards to addr.
func socket(t *testing.T, path, addr string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			pipe := func(to, from net.Conn) {
				buf := make([]byte, 64<<10)
				for {
					n, err := from.Read(buf)
					if n > 0 {
						if _, err := to.Write(buf[:n]); err != nil {
							break
						}
					}
					if err != nil {
						break
					}
				}
				_ = to.Close()
				_ = from.Close()
			}
			go pipe(server, client)
			go pipe(client, server)
		}
	}()
}
