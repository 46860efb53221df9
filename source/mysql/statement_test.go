package mysql

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/internal/fault"
)

func TestInserts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"INSERT INTO outbox VALUES (1)":                                                    "shop.outbox",
		"insert\n\tinto\r\n outbox (id) select 1":                                          "shop.outbox",
		"INSERT outbox SET id = 1":                                                         "shop.outbox",
		"REPLACE INTO `outbox` VALUES (1)":                                                 "shop.outbox",
		"INSERT LOW_PRIORITY IGNORE INTO other.`out``box` VALUES (1)":                      "other.out`box",
		"INSERT INTO `a.b` . `c` VALUES (1)":                                               "a.b.c",
		"/* hello */ INSERT /* INTO x */ INTO outbox VALUES (1)":                           "shop.outbox",
		"-- hello\nINSERT INTO outbox VALUES (1)":                                          "shop.outbox",
		"# hello\n INSERT INTO outbox VALUES (1)":                                          "shop.outbox",
		"/*!50001 INSERT */ INTO outbox VALUES (1)":                                        "shop.outbox",
		"/*M!100301 INSERT INTO outbox VALUES (1) */":                                      "shop.outbox",
		"INSERT INTO outbox(id) VALUES (1)":                                                "shop.outbox",
		"SET STATEMENT max_statement_time=1 FOR INSERT INTO outbox VALUES":                 "shop.outbox",
		"ANALYZE FORMAT=JSON INSERT INTO outbox VALUES (1)":                                "shop.outbox",
		"LOAD DATA LOCAL INFILE 'into table x' REPLACE INTO TABLE `outbox` FIELDS":         "shop.outbox",
		"LOAD XML INFILE 'x' INTO TABLE other.outbox":                                      "other.outbox",
		"CREATE TABLE outbox AS SELECT 1 AS id":                                            "shop.outbox",
		"CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS o.outbox (id INT) SELECT 1":       "o.outbox",
		"INSERT INTO 注文 VALUES (1)":                                                        "shop.注文",
		"CREATE TABLE outbox (id INT COMMENT 'SELECT', `SELECT` INT)":                      "",
		"CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW INSERT INTO outbox SELECT 1": "",
		"CREATE PROCEDURE p() INSERT INTO outbox VALUES (1)":                               "",
		"UPDATE outbox SET payload = REPLACE(payload, 'a', 'b')":                           "",
		"DELETE FROM outbox":                                                               "",
		"GRANT INSERT ON outbox TO x":                                                      "",
		"":                                                                                 "",
		"INSERT":                                                                           "shop.",
		"LOAD INDEX INTO CACHE outbox":                                                     "",
	} {
		into, ok := inserts(text, "shop")
		if got := into.Schema + "." + into.Name; ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q (%t), want %q", text, got, ok, want)
		}
	}
}

