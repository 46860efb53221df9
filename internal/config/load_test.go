package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// least is the smallest environment that is legal.
var least = []string{
	"OUTBOXD_SOURCE_URL=postgres://relay@db.example/shop",
	"OUTBOXD_KAFKA_BROKERS=k1",
}

func with(more ...string) []string { return append(slices.Clone(least), more...) }

func problems(t *testing.T, err error) SettingErrors {
	t.Helper()
	var ps SettingErrors
	if !errors.As(err, &ps) {
		t.Fatalf("no problems in %v", err)
	}
	return ps
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	c, warnings, err := Load(least)
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	password, err := c.Source.Password()
	if err != nil || password != "" {
		t.Errorf("password %q, %v", password, err)
	}
	c.Source.Password, c.values = nil, nil
	want := &Config{
		Name:         "shop-outbox",
		Source:       Source{Scheme: "postgres", Database: "shop", Login: Login{URL: "postgres://relay@db.example/shop"}},
		Tables:       []Table{{Name: "outbox"}},
		Delivery:     "at-least-once",
		Transaction:  Transaction{Interval: 100 * time.Millisecond, Timeout: 15 * time.Second},
		Start:        "auto",
		DrainTimeout: 20 * time.Second,
		BufferEvents: 50000,
		BufferBytes:  32 << 20,
		AutoSetup:    true,
		Postgres:     Postgres{Slot: "shop_outbox", Publication: "shop_outbox"},
		MySQL:        MySQL{Position: "auto"},
		OnReject:     "stop",
		Checkpoint:   Checkpoint{Topic: "outboxd.checkpoints", Interval: time.Second, MaxEvents: 10000},
		Event: Event{
			Headers: []Header{{"id", "id"}, {"eventType", "eventType"}, {"aggregateType", "aggregateType"}}, HeaderFormat: "raw",
			Topic: "outbox.event.{aggregate_type}", PayloadFormat: "raw", KeyFormat: "raw", OnMissingColumn: "fail", OnNullKey: "reject",
		},
		Sink: "kafka",
		Kafka: Kafka{Brokers: []string{"k1:9092"}, Compression: "lz4", Linger: 5 * time.Millisecond, BatchBytes: 1 << 20,
			MaxMessageBytes: 1 << 20, TopicPartitions: -1, TopicReplication: -1, RejectAfter: time.Minute},
		HTTPAddr: "127.0.0.1:8080",
		LogLevel: "info",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
}

func TestEverythingSet(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]string{
		"OUTBOXD_NAME=orders-1", "OUTBOXD_SOURCE_URL=postgresql://u:p%40ss@a:5432,b:5433/shop?sslmode=require",
		"OUTBOXD_SOURCE_USER=other", "OUTBOXD_TABLES=Sales.Orders_Outbox,\"Sales\".\"Out.Box\"", "OUTBOXD_START=now", "OUTBOXD_SINK=stdout",
		"OUTBOXD_DELIVERY=at-least-once", "OUTBOXD_CHECKPOINT=file:/var/lib/outboxd/a:b", "OUTBOXD_CHECKPOINT_INTERVAL=250ms", "OUTBOXD_CHECKPOINT_MAX_EVENTS=5",
		"OUTBOXD_COLUMN_ID=eid", "OUTBOXD_COLUMN_AGGREGATE_ID=payload:$.order['the id']", "OUTBOXD_COLUMN_AGGREGATE_TYPE=at", "OUTBOXD_COLUMN_EVENT_TYPE=et", "OUTBOXD_COLUMN_PAYLOAD=body",
		"OUTBOXD_COLUMN_TIMESTAMP=ts", "OUTBOXD_COLUMN_HEADERS=h", "OUTBOXD_COLUMN_TRACE=tr", "OUTBOXD_COLUMN_SCHEMA_VERSION=v", "OUTBOXD_COLUMN_PLACEMENT=a:header, b : envelope : B,c:partition", "OUTBOXD_ON_MISSING_COLUMN=ignore",
		"OUTBOXD_HEADER_FORMAT=connect", "OUTBOXD_EXPAND_JSON=true", "OUTBOXD_TOPIC_PREFIX=dbz",
		"OUTBOXD_HEADERS=id:ID, eventType", "OUTBOXD_TOPIC=e.{column:region}.{table}", "OUTBOXD_TOMBSTONE_ON_EMPTY=true", "OUTBOXD_ON_NULL_KEY=null",
		"OUTBOXD_KAFKA_BROKERS=a:1,[::1]:2,[::2],a:1", "OUTBOXD_KAFKA_BOOTSTRAP_SERVERS=a:1,[::1]:2,[::2],a:1", "OUTBOXD_KAFKA_COMPRESSION=zstd", "OUTBOXD_KAFKA_LINGER=0",
		"OUTBOXD_KAFKA_BATCH_BYTES=512KiB", "OUTBOXD_KAFKA_MAX_MESSAGE_BYTES=2MB", "OUTBOXD_KAFKA_CREATE_TOPICS=true", "OUTBOXD_KAFKA_TOPIC_PARTITIONS=12",
		"OUTBOXD_KAFKA_TOPIC_REPLICATION=3", "OUTBOXD_POSTGRES_SLOT=s_1", "OUTBOXD_POSTGRES_FAILOVER_SLOT=true", "OUTBOXD_SNAPSHOT_WHERE=id > 5", "OUTBOXD_POSTGRES_MESSAGE_PREFIX=Events 1", "OUTBOXD_SNAPSHOT_ORDER_BY=created_at, id", "OUTBOXD_POSTGRES_PUBLICATION=My Pub", "OUTBOXD_AUTO_SETUP=false",
		"OUTBOXD_SETUP_URL=postgres://admin:geheim@a/shop", "OUTBOXD_BUFFER_EVENTS=7", "OUTBOXD_BUFFER_BYTES=1GiB", "OUTBOXD_DRAIN_TIMEOUT=1h30m", "OUTBOXD_START_TIMEOUT=5s",
		"OUTBOXD_HTTP_ADDR=off", "OUTBOXD_LOG_LEVEL=debug", "OUTBOXD_LOG_FORMAT=console", "OUTBOXD_ON_STOP=exit", "OUTBOXD_ON_REJECT=stop", "OUTBOXD_REJECT_AFTER=3s",
		"OUTBOXD_PAYLOAD_FORMAT=envelope", "OUTBOXD_KEY_FORMAT=connect-json", "OUTBOXD_KAFKA_PARTITIONER=murmur2", "OUTBOXD_KAFKA_TLS=off", "OUTBOXD_ON_UPDATE=stop",
		"OUTBOXD_HTTP_HOSTS=relay.example, outboxd", "OUTBOXD_TRANSACTION_INTERVAL=1s", "OUTBOXD_TRANSACTION_TIMEOUT=1m",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := c.Source.Password(); p != "p@ss" {
		t.Errorf("password %q", p)
	}
	if p, _ := c.SetupURL.Password(); p != "geheim" {
		t.Errorf("setup password %q", p)
	}
	c.Source.Password, c.SetupURL.Password, c.values = nil, nil, nil
	want := &Config{
		Name: "orders-1",
		Source: Source{Scheme: "postgres", Database: "shop",
			Login: Login{URL: "postgres://u@a:5432,b:5433/shop?sslmode=require", User: "other"}},
		Delivery: "at-least-once", Transaction: Transaction{time.Second, time.Minute},
		Tables: []Table{{"sales", "orders_outbox", ""}, {"Sales", "Out.Box", ""}}, Start: "now", StartTimeout: 5 * time.Second, DrainTimeout: 90 * time.Minute,
		BufferEvents: 7, BufferBytes: 1 << 30, SetupURL: Login{URL: "postgres://admin@a/shop"}, Postgres: Postgres{"s_1", "My Pub", true, "Events 1"}, Snapshot: Snapshot{"id > 5", "created_at, id"},
		MySQL: MySQL{Position: "auto"}, OnUpdate: "stop", OnReject: "stop", HTTPHosts: []string{"relay.example", "outboxd"},
		Checkpoint: Checkpoint{Path: "/var/lib/outboxd/a:b", Interval: 250 * time.Millisecond, MaxEvents: 5},
		Event: Event{
			Columns: Columns{"eid", "payload:$.order['the id']", "at", "et", "body", "ts", "h", "tr", "v"},
			Headers: []Header{{"id", "ID"}, {"eventType", "eventType"}}, HeaderFormat: "connect", Topic: "e.{column:region}.{table}", TombstoneOnEmpty: true, OnNullKey: "null",
			Placement: []Placement{{"a", "header", ""}, {"b", "envelope", "B"}, {"c", "partition", ""}}, OnMissingColumn: "ignore", ExpandJSON: true,
			PayloadFormat: "envelope", KeyFormat: "connect-json",
		},
		TopicPrefix: "dbz",
		Sink:        "stdout", Kafka: Kafka{Brokers: []string{"a:1", "[::1]:2", "[::2]:9092"}, Compression: "zstd", BatchBytes: 512 << 10, MaxMessageBytes: 2e6,
			CreateTopics: true, TopicPartitions: 12, TopicReplication: 3, RejectAfter: 3 * time.Second},
		LogLevel: "debug", LogFormat: "console",
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%+v\nwant\n%+v", c, want)
	}
}

// TestBadSettings gives each bad setting alone: it is the one problem, it
// names the variable, and the process would end with 2.
func TestBadSettings(t *testing.T) {
	t.Parallel()
	cases := []struct{ set, reason string }{
		{"OUTBOXD_NAME=Shop", "form"},
		{"OUTBOXD_NAME=" + strings.Repeat("a", 41), "form"},
		{"OUTBOXD_SOURCE_URL=shop", "not a URL"},
		{"OUTBOXD_SOURCE_URL=host=db dbname=shop", "not a URL"},
		{"OUTBOXD_SOURCE_URL=oracle://u@h/d", "no database that is known"},
		{"OUTBOXD_SOURCE_URL=mysql://u@h", "names no database"},
		{"OUTBOXD_SOURCE_URL=mysql:///d", "names no host"},
		{"OUTBOXD_SOURCE_URL=mysql://u:1?geheim@h/d", "names no database"},
		{"OUTBOXD_SOURCE_URL=mysql://u:1/d?geheim@h/d", "percent-encode"},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?password=geheim", `parameter "password"`},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?sslmode=require", `parameter "sslmode"`},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?ssl-mode=REQUIRED&ssl-mode=DISABLED", "ssl-mode twice"},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?ssl-ca=", "without a value"},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?ssl-mode=verify-full", "VERIFY_IDENTITY"},
		{"OUTBOXD_SOURCE_URL=mysql://u@h/d?ssl-cert=/c", "ssl-cert and ssl-key"},
		{"OUTBOXD_SOURCE_URL=mariadb://u@h/d?socket", "malformed parameter"},
		{"OUTBOXD_SOURCE_URL=postgres://u@h", "names no database"},
		{"OUTBOXD_SOURCE_URL=postgres:///d", "names no host"},
		{"OUTBOXD_SOURCE_URL=postgres://u@h:port/d", "host[:port]"},
		{"OUTBOXD_SOURCE_URL=postgres://u:p#s@h/d", "percent-encode"},
		{"OUTBOXD_SOURCE_URL=postgres://u:12/3@h/d", "percent-encode"},
		{"OUTBOXD_SOURCE_URL=postgres://u:%zz@h/d", "percent-encode"},
		{"OUTBOXD_SOURCE_URL=postgres://u@h/d?sslmode", "malformed parameter"},
		{"OUTBOXD_SOURCE_PASSWORD_FILE=/does/not/exist", "can't be used"},
		{"OUTBOXD_SETUP_URL=postgres://h:99999/d", "host[:port]"},
		{"OUTBOXD_TABLES=a,", "empty name"},
		{"OUTBOXD_TABLES=a.b.c", "more than two parts"},
		{"OUTBOXD_TABLES=a,A", "twice"},
		{"OUTBOXD_TABLES=\"a", "not closed"},
		{"OUTBOXD_TABLES=or-ders=shop.outbox", "alias that is not made of"},
		{"OUTBOXD_TABLES=a=x,A=y", "has the alias a twice"},
		{"OUTBOXD_TABLES=a=x,b=x", "names x twice"},
		{"OUTBOXD_TABLE_A_COLUMN_ID=x", "no such alias; write it as alias=table there"},
		{"OUTBOXD_TABLES=outbox,none", "none beside a table"},
		{"OUTBOXD_TABLES=a b", "dot or a comma"},
		{"OUTBOXD_START=Now", "none of the legal"},
		{"OUTBOXD_SINK=redis", "none of the legal"},
		{"OUTBOXD_DELIVERY=once", "none of the legal"},
		{"OUTBOXD_TRANSACTION_TIMEOUT=10ms", "too short"},
		{"OUTBOXD_CHECKPOINT=kafka:", "names no topic"},
		{"OUTBOXD_CHECKPOINT=kafka:a/b", "names no topic"},
		{"OUTBOXD_CHECKPOINT=kafka:..", "names no topic"},
		{"OUTBOXD_CHECKPOINT=kafka:" + strings.Repeat("x", 250), "names no topic"},
		{"OUTBOXD_CHECKPOINT=kafka", "names no topic"},
		{"OUTBOXD_CHECKPOINT=/var/lib/place", "neither kafka:TOPIC nor file:PATH"},
		{"OUTBOXD_CHECKPOINT=file:", "neither kafka:TOPIC nor file:PATH"},
		{"OUTBOXD_CHECKPOINT_INTERVAL=1", "without a unit"},
		{"OUTBOXD_CHECKPOINT_INTERVAL=1ms", "too short"},
		{"OUTBOXD_CHECKPOINT_MAX_EVENTS=0", "out of range"},
		{"OUTBOXD_CHECKPOINT_MAX_EVENTS=10k", "whole number"},
		{"OUTBOXD_COLUMN_AGGREGATE_ID=payload:order_id", ".name and ['name']"},
		{"OUTBOXD_COLUMN_AGGREGATE_ID=payload:$", ".name and ['name']"},
		{"OUTBOXD_COLUMN_AGGREGATE_ID=payload:$.a[0]", ".name and ['name']"},
		{"OUTBOXD_COLUMN_AGGREGATE_ID=payload:$..a", ".name and ['name']"},
		{"OUTBOXD_ON_UPDATE=skip", "none of the legal"},
		{"OUTBOXD_MYSQL_SERVER_ID=0", "whole number from 1 to 4294967295"},
		{"OUTBOXD_MYSQL_SERVER_ID=4294967296", "out of range"},
		{"OUTBOXD_MYSQL_SERVER_ID=99999999999999999999", "out of range"},
		{"OUTBOXD_MYSQL_SERVER_ID=-1", "whole number"},
		{"OUTBOXD_MYSQL_SERVER_ID=1", "the source is postgres://"},
		{"OUTBOXD_MYSQL_POSITION=offset", "none of the legal"},
		{"OUTBOXD_MYSQL_POSITION=auto", "the source is postgres://"},
		{"OUTBOXD_SETUP_URL=mysql://root@h/d", "another kind of database"},
		{"OUTBOXD_HTTP_HOSTS=relay.example:8080", "no host name"},
		{"OUTBOXD_HTTP_HOSTS=a,,b", "no host name"},
		{"OUTBOXD_HTTP_HOSTS=*", "no host name"},
		{"OUTBOXD_HEADERS=id,traceparent:tp", "renames traceparent"},
		{"OUTBOXD_HEADERS=id,none", "unknown header"},
		{"OUTBOXD_HEADER_FORMAT=json", "none of the legal"},
		{"OUTBOXD_COLUMN_PLACEMENT=type", "column:place"},
		{"OUTBOXD_COLUMN_PLACEMENT=type:body", `as "body"`},
		{"OUTBOXD_COLUMN_PLACEMENT=type:header:", "unusable alias"},
		{"OUTBOXD_COLUMN_PLACEMENT=p:partition:x", "unusable alias"},
		{"OUTBOXD_COLUMN_PLACEMENT=type:header,", "column:place"},
		{"OUTBOXD_HEADERS=id,kind", "unknown header"},
		{"OUTBOXD_HEADERS=id,eventType:id", "twice"},
		{"OUTBOXD_HEADERS=id:", "unusable name"},
		{"OUTBOXD_TOPIC=a.{kind}", "unknown placeholder"},
		{"OUTBOXD_TOPIC=a.{table", "brace"},
		{"OUTBOXD_TOPIC=a.}", "brace"},
		{"OUTBOXD_PAYLOAD_FORMAT=json", "none of the legal"},
		{"OUTBOXD_KEY_FORMAT=envelope", "none of the legal"},
		{"OUTBOXD_TOMBSTONE_ON_EMPTY=ture", "neither true nor false"},
		{"OUTBOXD_ON_REJECT=dead-letter", "dead-letter is not there yet"},
		{"OUTBOXD_ON_REJECT=ignore", "none of the legal"},
		{"OUTBOXD_ON_NULL_KEY=zero", "none of the legal"},
		{"OUTBOXD_ON_STOP=hold", "hold is not there yet"},
		{"OUTBOXD_KAFKA_BROKERS=PLAINTEXT://k:9092", "listener"},
		{"OUTBOXD_KAFKA_BROKERS=k:9092,", "host[:port]"},
		{"OUTBOXD_KAFKA_BROKERS=k:0", "host[:port]"},
		{"OUTBOXD_KAFKA_COMPRESSION=lz5", "none of the legal"},
		{"OUTBOXD_KAFKA_LINGER=-1ms", "too short"},
		{"OUTBOXD_KAFKA_BATCH_BYTES=1Mb", "not a size"},
		{"OUTBOXD_KAFKA_BATCH_BYTES=9GiB", "out of range"},
		{"OUTBOXD_KAFKA_MAX_MESSAGE_BYTES=99999999999999999999", "out of range"},
		{"OUTBOXD_KAFKA_PARTITIONER=random", "none of the legal"},
		{"OUTBOXD_KAFKA_CREATE_TOPICS=yes", "neither true nor false"},
		{"OUTBOXD_KAFKA_TOPIC_PARTITIONS=0", "out of range"},
		{"OUTBOXD_KAFKA_TOPIC_REPLICATION=-2", "out of range"},
		{"OUTBOXD_POSTGRES_SLOT=my-slot", "form"},
		{"OUTBOXD_AUTO_SETUP=1", "neither true nor false"},
		{"OUTBOXD_BUFFER_EVENTS=-1", "out of range"},
		{"OUTBOXD_BUFFER_BYTES=32 MiB", "not a size"},
		{"OUTBOXD_DRAIN_TIMEOUT=0", "too short"},
		{"OUTBOXD_START_TIMEOUT=soon", "not a duration"},
		{"OUTBOXD_HTTP_ADDR=8080", "host]:port"},
		{"OUTBOXD_HTTP_ADDR=:http", "not a number"},
		{"OUTBOXD_LOG_LEVEL=warning", "none of the legal"},
		{"OUTBOXD_LOG_FORMAT=text", "none of the legal"},
		{"OUTBOXD_STRICT_ENV=no", "neither true nor false"},
		{"OUTBOXD_KAFKA_TLS=yes", "neither on nor off"},
		{"OUTBOXD_KAFKA_TLS_CA_FILE=/ca", "OUTBOXD_KAFKA_TLS is off"},
		{"OUTBOXD_KAFKA_SASL_MECHANISM=GSSAPI", "none of the legal"},
		{"OUTBOXD_KAFKA_SASL_USERNAME=x", "MECHANISM is not"},
		{"OUTBOXD_KAFKA_SASL_OAUTH_TOKEN_FILE=/x", "MECHANISM is not"},
		{"OUTBOXD_HTTP_TOKEN_FILE=/run/t", "is not there yet"},
		{"OUTBOXD_LOGLEVEL=info", "nearest is OUTBOXD_LOG_LEVEL"},
		{"OUTBOXD_TABLE=outbox", "nearest is OUTBOXD_TABLES"},
		{"OUTBOXD_TABLES_FILE=/x", "only secrets"},
		{"OUTBOXD_SERVICE_HOST=db.example", "not a variable"},
		{"OUTBOXD_PORT=8080", "not a variable"},
	}
	for _, tc := range cases {
		t.Run(tc.set, func(t *testing.T) {
			t.Parallel()
			name, value, _ := strings.Cut(tc.set, "=")
			_, _, err := Load(with(tc.set))
			if fault.ExitCode(err) != fault.ExitConfig || !fault.Is(err, fault.CodeConfig) {
				t.Fatalf("error %v", err)
			}
			ps := problems(t, err)
			if len(ps) != 1 || ps[0].Name != name || !strings.Contains(ps[0].String(), tc.reason) {
				t.Errorf("problems %v, want one of %s with %q", ps, name, tc.reason)
			}
			if strings.Contains(name, "URL") && strings.Contains(err.Error(), value) {
				t.Errorf("error repeats a secret: %v", err)
			}
		})
	}
}

