package debezium

import (
	"slices"
	"strings"
	"testing"
)

const connector = `{"name": "Orders Outbox", "config": {
 "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "tasks.max": "1",
 "database.hostname": "db", "database.port": "5433", "database.user": "u", "database.password": "p w", "database.dbname": "shop",
 "topic.prefix": "shop", "plugin.name": "pgoutput", "slot.name": "dbz", "table.include.list": "public.outbox", "heartbeat.interval.ms": "1000",
 "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
 "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
 "transforms.outbox.table.fields.additional.placement": "type:header:eventType", "transforms.outbox.route.topic.replacement": "ev.${routedByValue}"%s}}`

func read(t *testing.T, more string) *Import {
	t.Helper()
	i, err := Read([]byte(strings.Replace(connector, "%s", more, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestOptions(t *testing.T) {
	t.Parallel()
	i := read(t, "")
	if len(i.Refused) > 0 {
		t.Errorf("refused: %v", i.Refused)
	}
	for _, want := range []string{
		"OUTBOXD_NAME=orders-outbox", "OUTBOXD_SOURCE_URL=postgres://db:5433/shop", "OUTBOXD_SOURCE_USER=u", "OUTBOXD_SOURCE_PASSWORD='p w'",
		"OUTBOXD_TABLES=public.outbox", "OUTBOXD_POSTGRES_SLOT=dbz", "OUTBOXD_POSTGRES_PUBLICATION=dbz_publication", "OUTBOXD_TOPIC_PREFIX=shop",
		"OUTBOXD_KEY_FORMAT=raw", "OUTBOXD_PAYLOAD_FORMAT=connect-json-schema", "OUTBOXD_HEADER_FORMAT=connect", "OUTBOXD_HEADERS=id,debezium-context",
		"OUTBOXD_COLUMN_PLACEMENT=type:header:eventType", "OUTBOXD_TOPIC_ROUTE_REPLACEMENT=ev.${routedByValue}", "OUTBOXD_ON_NULL_KEY=null",
		"# ignored heartbeat.interval.ms: outboxd moves on in an idle table by itself",
	} {
		if !slices.Contains(strings.Split(i.EnvFile(), "\n"), want) {
			t.Errorf("no line %s in\n%s", want, i.EnvFile())
		}
	}
	for _, tc := range []struct{ name, more, option, why string }{
		{"plugin", `, "plugin.name": "decoderbufs"`, "plugin.name", "setup --start now"},
		{"avro", `, "value.converter": "io.confluent.connect.avro.AvroConverter"`, "value.converter", "AvroConverter"},
		{"another transformation", `, "transforms": "outbox,x", "transforms.x.type": "a.B", "transforms.x.c": "1"`, "transforms.x.type", "a.B"},
		{"a pattern of Java", `, "transforms.outbox.route.topic.regex": "(?=a).*"`, "transforms.outbox.route.topic.regex", "RE2"},
		{"a pattern of tables", `, "table.include.list": "public.out.*"`, "table.include.list", "pattern"},
		{"what nobody knows", `, "frobnicate": "1"`, "frobnicate", "not known"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			i := read(t, tc.more)
			if len(i.Refused) != 1 || i.Refused[0].Option != tc.option || !strings.Contains(i.Refused[0].Reason, tc.why) {
				t.Errorf("refused: %v", i.Refused)
			}
		})
	}
}

func TestServerProperties(t *testing.T) {
	t.Parallel()
	i, err := Read([]byte(`# Debezium Server
debezium.sink.type=kafka
debezium.sink.kafka.producer.bootstrap.servers=k:9092
debezium.source.connector.class=io.debezium.connector.mysql.MySqlConnector
debezium.source.database.hostname=db
debezium.source.topic.prefix=shop
debezium.source.table.include.list=shop\.outbox
debezium.source.database.server.id=5501
debezium.format.value=simplestring
debezium.transforms=outbox
debezium.transforms.outbox.type=io.debezium.transforms.outbox.EventRouter
debezium.transforms.outbox.route.topic.replacement=ev.$${routedByValue}
quarkus.log.level=INFO
`))
	if err != nil {
		t.Fatal(err)
	}
	text := i.EnvFile()
	for _, want := range []string{
		"OUTBOXD_SOURCE_URL=mysql://db:3306/shop", "OUTBOXD_TABLES=shop.outbox", "OUTBOXD_MYSQL_SERVER_ID=5501", "OUTBOXD_KAFKA_BROKERS=k:9092", "OUTBOXD_START=resume",
		"OUTBOXD_PAYLOAD_FORMAT=raw", "OUTBOXD_KEY_FORMAT=connect-json-schema", "OUTBOXD_HEADER_FORMAT=connect-json", "OUTBOXD_TOPIC_ROUTE_REPLACEMENT=ev.${routedByValue}",
	} {
		if !slices.Contains(strings.Split(text, "\n"), want) || len(i.Refused) > 0 {
			t.Errorf("no line %s in\n%s", want, text)
		}
	}
	if _, err := Read([]byte(`{"connector.class": "io.debezium.connector.mysql.MySqlConnector"}`)); err == nil {
		t.Error("a connector without the router is taken")
	}
}

func TestOffsets(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, kind, offset, want string }{
		{"GTIDs before the transaction", "mysql", `{"ts_sec":1,"file":"bin.000003","pos":194,"gtids":"u:1-9","row":1,"event":2,"server_id":1}`, "u:1-9"},
		{"no GTIDs", "mysql", `{"file":"bin.000003","pos":194,"row":1,"event":2}`, "bin.000003:194"},
		{"MariaDB", "mariadb", `{"file":"bin.000003","pos":194,"gtids":"0-1-9"}`, "bin.000003:194"},
		{"the slot has it", "postgres", `{"lsn":1,"lsn_commit":1}`, SlotPlace},
		{"within a snapshot", "mysql", `{"file":"bin.000003","pos":194,"snapshot":true}`, ""},
		{"nothing", "mysql", `{}`, ""},
	} {
		o, err := ParseOffset([]byte(tc.offset))
		var place string
		if err == nil {
			place, err = o.Place(tc.kind)
		}
		if place != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, %v", tc.name, place, err)
		}
	}
	if !OffsetKey([]byte(`["orders",{"server":"shop"}]`), "orders", "shop") || OffsetKey([]byte(`["orders",{"server":"shop"}]`), "orders", "other") {
		t.Error("the key of an offset is not told")
	}
}
