// Package sink is the contract between the engine and where events go.
package sink

import (
	"context"
	"fmt"
	"time"
)

// Sink publishes messages. Its methods are called by one goroutine at a time;
// done may be called from any.
type Sink interface {
	// Guard sets what is asked right before anything is sent: while may
	// reports false nothing is, and what was published waits until it reports
	// true, or until another Guard (I9). Answers to what is on the wire still count.
	// It is called before the first Publish. A sink that sends only inside of Publish
	// need not ask: the caller does, right before.
	Guard(may func() bool)
	// Publish takes the batch over and calls done exactly once, from any
	// goroutine: with nil when every message of it is durable, or with why not.
	// It retries what can be retried itself, keeps order per topic and key, and may
	// block for room. done must not be called while Publish holds anything
	// that done could wait for; it may be called before Publish returns.
	//
	// After one done(err) with err != nil the sink is finished: every later
	// batch fails too, and the engine closes it and opens a new one (I4).
	// Messages behind a failed one may nevertheless have become durable.
	Publish(ctx context.Context, batch []Message, done func(error))
	// Close ends the sink: when it returns, done was called for every batch
	// and nothing is sent any more. It may be called beside a Publish that doesn't
	// return, and makes that return.
	Close(ctx context.Context) error
}

// Judge is an optional ability of a Sink: it tells before anything is sent
// that a message would be refused for good (I5). It is cheap, does no I/O, and is called by the
// goroutine that publishes.
type Judge interface {
	Judge(m *Message) *Refusal
}

// Isolator is an optional ability of a Judge: a message that it may be refused, as far
// as is known before it is sent. It is published when nothing else is under way, and
// nothing behind it before its answer is there. It is called right behind Judge.
type Isolator interface {
	Isolate(m *Message) bool
}

// Waiter is an optional ability of a Sink: what its messages wait for that an
// operator can act on, and how; "" when there is no such thing. The engine's
// status shows it as it is, so it names no payload. It may be called from any goroutine,
// answers at once, and is told of a wait from the moment it is known.
type Waiter interface {
	Waiting() (what, fix string)
}

// Committer is an optional ability of a Sink: it publishes in transactions, so
// that readers see nothing of what was published before it was committed.
// Opening such a sink ends the transaction that an earlier one of the same name left
// open, and keeps that one from ever sending again.
type Committer interface {
	// Commit waits until all that Publish has taken is durable and its done was
	// called, then asks record for one more message, and commits it together with
	// all that was published since the last Commit. Publish may run beside it, and
	// takes nothing more before Commit is over. After an error the transaction may be
	// committed or not, and the sink is finished.
	Commit(ctx context.Context, record func() Message) error
}

// Message is one event on its way out.
type Message struct {
	Topic     string
	Pinned    bool // to Partition; else the key decides
	Partition int32
	Key       []byte // nil: no key
	Value     []byte // nil: tombstone
	Headers   []Header
	Timestamp time.Time // zero: the sink's own clock
	Table     string    // schema.table, for counting and for what the operator reads
	ID        []byte    // event id, for the same
}

// Size is key + value + headers in bytes, uncompressed: what OUTBOXD_KAFKA_MAX_MESSAGE_BYTES limits.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Name) + len(m.Headers[i].Value)
	}
	return n
}

// Header is one record header. A nil Value is a null header.
type Header struct {
	Name  string
	Value []byte
}

// Refusal says that one message can't be published, ever. It names no payload.
type Refusal struct {
	Message *Message // the one, where it was among others; from a router, what is known of it: topic, key; it may be nil
	ID      []byte   // event id, where there is no message
	Reason  string   // short and stable, a metric label: too_large, bad_topic, null_key, …
	Detail  string   // what was found: sizes, limits, names
	Fix     string   // what the operator can do
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Reason, r.Detail) }
