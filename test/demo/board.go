package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const liveLines = 8 // orders shown as they change, on a terminal

// board prints the events by order. On a terminal the orders under way stand
// below, each on a line that grows, and move up when they are done; elsewhere
// each order is one line, printed when it is done.
type board struct {
	paint
	out   *os.File
	live  bool // a terminal that can be redrawn
	began time.Time

	mu        sync.Mutex
	open      []*orderLine // by their last event
	done      map[string]bool
	pending   []string // lines that stay, not printed yet
	drawn     int      // lines on the screen that will be redrawn
	rows      int
	delivered int
	repeated  int
}

// orderLine is an order and its events so far.
type orderLine struct {
	key   string
	words []string
}

func newBoard(out *os.File, began time.Time) *board {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	return &board{
		paint: paint(terminal && os.Getenv("NO_COLOR") == ""),
		out:   out, live: terminal, began: began, done: map[string]bool{},
	}
}

// say prints one line about the course of things.
func (b *board) say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	b.pending = append(b.pending, b.bold(fmt.Sprintf("%5.1fs  %s", time.Since(b.began).Seconds(), text)))
	b.draw()
}

// show adds an event to its order. again marks one that was seen before.
func (b *board) show(r record, again bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	word := strings.ToLower(strings.TrimPrefix(r.EventType, "Order"))
	if again {
		b.repeated++
		word = b.yellow(word + "*")
	} else {
		b.delivered++
	}
	if b.done[r.Key] {
		return // its line is above already; the count tells
	}
	i := slices.IndexFunc(b.open, func(o *orderLine) bool { return o.key == r.Key })
	o := &orderLine{key: r.Key}
	if i >= 0 {
		o = b.open[i]
		b.open = slices.Delete(b.open, i, i+1)
	}
	o.words = append(o.words, word)
	if last := r.EventType == "OrderDelivered" || r.EventType == "OrderCancelled"; last && !again {
		b.done[r.Key] = true
		b.pending = append(b.pending, b.line(o, b.green))
		if !b.live {
			b.draw()
		}
		return
	}
	b.open = append(b.open, o)
}

// committed says how many events the database holds.
func (b *board) committed(rows int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = rows
}

// run redraws a terminal until ctx ends.
func (b *board) run(ctx context.Context) error {
	if !b.live {
		return nil
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.mu.Lock()
			b.draw()
			b.mu.Unlock()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close prints the orders that did not come to their end, for good.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range b.open {
		b.pending = append(b.pending, b.line(o, b.plain))
	}
	b.open, b.rows = nil, 0
	b.draw()
}

// draw writes what is pending and, on a terminal, the live part below it.
func (b *board) draw() {
	var text strings.Builder
	if b.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\x1b[J", b.drawn)
		b.drawn = 0
	}
	for _, line := range b.pending {
		text.WriteString(line + "\n")
	}
	b.pending = b.pending[:0]
	if b.live && b.rows > 0 {
		text.WriteString("\x1b[?7l") // cut long lines: a wrapped one would be two to move up
		shown := b.open[max(0, len(b.open)-liveLines):]
		for _, o := range shown {
			text.WriteString(b.line(o, b.bold) + "\n")
		}
		text.WriteString(b.dim(fmt.Sprintf("committed %d  delivered %d  repeated* %d", max(b.rows, b.delivered), b.delivered, b.repeated)) + "\n\x1b[?7h")
		b.drawn = len(shown) + 1
	}
	fmt.Fprint(b.out, text.String())
}

// line is an order with its events, the last one in a colour.
func (b *board) line(o *orderLine, colour func(string) string) string {
	last := len(o.words) - 1
	words := strings.Join(append(slices.Clone(o.words[:last]), colour(o.words[last])), " ")
	return fmt.Sprintf("%s %s", b.dim(fmt.Sprintf("order %4s ", o.key)), words)
}

// paint colours text, or leaves it as it is.
type paint bool

func (p paint) plain(s string) string  { return s }
func (p paint) red(s string) string    { return p.with("31", s) }
func (p paint) green(s string) string  { return p.with("32", s) }
func (p paint) yellow(s string) string { return p.with("33", s) }
func (p paint) bold(s string) string   { return p.with("1", s) }
func (p paint) dim(s string) string    { return p.with("2", s) }

func (p paint) with(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}
