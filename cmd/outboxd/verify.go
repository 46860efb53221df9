package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outboxd/outboxd/internal/app"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/verify"
)

// shownExamples is how many examples go to the screen.
const shownExamples = 20

func verifyCommand(ctx context.Context, p *process, args []string) (err error) {
	f, envFile := flags("verify")
	since := f.String("since", "", "rows made at this `TIME` (2026-11-30T12:00:00Z) or later, or that long ago (2h)")
	until := f.String("until", "", "rows made before this `TIME`")
	fromID := f.String("from-id", "", "rows with this `ID` or a higher one")
	toID := f.String("to-id", "", "rows with this `ID` or a lower one")
	table := f.String("table", "", "the `TABLE`, or its alias, of several in OUTBOXD_TABLES")
	id := f.String("id", "", "where records have the event's id: `header:NAME|json:$.path`")
	against := f.String("against", "", "compare topics with those of another relay, whose names have this `PREFIX`")
	deadLetter := f.String("dead-letter", "outbox.dead-letter", "`TOPIC` of parked events")
	allowRepeats := f.Bool("allow-repeats", false, "repeats alone don't count as a difference, as with at-least-once")
	out := f.String("out", "", "write all that was found to `FILE`, as JSON lines")
	dir := f.String("temp-dir", "", "`FOLDER` for temporary files, about 150 bytes an event; unset: the system's")
	asJSON := f.Bool("json", false, "as JSON")
	if err := p.parse(f, args); err != nil {
		return err
	}
	if err := p.load(*envFile); err != nil {
		return err
	}
	v := app.Verification{FromID: *fromID, ToID: *toID, ID: *id, Against: *against, DeadLetter: *deadLetter, Dir: *dir}
	now := time.Now()
	if v.Since, err = when(*since, now); err != nil {
		return misuse("verify: --since %v", err)
	}
	if v.Until, err = when(*until, now); err != nil {
		return misuse("verify: --until %v", err)
	}
	if *table != "" {
		if p.cfg, err = p.cfg.WithTable(*table); err != nil {
			return misuse("verify: --table %v", err)
		}
	}
	found := &examples{}
	if *out != "" {
		file, err := os.OpenFile(*out, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return misuse("verify: --out: %v", err)
		}
		found.file = bufio.NewWriter(file)
		defer func() { err = errors.Join(err, file.Close()) }()
	}
	v.Example = found.add
	bar := progress{w: p.stderr, terminal: p.colour, every: 10 * time.Second}
	v.Progress = bar.show
	ctx, cancel := p.brief(ctx)
	defer cancel()
	report, err := app.Verify(ctx, p.cfg, v, p.log)
	bar.end()
	if err != nil {
		return err
	}
	if found.file != nil {
		if err := found.file.Flush(); err != nil {
			return fmt.Errorf("write %s: %w", *out, err)
		}
	}
	if *asJSON {
		err = p.printJSON(map[string]any{"report": report, "examples": found.shown()})
	} else {
		err = p.print(verifyText(report, found.shown(), *out))
	}
	if err != nil {
		return err
	}
	return differences(report, *against != "", *allowRepeats)
}

