package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxd/outboxd/test/harness"
)

// E02: a damaged checkpoint is a named error, never an older place and never "now".
func TestCheckpointDamaged(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres16", harness.Plain).withTopics()
	p := s.active()
	s.commit(100)
	s.delivered()
	p.Stop(t)
	path := filepath.Join(s.dir, "outboxd.checkpoint")
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

// A checkpoint of another server, or of another connector, is not ours to go on from.
func TestCheckpointForeign(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres15", harness.Plain).withTopics()
	s.env["OUTBOXD_NAME"] = "foreign-" + s.types[0][len("order-"):]
	p := s.active()
	s.commit(10)
	s.delivered()
	p.Stop(t)
	other := harness.NewDatabase(t, "postgres17")
	other.CreateOutbox(t, harness.Plain)
	refused(t, s.start("OUTBOXD_SOURCE_URL="+other.URL("cdc")), 3, "foreign", "server")
	refused(t, s.start("OUTBOXD_NAME=another"), 3, "foreign", "another")
	sibling := harness.NewDatabase(t, "postgres15") // same server, another database
	sibling.CreateOutbox(t, harness.Plain)
	p = s.start("OUTBOXD_SOURCE_URL=" + sibling.URL("cdc"))
	if code := p.Wait(t); code != 2 && code != 3 {
		t.Errorf("another database of the same server: exit code %d, want 2 or 3", code)
	}
	s.finish(s.active(), "checkpoint of another server tried", 0)
}

// E07: the checkpoint file is gone with its volume, the slot is there: nothing is lost.
func TestCheckpointDeleted(t *testing.T) {
	t.Parallel()
	s := newScene(t, "postgres18", harness.Plain).withTopics()
	p := s.active()
	s.commit(100)
	s.delivered()
	p.Stop(t)
	s.commit(100)
	if err := os.Remove(filepath.Join(s.dir, "outboxd.checkpoint")); err != nil {
		t.Fatal(err)
	}
	s.finish(s.active(), "checkpoint deleted", 100)
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
	s := newScene(t, "postgres15", harness.Plain)
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
	s := newScene(t, "postgres17", harness.Plain).withTopics().smallWindow()
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
	harness.Eventually(t, "/status tells that saving fails", func() bool { return p.Status()["save_error"] != nil })
	harness.Never(t, "more than the window was delivered beyond the last save", func() bool {
		_, seen := s.tail.Counts()
		return seen > 50+window || !p.Running()
	})
	if harness.Long() {
		p.WaitCode(t, "/readyz", 503)
	}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s.finish(p, "checkpoint folder read-only for a while", 0)
}
