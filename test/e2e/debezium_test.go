package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// A connector's file and place are taken over under load: nothing behind the place is missing, and
// nothing before it comes. On Postgres that is a slot with a publication of all kinds of changes, as
// Debezium makes them, on MySQL the GTIDs of its offset.
func TestImportDebezium(t *testing.T) {
	for _, service := range []string{"postgres17", "mysql"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, stage{service, inTopic, harness.Plain}).withTopics()
			class, options := "mysql.MySqlConnector", ""
			if s.postgres() {
				class = "postgresql.PostgresConnector"
				s.exec(`CREATE PUBLICATION dbz FOR TABLE outbox`)
			}
			slot := strings.ReplaceAll(harness.Unique("dbz_"), "-", "_")
			if s.postgres() {
				options = `"plugin.name": "pgoutput", "publication.name": "dbz", "slot.name": "` + slot + `",`
				s.exec(`SELECT pg_create_logical_replication_slot('` + slot + `', 'pgoutput')`)
			}
			name := harness.Unique("dbz-")
			file := filepath.Join(t.TempDir(), "connector.json")
			text := fmt.Sprintf(`{"name": %q, "config": {"connector.class": "io.debezium.connector.%s",
				"database.hostname": "127.0.0.1", "database.user": "cdc", "table.include.list": "public.outbox", "topic.prefix": "shop",
				%s "extended.headers.enabled": "false",
				"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
				"transforms": "o", "transforms.o.type": "io.debezium.transforms.outbox.EventRouter",
				"transforms.o.table.field.event.key": "aggregate_id", "transforms.o.route.by.field": "aggregate_type",
				"transforms.o.table.fields.additional.placement": "event_type:header:eventType,aggregate_type:header:aggregateType"}}`,
				name, class, options)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.commit(300) // published by Debezium, say
			before := s.truth()
			args := []string{"import-debezium", file, "--apply", "--yes"}
			if s.postgres() {
				s.exec(`SELECT pg_replication_slot_advance('` + slot + `', pg_current_wal_lsn())`)
			} else {
				s.env["OUTBOXD_TABLES"] = "outbox"
				offset := fmt.Sprintf(`{"gtids":%q,"file":"x","pos":4,"row":1,"event":2}`, strings.ReplaceAll(s.text("SELECT @@global.gtid_executed"), "\n", ""))
				offsets := harness.Unique("connect-offsets-")
				harness.CreateTopics(t, 5, offsets)
				harness.Produce(t, offsets, `["other",{"server":"shop"}]`, []byte(`{"gtids":"x"}`))
				harness.Produce(t, offsets, `["`+name+`",{"server":"shop"}]`, []byte(`{"gtids":""}`))
				harness.Produce(t, offsets, `["`+name+`",{"server":"shop"}]`, []byte(offset))
				args = append(args, "--offsets-topic", offsets)
			}
			load := s.committing(200)
			if said := s.run(0, args...); !strings.Contains(said, "repeats ") {
				t.Errorf("nothing is told of repeats: %s", said)
			}
			env := filepath.Join(t.TempDir(), "env")
			s.run(0, "import-debezium", file, "--out", env)
			c := s.command()
			c.Args = []string{"run", "--env-file", env}
			p := harness.Start(t, c)
			p.WaitActive(t)
			s.run(2, args...) // not beside a running instance
			s.commit(200)
			s.end(load)
			all := s.truth()
			s.tail.WaitEvents(t, len(all)-len(before))
			p.Stop(t)
			checker.Require(t, s.compare("taken over", behind(all, before)), 0)
		})
	}
}

// behind leaves out the events of known ids.
func behind(all, known []checker.Event) (rest []checker.Event) {
	was := map[string]bool{}
	for _, e := range known {
		was[string(e.ID)] = true
	}
	for _, e := range all {
		if !was[string(e.ID)] {
			rest = append(rest, e)
		}
	}
	return rest
}