// TestEveryLaterVariableIsRefused walks the table, so that none is forgotten.
func TestEveryLaterVariableIsRefused(t *testing.T) {
	t.Parallel()
	for _, v := range Variables() {
		if !v.Later {
			continue
		}
		name := strings.Replace(v.Name, "*", "X", 1)
		_, _, err := Load(with(name + "=geheim"))
		ps := problems(t, err)
		if len(ps) != 1 || !strings.HasPrefix(ps[0].String(), name+" is not there yet") && !strings.Contains(ps[0].String(), ": is not there yet") {
			t.Errorf("%s: %v", name, ps)
		}
		if v.Secret && strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: not masked: %v", name, err)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := Load([]string{"OUTBOXD_START=maybe", "OUTBOXD_KAFKA_LINGER=5", "OUTBOXD_TOPICS=x"})
	var names []string
	for _, p := range problems(t, err) {
		names = append(names, p.Name)
	}
	want := []string{"OUTBOXD_START", "OUTBOXD_KAFKA_LINGER", "OUTBOXD_SOURCE_URL", "OUTBOXD_KAFKA_BROKERS", "OUTBOXD_TOPICS"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestAliasConflict(t *testing.T) {
	t.Parallel()
	_, _, err := Load([]string{least[0], "OUTBOXD_KAFKA_BROKERS=a", "OUTBOXD_KAFKA_BOOTSTRAP_SERVERS=b"})
	if ps := problems(t, err); len(ps) != 1 || !strings.Contains(ps[0].String(), "OUTBOXD_KAFKA_BOOTSTRAP_SERVERS are both set") {
		t.Error(ps)
	}
	c, _, err := Load([]string{least[0], "OUTBOXD_KAFKA_BOOTSTRAP_SERVERS=b:1"})
	if err != nil || !slices.Equal(c.Kafka.Brokers, []string{"b:1"}) {
		t.Error(c.Kafka.Brokers, err)
	}
}

func TestLooseEnvWarns(t *testing.T) {
	t.Parallel()
	_, warnings, err := Load(with("OUTBOXD_STRICT_ENV=false", "OUTBOXD_TOPICS=x"))
	if err != nil || len(warnings) != 1 || warnings[0].Name != "OUTBOXD_TOPICS" || !strings.Contains(warnings[0].Text, "OUTBOXD_TOPIC") {
		t.Error(warnings, err)
	}
}

func TestKubernetesServiceNames(t *testing.T) {
	t.Parallel()
	good := []string{
		"OUTBOXD_SERVICE_HOST=10.0.0.7", "OUTBOXD_SERVICE_PORT=8080", "OUTBOXD_SERVICE_PORT_HTTP=8080", "OUTBOXD_PORT=tcp://10.0.0.7:8080",
		"OUTBOXD_PORT_8080_TCP=tcp://10.0.0.7:8080", "OUTBOXD_PORT_8080_TCP_PROTO=tcp", "OUTBOXD_PORT_8080_TCP_PORT=8080", "OUTBOXD_PORT_8080_TCP_ADDR=10.0.0.7",
		"OUTBOXD_METRICS_SERVICE_HOST=fd00::1", "OUTBOXD_METRICS_SERVICE_PORT=53", "OUTBOXD_METRICS_PORT=udp://[fd00::1]:53",
		"OUTBOXD_METRICS_PORT_53_UDP=udp://[fd00::1]:53", "OUTBOXD_METRICS_PORT_53_UDP_PROTO=udp", "OUTBOXD_METRICS_PORT_53_UDP_PORT=53", "OUTBOXD_METRICS_PORT_53_UDP_ADDR=fd00::1",
		"OUTBOXD_SERVICE_SERVICE_HOST=10.0.0.8", "OUTBOXD_SERVICE_SERVICE_PORT=1",
	}
	if _, warnings, err := Load(with(good...)); err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	for _, bad := range []string{
		"OUTBOXD_SERVICE_HOST=outboxd.example", "OUTBOXD_SERVICE_PORT=8080", "OUTBOXD_A_SERVICE_PORT_HTTP=x", "OUTBOXD_PORT=tcp://host:1", "OUTBOXD_PORT=http://10.0.0.7:1",
		"OUTBOXD_PORT_8080_TCP=tcp://10.0.0.7:8081", "OUTBOXD_PORT_8080_TCP=udp://10.0.0.7:8080", "OUTBOXD_PORT_8080_TCP_ADDR=10.0.0.7",
	} {
		_, _, err := Load(with(bad))
		if ps := problems(t, err); len(ps) != 1 {
			t.Errorf("%s: %v", bad, ps)
		}
	}
	for _, bad := range []string{"OUTBOXD_PORT_8080_TCP_ADDR=outboxd", "OUTBOXD_PORT_8080_TCP_PORT=8081", "OUTBOXD_PORT_8080_TCP_PROTO=udp"} {
		_, _, err := Load(with("OUTBOXD_PORT_8080_TCP=tcp://10.0.0.7:8080", bad))
		if ps := problems(t, err); len(ps) != 1 {
			t.Errorf("%s: %v", bad, ps)
		}
	}
}

func TestEmptyIsUnset(t *testing.T) {
	t.Parallel()
	c, _, err := Load(with("PATH=/bin", "OUTBOXD_START=", "OUTBOXD_NO_SUCH=", "OUTBOXD_KAFKA_TLS="))
	if err != nil || c.Start != "auto" {
		t.Error(err, c.Start)
	}
}

func TestEnvFileLosesToEnvironment(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]string{least[1], "OUTBOXD_START=now", "OUTBOXD_SOURCE_PASSWORD=one"},
		least[0], "OUTBOXD_START=resume", "OUTBOXD_SOURCE_PASSWORD_FILE=/does/not/exist", "OUTBOXD_SINK=stdout")
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := c.Source.Password(); p != "one" || c.Start != "now" || c.Sink != "stdout" {
		t.Errorf("password %q, start %s, sink %s", p, c.Start, c.Sink)
	}
	for name, origin := range map[string]string{"OUTBOXD_START": "environment", "OUTBOXD_SINK": "env-file", "OUTBOXD_TOPIC": "default", "OUTBOXD_NAME": "derived"} {
		if v := value(c, name); v.Origin != origin {
			t.Errorf("%s: origin %q, want %q", name, v.Origin, origin)
		}
	}
}

func value(c *Config, name string) Value {
	i := slices.IndexFunc(c.Values(), func(v Value) bool { return v.Name == name })
	return c.Values()[i]
}

func TestSecretFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url := write("url", "postgres://u:first@h/shop\n")
	c, _, err := Load([]string{least[1], "OUTBOXD_SOURCE_URL_FILE=" + url})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Source.Password(); p != "first" || err != nil {
		t.Error(p, err)
	}
	write("url", "postgres://u:second@h/shop\r\n")
	if p, err := c.Source.Password(); p != "second" || err != nil {
		t.Error(p, err)
	}

	file := write("password", " a:b@c#d \n")
	c, _, err = Load(with("OUTBOXD_SOURCE_PASSWORD_FILE=" + file))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := c.Source.Password(); p != " a:b@c#d " || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	if v := value(c, "OUTBOXD_SOURCE_PASSWORD"); v.Value != "***" || v.Origin != "file:"+file {
		t.Errorf("%+v", v)
	}
	write("password", "\n")
	if _, err := c.Source.Password(); err == nil {
		t.Error("an empty secret file was taken")
	}
}

