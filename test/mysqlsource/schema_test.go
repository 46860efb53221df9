package mysqlsource

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
)

// hidden are columns that a client does not name, before and between those it does. On MySQL a
// generated invisible key stands before all of them.
var hidden = map[string]string{
	"mysql": `CREATE TABLE outbox (hidden TIMESTAMP(3) NULL DEFAULT '2026-01-02 03:04:05.678' INVISIBLE,
		kept VARCHAR(40) GENERATED ALWAYS AS (CONCAT('s-', id)) STORED, made INT GENERATED ALWAYS AS (id * 2) VIRTUAL,
		made2 VARCHAR(300) GENERATED ALWAYS AS (UPPER(payload->>'$.k')) VIRTUAL INVISIBLE, id INT, late BINARY(4) DEFAULT (x'0100') INVISIBLE, payload JSON)`,
	"mariadb": `CREATE TABLE outbox (hidden TIMESTAMP(3) NULL DEFAULT '2026-01-02 03:04:05.678' INVISIBLE,
		kept VARCHAR(40) GENERATED ALWAYS AS (CONCAT('s-', id)) STORED, made INT GENERATED ALWAYS AS (id * 2) VIRTUAL,
		made2 VARCHAR(300) GENERATED ALWAYS AS (UPPER(JSON_VALUE(payload, '$.k'))) VIRTUAL INVISIBLE, id INT, late BINARY(4) INVISIBLE DEFAULT x'0100', payload JSON)`,
}

// Columns that are invisible or generated shift nothing (A20).
func TestHiddenColumns(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE unused (id INT)")
		create := d.session(t, "SET SESSION time_zone = '+00:00'")
		if flavor(server) == "mysql" {
			create.exec(t, "SET SESSION sql_generate_invisible_primary_key = ON")
		}
		create.exec(t, hidden[flavor(server)])
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		create.exec(t, `INSERT INTO outbox (id, payload) VALUES (1, '{"k": "v"}'), (2, NULL)`)
		got, _ := rows(t, st, 2)
		names := []string{"hidden", "kept", "made", "made2", "id", "payload"}
		if flavor(server) == "mysql" {
			names = append(names, "my_row_id")
		}
		var hex []string
		for _, n := range names {
			hex = append(hex, fmt.Sprintf("HEX(CAST(%s AS CHAR))", n))
		}
		names, hex = append(names, "late"), append(hex, "HEX(late)")
		for row, printed := range create.table(t, "SELECT "+strings.Join(hex, ", ")+" FROM outbox ORDER BY id") {
			for i, n := range names {
				check(t, fmt.Sprintf("%s of row %d", n, row), got[row].Values[got[row].Table.Column(n)], printed[i])
			}
		}
	})
}

// A label that information_schema can't show is refused where it alone tells
// the labels; where the log has them it is printed.
func TestLabelBeyondTheBMP(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, "CREATE TABLE outbox (id INT, e ENUM('plain', '😀'))")
		s := newSource(t, d.config())
		st := stream(t, s, begin(t, s))
		d.exec(t, "INSERT INTO outbox VALUES (1, 1)")
		if got, _ := rows(t, st, 1); string(got[0].Values[1].Data) != "plain" {
			t.Errorf("label %q", got[0].Values[1].Data)
		}
		d.exec(t, "INSERT INTO outbox VALUES (2, 2)")
		if server == "mysql" || server == "mariadb118" {
			if got, _ := rows(t, st, 1); string(got[0].Values[1].Data) != "😀" {
				t.Errorf("label %q", got[0].Values[1].Data)
			}
			return
		}
		read, err := fails(t, st)
		if f := fault.As(err); len(read) > 0 || f == nil || f.Code != fault.CodeSchemaUnknown || !strings.Contains(f.Found, `"e"`) {
			t.Errorf("%d rows, %v", len(read), err)
		}
	})
}
