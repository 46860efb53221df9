// Package pipeline is the engine: it moves rows from a source to a sink and
// places from the sink back to the checkpoint and the source.
//
//	Next -> Route -> tracker.add -> Publish ....done....> tracker.settle
//	                                                        | settled prefix
//	                Confirm(pos) <- Save(pos) <-------------+
//	goroutine A (forward): Next, Route, add, Publish
//	goroutine B (backward): wait, Save, Confirm
//
// With exactly-once delivery the sink's Commit takes the place of Save: it makes
// the events visible and the checkpoint durable in one (exactly.go).
//
// One loop (Engine.Run) decides about restarts. Each turn is a session: lease,
// checkpoint, sink, stream, the two goroutines, settle. A *fault.Error ends the
// run; everything else waits and opens a new session.
//
// # Invariants
//
// They are cited by number at the lines that uphold them.
//
//   - I1: A position is saved only when every row up to it is durable at the
//     sink (or durably parked).
//   - I2: The source is told (Confirm) only after Save returned. Idle progress
//     obeys it too: it is a Batch without rows whose Position is the log's end as the
//     server told it; at most one per checkpoint interval, at once if the server
//     asks for a reply. So confirmed <= saved, always.
//   - I3: A position is a commit boundary, or (exactly-once only) a row
//     ordinal inside one named transaction, or a border of the first
//     snapshot. Progress never moves on BEGIN, on a GTID event, on a timer, or in
//     the middle of a multi-row event.
//   - I4: A new stream is opened only when no batch of the old one is open:
//     settle, save, then reopen from the settled place (a reconnect repeats
//     nothing). If they can't settle, the producer ends first.
//   - I5: Nothing is skipped silently. A row that can't be routed or is refused
//     stops the stream or is parked. A log record that can't be decoded is an
//     error. Every default branch over event kinds counts and decides. What can be
//     judged before sending (size, topic name, key, mapping) is judged before
//     anything behind that row is handed to the sink.
//   - I6: Save is atomic; an unreadable or foreign checkpoint is refused, never
//     taken as "start anew". No fallback ever means "start at now". The first
//     start saves an intent before it makes anything on the server, so that a
//     crash in between is told from a loss.
//   - I7: A stop is: stop reading, settle, save, confirm, close; in that order,
//     each with a time limit.
//   - I8: Alive means moving: readiness follows bytes read and acks received,
//     not the existence of a process.
//   - I9: A session starts in this order: lease held, then (exactly-once) the
//     sink opened, which fences the old producer and ends its transaction, then the
//     checkpoint loaded, then the stream opened. On losing the lease nothing is
//     read, sent, sent again or saved; answers to requests on the wire still
//     count. The next session takes the lease again and reloads the checkpoint: if
//     it equals its own last save, nobody was active, the sink finishes what it
//     has, and it goes on without a repeat; otherwise all that is in doubt is
//     abandoned.
package pipeline