func TestBothSecretForms(t *testing.T) {
	t.Parallel()
	_, _, err := Load(with("OUTBOXD_SOURCE_PASSWORD=x", "OUTBOXD_SOURCE_PASSWORD_FILE=/run/x"))
	if ps := problems(t, err); len(ps) != 1 || !strings.Contains(ps[0].String(), "both set") {
		t.Error(ps)
	}
}

func TestMasking(t *testing.T) {
	t.Parallel()
	for url, shown := range map[string]string{
		"postgres://u:geheim@h/d":                              "postgres://u:***@h/d",
		"postgres://u@h:1/d?password=geheim&sslmode=require":   "postgres://u:***@h:1/d?sslmode=require",
		"postgres://u@h/d":                                     "postgres://u@h/d",
		"postgres://u:geheim@h":                                "***",
		"postgres://u:geheim?x@h/d":                            "***",
		"postgres://h,i:2/d?target_session_attrs=read-write":   "postgres://h,i:2/d?target_session_attrs=read-write",
		"postgres:///d?host=/run/postgresql&password=geheim":   "postgres://:***@/d?host=/run/postgresql",
		"postgres://u:geheim@h/d?sslpassword=geheim&a=b":       "postgres://u:***@h/d?sslpassword=***&a=b",
		"postgres://u:geheim@h/?dbname=d&passfile=/etc/pgpass": "postgres://u:***@h/?dbname=d&passfile=/etc/pgpass",
		"mariadb://u:geheim@h/d?ssl-mode=REQUIRED":             "mariadb://u:***@h/d?ssl-mode=REQUIRED",
		"mysql://u:geheim@h/d?password=geheim":                 "***",
	} {
		c, _, err := Load([]string{least[1], "OUTBOXD_SOURCE_URL=" + url})
		if v := value(c, "OUTBOXD_SOURCE_URL"); v.Value != shown {
			t.Errorf("%s is shown as %s", url, v.Value)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("not masked: %v", err)
		}
	}
}

