package mysql

import (
	"context"
	"fmt"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/source"
)

// Check tries what a run needs without changing anything or taking the lease;
// it is safe beside a running instance. Whatever a first start is told, it needs the same rights.
func (s *Source) Check(ctx context.Context, _ source.Start) []preflight.Result {
	var results []preflight.Result
	add := func(id, found string, err error) bool {
		r := preflight.Result{Status: preflight.OK, ID: id, Found: found}
		if err != nil {
			r.Status, r.Found = preflight.Fail, err.Error()
			if f := fault.As(err); f != nil && f.Fix != "" {
				r.Fix = []string{f.Fix}
			}
		}
		results = append(results, r)
		return err == nil
	}
	q, err := s.connect(ctx)
	if !add("mysql.reachable", "connected and logged in", err) {
		return results
	}
	defer q.close()
	if !add("mysql.server", "rows are logged, the tables exist and fit, the account may replicate", s.examine(ctx, q)) {
		return results
	}
	r := preflight.Result{Status: preflight.OK, ID: "mysql.row_metadata", Found: "the log names its columns"}
	if s.server.metadata != "FULL" {
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("binlog_row_metadata is %q: after a change of an outbox table, rows written before it can't be read", s.server.metadata)
		r.Fix = []string{s.server.set("binlog_row_metadata", "FULL")}
	}
	results = append(results, r)
	r = preflight.Result{Status: preflight.OK, ID: "mysql.row_image", Found: "the log holds all columns of a row"}
	if s.server.image != "FULL" {
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("binlog_row_image is %q: a column that an INSERT does not name is not in the log", s.server.image)
		r.Fix = []string{s.server.set("binlog_row_image", "FULL")}
	}
	results = append(results, r)
	r = preflight.Result{Status: preflight.OK, ID: "mysql.gtid", Found: "GTIDs are on"}
	if !s.server.gtids {
		r.Status, r.Found = preflight.Warn, "gtid_mode is not ON: the place is file and position, which no other server knows after a failover"
		r.Fix = gtidSteps(&s.server)
	}
	return append(results, r, s.checkRetention(ctx, q), s.checkSync(ctx, q))
}

// gtidSteps are the statements that turn GTIDs on while the server runs.
func gtidSteps(v *server) []string {
	steps := []string{v.set("enforce_gtid_consistency", "ON")}
	for _, mode := range []string{"OFF_PERMISSIVE", "ON_PERMISSIVE"} {
		steps = append(steps, v.set("gtid_mode", mode))
	}
	return append(steps, "wait until no transaction without a GTID is left, on the replicas too (SHOW STATUS LIKE 'Ongoing_anonymous_transaction_count' is 0)", v.set("gtid_mode", "ON"))
}

// Statements is the SQL that Setup runs: none, the log is there already.
func (s *Source) Statements() []string { return nil }

// Setup makes nothing: the binary log needs no preparation.
func (s *Source) Setup(ctx context.Context) (bool, error) {
	q, err := s.connect(ctx)
	if err != nil {
		return false, err
	}
	defer q.close()
	return false, s.examine(ctx, q)
}
