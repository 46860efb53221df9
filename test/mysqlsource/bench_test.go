package mysqlsource

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxd/outboxd/source"
)

// BenchmarkRead compares the CPU time of this process per row, from the socket on,
// with that of go-mysql's reader: the same server, the same log, by turns. The metric "ratio" says how
// many of ours one of theirs is worth.
//
//   - decoded: rows of the outbox with 300 bytes of JSON.
//   - skipped: rows of another table; theirs reads no more than their header either (RowsEventDecodeFunc).
//   - compressed: as decoded, in transactions that the server compressed (binlog_transaction_compression).
//
// Each row is an INSERT of its own, ten a transaction:
//
//	go test -run - -bench Read -benchtime 3x ./mysqlsource
func BenchmarkRead(b *testing.B) {
	const rows = 100_000
	for _, name := range []string{"decoded", "skipped", "compressed"} {
		b.Run(name, func(b *testing.B) {
			d := newDatabase(b, "mysql", "CREATE TABLE outbox (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(255), aggregate_id VARCHAR(255), payload JSON)")
			d.exec(b, "CREATE TABLE orders LIKE outbox")
			c := d.config()
			c.URL += "?ssl-mode=DISABLED" // as theirs
			s := newSource(b, c)
			at := begin(b, s)
			into := "outbox"
			if name == "skipped" {
				into = "orders"
			}
			w := d.session(b)
			if name == "compressed" {
				w.exec(b, "SET SESSION binlog_transaction_compression = ON")
			}
			w.backlog(b, into, rows)
			d.exec(b, "INSERT INTO outbox VALUES (1000000, 'the end', '', '{}')")
			var took [2]time.Duration
			for b.Loop() {
				for i, read := range []func(*testing.B, database, *sourceAt, string) int{readOurs, readTheirs} {
					began := cpu()
					n := read(b, d, &sourceAt{s, at}, name)
					took[i] += cpu() - began
					if want := map[string]int{"decoded": rows + 1, "skipped": 1, "compressed": rows + 1}[name]; n != want {
						b.Fatalf("reader %d decoded %d rows, want %d", i, n, want)
					}
				}
			}
			n := float64(rows * b.N)
			b.ReportMetric(float64(took[0].Nanoseconds())/n, "own-ns/row")
			b.ReportMetric(float64(took[1].Nanoseconds())/n, "go-mysql-ns/row")
			b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
		})
	}
}

// backlog writes rows in transactions of ten.
func (s session) backlog(t testing.TB, table string, rows int) {
	t.Helper()
	s.exec(t, `CREATE PROCEDURE fill(n INT) BEGIN
		DECLARE i INT DEFAULT 0;
		WHILE i < n DO
			IF i % 10 = 0 THEN START TRANSACTION; END IF;
			INSERT INTO `+table+` (aggregate_type, aggregate_id, payload) VALUES ('order', CONCAT('customer-', i % 10000),
				JSON_OBJECT('seq', i, 'amount', i / 4, 'open', TRUE, 'fill', REPEAT('x', 240)));
			SET i = i + 1;
			IF i % 10 = 0 THEN COMMIT; END IF;
		END WHILE; END`)
	s.exec(t, "CALL fill("+strconv.Itoa(rows)+")")
}

type sourceAt struct {
	source source.Source
	at     source.Position
}

func readOurs(b *testing.B, _ database, s *sourceAt, _ string) (n int) {
	st, err := s.source.Open(b.Context(), s.at)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = st.Close(context.Background()) }()
	for {
		batch, err := st.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		n += len(batch.Rows)
		if last := len(batch.Rows) - 1; last >= 0 && string(batch.Rows[last].Values[1].Data) == "the end" {
			return n
		}
	}
}

func readTheirs(b *testing.B, d database, s *sourceAt, name string) (n int) {
	host, text, _ := net.SplitHostPort(d.addr)
	port, _ := strconv.Atoi(text)
	ended := make(chan struct{})
	config := replication.BinlogSyncerConfig{
		ServerID: 123456, Flavor: gomysql.MySQLFlavor, Host: host, Port: uint16(port), User: "cdc", Password: "cdc-pw", VerifyChecksum: true,
		Logger: slog.New(slog.DiscardHandler),
		SynchronousEventHandler: handler(func(e *replication.BinlogEvent) {
			all := []*replication.BinlogEvent{e}
			if p, ok := e.Event.(*replication.TransactionPayloadEvent); ok {
				all = p.Events
			}
			for _, e := range all {
				r, ok := e.Event.(*replication.RowsEvent)
				if !ok || string(r.Table.Table) != "outbox" || string(r.Table.Schema) != d.name {
					continue
				}
				n += len(r.Rows)
				if last := len(r.Rows) - 1; last >= 0 && fmt.Sprint(r.Rows[last][1]) == "the end" {
					close(ended)
				}
			}
		}),
	}
	if name == "skipped" {
		config.RowsEventDecodeFunc = func(r *replication.RowsEvent, data []byte) error {
			pos, err := r.DecodeHeader(data)
			if err != nil || string(r.Table.Table) != "outbox" || string(r.Table.Schema) != d.name {
				return err
			}
			return r.DecodeData(pos, data)
		}
	}
	syncer := replication.NewBinlogSyncer(config)
	defer syncer.Close()
	set, err := gomysql.ParseMysqlGTIDSet(field(b, s.at, "gtids"))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := syncer.StartSyncGTID(set); err != nil {
		b.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		b.Fatalf("the end was not read after %d rows", n)
	}
	return n
}

type handler func(*replication.BinlogEvent)

func (h handler) HandleEvent(e *replication.BinlogEvent) error { h(e); return nil }

// cpu is the processor time of this process so far, the collector's too.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for SELF
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