func TestDeriveName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for _, tc := range []struct {
		database, home string
		table          Table
		want           string
	}{
		{"shop", "public", Table{Name: "outbox"}, "shop-outbox"},
		{"shop", "public", Table{"public", "outbox", ""}, "shop-outbox"},
		{"Shop_DB", "public", Table{"sales", "Out.Box_", ""}, "shop-db-sales-out-box"},
		{"1", "public", Table{Name: "2"}, "1-2"},
		{"shop", "shop", Table{"shop", "outbox", ""}, "shop-outbox"},
		{"shop", "shop", Table{"public", "Outbox", ""}, "shop-public-outbox"},
	} {
		if got := deriveName(tc.database, tc.home, tc.table); got != tc.want {
			t.Errorf("%s %s: %s, want %s", tc.database, tc.table, got, tc.want)
		}
	}
	seen := map[string]bool{}
	for _, db := range []string{long, long + "y", "ж", "дом"} {
		for _, table := range []string{"ящик", "почта", "outbox"} {
			n := deriveName(db, "public", Table{Name: table})
			if !validName(n) || seen[n] {
				t.Errorf("%s %s: %q", db, table, n)
			}
			seen[n] = true
		}
	}
}

func TestMySQL(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]string{
		"OUTBOXD_SOURCE_URL=MySQL://u:p%40ss@a,b:3307/Shop?ssl-mode=verify_ca&ssl-ca=/ca.pem", "OUTBOXD_KAFKA_BROKERS=k1",
		"OUTBOXD_TABLES=Outbox,`Odd.Name`.`b``c`", "OUTBOXD_MYSQL_SERVER_ID=4294967295", "OUTBOXD_MYSQL_POSITION=file", "OUTBOXD_ON_UPDATE=warn",
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, _ := c.Source.Password(); p != "p@ss" || c.Source.URL != "mysql://u@a,b:3307/Shop?ssl-mode=verify_ca&ssl-ca=/ca.pem" || !c.Source.MySQL() {
		t.Errorf("%+v", c.Source)
	}
	if !reflect.DeepEqual(c.Tables, []Table{{Name: "Outbox"}, {"Odd.Name", "b`c", ""}}) || c.MySQL != (MySQL{1<<32 - 1, "file"}) || c.OnUpdate != "warn" {
		t.Errorf("%+v %+v %s", c.Tables, c.MySQL, c.OnUpdate)
	}
	if c.Name != "shop-outbox" || c.Postgres != (Postgres{}) {
		t.Errorf("name %s, %+v", c.Name, c.Postgres)
	}
	for _, v := range c.Values() {
		if strings.Contains(v.Name, "POSTGRES") || v.Name == "OUTBOXD_SETUP_URL" {
			t.Errorf("%s is shown", v.Name)
		}
	}
	c, _, err = Load([]string{"OUTBOXD_SOURCE_URL=mariadb:///d?socket=/run/mysqld.sock", "OUTBOXD_KAFKA_BROKERS=k1", "OUTBOXD_TABLES=d.outbox"})
	if err != nil || c.Source.URL != "mariadb:///d?socket=/run/mysqld.sock" || !c.Source.MySQL() || c.Name != "d-outbox" || c.MySQL.Position != "auto" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestBadSettingsOfMySQL(t *testing.T) {
	t.Parallel()
	for set, reason := range map[string]string{
		"OUTBOXD_POSTGRES_SLOT=s":                   "the source is mysql://",
		"OUTBOXD_POSTGRES_PUBLICATION=p":            "the source is mysql://",
		"OUTBOXD_POSTGRES_FAILOVER_SLOT=false":      "the source is mysql://",
		"OUTBOXD_POSTGRES_MESSAGE_PREFIX=p":         "the source is mysql://",
		"OUTBOXD_SETUP_URL=mysql://root@h/d":        "the source is mysql://",
		"OUTBOXD_TABLES=outbox,shop.outbox":         "names shop.outbox twice",
		"OUTBOXD_TABLES=" + string(make([]byte, 1)): "control character",
		"OUTBOXD_TABLES=" + strings.Repeat("ä", 65): "65 characters",
	} {
		name, _, _ := strings.Cut(set, "=")
		_, _, err := Load([]string{"OUTBOXD_SOURCE_URL=mysql://u@h/shop", "OUTBOXD_KAFKA_BROKERS=k1", set})
		if ps := problems(t, err); len(ps) != 1 || ps[0].Name != name || !strings.Contains(ps[0].String(), reason) {
			t.Errorf("%s: %v", set, ps)
		}
	}
	if _, _, err := Load([]string{"OUTBOXD_SOURCE_URL=mysql://u@h/shop", "OUTBOXD_KAFKA_BROKERS=k1", "OUTBOXD_TABLES=a,A," + strings.Repeat("ä", 64)}); err != nil {
		t.Error(err)
	}
}

func TestCheckpointGoesWithTheSink(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		more []string
		want Checkpoint
	}{
		{nil, Checkpoint{Topic: "outboxd.checkpoints"}},
		{[]string{"OUTBOXD_DELIVERY=exactly-once"}, Checkpoint{Topic: "outboxd.checkpoints.shop-outbox"}},
		{[]string{"OUTBOXD_DELIVERY=exactly-once", "OUTBOXD_NAME=orders"}, Checkpoint{Topic: "outboxd.checkpoints.orders"}},
		{[]string{"OUTBOXD_DELIVERY=exactly-once", "OUTBOXD_CHECKPOINT=kafka:own"}, Checkpoint{Topic: "own"}},
		{[]string{"OUTBOXD_SINK=stdout"}, Checkpoint{Path: "outboxd.checkpoint"}},
		{[]string{"OUTBOXD_SINK=stdout", "OUTBOXD_CHECKPOINT=kafka:Own_topic-1.x"}, Checkpoint{Topic: "Own_topic-1.x"}},
		{[]string{"OUTBOXD_CHECKPOINT=file:place"}, Checkpoint{Path: "place"}},
	} {
		c, _, err := Load(with(tc.more...))
		if err != nil || c.Checkpoint.Topic != tc.want.Topic || c.Checkpoint.Path != tc.want.Path {
			t.Errorf("%v: %+v, %v", tc.more, c.Checkpoint, err)
			continue
		}
		if v := value(c, "OUTBOXD_CHECKPOINT"); v.Value != tc.want.String() {
			t.Errorf("%v: shown as %+v", tc.more, v)
		}
	}
	_, _, err := Load([]string{least[0], "OUTBOXD_SINK=stdout", "OUTBOXD_CHECKPOINT=kafka:t"})
	if ps := problems(t, err); len(ps) != 1 || ps[0].Name != "OUTBOXD_KAFKA_BROKERS" || !strings.Contains(ps[0].Reason, "OUTBOXD_CHECKPOINT=kafka:t") {
		t.Error(ps)
	}
}

