package source

import (
	"context"
	"time"
)

// Lister is an optional ability of a Source: it reads rows as the tables hold them now, with the
// right to SELECT and no other, beside whoever follows the log. Columns print
// as they do in the log.
type Lister interface {
	// List hands the rows over in no order, in slices that the receiver may keep.
	List(ctx context.Context, what Listing, take func([]Listed) error) error
	// Mark names the end of the log now.
	Mark(ctx context.Context) (string, error)
	// Passed tells whether a stored position is at or behind a mark.
	Passed(at Position, mark string) (bool, error)
}

// Listing says which rows to list. What is zero does not bound them.
type Listing struct {
	Since, Until time.Time
	FromID, ToID string
	// Columns names the column of a row's id, and the one of the time it was made, which
	// may be "": then the source finds it by its usual names.
	Columns func(*Table) (id, made string, err error)
}

// Listed is a row of a table.
type Listed struct {
	// Row has a transaction of its own: CommitAt is the time of its commit, if Exact, else the time
	// it was made; zero: not known. ID tells the rows of one transaction from others; "": not known.
	Row
	Exact bool
}
