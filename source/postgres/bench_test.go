package postgres

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"go.uber.org/zap"
)

// BenchmarkParse compares the CPU time a row takes from the message to its
// values with pglogrepl's parser, in one run: the metric "ratio" says how many of ours
// one of theirs is worth.
//
//	go test -run - -bench Parse ./source/postgres
func BenchmarkParse(b *testing.B) {
	const perTransaction = 10
	relation := relationMessage(1, "public", "outbox", outboxColumns...)
	begin, commit := beginMessage(1, commitTime), commitMessage(1, 2, commitTime)
	row := insertMessage(1, "12345", "customer-77", `{"order": 12345, "amount": 10.50, "note": "`+strings.Repeat("x", 250)+`"}`, `\x00ff`)
	frame := func(m wire) []byte { return walData(1, m)[5:] } // as it stands in the read buffer
	frames := [][]byte{frame(begin)}
	for range perTransaction {
		frames = append(frames, frame(row))
	}
	frames = append(frames, frame(commit))

	d := newDecoder(place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: 1}, map[TableName]bool{{"public", "outbox"}: true}, zap.NewNop())
	s := &stream{dec: d}
	if err := d.message(relation); err != nil {
		b.Fatal(err)
	}
	ours := func() {
		for _, f := range frames {
			if err := s.copyData(f); err != nil {
				b.Fatal(err)
			}
		}
		if d.full() {
			d.batch()
		}
	}
	theirs := func() {
		for _, f := range frames {
			x, err := pglogrepl.ParseXLogData(f[1:])
			if err != nil {
				b.Fatal(err)
			}
			m, err := pglogrepl.Parse(x.WALData)
			if err != nil {
				b.Fatal(err)
			}
			if i, ok := m.(*pglogrepl.InsertMessage); ok && len(i.Tuple.Columns) != len(outboxColumns) {
				b.Fatal("a row of another shape")
			}
		}
	}
	var took [2]time.Duration
	b.ReportAllocs()
	for b.Loop() {
		for i, parse := range []func(){ours, theirs} { // by turns, so that both meet the same noise
			began := cpu()
			for range 100 {
				parse()
			}
			took[i] += cpu() - began
		}
	}
	b.StopTimer()
	rows := float64(b.N * 100 * perTransaction)
	b.ReportMetric(float64(took[0].Nanoseconds())/rows, "own-ns/row")
	b.ReportMetric(float64(took[1].Nanoseconds())/rows, "pglogrepl-ns/row")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ratio")
}

// cpu is the processor time of this process so far, the collector's too.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail for SELF
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
