package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/activity"
	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/pipeline"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/source/sourcetest"
	"github.com/outboxd/outboxd/transform"
)

// configure loads a configuration whose checkpoint is in a folder of its own.
func configure(t *testing.T, more ...string) *config.Config {
	t.Helper()
	c, _, err := config.Load(append([]string{
		"OUTBOXD_SOURCE_URL=postgres://relay@127.0.0.1:1/shop", "OUTBOXD_KAFKA_BROKERS=127.0.0.1:1",
		"OUTBOXD_CHECKPOINT=file:" + filepath.Join(t.TempDir(), "place"),
	}, more...))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fake is a database without a server.
type fake struct {
	*sourcetest.Fake
	made bool
}

func (fake) Check(context.Context, source.Start) []preflight.Result { return nil }
func (fake) Statements() []string                                   { return nil }
func (f fake) Setup(context.Context) (made bool, _ error)           { return f.made, nil }

func (fake) Locate(_ context.Context, text string, _ source.Position) (source.Position, error) {
	if text == "gone" {
		return "", fault.Position(fault.CodePositionLost, "compare", nil, "it is gone")
	}
	return source.Position("fake:" + text), nil
}

func logs() (*zap.Logger, *observer.ObservedLogs) {
	core, seen := observer.New(zap.DebugLevel)
	return zap.New(core), seen
}

func save(t *testing.T, c *config.Config, pos source.Position) {
	t.Helper()
	if err := newStore(c, zap.NewNop()).Save(t.Context(), checkpoint.Checkpoint{Name: c.Name, Position: pos, SavedAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
}

func TestDeleteCheckpoint(t *testing.T) {
	t.Parallel()
	c := configure(t)
	save(t, c, "here")
	log, seen := logs()
	db := sourcetest.NewFake()

	db.LoseLease(true) // somebody is active
	err := deleteCheckpoint(t.Context(), db, c, log)
	if !fault.Is(err, fault.CodeLeaseHeld) || fault.ExitCode(err) != fault.ExitConfig || !strings.Contains(err.Error(), "another") {
		t.Fatalf("beside an active instance: %v", err)
	}
	if place, saved, err := ShowCheckpoint(t.Context(), c, zap.NewNop()); !saved || err != nil || place.Position != "here" {
		t.Fatalf("%+v, %v, %v", place, saved, err)
	}
	if seen.Len() != 0 {
		t.Errorf("logged %v", seen.All())
	}

	db.FreeLease()
	if err := deleteCheckpoint(t.Context(), db, c, log); err != nil {
		t.Fatal(err)
	}
	if _, saved, err := ShowCheckpoint(t.Context(), c, zap.NewNop()); saved || err != nil {
		t.Errorf("saved %v, %v", saved, err)
	}
	audits := seen.FilterMessage("audit").All()
	if len(audits) != 1 {
		t.Fatalf("%d audit lines", len(audits))
	}
	if f := audits[0].ContextMap(); f["before"] != "here" || f["after"] != "none" || f["action"] != "checkpoint delete" || f["actor"] == "" || !strings.Contains(f["object"].(string), c.Name) {
		t.Errorf("audit line %v", f)
	}
}

// starting is a store whose brokers answer after some tries.
type starting struct {
	checkpoint.Store
	fails, tries int
	err          error
}

func (s *starting) Load(context.Context) (checkpoint.Checkpoint, error) {
	if s.tries++; s.tries <= s.fails {
		return checkpoint.Checkpoint{}, s.err
	}
	return checkpoint.Checkpoint{Position: "here"}, nil
}

// A command waits for brokers that have just started, but not for ever.
func TestLoadWaitsForTheBrokers(t *testing.T) {
	t.Parallel()
	leaderless := errors.New("no leader")
	foreign := fault.Position(fault.CodeForeign, "", nil, "another's")
	for name, c := range map[string]struct {
		store starting
		place string
		tries int
		want  error
		code  string
		after time.Duration
	}{
		"at once":       {starting{}, "kafka:places", 1, nil, "", 0},
		"a moment":      {starting{fails: 3, err: leaderless}, "kafka:places", 4, nil, "", 3 * pause},
		"never":         {starting{fails: 1000, err: leaderless}, "kafka:places", 41, leaderless, fault.CodeNotReached, patience},
		"a fault":       {starting{fails: 1000, err: foreign}, "kafka:places", 1, foreign, fault.CodeForeign, 0},
		"nothing saved": {starting{fails: 1000, err: checkpoint.ErrNone}, "kafka:places", 1, checkpoint.ErrNone, "", 0},
		"a file":        {starting{fails: 1000, err: leaderless}, "file:place", 1, leaderless, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := configure(t, "OUTBOXD_CHECKPOINT="+c.place)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := load(t.Context(), &c.store, cfg)
				if !errors.Is(err, c.want) || c.code != "" && !fault.Is(err, c.code) || c.store.tries != c.tries || time.Since(began) != c.after {
					t.Errorf("after %v and %d tries: %v", time.Since(began), c.store.tries, err)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := load(ctx, &starting{fails: 1000, err: leaderless}, configure(t, "OUTBOXD_CHECKPOINT=kafka:places"))
		if !fault.Is(err, fault.CodeNotReached) || time.Since(began) != time.Second {
			t.Errorf("a command that is cut: %v after %v", err, time.Since(began))
		}
	})
}

func TestDeleteDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	c := configure(t)
	if err := os.WriteFile(c.Checkpoint.Path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, seen := logs()
	if err := deleteCheckpoint(t.Context(), sourcetest.NewFake(), c, log); err != nil {
		t.Fatal(err)
	}
	if f := seen.All()[0].ContextMap(); f["before"] != "unreadable" {
		t.Errorf("audit line %v", f)
	}
}

func TestForeignCheckpointIsNotDeleted(t *testing.T) {
	t.Parallel()
	c := configure(t)
	other := *c
	other.Name = "other"
	save(t, &other, "there")
	err := deleteCheckpoint(t.Context(), sourcetest.NewFake(), c, zap.NewNop())
	if !fault.Is(err, fault.CodeForeign) {
		t.Fatal(err)
	}
	if place, _, err := ShowCheckpoint(t.Context(), &other, zap.NewNop()); err != nil || place.Position != "there" {
		t.Error(place, err)
	}
}

func TestSetupMakesTheFirstPlaceOnce(t *testing.T) {
	t.Parallel()
	c := configure(t)
	log, seen := logs()
	db := fake{sourcetest.NewFake(), true}
	run := func() ([]string, error) {
		s := setup{c: c, log: log, run: db, admin: db}
		err := s.make(t.Context(), SetupOptions{Start: "now"})
		return s.lines, err
	}

	broken := errors.New("cut off")
	db.FailBegin(broken)
	if _, err := run(); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if place, saved, err := ShowCheckpoint(t.Context(), c, zap.NewNop()); err != nil || !saved || !place.Intent() {
		t.Fatalf("no intent is left (I6): %+v, %v, %v", place, saved, err)
	}

	db.FailBegin(nil)
	if _, err := run(); err != nil {
		t.Fatal(err)
	}
	first, _, err := ShowCheckpoint(t.Context(), c, zap.NewNop())
	if err != nil || first.Intent() {
		t.Fatalf("%+v, %v", first, err)
	}
	n := seen.FilterMessage("audit").Len()

	db.made = false
	lines, err := run()
	if err != nil || len(lines) != 2 || !strings.Contains(lines[0], "is there already") || !strings.Contains(lines[1], "is there already") {
		t.Fatal(lines, err)
	}
	if again, _, err := ShowCheckpoint(t.Context(), c, zap.NewNop()); err != nil || !again.Equal(first) {
		t.Errorf("the place has moved: %+v, %v", again, err)
	}
	if seen.FilterMessage("audit").Len() != n {
		t.Error("an audit line although nothing was made")
	}

	db.LoseLease(true)
	if _, err := run(); !fault.Is(err, fault.CodeLeaseHeld) {
		t.Errorf("beside an active instance: %v", err)
	}
}

func TestMappingIsToldOncePerShape(t *testing.T) {
	t.Parallel()
	log, seen := logs()
	validate, err := validator(configure(t), logMapping(log))
	if err != nil {
		t.Fatal(err)
	}
	column := func(names ...string) *source.Table {
		table := &source.Table{Schema: "public", Name: "outbox"}
		for _, n := range names {
			table.Columns = append(table.Columns, source.Column{Name: n})
		}
		return table
	}
	for range 2 {
		if err := validate(column("id", "aggregate_id", "payload")); err != nil {
			t.Fatal(err)
		}
	}
	if n := seen.FilterMessage("table").Len(); n != 1 {
		t.Errorf("told %d times", n)
	}
	if err := validate(column("id", "payload")); err != nil {
		t.Fatal(err)
	}
	if n := seen.FilterLevelExact(zap.WarnLevel).Len(); n != 1 {
		t.Errorf("%d warnings that the event id is the key", n)
	}
	if err := validate(column("id")); !fault.Is(err, fault.CodeTableUnusable) {
		t.Errorf("a table without payload: %v", err)
	}
}

func TestMappingResult(t *testing.T) {
	t.Parallel()
	r := mappingResult(transform.Mapping{Table: "public.o", ID: "id", Payload: "p", Topic: "t", Warning: "no key"})
	if r.Status != preflight.Warn || r.Found != `public.o: id "id", key "id", value "p", topic t, headers none` || len(r.Fix) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestCheckTellsOfTheStore(t *testing.T) {
	t.Parallel()
	expect := func(c *config.Config, want ...string) {
		t.Helper()
		var got []string
		for _, r := range checkStore(t.Context(), c, zap.NewNop()) {
			got = append(got, fmt.Sprintf("%s %s %s", r.Status, r.ID, r.Found))
		}
		if len(got) != len(want) {
			t.Errorf("%q, want %q", got, want)
			return
		}
		for i := range want {
			for part := range strings.SplitSeq(want[i], "…") {
				if !strings.Contains(got[i], part) {
					t.Errorf("%q lacks %q", got[i], part)
				}
			}
		}
	}
	c := configure(t, "OUTBOXD_START=now")
	expect(c, "OK checkpoint.writable", "OK checkpoint.place none…OUTBOXD_START=now")
	save(t, c, "")
	expect(c, "OK checkpoint.writable", "OK checkpoint.place none")
	save(t, c, "here")
	expect(c, "OK checkpoint.writable", "OK checkpoint.place position here, saved at ")
	if err := os.WriteFile(c.Checkpoint.Path, []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	expect(c, "OK checkpoint.writable", "FAIL checkpoint.place checkpoint_unreadable")
	c.Checkpoint.Path = filepath.Join(t.TempDir(), "absent", "place")
	expect(c, "FAIL checkpoint.writable…absent")
	if r := checkStore(t.Context(), c, zap.NewNop()); len(r[0].Fix) != 1 {
		t.Errorf("%+v", r)
	}
	expect(configure(t, "OUTBOXD_CHECKPOINT=kafka:places"), "FAIL kafka.checkpoint_topic…127.0.0.1:1")
}

// Nobody answers, or somebody who speaks another protocol: check names a fix for each thing it finds.
func TestCheckAlwaysNamesAFix(t *testing.T) {
	t.Parallel()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	go func() {
		for {
			conn, err := stranger.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH\r\n"))
			_ = conn.Close()
		}
	}()
	for _, address := range []string{"127.0.0.1:1", stranger.Addr().String()} {
		for _, scheme := range []string{"postgres", "mysql"} {
			c := configure(t, "OUTBOXD_SOURCE_URL="+scheme+"://relay@"+address+"/shop", "OUTBOXD_KAFKA_BROKERS="+address, "OUTBOXD_CHECKPOINT=kafka:places")
			results, err := Check(t.Context(), c, false, zap.NewNop())
			if err != nil || len(results) < 3 {
				t.Fatal(results, err)
			}
			for _, r := range results {
				if r.Status != preflight.Fail || len(r.Fix) != 1 || !strings.Contains(r.Fix[0], "OUTBOXD_") || strings.ContainsAny(r.Found, "\n\t") {
					t.Errorf("%s at %s: %+v", scheme, address, r)
				}
			}
		}
	}
}

func TestUnknownPartsAreRefused(t *testing.T) {
	t.Parallel()
	c := configure(t)
	c.Source.Scheme, c.Sink = "sqlite", "pigeon"
	if _, err := newSource(c, c.Source.Login, nil, zap.NewNop()); err == nil {
		t.Error("a source was built")
	}
	if _, err := openSink(c, nil, nil, zap.NewNop()); err == nil {
		t.Error("a sink was built")
	}
}

// TestRunStopsBeforeAnythingIsReached: a stop while the database is awaited is
// a clean one, and so it is while the brokers are, which hold the checkpoint.
func TestRunStopsBeforeAnythingIsReached(t *testing.T) {
	t.Parallel()
	for _, more := range [][]string{
		nil,
		{"OUTBOXD_CHECKPOINT=kafka:places"},
		{"OUTBOXD_CHECKPOINT=kafka:places", "OUTBOXD_SOURCE_URL=mysql://relay@127.0.0.1:1/shop"},
	} {
		c := configure(t, append(more, "OUTBOXD_HTTP_ADDR=127.0.0.1:0")...)
		stop := make(chan struct{})
		close(stop)
		log, seen := logs()
		if err := Run(t.Context(), stop, c, Build{}, nil, log); err != nil {
			t.Fatal(more, err)
		}
		if seen.FilterMessage("stopped").Len() != 1 {
			t.Errorf("%v: logged %v", more, seen.All())
		}
	}
}

func TestPartsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://relay@127.0.0.1:1/shop": "*postgres.Source", "mysql://relay@127.0.0.1:1/shop": "*mysql.Source", "mariadb://relay@127.0.0.1:1/shop": "*mysql.Source",
	} {
		c := configure(t, "OUTBOXD_SOURCE_URL="+url)
		if db, err := newSource(c, c.Source.Login, nil, zap.NewNop()); err != nil || fmt.Sprintf("%T", db) != want {
			t.Errorf("%s: %T, %v", url, db, err)
		}
	}
	for setting, want := range map[string]string{"OUTBOXD_CHECKPOINT=file:place": "*file.Store", "OUTBOXD_CHECKPOINT=kafka:places": "*topic.Store"} {
		if s := newStore(configure(t, setting), zap.NewNop()); fmt.Sprintf("%T", s) != want {
			t.Errorf("%s: %T", setting, s)
		}
	}
	c := configure(t, "OUTBOXD_AUTO_SETUP=false", "OUTBOXD_CHECKPOINT=kafka:places")
	if got := topicConfig(c); got.CreateTopic || got.Topic != "places" || got.Name != c.Name || len(got.Conn.Brokers) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestMySQLConfig(t *testing.T) {
	t.Parallel()
	c := configure(t, "OUTBOXD_SOURCE_URL=mysql://relay:geheim@127.0.0.1:1/shop", "OUTBOXD_SOURCE_USER=other", "OUTBOXD_TABLES=a,b.C",
		"OUTBOXD_MYSQL_SERVER_ID=77", "OUTBOXD_MYSQL_POSITION=file", "OUTBOXD_ON_UPDATE=stop", "OUTBOXD_BUFFER_BYTES=3MiB", "OUTBOXD_SNAPSHOT_WHERE=id > 5", "OUTBOXD_SNAPSHOT_ORDER_BY=id")
	got := mysqlConfig(c, c.Source.Login)
	if p, err := got.Password(); err != nil || p != "geheim" {
		t.Errorf("password %q, %v", p, err)
	}
	got.Password, got.Snapshot.Aggregate = nil, nil
	want := mysql.Config{
		URL: "mysql://relay@127.0.0.1:1/shop", User: "other", Name: "shop-a", Tables: []mysql.TableName{{Name: "a"}, {Schema: "b", Name: "C"}},
		ServerID: 77, Place: mysql.PlaceFile, Hold: 3 << 20, OnUpdate: mysql.UpdateStop,
		Snapshot: mysql.Snapshot{Where: "id > 5", OrderBy: "id"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestHostsMayBeAskedFor(t *testing.T) {
	t.Parallel()
	c := configure(t, "OUTBOXD_HTTP_ADDR=127.0.0.1:0", "OUTBOXD_HTTP_HOSTS=relay.example")
	log, seen := logs()
	engine, m, err := build(c, Build{}, newStore(c, log), activity.New(activity.Config{}), nil, log)
	if err != nil {
		t.Fatal(err)
	}
	shut, err := serve(c, Build{}, engine, m, activity.New(activity.Config{}), log)
	if err != nil {
		t.Fatal(err)
	}
	defer shut()
	address := seen.FilterMessage("listening").All()[0].ContextMap()["address"].(string)
	for host, want := range map[string]int{"relay.example": http.StatusOK, "other.example": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d", host, answer.StatusCode)
		}
	}
}

// A URL that only the source can judge, for it opens the files in it, is a fault too.
func TestUnusableURLOfMySQL(t *testing.T) {
	t.Parallel()
	c := configure(t, "OUTBOXD_SOURCE_URL=mysql://relay@127.0.0.1:1/shop?ssl-ca="+filepath.Join(t.TempDir(), "absent"))
	_, err := newSource(c, c.Source.Login, nil, zap.NewNop())
	if !fault.Is(err, fault.CodeConfig) || !strings.Contains(err.Error(), "absent") {
		t.Error(err)
	}
}

func TestReportCarriesTheStatus(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := pipeline.Status{
		State: pipeline.Active, Since: now, Holder: "h", Err: errors.New("e"), Read: "r", Settled: "s", Saved: "v",
		Waits: "w", WaitsFix: "f", InFlightEvents: 1, InFlightBytes: 2, UnsavedEvents: 3, OldestCommit: now.Add(-time.Minute), LastRead: now, LastDelivered: now.Add(1),
		LastSaved: now.Add(2), SaveErr: errors.New("full"), EventsRead: 4, EventsDelivered: 5, Sessions: 6,
	}
	r := report("n", "v", s, nil, now)
	if r.State != "active" || r.Lag != time.Minute || r.Read != "r" || r.Settled != "s" || r.Waits != "w" || r.WaitsFix != "f" || r.Saved != "v" || r.InFlightEvents != 1 ||
		r.InFlightBytes != 2 || r.UnsavedEvents != 3 || r.EventsRead != 4 || r.EventsDelivered != 5 || r.Sessions != 6 ||
		!r.LastDelivered.Equal(s.LastDelivered) || !r.LastSaved.Equal(s.LastSaved) || r.SaveErr == nil || r.Err == nil || r.Name != "n" || r.Version != "v" {
		t.Errorf("%+v", r)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := NewLogger(&out, "warn", "json")
	log.Info("quiet")
	log.Warn("loud", zap.Duration("d", time.Second))
	if s := out.String(); strings.Contains(s, "quiet") || !strings.Contains(s, `"msg":"loud"`) || !strings.Contains(s, `"d":"1s"`) {
		t.Error(s)
	}
	out.Reset()
	NewLogger(&out, "", "console").Info("shown")
	if s := out.String(); !strings.Contains(s, "INFO\tshown") {
		t.Error(s)
	}
}
