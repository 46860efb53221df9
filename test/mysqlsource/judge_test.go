package mysqlsource

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// field reads one field of a position's text.
func field(t testing.TB, at source.Position, name string) string {
	t.Helper()
	_, query, _ := strings.Cut(string(at), "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return q.Get(name)
}

// with changes one field of a position's text.
func with(t *testing.T, at source.Position, name, value string) source.Position {
	t.Helper()
	old := name + "=" + url.QueryEscape(field(t, at, name))
	if !strings.Contains(string(at), old) {
		t.Fatalf("position %q has no %s", at, name)
	}
	return source.Position(strings.Replace(string(at), old, name+"="+url.QueryEscape(value), 1))
}

func moved(t *testing.T, at source.Position, bytes int) source.Position {
	t.Helper()
	pos, err := strconv.Atoi(field(t, at, "pos"))
	if err != nil {
		t.Fatal(err)
	}
	return with(t, at, "pos", strconv.Itoa(pos+bytes))
}

// damage is what happens to a place, or to what it names.
type damage struct {
	name string
	do   func(t *testing.T, d database, at source.Position) source.Position
	code string
}

const otherServer = "99999999-0000-1111-2222-333333333333"

var (
	otherKind = damage{"another kind of server", func(_ *testing.T, _ database, at source.Position) source.Position {
		if strings.HasPrefix(string(at), "my1?") {
			return "maria1?by=gtid&file=binlog.000001&pos=4&gtids=0-1-1"
		}
		return "my1?by=gtid&file=binlog.000001&pos=4&gtids=" + otherServer + "%3A1"
	}, fault.CodeForeign}
	fileGone = damage{"a file that is not there", func(t *testing.T, _ database, at source.Position) source.Position {
		return with(t, at, "file", "binlog.777777")
	}, fault.CodePositionLost}
	pastTheEnd = damage{"past the file's end", func(t *testing.T, _ database, at source.Position) source.Position {
		return moved(t, at, 1<<30)
	}, fault.CodeDiverged}
	beyond4GiB = damage{"beyond 4 GiB", func(t *testing.T, _ database, at source.Position) source.Position {
		return moved(t, at, 1<<32)
	}, fault.CodeDiverged}
	inAnEvent = damage{"inside an event", func(t *testing.T, d database, at source.Position) source.Position {
		d.write(t, true, "1")
		return moved(t, at, 20)
	}, fault.CodeDiverged}
	otherGTIDs = damage{"GTIDs the server lacks", func(t *testing.T, _ database, at source.Position) source.Position {
		return with(t, at, "gtids", strings.TrimPrefix(field(t, at, "gtids")+","+otherServer+":1-5", ","))
	}, fault.CodeDiverged}
	laterGTIDs = damage{"GTIDs of the server's future", func(t *testing.T, d database, at source.Position) source.Position {
		uuid := d.session(t).value(t, "SELECT @@server_uuid")
		return with(t, at, "gtids", uuid+":1-1000000000")
	}, fault.CodeDiverged}
	otherUUID = damage{"another server of that address", func(t *testing.T, _ database, at source.Position) source.Position {
		return with(t, at, "uuid", otherServer)
	}, fault.CodeForeign}
	otherDomain = damage{"other GTIDs at the place", func(t *testing.T, _ database, at source.Position) source.Position {
		return with(t, at, "gtids", field(t, at, "gtids")+",7-7-7")
	}, fault.CodeForeign}
	earlierGTIDs = damage{"an earlier GTID at the place", func(t *testing.T, _ database, at source.Position) source.Position {
		return with(t, at, "gtids", "0-1-1")
	}, fault.CodeForeign}
	mariaInEvent = damage{"inside an event", inAnEvent.do, fault.CodeForeign}
)

// Whatever happened to our place is found out when the stream is opened or at its first event, with its
// cause, and never skipped over. Purged logs are further down.
func TestOpenJudgesTheStoredPlace(t *testing.T) {
	file := []damage{otherKind, fileGone, pastTheEnd, beyond4GiB, inAnEvent, otherUUID}
	for _, c := range []struct {
		server  string
		place   mysql.PlaceMode
		damages []damage
	}{
		{"mysql", mysql.PlaceAuto, []damage{otherKind, otherGTIDs, laterGTIDs}},
		{"mysql", mysql.PlaceFile, file},
		{"mysql-nogtid", mysql.PlaceAuto, file},
		{"mariadb1011", mysql.PlaceAuto, []damage{otherKind, fileGone, pastTheEnd, mariaInEvent, otherDomain, earlierGTIDs}},
		{"mariadb118", mysql.PlaceAuto, []damage{otherKind, fileGone, pastTheEnd, mariaInEvent, otherDomain, earlierGTIDs}},
		{"mariadb118", mysql.PlaceFile, []damage{otherKind, fileGone, pastTheEnd, beyond4GiB, mariaInEvent}},
	} {
		for _, damage := range c.damages {
			t.Run(fmt.Sprintf("%s/%s/%s", c.server, c.place, damage.name), func(t *testing.T) {
				t.Parallel()
				d := newDatabase(t, c.server, small)
				config := d.config()
				config.Place = c.place
				s := newSource(t, config)
				f := refused(t, s, damage.do(t, d, begin(t, s)), damage.code)
				d.repair(t, s, f)
			})
		}
	}
}

// refused opens at a place that can't be read from.
func refused(t *testing.T, s source.Source, at source.Position, code string) *fault.Error {
	t.Helper()
	stream, err := s.Open(t.Context(), at)
	if err == nil {
		defer func() { _ = stream.Close(context.Background()) }()
		var read []source.Row
		if read, err = fails(t, stream); len(read) > 0 {
			t.Errorf("%d rows from a place that can't be read from", len(read))
		}
	}
	f := fault.As(err)
	if f == nil || f.Code != code || f.Exit != fault.ExitPosition || f.Fix == "" {
		t.Fatalf("open at %s: %v", at, err)
	}
	return f
}

// repair does what a fault says, and wants rows to come again.
func (d database) repair(t *testing.T, s *mysql.Source, f *fault.Error) []source.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var at source.Position
	var err error
	switch set := regexp.MustCompile("`outboxd checkpoint set --to '?([^`']+)'?`").FindStringSubmatch(f.Fix); {
	case set != nil:
		at, err = s.Locate(ctx, set[1], "")
	case strings.Contains(f.Fix, "`outboxd checkpoint delete`") && strings.Contains(f.Fix, "OUTBOXD_START=now"):
		at, err = s.Begin(ctx, source.First{Mode: source.StartNow})
	default: // an address to correct, or a name
		return nil
	}
	if err != nil {
		t.Fatalf("%s: %v", f.Fix, err)
	}
	st := stream(t, s, at)
	defer func() { _ = st.Close(context.Background()) }()
	d.write(t, true, "4711")
	var read []source.Row
	for len(read) == 0 || string(read[len(read)-1].Values[0].Data) != "4711" {
		b, err := st.Next(ctx)
		if err != nil {
			t.Fatalf("%s: %v", f.Fix, err)
		}
		for _, r := range b.Rows {
			if r.Table.Schema == d.name {
				read = append(read, r)
			}
		}
	}
	return read
}

