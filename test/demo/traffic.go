package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxd/outboxd/test/demo/orders"
)

const (
	customers = 8                      // how many act at once
	pace      = 180 * time.Millisecond // between two steps of one customer, on average
)

var errDeclined = errors.New("card declined")

// traffic lets the customers place n orders in all and follow each to its end.
func traffic(ctx context.Context, shop *orders.Service, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	todo := make(chan int)
	g.Go(func() error {
		defer close(todo)
		for i := range n {
			select {
			case todo <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range customers {
		g.Go(func() error {
			for i := range todo {
				if err := follow(ctx, shop, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// follow takes the i-th order through its life. The same i always has the same
// one: every third card is declined at first, and half of those give up.
func follow(ctx context.Context, shop *orders.Service, i int) error {
	rnd := rand.New(rand.NewPCG(1, uint64(i)))
	id, err := shop.Place(ctx, fmt.Sprintf("customer-%d", i), 500+rnd.Int64N(20_000))
	if err != nil {
		return err
	}
	declined := i%3 == 1
	charge := func(int64) error {
		if declined {
			return errDeclined
		}
		return nil
	}
	steps := []func() error{
		func() error { return shop.Pay(ctx, id, charge) },
		func() error { return shop.Ship(ctx, id, "DHL") },
		func() error { return shop.Deliver(ctx, id) },
	}
	for len(steps) > 0 {
		if err := pause(ctx, time.Duration(rnd.Int64N(int64(2*pace)))); err != nil {
			return err
		}
		switch err := steps[0](); {
		case errors.Is(err, errDeclined) && i%2 == 0:
			return shop.Cancel(ctx, id, "card declined")
		case errors.Is(err, errDeclined):
			declined = false // another card
		case err != nil:
			return err
		default:
			steps = steps[1:]
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
