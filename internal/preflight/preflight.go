// Package preflight is the common form of what `outboxd check` finds.
package preflight

// Status of one check.
type Status string

// The three outcomes. Only Fail makes `outboxd check` exit with 2.
const (
	OK   Status = "OK"
	Warn Status = "WARN"
	Fail Status = "FAIL"
)

// Result is one line of `outboxd check`.
type Result struct {
	Status Status   `json:"status"`
	ID     string   `json:"id"`            // stable, dotted: pg.wal_level
	Found  string   `json:"found"`         // what the server says; no secret
	Fix    []string `json:"fix,omitempty"` // statements or settings that mend it
}