// differences is the error of a comparison that is not clean.
func differences(r verify.Report, against, allowRepeats bool) error {
	bad := []verify.Kind{verify.Missing, verify.Altered, verify.Disordered}
	if !allowRepeats {
		bad = append(bad, verify.Repeated)
	}
	if against {
		bad = append(bad, verify.Extra)
	}
	var found []string
	for _, k := range bad {
		if n := r.Counts[k]; n > 0 {
			found = append(found, fmt.Sprintf("%d %s", n, words(k)))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &fault.Error{Code: fault.CodeVerifyDiffers, Exit: fault.ExitFailure, Found: "differences: " + strings.Join(found, ", "),
		Fix: "See docs/operations.md, verify_differs: what each kind may come from. --out FILE lists all of them."}
}

func words(k verify.Kind) string { return strings.ReplaceAll(string(k), "_", " ") }

// examples keeps the first ones for the screen and writes all to a file.
type examples struct {
	differences, others []verify.Example
	file                *bufio.Writer
}

// shown are differences first.
func (x *examples) shown() []verify.Example {
	return append(slices.Clip(x.differences), x.others[:min(len(x.others), shownExamples-len(x.differences))]...)
}

func (x *examples) add(e verify.Example) error {
	list := &x.others
	switch e.Kind {
	case verify.Missing, verify.Altered, verify.Disordered, verify.Repeated, verify.Suspect:
		list = &x.differences
	}
	if len(*list) < shownExamples {
		*list = append(*list, e)
	}
	if x.file == nil {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("write an example: %w", err)
	}
	if _, err := x.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write an example: %w", err)
	}
	return nil
}

func verifyText(r verify.Report, shown []verify.Example, out string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "events    %d\nrecords   %d\nmatched   %d\n", r.Events, r.Records, r.Matched)
	for _, k := range []verify.Kind{verify.Missing, verify.Altered, verify.Disordered, verify.Repeated, verify.Suspect,
		verify.Pending, verify.Expired, verify.Parked, verify.Refused, verify.Extra} {
		if n := r.Counts[k]; n > 0 || k == verify.Missing || k == verify.Altered || k == verify.Disordered || k == verify.Repeated {
			fmt.Fprintf(&b, "%-12s %d\n", words(k), n)
		}
	}
	bases := make([]string, 0, len(r.Order))
	for by, n := range r.Order {
		bases = append(bases, fmt.Sprintf("%s (%d aggregates)", by, n))
	}
	slices.Sort(bases)
	if len(bases) > 0 {
		fmt.Fprintf(&b, "order judged by %s\n", strings.Join(bases, ", "))
	}
	if r.NoID > 0 {
		fmt.Fprintf(&b, "%d records have no id; --id says where it is\n", r.NoID)
	}
	for _, t := range r.NoTopic {
		fmt.Fprintf(&b, "topic %s does not exist\n", t)
	}
	for _, t := range r.Open {
		fmt.Fprintf(&b, "%s ends in an open transaction: what is behind its begin is not seen\n", t)
	}
	var all int64
	for _, n := range r.Counts {
		all += n
	}
	for _, e := range shown {
		at := ""
		if e.Partition >= 0 {
			at = fmt.Sprintf(" at %d/%d", e.Partition, e.Offset)
		}
		fmt.Fprintf(&b, "  %-12s %s id %s%s %s\n", words(e.Kind), e.Topic, e.ID, at, e.Detail)
	}
	if rest := all - int64(len(shown)); rest > 0 && out == "" {
		fmt.Fprintf(&b, "  and %d more; --out FILE writes all\n", rest)
	}
	return b.String()
}

// when reads a time, or how long ago it was.
func when(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time such as 2026-11-30T12:00:00Z (UTC where it says nothing) and no duration such as 2h", text)
}

// progress shows how far a long reading is: one line that is written over on a
// terminal, else a line now and then.
type progress struct {
	w        io.Writer
	terminal bool
	every    time.Duration // without a terminal
	at       time.Time
	drawn    bool
}

func (b *progress) show(what string, done, of int64) {
	every := b.every
	if b.terminal {
		every = 100 * time.Millisecond
	}
	now := time.Now()
	if b.at.IsZero() {
		b.at = now
	}
	if now.Sub(b.at) < every {
		return
	}
	b.at = now
	if !b.terminal {
		if of > 0 {
			_, _ = fmt.Fprintf(b.w, "%s: %d of %d\n", what, done, of)
		} else {
			_, _ = fmt.Fprintf(b.w, "%s: %d\n", what, done)
		}
		return
	}
	b.drawn = true
	if of <= 0 {
		_, _ = fmt.Fprintf(b.w, "\r\x1b[K%-22s %d", what, done)
		return
	}
	const width = 30
	full := int(min(done, of) * width / of)
	_, _ = fmt.Fprintf(b.w, "\r\x1b[K%-22s [%s%s] %d%%  %d of %d", what, strings.Repeat("#", full), strings.Repeat(".", width-full), min(done, of)*100/of, done, of)
}

func (b *progress) end() {
	if b.drawn {
		_, _ = fmt.Fprint(b.w, "\r\x1b[K")
	}
}
