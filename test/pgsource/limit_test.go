package pgsource

import (
	"testing"

	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/test/harness"
)

// How much log is left is told as soon as the server has a limit, and not where it has none.
func TestLimitOfTheLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server)
		set := func(statement string) {
			d.Exec(t, statement)
			d.Exec(t, `SELECT pg_reload_conf()`)
		}
		set(`ALTER SYSTEM RESET max_slot_wal_keep_size`) // a killed run may have left it
		s := newSource(t, d.config())
		stream, err := s.Open(t.Context(), begin(t, s))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close(t.Context()) }()
		told := func() source.Retention { return stream.(source.Retainer).Retention() }
		harness.Eventually(t, "the server was asked", func() bool { return !told().AskedAt.IsZero() })
		if told().Limit != nil {
			t.Errorf("%+v without a limit", told().Limit)
		}
		defer set(`ALTER SYSTEM RESET max_slot_wal_keep_size`)
		set(`ALTER SYSTEM SET max_slot_wal_keep_size = '8GB'`)
		harness.Eventually(t, "the limit is told", func() bool { l := told().Limit; return l != nil && l.Left > 0 && l.Left <= 9<<30 })
	})
}
