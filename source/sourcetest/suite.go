package sourcetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Subject is a source under test with a way to write to its database. The
// outbox table has the columns id, aggregate_id and payload, and is empty.
type Subject struct {
	// New makes another Source on the same database and name, as another process would.
	New func(t *testing.T) source.Source
	// Commit writes rows in one transaction, one per id.
	Commit func(t *testing.T, ids ...string)
	// KeepsPlace is true when the server itself keeps the place that Begin made.
	KeepsPlace bool
	// Rollback writes rows and rolls them back.
	Rollback func(t *testing.T, ids ...string)
}

// Run is the contract every source must pass. make gives each subtest a
// database of its own.
func Run(t *testing.T, make func(t *testing.T) Subject) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Subject)
	}{
		{"committed rows in order, rolled back never", rowsInOrder},
		{"a position resumes right behind its rows", resumes},
		{"a large transaction has one position at its end", largeTransaction},
		{"a batch tells the places inside it", borders},
		{"what was confirmed is not sent again, the rest is", confirms},
		{"the lease has one holder", leaseIsExclusive},
		{"a position of something else is refused", strangePositions},
		{"auto refuses rows that are there", autoWithRows},
		{"an unfinished first start is taken up", intendedStart},
		{"Next ends with its context, Close ends the stream", ends},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, make(t)) })
	}
}

const patience = 30 * time.Second

// open takes the lease, begins, and opens at the first place.
func open(t *testing.T, s source.Source, from source.Position) (source.Stream, source.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		t.Fatalf("acquire: %v", err)
	}
	t.Cleanup(func() { release(t, lease) })
	if from == "" {
		if from, err = s.Begin(ctx, source.First{Mode: source.StartNow}); err != nil {
			t.Fatalf("begin: %v", err)
		}
	}
	stream, err := s.Open(ctx, from)
	if err != nil {
		t.Fatalf("open at %s: %v", from, err)
	}
	return stream, from
}

func release(t *testing.T, l source.Lease) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := l.Release(ctx); err != nil {
		t.Errorf("release: %v", err)
	}
}