// An insert on an outbox that was logged as text is refused; every other statement passes (A26).
func TestDecodeStatements(t *testing.T) {
	t.Parallel()
	load := func(l *binlog, text string) wire {
		body := queryBody("shop", text)
		return l.event(eventExecuteLoadQuery, append(append(body[:13:13], make(wire, 13)...), body[13:]...))
	}
	for name, c := range map[string]struct {
		event   func(l *binlog) wire
		refused bool
	}{
		"insert":         {func(l *binlog) wire { return l.query("INSERT INTO outbox VALUES (1)") }, true},
		"insert, folded": {func(l *binlog) wire { return l.query("insert into SHOP.OutBox values (1)") }, true},
		"load data":      {func(l *binlog) wire { return load(l, "LOAD DATA INFILE 'x' INTO TABLE `outbox`") }, true},
		"compressed": {func(l *binlog) wire {
			return l.event(eventQueryCompressed, compressedQuery("INSERT INTO outbox VALUES (1)"))
		}, true},
		"of another schema":  {func(l *binlog) wire { return l.query("INSERT INTO archive.outbox VALUES (1)") }, false},
		"of another table":   {func(l *binlog) wire { return l.query("INSERT INTO outbox_archive SELECT * FROM outbox") }, false},
		"load another table": {func(l *binlog) wire { return load(l, "LOAD DATA INFILE 'outbox' INTO TABLE orders") }, false},
		"update":             {func(l *binlog) wire { return l.query("UPDATE outbox SET status = 'INSERT INTO outbox'") }, false},
		"delete":             {func(l *binlog) wire { return l.query("DELETE FROM outbox") }, false},
		"truncate":           {func(l *binlog) wire { return l.query("TRUNCATE outbox") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, d := &binlog{pos: 4}, testDecoder(inFile)
			mustFeed(t, d, l.anonymous(), l.query("BEGIN"), c.event(l), l.query("ROLLBACK")) // nothing is lost
			mustFeed(t, d, l.anonymous(), l.query("BEGIN"))
			err := feed(d, c.event(l), l.query("COMMIT"))
			if f := fault.As(err); c.refused && (f == nil || f.Code != fault.CodeStatementLogged || f.Exit != fault.ExitRefused) || !c.refused && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Changes that were logged as text are told, since their triggers' rows are lost; at most once a minute.
func TestDecodeWarnsOfText(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.WarnLevel)
	l, d := &binlog{pos: 4}, testDecoder(inFile)
	d.log = zap.New(core)
	mustFeed(t, d, l.anonymous(), l.query("CREATE TABLE x (i INT)"), l.anonymous(), l.query("BEGIN"), l.query("SAVEPOINT a"), l.query("COMMIT"))
	if logs.Len() > 0 {
		t.Errorf("logged %+v", logs.All())
	}
	for range 10 {
		mustFeed(t, d, l.anonymous(), l.query("BEGIN"), l.query("UPDATE orders SET x = 1"), l.query("COMMIT"))
	}
	if logs.Len() != 1 {
		t.Fatalf("logged %+v", logs.All())
	}
	f := logs.All()[0].ContextMap()
	if f["statement"] != "UPDATE" || f["database"] != "shop" || f["table"] != "`shop`.`orders`" || !strings.Contains(f["fix"].(string), "binlog_format") {
		t.Errorf("logged %v", f)
	}
}

// TRUNCATE of an outbox table is no event, but ids may come again.
func TestDecodeWarnsOfTruncate(t *testing.T) {
	t.Parallel()
	for text, ours := range map[string]bool{
		"TRUNCATE outbox": true, "truncate table OutBox": true, "TRUNCATE TABLE `shop`.`outbox`": true, "/* x */ TRUNCATE shop.outbox": true,
		"SET STATEMENT lock_wait_timeout=1 FOR TRUNCATE outbox": true,
		"TRUNCATE TABLE orders":                                 false, "TRUNCATE archive.outbox": false, "TRUNCATE": false, "DELETE FROM outbox": false,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			core, logs := observer.New(zap.WarnLevel)
			l, d := &binlog{pos: 4}, testDecoder(inFile)
			d.log = zap.New(core)
			mustFeed(t, d, l.anonymous(), l.query(text))
			lines := logs.FilterMessageSnippet("truncated").All()
			if len(lines) != 0 != ours {
				t.Fatalf("logged %+v", lines)
			}
			if ours && (lines[0].ContextMap()["table"] != "`shop`.`outbox`" || lines[0].ContextMap()["fix"] == "") {
				t.Errorf("logged %v", lines[0].ContextMap())
			}
		})
	}
}

// The table of a change that was logged as text is named where it is certain.
func TestChanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]TableName{
		"UPDATE orders SET x = 1": {"shop", "orders"}, "update low_priority ignore `a`.`b` AS c SET x = 1": {"a", "b"},
		"DELETE QUICK FROM orders WHERE x = 1": {"shop", "orders"}, "INSERT INTO a.b VALUES (1)": {"a", "b"},
		"UPDATE a, b SET x = 1": {}, "DELETE a FROM a JOIN b": {}, "DELETE FROM a USING b": {}, "WITH c AS (SELECT 1) UPDATE a SET x = 1": {}, "UPDATE": {},
	} {
		got, ok := changes(text, "shop")
		if ok != (want != TableName{}) || ok && got != want {
			t.Errorf("%s: %v, %t", text, got, ok)
		}
	}
}

func FuzzStatement(f *testing.F) {
	f.Add("INSERT /* */ INTO `a`.'b")
	f.Add("SET STATEMENT x=1 FOR LOAD DATA INTO TABLE")
	f.Add("/*!50000 CREATE OR REPLACE TABLE x SELECT */ --")
	f.Fuzz(func(t *testing.T, text string) {
		inserts(text, "shop") // must end, and not panic
		changes(text, "shop")
	})
}
