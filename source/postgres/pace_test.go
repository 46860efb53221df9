package postgres

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/zap"
)

// pair gives both ends of a connection over loopback.
func pair(t *testing.T, secure bool) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if ours, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	if secure {
		https := httptest.NewTLSServer(nil)
		defer https.Close()
		theirs = tls.Server(theirs, &tls.Config{Certificates: https.TLS.Certificates})
		ours = tls.Client(ours, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a certificate of the test's own
	}
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}

// Bulk is read in order and whole, and what comes alone after it does not wait
// for more, whether the connection is plain or under TLS, where a record ends anywhere.
func TestStreamInBulk(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ours, theirs := pair(t, secure)
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			at := place{system: "7", timeline: 1, database: "d", slot: "s", publication: 2, lsn: 0x50}
			s, err := startStream(&pgconn.HijackedConn{Conn: ours, Frontend: pgproto3.NewFrontend(ours, ours)}, at,
				newDecoder(at, map[TableName]bool{{"public", "outbox"}: true}, zap.NewNop()), zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			const rows = 150_000
			fill := string(make([]byte, 300))
			go func() {
				lsn := uint64(0x100)
				var m wire
				m = append(m, walData(lsn, relationMessage(1, "public", "outbox", col{"id", 20}, col{"fill", 25}))...)
				for i := range rows {
					lsn += 0x100
					m = append(m, walData(lsn, beginMessage(lsn, commitTime))...)
					m = append(m, walData(lsn, insertMessage(1, strconv.Itoa(i), fill))...)
					m = append(m, walData(lsn, commitMessage(lsn, lsn+0x30, commitTime))...)
					if n := 700 + i%1000; len(m) > n { // in pieces that end anywhere
						_, _ = theirs.Write(m[:n])
						m = append(m[:0], m[n:]...)
					}
				}
				_, _ = theirs.Write(m)
			}()
			for want := 0; want < rows; {
				b := next(t, s, time.Minute)
				if b == nil {
					t.Fatalf("nothing came after %d rows", want)
				}
				for _, r := range b.Rows {
					if got := string(r.Values[0].Data); got != strconv.Itoa(want) {
						t.Fatalf("row %s, want %d", got, want)
					}
					want++
				}
			}
			lsn := uint64(1 << 40)
			for range 20 {
				lsn += 0x100
				var m wire
				for _, one := range []wire{walData(lsn, beginMessage(lsn, commitTime)), walData(lsn, insertMessage(1, "one", "")), walData(lsn, commitMessage(lsn, lsn+0x30, commitTime))} {
					m = append(m, one...)
				}
				_, _ = theirs.Write(m)
				if b := next(t, s, time.Minute); b == nil || len(b.Rows) != 1 {
					t.Fatalf("batch %+v behind the bulk", b)
				}
			}
			_ = theirs.Close()
			<-s.ended
		})
	}
}

// The mode follows the rate, and does not go to and fro.
func TestPace(t *testing.T) {
	t.Parallel()
	ours, _ := pair(t, false)
	now := time.Now()
	p := newPace(ours, now)
	for i, c := range []struct {
		bytes, messages int // in a tenth of a second
		bulk            bool
	}{
		{400_000, 400, false}, {600_000, 400, canPace}, {300_000, 300, canPace}, {200_000, 200, false}, {300_000, 300, false},
		{20_000, 600, canPace}, {20_000, 300, canPace}, {20_000, 200, false},
	} {
		now = now.Add(paceWindow)
		p.note(c.bytes, c.messages, now)
		if p.inBulk() != c.bulk {
			t.Errorf("step %d: bulk %v with %d bytes and %d messages", i, p.inBulk(), c.bytes, c.messages)
		}
	}
}
