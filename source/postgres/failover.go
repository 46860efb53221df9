package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// makeSlot makes our slot and exports its snapshot.
func (s *Source) makeSlot(ctx context.Context, rep *pgconn.PgConn) (pglogrepl.CreateReplicationSlotResult, error) {
	if s.cfg.Failover { // the library has no option for it
		return pglogrepl.ParseCreateReplicationSlot(rep.Exec(ctx, fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)", quote(s.cfg.Slot))))
	}
	return pglogrepl.CreateReplicationSlot(ctx, rep, quote(s.cfg.Slot), "pgoutput", pglogrepl.CreateReplicationSlotOptions{SnapshotAction: "EXPORT_SNAPSHOT"})
}

// keepOnStandbys makes a failover slot of one that is not. That moves nothing.
func (s *Source) keepOnStandbys(ctx context.Context, conn *pgx.Conn, rep *pgconn.PgConn, st *slotState) error {
	if s.cfg.Failover && !st.failover {
		alter := fmt.Sprintf("ALTER_REPLICATION_SLOT %s (FAILOVER true)", quote(s.cfg.Slot))
		if !s.cfg.AutoSetup {
			return s.setupNeeded("failover property of slot", s.cfg.Slot, `psql "replication=database …" -c '`+alter+`'`)
		}
		if _, err := rep.Exec(ctx, alter).ReadAll(); err != nil {
			return s.explain(fmt.Errorf("make slot %q a failover slot: %w", s.cfg.Slot, err))
		}
		s.log.Info("the slot is a failover slot now", zap.String("slot", s.cfg.Slot))
	}
	if !s.cfg.Failover && !st.failover {
		return nil
	}
	// The server sends a failover slot nothing that these slots have not
	// confirmed; after a promotion that is often one which nobody reads any more.
	var absent *string
	err := conn.QueryRow(ctx, `
		SELECT string_agg(name, ', ') FROM (SELECT trim(both ' "' FROM n) AS name FROM unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) n) t
		WHERE name <> '' AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.slot_name = t.name AND s.active)`).Scan(&absent)
	if err != nil {
		return s.explain(fmt.Errorf("look at synchronized_standby_slots: %w", err))
	}
	if absent != nil {
		s.log.Warn("the server waits for standbys that are not there before it sends anything: bring them back, or take them out of synchronized_standby_slots",
			zap.String("slot", s.cfg.Slot), zap.String("standby_slots", *absent))
	}
	return nil
}