func shut(t *testing.T, s source.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// collect reads until n rows came and a position closes them, and gives their ids and the last position.
func collect(t *testing.T, s source.Stream, n int) (ids []string, last source.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(ids) < n || last == "" {
		b, err := s.Next(ctx)
		if err != nil {
			t.Fatalf("next after %d of %d rows: %v", len(ids), n, err)
		}
		for _, r := range b.Rows {
			ids = append(ids, string(r.Values[r.Table.Column("id")].Data))
		}
		if len(b.Rows) > 0 || b.Position != "" {
			last = b.Position
		}
	}
	return ids, last
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

func rowsInOrder(t *testing.T, s Subject) {
	stream, _ := open(t, s.New(t), "")
	defer shut(t, stream)
	s.Commit(t, "1", "2")
	s.Rollback(t, "3")
	s.Commit(t, "4")
	ids, _ := collect(t, stream, 3)
	same(t, ids, "1", "2", "4")
}

func resumes(t *testing.T, s Subject) {
	one := s.New(t)
	stream, _ := open(t, one, "")
	s.Commit(t, "1")
	_, at := collect(t, stream, 1)
	s.Commit(t, "2")
	collect(t, stream, 1)
	shut(t, stream)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again, err := one.Open(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, again)
	ids, _ := collect(t, again, 1)
	same(t, ids, "2")
}

func largeTransaction(t *testing.T, s Subject) {
	one := s.New(t)
	stream, first := open(t, one, "")
	want := make([]string, 5000)
	for i := range want {
		want[i] = fmt.Sprint(i + 1)
	}
	s.Commit(t, want...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got []string
	positions := 0
	for len(got) < len(want) {
		b, err := stream.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range b.Rows {
			if int(r.Index) != len(got) {
				t.Fatalf("row %d has index %d", len(got), b.Rows[i].Index)
			}
			got = append(got, string(r.Values[0].Data))
		}
		if b.Position != "" && len(b.Rows) > 0 {
			positions++
		}
	}
	same(t, got, want...)
	if positions > 1 {
		t.Errorf("%d positions inside one transaction", positions)
	}
	shut(t, stream)
	again, err := one.Open(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(t, again)
	ids, _ := collect(t, again, len(want))
	if len(ids) != len(want) {
		t.Errorf("%d rows the second time, want the whole transaction", len(ids))
	}
}

// Written while nobody reads, several transactions share a batch.
func borders(t *testing.T, s Subject) {
	one := s.New(t)
	stream, first := open(t, one, "")
	shut(t, stream)
	s.Commit(t, "1", "2")
	s.Commit(t, "3")
	s.Commit(t, "4", "5")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := one.Open(ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	places := map[int]source.Position{} // rows before it -> place
	for n := 0; n < 5; {
		b, err := stream.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Rows {
			if at := b.At(i + 1); at != "" {
				places[n+i+1] = at
			}
		}
		n += len(b.Rows)
	}
	shut(t, stream)
	if len(places) != 3 {
		t.Fatalf("places %v, want one behind each of three transactions", places)
	}
	all := []string{"1", "2", "3", "4", "5"}
	for _, n := range []int{2, 3} { // forwards: a server may forget what is before a place that was opened
		again, err := one.Open(ctx, places[n])
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := collect(t, again, len(all)-n)
		same(t, ids, all[n:]...)
		shut(t, again)
	}
}

func confirms(t *testing.T, s Subject) {
	one := s.New(t)
	stream, _ := open(t, one, "")
	s.Commit(t, "1")
	_, at := collect(t, stream, 1)
	stream.Confirm(at)
	s.Commit(t, "2")
	collect(t, stream, 1)
	shut(t, stream)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		again, err := one.Open(ctx, at)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		ids, _ := collect(t, again, 1)
		same(t, ids, "2")
		shut(t, again)
	}
}

func leaseIsExclusive(t *testing.T, s Subject) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := s.New(t).Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	waits, got := make(chan string, 10), make(chan source.Lease, 1)
	go func() {
		l, err := s.New(t).Acquire(ctx, func(holder string) { waits <- holder })
		if err != nil {
			t.Errorf("second acquire: %v", err)
		}
		got <- l
	}()
	select {
	case <-waits:
	case l := <-got:
		t.Fatalf("two holders (%v)", l)
	case <-ctx.Done():
		t.Fatal("the second is neither told to wait nor given the lease")
	}
	if !first.Valid() {
		t.Error("the first holder lost it by being asked for it")
	}
	release(t, first)
	if first.Valid() {
		t.Error("valid after release")
	}
	if second := <-got; second != nil {
		release(t, second)
	}
}

func strangePositions(t *testing.T, s Subject) {
	one := s.New(t)
	stream, _ := open(t, one, "")
	shut(t, stream)
	for p, code := range map[source.Position]string{
		"": fault.CodeCheckpointUnreadable, "x": fault.CodeCheckpointUnreadable, "fake:7": fault.CodeCheckpointUnreadable,
		"fake1?n=7": fault.CodeForeign, // of another source
	} {
		_, err := one.Open(t.Context(), p)
		if !fault.Is(err, code) || fault.ExitCode(err) != fault.ExitPosition {
			t.Errorf("position %q: %v, want %s", p, err, code)
		}
	}
}

func autoWithRows(t *testing.T, s Subject) {
	s.Commit(t, "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	one := s.New(t)
	lease, err := one.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer release(t, lease)
	if _, err := one.Begin(ctx, source.First{Mode: source.StartAuto}); !fault.Is(err, fault.CodeStartChoice) {
		t.Errorf("auto with rows: %v", err)
	}
	if _, err := one.Begin(ctx, source.First{Mode: source.StartResume}); fault.ExitCode(err) != fault.ExitPosition {
		t.Errorf("resume without a place: %v", err)
	}
	if _, err := one.Begin(ctx, source.First{Mode: source.StartNow, Intended: true}); err != nil {
		t.Errorf("now after that: %v", err)
	}
}

// A crash between Begin and the save of its place: where the server keeps the
// place, the next Begin goes on from it, and what was committed in between is
// not lost. Elsewhere the first start begins anew.
func intendedStart(t *testing.T, s Subject) {
	one := s.New(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := one.Acquire(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Begin(ctx, source.First{Mode: source.StartNow}); err != nil {
		t.Fatal(err)
	}
	want := []string{"2"}
	s.Commit(t, "1")
	if s.KeepsPlace {
		want = []string{"1", "2"}
	}
	at, err := one.Begin(ctx, source.First{Mode: source.StartNow, Intended: true})
	if err != nil {
		t.Fatal(err)
	}
	release(t, lease)
	stream, _ := open(t, one, at)
	defer shut(t, stream)
	s.Commit(t, "2")
	ids, _ := collect(t, stream, len(want))
	same(t, ids, want...)
}

func ends(t *testing.T, s Subject) {
	stream, _ := open(t, s.New(t), "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for {
		_, err := stream.Next(ctx)
		if err == context.Canceled { //nolint:errorlint // the contract: the cause itself
			break
		}
		if err != nil {
			t.Fatalf("next with a cancelled context: %v", err)
		}
	}
	shut(t, stream)
	if _, err := stream.Next(t.Context()); err == nil {
		t.Error("a batch from a closed stream")
	}
}
