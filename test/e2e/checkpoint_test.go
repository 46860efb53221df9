package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/test/checker"
	"github.com/outboxd/outboxd/test/harness"
)

// E02: a damaged checkpoint is a named error, never an older place and never "now".
func TestCheckpointDamaged(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres16")).withTopics()
	s.once(100)
	path := filepath.Join(s.dir, checkpointFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.commit(100)
	digit := bytes.IndexAny(good, "123456789")
	altered := bytes.Clone(good)
	altered[digit] ^= 1
	for name, content := range map[string][]byte{
		"empty": {}, "NULs": make([]byte, len(good)), "half": good[:len(good)/2], "altered": altered,
		"another version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":99`), 1),
		"no JSON":         []byte("0/16B3748\n"), "an empty object": []byte("{}"),
	} {
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		t.Logf("checkpoint: %s", name)
		refused(t, s.start(), 3, "checkpoint_unreadable", "outboxd.checkpoint")
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, content) {
			t.Errorf("%s: the damaged file was touched", name)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	refused(t, s.start(), 3, "checkpoint_unreadable", "outboxd.checkpoint")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	s.finish(s.active(), "checkpoint damaged and restored", 0)
}

// The same for a record of the checkpoint topic.
func TestCheckpointRecordDamaged(t *testing.T) {
	t.Parallel()
	s := newScene(t, stage{"mysql", inTopic, harness.Plain}).named().withTopics()
	s.once(100)
	s.commit(100)
	good := s.placeRecord()
	for name, value := range map[string][]byte{
		"empty": {}, "half": good[:len(good)/2], "no JSON": []byte("binlog.000001:4"), "an empty object": []byte("{}"),
		"another version": bytes.Replace(good, []byte(`"version":1`), []byte(`"version":99`), 1),
		"altered":         bytes.Replace(good, []byte("pos="), []byte("pos=1"), 1),
	} {
		harness.Produce(t, s.checkpoints(), s.key("place"), value)
		t.Logf("checkpoint: %s", name)
		refused(t, s.start(), 3, "checkpoint_unreadable", s.checkpoints())
		if left := s.placeRecord(); !bytes.Equal(left, value) {
			t.Errorf("%s: the damaged record was replaced", name)
		}
	}
	harness.Produce(t, s.checkpoints(), s.key("place"), good)
	s.finish(s.active(), "checkpoint record damaged and restored", 0)
}

// named gives the connector a name that is known here, and returns the scene.
func (s *scene) named() *scene {
	s.env["OUTBOXD_NAME"] = harness.Unique("shop-")
	return s
}

// key is that of one of the connector's records in the checkpoint topic.
func (s *scene) key(kind string) string { return s.env["OUTBOXD_NAME"] + "/" + kind }

// placeRecord is the newest record of the connector's place.
func (s *scene) placeRecord() (value []byte) {
	s.t.Helper()
	for _, r := range harness.Records(s.t, s.checkpoints()) {
		if string(r.Key) == s.key("place") {
			value = r.Value
		}
	}
	return value
}

// The place's record is gone and the birth record is there: what was committed
// meanwhile may be lost, so nothing goes over it.
func TestCheckpointRecordLost(t *testing.T) {
	var stages []stage
	for _, at := range families(0) {
		at.store = inTopic
		stages = append(stages, at)
	}
	eachParallel(t, stages, func(t *testing.T, at stage) {
		s := newScene(t, at).named().withTopics()
		s.once(50)
		harness.Produce(t, s.checkpoints(), s.key("place"), nil)
		s.commit(50)
		s.lost(s.checkpoints(), "outboxd checkpoint delete")
		s.run(3, "checkpoint", "show")
		s.run(0, "checkpoint", "delete", "--yes")
		if out := s.run(0, "checkpoint", "show"); !strings.Contains(out, "nothing was ever saved") {
			t.Errorf("after delete: %s", out)
		}
		if at.postgres() { // its slot is the memory then
			s.finish(s.active(), "checkpoint record lost and forgotten", 50)
			return
		}
		refused(t, s.start("OUTBOXD_START=resume"), 3, "position_lost")
		refused(t, s.start(), 2, "start_choice_needed")
	})
}

// E07: the checkpoint is gone with its volume or its topic, the slot is there: nothing is lost.
func TestCheckpointDeleted(t *testing.T) {
	eachParallel(t, []stage{on("postgres18"), {"postgres16", inTopic, harness.Debezium}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.once(100)
		s.commit(100)
		s.deleteCheckpoint()
		s.finish(s.active(), "checkpoint deleted", 100)
	})
}

// MySQL keeps nothing for us: file or topic deleted leave no trace. resume says
// so, auto does while there are rows, and now jumps.
func TestCheckpointDeletedLeavesNoTrace(t *testing.T) {
	eachParallel(t, append(everywhere(0)[4:], everywhere(1)[4:]...), func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		s.once(50)
		delivered := s.truth()
		s.commit(50)
		jumped := without(s.truth(), delivered)
		s.deleteCheckpoint()
		refused(t, s.start("OUTBOXD_START=resume"), 3, "position_lost")
		refused(t, s.start("OUTBOXD_START=auto"), 2, "start_choice_needed")
		refused(t, s.start("OUTBOXD_START=resume"), 3, "position_lost")
		p := s.active("OUTBOXD_START=now")
		s.commit(50)
		s.tail.WaitEvents(t, 100)
		p.Stop(t)
		checker.Require(t, s.compare("checkpoint deleted and started at now", without(s.truth(), jumped)), 0)
	})
}

func (s *scene) deleteCheckpoint() {
	s.t.Helper()
	if s.store == inTopic {
		harness.DeleteTopic(s.t, s.checkpoints())
		return
	}
	if err := os.Remove(filepath.Join(s.dir, checkpointFile)); err != nil {
		s.t.Fatal(err)
	}
}

// A checkpoint of another server, or of another connector, is not ours to go on from.
func TestCheckpointForeign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from  stage
		to    string
		texts []string
	}{
		{stage{"postgres15", inFile, harness.Plain}, "postgres17", []string{"foreign", "server"}},
		{stage{"mysql", inTopic, harness.Plain}, "mysql-nogtid", []string{"diverged", "server", "OUTBOXD_NAME"}},
		{stage{"mysql", inFile, harness.Debezium}, "mariadb118", []string{"foreign", "server", "OUTBOXD_NAME"}},
		{stage{"mysql-nogtid", inTopic, harness.Binary}, "mysql", []string{"foreign", "server", "OUTBOXD_NAME"}},
		{stage{"mariadb1011", inTopic, harness.Plain}, "mariadb118", []string{"foreign", "server", "OUTBOXD_NAME"}},
		{stage{"mariadb118", inFile, harness.Plain}, "mariadb1011", []string{"foreign", "server", "OUTBOXD_NAME"}},
		{stage{"postgres16", inTopic, harness.Plain}, "mysql", []string{"foreign", "kind of database", "OUTBOXD_NAME"}},
		{stage{"mysql", inTopic, harness.Plain}, "postgres16", []string{"foreign", "kind of database", "OUTBOXD_NAME"}},
	} {
		t.Run(c.from.String()+" to "+c.to, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c.from).named().withTopics()
			s.once(10)
			other := harness.NewDatabase(t, c.to)
			other.CreateOutbox(t, harness.Plain)
			refused(t, s.start("OUTBOXD_SOURCE_URL="+other.URL("cdc")), 3, c.texts...)
			s.finish(s.active(), "checkpoint of another server tried", 0)
		})
	}
	t.Run("another connector's file", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, on("mariadb118")).named().withTopics()
		s.once(10)
		refused(t, s.start("OUTBOXD_NAME=another"), 3, "foreign", "another")
		s.finish(s.active(), "checkpoint of another connector tried", 0)
	})
	t.Run("another database of the server", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, on("postgres15")).named().withTopics()
		s.once(10)
		sibling := harness.NewDatabase(t, "postgres15")
		sibling.CreateOutbox(t, harness.Plain)
		p := s.start("OUTBOXD_SOURCE_URL=" + sibling.URL("cdc"))
		if code := p.Wait(t); code != 2 && code != 3 {
			t.Errorf("another database of the same server: exit code %d, want 2 or 3", code)
		}
		s.finish(s.active(), "checkpoint of another database tried", 0)
	})
}

// Two connectors share a checkpoint topic and know nothing of each other.
func TestCheckpointTopicShared(t *testing.T) {
	t.Parallel()
	one := newScene(t, stage{"mysql", inTopic, harness.Plain}).named().withTopics()
	two := newScene(t, stage{"postgres17", inTopic, harness.Debezium}).named().withTopics()
	two.env["OUTBOXD_CHECKPOINT"] = one.env["OUTBOXD_CHECKPOINT"]
	for range 2 {
		p, q := one.active(), two.active()
		one.commit(100)
		two.commit(100)
		one.delivered()
		two.delivered()
		p.Kill()
		q.Stop(t)
	}
	two.run(0, "checkpoint", "delete", "--yes")
	last := one.active("OUTBOXD_START=resume")
	one.commit(20)                                                      // behind what comes again, so that all of that has come when these have
	one.finish(last, "topic shared", 100+200)                           // at most all that was there at each kill
	two.finish(two.active(), "topic shared, its checkpoint deleted", 0) // the slot is there
}

// With the Kafka sink the checkpoint is in Kafka unless something else is said.
func TestCheckpointByDefault(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("mysql")).named().withTopics()
	s.env["OUTBOXD_CHECKPOINT"], s.store = "", inTopic
	s.once(20)
	s.env["OUTBOXD_CHECKPOINT"] = "kafka:outboxd.checkpoints"
	if s.placeRecord() == nil {
		t.Error("there is no record of the place in outboxd.checkpoints")
	}
	if _, err := os.Stat(filepath.Join(s.dir, checkpointFile)); err == nil {
		t.Error("there is a checkpoint file as well")
	}
	p := s.active("OUTBOXD_START=resume")
	s.commit(20)
	s.finish(p, "checkpoint where it is by default", 0)
	s.run(0, "checkpoint", "delete", "--yes")
}

// A topic that would forget the checkpoint is refused before anything is read.
func TestCheckpointTopicUnfit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		partitions int32
		policy     string
		says       string
	}{
		{"not compacted", 1, "delete", "cleanup.policy"}, {"compacted and deleted", 1, "compact,delete", "cleanup.policy"},
		{"three partitions", 3, "compact", "partition"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachParallel(t, families(1)[:2], func(t *testing.T, at stage) {
				at.store = inTopic
				s := newScene(t, at)
				harness.CreateTopic(t, s.checkpoints(), c.partitions, map[string]string{"cleanup.policy": c.policy})
				refused(t, s.start(), 2, "config_invalid", s.checkpoints(), c.says)
			})
		})
	}
	t.Run("absent, and not to be made", func(t *testing.T) {
		t.Parallel()
		s := newScene(t, stage{"mysql", inTopic, harness.Plain})
		refused(t, s.start("OUTBOXD_AUTO_SETUP=false"), 2, "setup_needed", s.checkpoints(), "cleanup.policy=compact")
		if harness.TopicExists(t, s.checkpoints()) {
			t.Error("it was made")
		}
	})
}

// The checkpoint topic takes nothing for a while. Reading stops at the window's
// limit, and nothing is lost or repeated when it works again.
func TestCheckpointTopicTakesNoSaves(t *testing.T) {
	eachParallel(t, families(1)[:2], func(t *testing.T, at stage) {
		at.store = inTopic
		s := newScene(t, at).withTopics().smallWindow()
		p := s.active()
		s.commit(50)
		s.delivered()
		harness.SetTopic(t, s.checkpoints(), "max.message.bytes", "10")
		s.commit(2000)
		s.stuck(p, 50)
		harness.SetTopic(t, s.checkpoints(), "max.message.bytes", "")
		s.finish(p, "no saves for a while", 0)
	})
}

// stuck wants that a connector that can't save says so, and that reading stops.
func (s *scene) stuck(p *harness.Process, before int) {
	s.t.Helper()
	harness.Eventually(s.t, "/status tells that saving fails", func() bool { return p.Status()["save_error"] != nil })
	harness.Never(s.t, "more than the window was delivered beyond the last save", func() bool {
		_, seen := s.tail.Counts()
		return seen > before+window || !p.Running()
	})
	if harness.Long() {
		p.WaitCode(s.t, "/readyz", 503)
	}
}

// nobody is a user that may not do everything, when the test's may.
func nobody() (id uint32, other bool) {
	if os.Getuid() == 0 {
		return 65534, true
	}
	return 0, false
}

// E04: a folder that can't be written to is refused at the start.
func TestCheckpointFolderUnusable(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres15"))
	refused(t, s.start("OUTBOXD_CHECKPOINT=file:absent/outboxd.checkpoint"), 2, "config_invalid", "absent")

	file := filepath.Join(s.dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, s.start("OUTBOXD_CHECKPOINT=file:"+file+"/outboxd.checkpoint"), 2, "config_invalid", file)

	c := s.command()
	c.User, _ = nobody()
	if err := os.Chmod(s.dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(s.dir, 0o755) })
	refused(t, harness.Start(t, c), 2, "config_invalid", "OUTBOXD_CHECKPOINT")
}

// E04: saving fails in the middle. Reading stops at the window's limit, it is
// not ready, and nothing is lost once the folder is repaired.
func TestCheckpointFolderTurnsReadOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t, on("postgres17")).withTopics().smallWindow()
	c := s.command()
	var other bool
	if c.User, other = nobody(); other {
		if err := os.Chown(s.dir, int(c.User), int(c.User)); err != nil {
			t.Fatal(err)
		}
	}
	p := harness.Start(t, c)
	p.WaitActive(t)
	s.commit(50)
	s.delivered()
	if err := os.Chmod(s.dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(s.dir, 0o755) })
	s.commit(2000)
	s.stuck(p, 50)
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.finish(p, "checkpoint folder read-only for a while", 0)
}
