package pgsource

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/test/harness"
)

const patience = 30 * time.Second

// begin takes the lease for the rest of the test and makes the first place.
func begin(t *testing.T, s *postgres.Source) source.Position {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	at, err := s.Begin(ctx, source.First{Mode: source.StartAuto})
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// Whatever happened to our place on the server is found out when the stream is
// opened, with its cause, and never skipped over.
func TestOpenJudgesTheStoredPlace(t *testing.T) {
	for _, server := range []string{"postgres15", "postgres18"} {
		for name, c := range map[string]struct {
			damage func(t *testing.T, d database, at source.Position) source.Position
			code   string
			says   []string // of what is found, and of the way out
		}{
			"slot dropped": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				return at
			}, fault.CodePositionLost, []string{"does not exist (SQLSTATE 42704)"}},
			"slot made anew": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				d.write(t, true, "1")
				d.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.slot)
				return at
			}, fault.CodePositionLost, nil},
			"slot of another database now": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				other := harness.NewPostgres(t, d.Service())
				other.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.slot)
				return at
			}, fault.CodeNameTaken, []string{"belongs to database", "OUTBOXD_POSTGRES_SLOT"}},
			"slot advanced by somebody else": {func(t *testing.T, d database, at source.Position) source.Position {
				d.write(t, true, "1")
				d.Exec(t, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, d.slot)
				return at
			}, fault.CodePositionLost, []string{"checkpoint set --to"}},
			"publication dropped": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `DROP PUBLICATION `+d.slot)
				return at
			}, fault.CodePublicationLost, nil},
			"publication made anew": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `DROP PUBLICATION `+d.slot)
				d.write(t, true, "1")
				d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR TABLE outbox WITH (publish = 'insert')`)
				return at
			}, fault.CodePublicationLost, nil},
			"publication without the table": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` DROP TABLE outbox`)
				return at
			}, fault.CodePublicationLost, nil},
			"table taken out and put back": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` DROP TABLE outbox`)
				d.write(t, true, "1")
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` ADD TABLE outbox`)
				return at
			}, fault.CodePublicationLost, []string{"put back", "checkpoint set --to"}},
			"table with a row filter": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` SET TABLE outbox WHERE (id > 7)`)
				return at
			}, fault.CodePublicationLost, []string{"row filter", "checkpoint set --to"}},
			"without inserts for a while": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` SET (publish = 'update')`)
				d.write(t, true, "1")
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` SET (publish = 'insert')`)
				return at
			}, fault.CodePublicationLost, []string{"altered", "checkpoint set --to"}},
			"publication without inserts": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` SET (publish = 'update')`)
				return at
			}, fault.CodePublicationLost, nil},
			"another cluster": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "system=", "system=9")
			}, fault.CodeForeign, nil},
			"another database": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "database=", "database=x")
			}, fault.CodeForeign, nil},
			"another timeline": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "timeline=", "timeline=9")
			}, fault.CodeDiverged, nil},
			"past the log's end": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "lsn=", "lsn=FF")
			}, fault.CodeDiverged, nil},
		} {
			t.Run(server+"/"+name, func(t *testing.T) {
				d := newDatabase(t, server)
				s := newSource(t, d.config())
				at := c.damage(t, d, begin(t, s))
				before := d.slots(t)
				stream, err := s.Open(t.Context(), at)
				if err == nil {
					_ = stream.Close(t.Context())
				}
				exit := fault.ExitPosition
				if c.code == fault.CodeNameTaken {
					exit = fault.ExitConfig
				}
				f := fault.As(err)
				if f == nil || f.Code != c.code || f.Exit != exit || f.Fix == "" {
					t.Fatalf("open: %v", err)
				}
				for _, text := range c.says {
					if !strings.Contains(f.Error()+f.Fix, text) {
						t.Errorf("%q is not in %v; %s", text, f, f.Fix)
					}
				}
				if after := d.slots(t); after != before {
					t.Errorf("slots were %s, and are %s", before, after)
				}
				d.repair(t, s, f)
			})
		}
	}
}

// slots tells all that must not be made, dropped or moved behind a checkpoint's back.
func (d database) slots(t *testing.T) (text string) {
	t.Helper()
	if err := d.SQL().QueryRowContext(t.Context(), `SELECT coalesce(string_agg(concat_ws(' ', slot_name, database, restart_lsn, confirmed_flush_lsn), ', '), 'none')
		FROM pg_replication_slots WHERE slot_name = $1`, d.slot).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

// statement finds the SQL of a way out.
var statement = regexp.MustCompile(`(SELECT pg_drop_replication_slot\('[^']+'\)|ALTER PUBLICATION [^;]+)`)

// repair does what a fault says, and wants rows to come again.
func (d database) repair(t *testing.T, s *postgres.Source, f *fault.Error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var at source.Position
	var err error
	for _, sql := range statement.FindAllString(f.Fix, -1) {
		if !strings.HasPrefix(sql, "SELECT") || d.Int(t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1`, d.slot) > 0 {
			d.Exec(t, sql)
		}
	}
	switch set := regexp.MustCompile("`outboxd checkpoint set --to ([^`]+)`").FindStringSubmatch(f.Fix); {
	case set != nil:
		at, err = s.Locate(ctx, set[1], "")
	case strings.Contains(f.Fix, "another OUTBOXD_POSTGRES_SLOT"):
		c := d.config()
		c.Name, c.Slot = harness.Unique("name"), harness.Unique("slot")
		s = newSource(t, c)
		take(t, s)
		at, err = s.Begin(ctx, source.First{Mode: source.StartNow})
	case strings.Contains(f.Fix, "`outboxd checkpoint delete`") && strings.Contains(f.Fix, "OUTBOXD_START=now"):
		at, err = s.Begin(ctx, source.First{Mode: source.StartNow})
	default: // foreign: an address to correct, or a name
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", f.Fix, err)
	}
	stream, err := s.Open(ctx, at)
	if err != nil {
		t.Fatalf("%s: %v", f.Fix, err)
	}
	defer func() { _ = stream.Close(context.Background()) }()
	d.write(t, true, "4711")
	for {
		b, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("%s: %v", f.Fix, err)
		}
		for _, r := range b.Rows {
			if string(r.Values[0].Data) == "4711" {
				return
			}
		}
	}
}

// A slot made before its publication never sees it: 15 to 17 refuse to decode,
// 18 only warns and skips the rows. Neither may pass unnoticed.
func TestSlotOlderThanItsPublication(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Run("no publication yet", func(t *testing.T) {
			d := newDatabase(t, server)
			d.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.slot)
			d.write(t, true, "1")
			s := newSource(t, d.config())
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			lease, err := s.Acquire(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = lease.Release(ctx) }()
			if _, err := s.Begin(ctx, source.First{Mode: source.StartNow}); !fault.Is(err, fault.CodePublicationLost) {
				t.Errorf("begin: %v", err)
			}
			if _, err := s.Setup(ctx); !fault.Is(err, fault.CodePublicationLost) {
				t.Errorf("setup: %v", err)
			}
		})
		t.Run("publication made later", func(t *testing.T) {
			d := newDatabase(t, server)
			d.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.slot)
			d.write(t, true, "1")
			d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR TABLE outbox WITH (publish = 'insert')`)
			d.write(t, true, "2")
			s := newSource(t, d.config())
			stream, err := s.Open(t.Context(), begin(t, s))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = stream.Close(context.Background()) }()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for {
				b, err := stream.Next(ctx)
				if fault.Is(err, fault.CodePublicationLost) {
					return
				}
				if err != nil || len(b.Rows) > 0 {
					t.Fatalf("rows %d, %v: what the slot can't see was passed over", len(b.Rows), err)
				}
			}
		})
	})
}

func change(at source.Position, old, replacement string) source.Position {
	return source.Position(strings.Replace(string(at), old, replacement, 1))
}

// A walsender that a former session left behind does not hold up its successor.
func TestOpenEndsALeftOverWalsender(t *testing.T) {
	d := newDatabase(t, "postgres17")
	s := newSource(t, d.config())
	at := begin(t, s)
	first, err := s.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close(context.Background()) }()
	second, err := s.Open(t.Context(), at)
	if err != nil {
		t.Fatalf("the slot of our own former session: %v", err)
	}
	d.write(t, true, "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b, err := second.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Rows) > 0 {
			break
		}
	}
	if err := second.Close(ctx); err != nil {
		t.Error(err)
	}
}

// C41 on a real server: nobody takes the batches for longer than
// wal_sender_timeout, and the same walsender is still there.
func TestBackPressureKeepsTheWalsender(t *testing.T) {
	d := newDatabase(t, "postgres15")
	s := newSource(t, d.config())
	stream, err := s.Open(t.Context(), begin(t, s))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close(context.Background()) }()
	pid := func() int64 {
		return d.Int(t, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, d.slot)
	}
	before := pid()
	d.Exec(t, `INSERT INTO outbox SELECT i, 'a', jsonb_build_object('fill', repeat('x', 1000)) FROM generate_series(1, 30000) i`)
	// The session's own wal_sender_timeout, which the server would act on.
	timeout := time.Duration(harness.Times(12, 45)) * time.Second
	select {
	case <-time.After(timeout): // nothing happens, and that is the event
	case <-t.Context().Done():
	}
	if after := pid(); after != before {
		t.Errorf("walsender %d became %d", before, after)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for n := 0; n < 30000; {
		b, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("after %d rows: %v", n, err)
		}
		n += len(b.Rows)
	}
}
