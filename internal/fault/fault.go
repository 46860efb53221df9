// Package fault holds the one error type an operator has to act on.
//
// Every part of outboxd returns plain wrapped errors for what mends itself
// (a lost connection, a broker that is down) and an *Error for what does not.
// The engine retries the first kind for ever; the second kind ends the process
// with an exit code, a stable code word, what was found and what to do.
package fault

import (
	"errors"
	"fmt"
)

// Exit codes of the process. They are part of the product's outside.
const (
	ExitOK       = 0 // clean stop
	ExitFailure  = 1 // unexpected failure, or a drain that did not finish
	ExitConfig   = 2 // bad configuration, or refused by a server at start
	ExitPosition = 3 // the place in the log is lost, forked, foreign or unreadable
	ExitRefused  = 4 // an event was refused and the policy is to stop
)

// Stable codes. Each one has a section in docs/operations.md.
const (
	CodeConfig               = "config_invalid"        // a setting is wrong
	CodeAccessDenied         = "access_denied"         // a server refused the login
	CodeGrantMissing         = "grant_missing"         // a right is missing
	CodeTableMissing         = "table_missing"         // an outbox table does not exist
	CodeTableUnusable        = "table_unusable"        // its columns don't fit the mapping, or it isn't a table
	CodeServerSetting        = "server_setting"        // the server is not set up for this
	CodeNameTaken            = "name_taken"            // slot or publication serves somebody else
	CodeServerID             = "server_id_taken"       // another replica of the server has our server id
	CodeStartChoice          = "start_choice_needed"   // rows are there before the first start
	CodeSnapshotOrder        = "snapshot_order_needed" // the order of the rows of a first snapshot is not known
	CodeSetupNeeded          = "setup_needed"          // something is missing and must not be created
	CodePositionLost         = "position_lost"         // the log no longer holds our place
	CodePublicationLost      = "publication_lost"      // the publication a slot depends on is gone or changed
	CodeForeign              = "foreign"               // another server, or another connector's place
	CodeDiverged             = "diverged"              // a history that forked before our place
	CodeCheckpointUnreadable = "checkpoint_unreadable" // the stored checkpoint is damaged
	CodeSchemaUnknown        = "schema_unknown"        // the log does not name a table's columns, and the table can't tell
	CodeEventRefused         = "event_refused"         // an event cannot be published
	CodeStatementLogged      = "statement_logged"      // an insert was logged as text, its rows are not in the log
	CodeLeaseHeld            = "lease_held"            // a command must not act beside a running instance
	CodeDrainIncomplete      = "drain_incomplete"      // stopped before everything was acknowledged
	CodeStartTimeout         = "start_timeout"         // not reached within OUTBOXD_START_TIMEOUT
	CodeNotReached           = "not_reached"           // a command got no answer from a server for a while
	CodeVerifyDiffers        = "verify_differs"        // verify found differences
	CodeUnexpected           = "unexpected"            // a fault of our own
)

// Error is a failure that does not mend itself. It carries no secret and no
// payload: its text goes to logs and to /status as it is.
type Error struct {
	Code  string // one of the Code constants
	Exit  int    // one of the Exit constants
	Found string // what was found, and where: lower case, no full stop
	Fix   string // what to do about it, as a sentence or statement
	Err   error  // cause, may be nil
}

func (e *Error) Error() string {
	s := e.Code + ": " + e.Found
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Config says that a server or a setting refuses us at start.
func Config(code, fix string, cause error, found string, args ...any) *Error {
	return &Error{Code: code, Exit: ExitConfig, Found: fmt.Sprintf(found, args...), Fix: fix, Err: cause}
}

// Position says that we can't go on from the stored place.
func Position(code, fix string, cause error, found string, args ...any) *Error {
	return &Error{Code: code, Exit: ExitPosition, Found: fmt.Sprintf(found, args...), Fix: fix, Err: cause}
}

// Refused says that an event can't be published and the policy is to stop.
func Refused(fix string, cause error, found string, args ...any) *Error {
	return &Error{Code: CodeEventRefused, Exit: ExitRefused, Found: fmt.Sprintf(found, args...), Fix: fix, Err: cause}
}

// As returns the *Error in err's chain, or nil.
func As(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// Is reports whether err's chain holds an *Error with that code.
func Is(err error, code string) bool {
	e := As(err)
	return e != nil && e.Code == code
}

// ExitCode gives the process's exit code for err.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if e := As(err); e != nil {
		return e.Exit
	}
	return ExitFailure
}
