package pgsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/harness"
)

// insert makes a row with that id.
func insert(id int) string { return fmt.Sprintf(`INSERT INTO outbox VALUES (%d, 'a', '{}')`, id) }

// What a transaction did is told by its commit alone: each committed row once,
// in the order of the commits, nothing that was taken back.
func TestTransactions(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `CREATE TABLE other (id bigint, fill text)`)
		r := open(t, d.config())
		a := d.session(t)
		for _, c := range []struct {
			name       string
			statements []string
			ids        []string
		}{
			{"savepoints", []string{"BEGIN", insert(1), "SAVEPOINT x", insert(2), "ROLLBACK TO x", insert(3), "SAVEPOINT y", insert(4), "RELEASE y", insert(5), "COMMIT"}, []string{"1", "3", "4", "5"}},
			{"nested savepoints, the outer one taken back", []string{"BEGIN", "SAVEPOINT x", insert(1), "SAVEPOINT y", insert(2), "RELEASE y", "ROLLBACK TO x", insert(3), "COMMIT"}, []string{"3"}},
			{"more subtransactions than a session's cache holds", []string{`DO $$ BEGIN
				FOR i IN 1..200 LOOP
					BEGIN
						INSERT INTO outbox VALUES (i, 'a', '{}');
						IF i % 2 = 0 THEN RAISE EXCEPTION 'no'; END IF;
					EXCEPTION WHEN raise_exception THEN NULL;
					END;
				END LOOP; END $$`}, odd(200)},
			{"rows of many in one statement", []string{`INSERT INTO outbox SELECT i, 'a', '{}' FROM generate_series(1, 3000) i`}, upTo(3000)},
			{"rolled back after it was spilled to disk", []string{"SET logical_decoding_work_mem = '64kB'", "BEGIN", `INSERT INTO outbox SELECT i, 'a', jsonb_build_object('f', repeat('x', 500)) FROM generate_series(1, 20000) i`, "ROLLBACK", insert(1)}, []string{"1"}},
			{"inserted and deleted", []string{"BEGIN", insert(1), "DELETE FROM outbox WHERE id = 1", insert(2), "COMMIT"}, []string{"1", "2"}},
			{"inserted and updated", []string{"BEGIN", insert(1), "UPDATE outbox SET aggregate_id = 'b' WHERE id = 1", insert(2), "COMMIT"}, []string{"1", "2"}},
			{"prepared and committed", []string{"BEGIN", insert(1), "SAVEPOINT x", insert(2), "PREPARE TRANSACTION 'p'", insert(3), "COMMIT PREPARED 'p'", insert(4)}, []string{"3", "1", "2", "4"}},
			{"prepared and rolled back", []string{"BEGIN", insert(1), "PREPARE TRANSACTION 'p'", "ROLLBACK PREPARED 'p'", insert(2)}, []string{"2"}},
			{"truncated", []string{"BEGIN", insert(1), "TRUNCATE outbox", insert(2), "COMMIT"}, []string{"1", "2"}},
			{"a trigger's rows", []string{`CREATE FUNCTION emit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO outbox VALUES (NEW.id, 'a', '{}'); RETURN NEW; END $$`,
				`CREATE TRIGGER emit AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION emit()`, `INSERT INTO other VALUES (1), (2)`, `DROP TRIGGER emit ON other`}, []string{"1", "2"}},
			{"an INSERT that finds its row", []string{`CREATE UNIQUE INDEX one ON outbox (id) WHERE id = 77`, insert(77), `INSERT INTO outbox VALUES (77, 'b', '{}') ON CONFLICT (id) WHERE id = 77 DO UPDATE SET aggregate_id = 'c'`, insert(78), `DROP INDEX one`}, []string{"77", "78"}},
			{"MERGE", []string{`MERGE INTO outbox o USING (VALUES (78), (79)) v(id) ON o.id = v.id WHEN MATCHED THEN UPDATE SET aggregate_id = 'm' WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'a', '{}')`}, []string{"79"}},
			{"tables written anew", []string{insert(1), "VACUUM FULL outbox", "CREATE INDEX i ON outbox (id)", "CLUSTER outbox USING i", "DROP INDEX i", "ALTER TABLE outbox ALTER aggregate_id TYPE varchar(50)", "ALTER TABLE outbox ALTER id TYPE numeric", insert(2), "ALTER TABLE outbox ALTER id TYPE bigint", insert(3)}, []string{"1", "2", "3"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				exec(t, a, c.statements...)
				r.expect(t, c.ids...)
			})
		}
		t.Run("COPY", func(t *testing.T) {
			lines := "1\ta\t{}\n2\ta\t{}\n3\tb\t{\"t\": \"\\\\t\"}\n"
			if err := a.Raw(func(c any) error {
				_, err := c.(*stdlib.Conn).Conn().PgConn().CopyFrom(t.Context(), strings.NewReader(lines), "COPY outbox FROM STDIN")
				return err
			}); err != nil {
				t.Fatal(err)
			}
			rows := r.expect(t, "1", "2", "3")
			if rows[0].Tx != rows[2].Tx || rows[2].Index != 2 || text(rows[2], "payload") != `{"t": "\t"}` {
				t.Errorf("rows of a COPY: %+v", rows)
			}
		})
		t.Run("two large ones at once, one rolled back", func(t *testing.T) {
			b, c := d.session(t), d.session(t)
			exec(t, a, "BEGIN")
			exec(t, b, "BEGIN")
			exec(t, c, "BEGIN")
			for i := range 3 {
				exec(t, a, fmt.Sprintf(`INSERT INTO outbox SELECT i, 'a', '{}' FROM generate_series(%d, %d) i`, 1+i*1000, (i+1)*1000))
				exec(t, b, fmt.Sprintf(`INSERT INTO outbox SELECT -i, 'b', '{}' FROM generate_series(%d, %d) i`, 1+i*1000, (i+1)*1000))
				exec(t, c, fmt.Sprintf(`INSERT INTO outbox SELECT 1000000 + i, 'c', '{}' FROM generate_series(%d, %d) i`, 1+i*1000, (i+1)*1000))
			}
			exec(t, b, "COMMIT")
			exec(t, c, "ROLLBACK")
			exec(t, a, "COMMIT")
			var negative []string
			for _, id := range upTo(3000) {
				negative = append(negative, "-"+id)
			}
			r.expect(t, append(negative, upTo(3000)...)...)
		})
		t.Run("open while others commit", func(t *testing.T) {
			b := d.session(t)
			exec(t, a, "BEGIN", insert(1))
			for i := range 5 {
				exec(t, b, insert(10+i))
			}
			exec(t, a, insert(2))
			before := r.expect(t, "10", "11", "12", "13", "14")
			r.Confirm(r.last) // what stands behind the open one's first row in the log
			_, lsn, _ := strings.Cut(string(r.last), "lsn=")
			harness.Eventually(t, "the server knows", func() bool {
				return d.Int(t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND confirmed_flush_lsn >= $2::pg_lsn`, d.slot, lsn) == 1
			})
			exec(t, a, "COMMIT")
			rows := r.expect(t, "1", "2")
			if !rows[0].Tx.CommitAt.After(before[4].Tx.CommitAt) {
				t.Errorf("committed at %v, those before at %v", rows[0].Tx.CommitAt, before[4].Tx.CommitAt)
			}
		})
	})
}

// A publication of somebody else's and a busy session send much that was never
// asked for.
func TestMessagesNotAskedFor(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `ALTER TABLE outbox REPLICA IDENTITY FULL`)
		d.Exec(t, `CREATE TYPE mood AS ENUM ('glad', 'sad')`)
		d.Exec(t, `CREATE TABLE other (m mood)`)
		d.Exec(t, `ALTER TABLE other REPLICA IDENTITY FULL`)
		d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR ALL TABLES WITH (publish = 'insert, update, delete, truncate')`)
		origin := d.slot
		d.Exec(t, `SELECT pg_replication_origin_create($1)`, origin)
		defer func() { d.Exec(t, `SELECT pg_replication_origin_drop($1)`, origin) }()
		r := open(t, d.config())
		a := d.session(t)
		exec(t, a, insert(1),
			`SELECT pg_logical_emit_message(true, 'p', 'inside'), pg_logical_emit_message(false, 'p', 'outside')`,
			`INSERT INTO other VALUES ('glad')`, `UPDATE other SET m = 'sad'`, `DELETE FROM other`,
			"BEGIN", insert(2), `INSERT INTO other VALUES ('sad')`, `UPDATE outbox SET aggregate_id = 'b'`, `SELECT pg_logical_emit_message(true, 'p', 'inside')`,
			`DELETE FROM outbox WHERE id = 1`, `TRUNCATE other, outbox`, insert(3), "COMMIT",
			fmt.Sprintf("SELECT pg_replication_origin_session_setup('%s')", origin),
			"BEGIN", `SELECT pg_replication_origin_xact_setup('0/1', now())`, insert(4), "COMMIT",
			"SELECT pg_replication_origin_session_reset()", insert(5))
		r.expect(t, "1", "2", "3", "4", "5")
	})
}

// A slot made for two-phase commit sends rows before they are committed.
func TestTwoPhaseSlotIsRefused(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR TABLE outbox WITH (publish = 'insert')`)
		d.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput', false, true)`, d.slot)
		s := newSource(t, d.config())
		lease, err := s.Acquire(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lease.Release(t.Context()) }()
		_, err = s.Begin(t.Context(), source.First{Mode: source.StartNow})
		if f := fault.As(err); f == nil || f.Code != fault.CodeServerSetting || !strings.Contains(f.Found, "two-phase") {
			t.Errorf("begin: %v", err)
		}
	})
}

func upTo(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(i + 1)
	}
	return ids
}

func odd(n int) (ids []string) {
	for i := 1; i <= n; i += 2 {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}
