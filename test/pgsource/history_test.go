package pgsource

import (
	"context"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/test/harness"
)

// readUntil takes batches until the row of that id was there, and returns the ids and the place behind it.
func readUntil(t *testing.T, stream source.Stream, until string) (ids []string, at source.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b, err := stream.Next(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", ids, err)
		}
		for _, r := range b.Rows {
			ids = append(ids, string(r.Values[0].Data))
		}
		if len(ids) > 0 && ids[len(ids)-1] == until {
			return ids, b.Position
		}
	}
}

// take takes the lease for the rest of the test.
func take(t *testing.T, s *postgres.Source) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
}

// A server that was promoted is judged by the point where its timeline left
// ours. A restored backup and a clone that was promoted are the same to us.
func TestPromotedServer(t *testing.T) {
	for _, server := range []string{"postgres15", "postgres18"} {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server)
			standby := d.Standby(t) // before the slot: the standby has the log that the slot needs
			s := newSource(t, d.config())
			first := begin(t, s)
			d.CarrySlot(t, standby, d.slot)
			stream, err := s.Open(t.Context(), first)
			if err != nil {
				t.Fatal(err)
			}
			d.write(t, true, "1")
			_, common := readUntil(t, stream, "1")
			d.write(t, true, "2")
			d.Follow(t, standby)
			d.DropStandbySlot(t) // an asynchronous standby that lacks the end
			d.write(t, true, "3")
			_, past := readUntil(t, stream, "3")
			if err := stream.Close(t.Context()); err != nil {
				t.Error(err)
			}

			standby.Promote(t)
			promoted := database{standby, d.slot}
			after := newSource(t, promoted.config())
			take(t, after)
			promoted.write(t, true, "4")

			t.Run("from before the switch", func(t *testing.T) {
				stream, err := after.Open(t.Context(), common)
				if err != nil {
					t.Fatal(err)
				}
				ids, at := readUntil(t, stream, "4")
				if err := stream.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if strings.Join(ids, " ") != "2 4" || !strings.Contains(string(at), "timeline=2") {
					t.Errorf("%v, %s", ids, at)
				}
				_, err = s.Open(t.Context(), at)
				if f := fault.As(err); f == nil || f.Code != fault.CodeDiverged || !strings.Contains(f.Found, "former primary") {
					t.Errorf("the former primary: %v", err)
				}
			})
			t.Run("from behind it", func(t *testing.T) {
				_, err := after.Open(t.Context(), past)
				f := fault.As(err)
				lsn := string(past)[strings.LastIndex(string(past), "=")+1:]
				if f == nil || f.Code != fault.CodeDiverged || f.Exit != fault.ExitPosition || !strings.Contains(f.Found, lsn) || strings.Count(f.Found, "/") < 2 {
					t.Fatalf("open: %v", err)
				}
				promoted.repair(t, after, f)
			})
			t.Run("from another branch", func(t *testing.T) {
				_, err := after.Open(t.Context(), change(common, "timeline=1", "timeline=7"))
				if !fault.Is(err, fault.CodeDiverged) {
					t.Errorf("open: %v", err)
				}
			})
			t.Run("slot left behind", func(t *testing.T) {
				promoted.Exec(t, `SELECT pg_drop_replication_slot($1)`, d.slot)
				_, err := after.Open(t.Context(), common)
				f := fault.As(err)
				if f == nil || f.Code != fault.CodePositionLost || !strings.Contains(f.Found, "promoted") {
					t.Fatalf("open: %v", err)
				}
				promoted.repair(t, after, f)
			})
		})
	}
}

// A slot that the server gave up says so in the server's own words, when it is
// opened and while it is read.
func TestSlotInvalidated(t *testing.T) {
	reasons := map[string]string{
		"postgres15": "exceeded the maximum reserved size", "postgres16": "exceeded the maximum reserved size",
		"postgres17": "exceeded the maximum reserved size", "postgres18": "wal_removed",
	}
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server)
		s := newSource(t, d.config())
		stream, err := s.Open(t.Context(), begin(t, s))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close(context.Background()) }()
		d.setting(t, "max_slot_wal_keep_size", "1MB")
		d.write(t, true, "1")
		_, at := readUntil(t, stream, "1")
		harness.Eventually(t, "the slot is given up", func() bool { // nothing is confirmed
			d.Exec(t, `SELECT pg_logical_emit_message(false, 'x', 'x'), pg_switch_wal()`)
			d.Exec(t, `CHECKPOINT`)
			return d.Int(t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND wal_status = 'lost'`, d.slot) == 1
		})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for err == nil {
			_, err = stream.Next(ctx)
		}
		_, err = s.Open(ctx, at)
		f := fault.As(err)
		if f == nil || f.Code != fault.CodePositionLost || !strings.Contains(f.Error(), reasons[server]) || !strings.Contains(f.Error(), "lost") {
			t.Fatalf("open: %v", err)
		}
		d.setting(t, "max_slot_wal_keep_size", "-1")
		d.repair(t, s, f)
	})
}

// PostgreSQL 18 also gives up slots that nobody reads for a while.
func TestSlotIdleTooLong(t *testing.T) {
	d := newDatabase(t, "postgres18")
	s := newSource(t, d.config())
	at := begin(t, s)
	d.setting(t, "idle_replication_slot_timeout", "1s")
	harness.Eventually(t, "the slot is given up", func() bool {
		d.Exec(t, `CHECKPOINT`)
		return d.Int(t, `SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1 AND wal_status = 'lost'`, d.slot) == 1
	})
	_, err := s.Open(t.Context(), at)
	f := fault.As(err)
	if f == nil || f.Code != fault.CodePositionLost || !strings.Contains(f.Error(), "idle_timeout") {
		t.Fatalf("open: %v", err)
	}
	d.setting(t, "idle_replication_slot_timeout", "0")
	d.repair(t, s, f)
}

// setting sets a parameter of the server for the rest of the test.
func (d database) setting(t *testing.T, name, value string) {
	t.Helper()
	d.Exec(t, `ALTER SYSTEM SET `+name+` = '`+value+`'`)
	d.Exec(t, `SELECT pg_reload_conf()`)
	t.Cleanup(func() {
		_, _ = d.SQL().Exec(`ALTER SYSTEM RESET ` + name)
		_, _ = d.SQL().Exec(`SELECT pg_reload_conf()`)
	})
}
