package pgsource

import (
	"context"
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
		}{
			"slot dropped": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				return at
			}, fault.CodePositionLost},
			"slot made anew": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				d.write(t, true, "1")
				d.Exec(t, `SELECT pg_create_logical_replication_slot($1, 'pgoutput')`, d.slot)
				return at
			}, fault.CodePositionLost},
			"slot advanced by somebody else": {func(t *testing.T, d database, at source.Position) source.Position {
				d.write(t, true, "1")
				d.Exec(t, `SELECT pg_replication_slot_advance($1, pg_current_wal_lsn())`, d.slot)
				return at
			}, fault.CodePositionLost},
			"publication dropped": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `DROP PUBLICATION `+d.slot)
				return at
			}, fault.CodePublicationLost},
			"publication made anew": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `DROP PUBLICATION `+d.slot)
				d.write(t, true, "1")
				d.Exec(t, `CREATE PUBLICATION `+d.slot+` FOR TABLE outbox WITH (publish = 'insert')`)
				return at
			}, fault.CodePublicationLost},
			"publication without the table": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` DROP TABLE outbox`)
				return at
			}, fault.CodePublicationLost},
			"publication without inserts": {func(t *testing.T, d database, at source.Position) source.Position {
				d.Exec(t, `ALTER PUBLICATION `+d.slot+` SET (publish = 'update')`)
				return at
			}, fault.CodePublicationLost},
			"another cluster": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "system=", "system=9")
			}, fault.CodeForeign},
			"another database": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "database=", "database=x")
			}, fault.CodeForeign},
			"another timeline": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "timeline=", "timeline=9")
			}, fault.CodeDiverged},
			"past the log's end": {func(_ *testing.T, _ database, at source.Position) source.Position {
				return change(at, "lsn=", "lsn=FF")
			}, fault.CodeDiverged},
		} {
			t.Run(server+"/"+name, func(t *testing.T) {
				d := newDatabase(t, server)
				s := newSource(t, d.config())
				at := c.damage(t, d, begin(t, s))
				stream, err := s.Open(t.Context(), at)
				if err == nil {
					_ = stream.Close(t.Context())
				}
				f := fault.As(err)
				if f == nil || f.Code != c.code || f.Exit != fault.ExitPosition || f.Fix == "" {
					t.Errorf("open: %v", err)
				}
			})
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
