// Package orders is an order service that uses the outbox pattern: every change
// of an order and the events that tell of it are committed in one transaction.
// Either both are there or neither is, and no broker is needed to take an order.
//
// What makes the pattern is in change and publish; the rest is an ordinary
// service. It runs on Postgres and on MySQL: what they want said differently is in Dialect.
package orders

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
)

// AggregateType is what the events of this service are about. With outboxd's
// defaults it is also the end of the topic's name: outbox.event.order.
const AggregateType = "order"

// The states of an order.
const (
	Placed    = "placed"
	Paid      = "paid"
	Shipped   = "shipped"
	Delivered = "delivered"
	Cancelled = "cancelled"
)

// Service takes orders and brings them to the customer. It is safe for concurrent use.
type Service struct {
	db *sql.DB
	in Dialect
}

// New makes a service on a database that holds the dialect's Schema.
func New(db *sql.DB, in Dialect) *Service { return &Service{db: db, in: in} }

// event is one row of the outbox. Payload is written as JSON.
type event struct {
	Type    string
	Payload any
}

// Place takes a new order and returns its id.
func (s *Service) Place(ctx context.Context, customer string, totalCents int64) (id int64, err error) {
	err = transaction(ctx, s.db, func(tx *sql.Tx) error {
		insert := s.in.bind(`INSERT INTO orders (customer, total_cents, status) VALUES (?, ?, ?)`)
		if id, err = s.in.insert(ctx, tx, insert, customer, totalCents, Placed); err != nil {
			return fmt.Errorf("insert order: %w", err)
		}
		return s.publish(ctx, tx, id, event{"OrderPlaced", map[string]any{
			"order_id": id, "customer": customer, "total_cents": totalCents}})
	})
	return id, err
}

// Pay charges the customer. When charge refuses, the transaction is rolled
// back: the order is not paid, and the events of the payment never existed.
func (s *Service) Pay(ctx context.Context, id int64, charge func(totalCents int64) error) error {
	return s.change(ctx, id, Placed, Paid, func(tx *sql.Tx, totalCents int64) error {
		err := s.publish(ctx, tx, id,
			event{"OrderPaid", map[string]any{"order_id": id, "total_cents": totalCents}},
			event{"OrderInvoiced", map[string]any{"order_id": id, "invoice": fmt.Sprintf("INV-%06d", id)}})
		if err != nil {
			return err
		}
		return charge(totalCents)
	})
}

// Ship hands a paid order to the carrier.
func (s *Service) Ship(ctx context.Context, id int64, carrier string) error {
	return s.change(ctx, id, Paid, Shipped, func(tx *sql.Tx, _ int64) error {
		return s.publish(ctx, tx, id, event{"OrderShipped", map[string]any{"order_id": id, "carrier": carrier}})
	})
}

// Deliver closes an order that the customer has received.
func (s *Service) Deliver(ctx context.Context, id int64) error {
	return s.change(ctx, id, Shipped, Delivered, func(tx *sql.Tx, _ int64) error {
		return s.publish(ctx, tx, id, event{"OrderDelivered", map[string]any{"order_id": id}})
	})
}

// Cancel closes an order that was never paid.
func (s *Service) Cancel(ctx context.Context, id int64, reason string) error {
	return s.change(ctx, id, Placed, Cancelled, func(tx *sql.Tx, _ int64) error {
		return s.publish(ctx, tx, id, event{"OrderCancelled", map[string]any{"order_id": id, "reason": reason}})
	})
}

// change moves an order from one state to the next and publishes its events, in
// one transaction. It locks the order's row until the commit, so two changes
// of one order commit in the order in which they wrote their events.
func (s *Service) change(ctx context.Context, id int64, from, to string, events func(tx *sql.Tx, totalCents int64) error) error {
	return transaction(ctx, s.db, func(tx *sql.Tx) error {
		var totalCents int64
		lock := s.in.bind(`SELECT total_cents FROM orders WHERE id = ? AND status = ? FOR UPDATE`)
		err := tx.QueryRowContext(ctx, lock, id, from).Scan(&totalCents)
		if err == nil {
			_, err = tx.ExecContext(ctx, s.in.bind(`UPDATE orders SET status = ? WHERE id = ?`), to, id)
		}
		if err != nil {
			return fmt.Errorf("move order %d from %s to %s: %w", id, from, to, err)
		}
		return events(tx, totalCents)
	})
}

// publish writes events to the outbox in the transaction that changes the
// order. The aggregate id becomes the record's key: the events of one order
// share a partition and stay in commit order.
func (s *Service) publish(ctx context.Context, tx *sql.Tx, orderID int64, events ...event) error {
	insert := s.in.bind(`INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES (?, ?, ?, ?)`)
	for _, e := range events {
		payload, err := json.Marshal(e.Payload)
		if err != nil {
			return fmt.Errorf("encode %s: %w", e.Type, err)
		}
		_, err = tx.ExecContext(ctx, insert, AggregateType, strconv.FormatInt(orderID, 10), e.Type, string(payload))
		if err != nil {
			return fmt.Errorf("insert %s into the outbox: %w", e.Type, err)
		}
	}
	return nil
}