func TestExactlyOnceNeedsKafka(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		set  []string
		want string
	}{
		{"another sink", []string{"OUTBOXD_SINK=stdout"}, "OUTBOXD_SINK=stdout"},
		{"a file", []string{"OUTBOXD_CHECKPOINT=file:place"}, "OUTBOXD_CHECKPOINT=file:place"},
		{"hardly time for a commit", []string{"OUTBOXD_TRANSACTION_INTERVAL=6s"}, "OUTBOXD_TRANSACTION_INTERVAL=6s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load(slices.Concat(tc.set, []string{"OUTBOXD_DELIVERY=exactly-once", "OUTBOXD_SOURCE_URL=postgres://relay@db.example/shop", "OUTBOXD_KAFKA_BROKERS=k1:9092"}))
			if name, _, _ := strings.Cut(tc.want, "="); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestWithCheckpoint(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]string{least[0], "OUTBOXD_SINK=stdout"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.WithCheckpoint("file:b")
	if err != nil || other.Checkpoint.String() != "file:b" || c.Checkpoint.String() != "file:outboxd.checkpoint" {
		t.Error(other, err)
	}
	for _, wrong := range []string{"kafka:t", "kafka:", "b"} {
		if _, err := c.WithCheckpoint(wrong); err == nil {
			t.Errorf("%s was taken", wrong)
		}
	}
}

func TestTableIsSound(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	rows := Variables()
	for i := range rows {
		v := &rows[i]
		for _, n := range v.names() {
			if seen[n] || !strings.HasPrefix(n, Prefix) {
				t.Errorf("%s stands twice or has no prefix", n)
			}
			seen[n] = true
		}
		if v.Meaning == "" || v.legal == "" || v.set == nil || (v.Default == "") == (v.Unset == "") {
			t.Errorf("row %s is not whole", v.Name)
		}
		if strings.ContainsAny(v.Meaning, "\n") {
			t.Errorf("meaning of %s is not one line", v.Name)
		}
	}
}

func TestDocsAreGenerated(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != Markdown() {
		t.Error("docs/configuration.md is out of date: run `go run ./cmd/outboxd config --markdown > docs/configuration.md`")
	}
}

// Settings of a table's alias go before the general ones, which hold for the rest.
func TestTablesWithAliases(t *testing.T) {
	t.Parallel()
	c, _, err := Load([]string{
		"OUTBOXD_SOURCE_URL=postgres://u@h/shop", "OUTBOXD_KAFKA_BROKERS=k1", "OUTBOXD_TABLES=Orders=shop.outbox_orders, bills = billing.\"Outbox\",plain",
		"OUTBOXD_COLUMN_ID=key", "OUTBOXD_TOPIC=all.{table}", "OUTBOXD_TABLE_ORDERS_COLUMN_ID=uid", "OUTBOXD_TABLE_ORDERS_TOPIC_ROUTE_REGEX=(.*)",
		"OUTBOXD_TABLE_BILLS_PAYLOAD_FORMAT=envelope", "OUTBOXD_TABLE_BILLS_HEADERS=position",
		"OUTBOXD_COLUMN_PLACEMENT=tenant:header", "OUTBOXD_COLUMN_TIMESTAMP=made", "OUTBOXD_TABLE_BILLS_COLUMN_PLACEMENT=none", "OUTBOXD_TABLE_BILLS_COLUMN_TIMESTAMP=none",
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []Table{{"shop", "outbox_orders", "orders"}, {"billing", "Outbox", "bills"}, {"", "plain", ""}}; !reflect.DeepEqual(c.Tables, want) {
		t.Errorf("tables %+v", c.Tables)
	}
	if c.Columns.ID != "key" || c.Topic != "all.{table}" || c.PayloadFormat != "raw" || c.Route != (Route{}) {
		t.Errorf("general %+v", c.Event)
	}
	if len(c.Aliased) != 2 {
		t.Fatalf("aliased %+v", c.Aliased)
	}
	orders, bills := c.Aliased[0], c.Aliased[1]
	if orders.Table != c.Tables[0] || orders.Columns.ID != "uid" || orders.Route != (Route{Regex: "(.*)"}) || orders.PayloadFormat != "raw" {
		t.Errorf("orders %+v", orders)
	}
	if bills.Table != c.Tables[1] || bills.Columns.ID != "key" || bills.PayloadFormat != "envelope" || bills.Topic != "all.{table}" || bills.Headers[0].Name != "position" || len(bills.Headers) != 1 {
		t.Errorf("bills %+v", bills)
	}
	if len(orders.Placement) != 1 || orders.Columns.Timestamp != "made" || bills.Placement != nil || bills.Columns.Timestamp != "" {
		t.Errorf("placed %+v and %+v", orders.Event, bills.Event)
	}
	shown := 0
	for _, v := range c.Values() {
		if strings.HasPrefix(v.Name, "OUTBOXD_TABLE_") {
			shown++
		}
	}
	if shown != 6 {
		t.Errorf("%d settings of tables are shown, want 6", shown)
	}
}

func TestTablesWithAliasesRefuse(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"OUTBOXD_TABLE_A_COLUM_ID=x":                               "the nearest is OUTBOXD_TABLE_A_COLUMN_ID",
		"OUTBOXD_TABLE_C_COLUMN_ID=x":                              "OUTBOXD_TABLES has no such alias, it has a",
		"OUTBOXD_TABLE_A_KEY_FORMAT=json":                          `OUTBOXD_TABLE_A_KEY_FORMAT="json": is none of the legal`,
		"OUTBOXD_TABLE_A_TOPIC_PREFIX=x":                           "is not a variable",
		"OUTBOXD_TOPIC=x OUTBOXD_TOPIC_ROUTE_BY=y":                 "OUTBOXD_TOPIC and OUTBOXD_TOPIC_ROUTE_… are both set",
		"OUTBOXD_TABLE_A_TOPIC=x OUTBOXD_TABLE_A_TOPIC_ROUTE_BY=y": "OUTBOXD_TABLE_A_TOPIC and OUTBOXD_TABLE_A_TOPIC_ROUTE_… are both set",
	} {
		_, _, err := Load(append(strings.Fields(set), "OUTBOXD_SOURCE_URL=postgres://u@h/shop", "OUTBOXD_KAFKA_BROKERS=k1", "OUTBOXD_TABLES=a=outbox"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
}