// A server that was reset, or built anew, gives the same names to other transactions: the same GTIDs, the
// same offsets in the same files. That is seen by the time of the last one's commit.
func TestResetServer(t *testing.T) {
	for _, c := range []struct {
		server string
		place  mysql.PlaceMode
	}{
		{"mysql", mysql.PlaceAuto}, {"mysql", mysql.PlaceFile}, {"mysql-nogtid", mysql.PlaceAuto},
		{"mariadb1011", mysql.PlaceAuto}, {"mariadb118", mysql.PlaceAuto}, {"mariadb118", mysql.PlaceFile},
	} {
		t.Run(c.server+"/"+string(c.place), func(t *testing.T) {
			d := newDatabase(t, c.server, small)
			config := d.config()
			config.Place = c.place
			s := newSource(t, config)
			d.reset(t)
			at := begin(t, s)
			st := stream(t, s, at)
			d.write(t, true, "1")
			_, at = rows(t, st, 1)
			_ = st.Close(t.Context())
			st = stream(t, s, at) // the transaction before the place is the one it was
			d.write(t, true, "2")
			got, at := rows(t, st, 1)
			equal(t, ids(got), "2")
			_ = st.Close(t.Context())
			w := d.session(t)
			second := w.value(t, "SELECT UNIX_TIMESTAMP()")
			harness.Eventually(t, "the next second", func() bool { return w.value(t, "SELECT UNIX_TIMESTAMP()") != second })

			d.reset(t)
			for _, id := range []string{"3", "4", "5"} {
				d.write(t, true, id)
			}
			f := refused(t, s, at, fault.CodeDiverged)
			equal(t, ids(d.repair(t, s, f)), "3", "4", "5", "4711")
		})
	}
}

// reset throws the server's log away, and the GTIDs with it.
func (d database) reset(t *testing.T) {
	t.Helper()
	statement := "RESET MASTER"
	if strings.HasPrefix(d.session(t).value(t, "SELECT VERSION()"), "9.") {
		statement = "RESET BINARY LOGS AND GTIDS"
	}
	d.exec(t, statement)
}

// A log that no longer holds what stands behind our place is a loss. Where it
// holds it all, another file does no harm.
func TestPurgedLog(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		d := newDatabase(t, server, small)
		s := newSource(t, d.config())
		at := begin(t, s)
		d.write(t, true, "1")
		st := stream(t, s, at)
		_, behind := rows(t, st, 1)
		if err := st.Close(t.Context()); err != nil { // the server keeps what somebody reads
			t.Fatal(err)
		}
		d.exec(t, "FLUSH BINARY LOGS")
		w := d.session(t)
		logs := w.table(t, "SHOW BINARY LOGS")
		newest := *logs[len(logs)-1][0]
		next := stream(t, s, behind)
		d.write(t, true, "2")
		got, place := rows(t, next, 1)
		equal(t, ids(got), "2")
		if file := field(t, place, "file"); file != newest {
			t.Errorf("place in %s, the log is in %s", file, newest)
		}
		if err := next.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, "the log is purged: nobody reads it any more", func() bool {
			w.exec(t, "PURGE BINARY LOGS TO '"+newest+"'")
			return *w.table(t, "SHOW BINARY LOGS")[0][0] == newest
		})
		got = d.repair(t, s, refused(t, s, at, fault.CodePositionLost))
		equal(t, ids(got), "2", "4711")
		d.write(t, true, "3")
		got, _ = rows(t, stream(t, s, place), 2)
		equal(t, ids(got), "4711", "3")
	})
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
