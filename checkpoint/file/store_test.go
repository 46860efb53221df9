package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/checkpoint/checkpointtest"
	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

const name = "orders"

func at(position source.Position) checkpoint.Checkpoint {
	return checkpoint.Checkpoint{Name: name, Position: position, SavedAt: time.Unix(1, 5)}
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func entries(t *testing.T, folder string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestContract(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t *testing.T) checkpointtest.Place {
		path := filepath.Join(t.TempDir(), "place")
		return checkpointtest.Place{
			Open: func(_ *testing.T, name string) checkpoint.Store { return New(path, name) },
			Corrupt: func(t *testing.T) {
				data := read(t, path)
				write(t, path, data[:len(data)/2])
			},
		}
	})
}

// Every way a file can be damaged is refused by its own reason, and stays as it is.
func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	good, err := encode(at("pg1;1;0/10"))
	if err != nil {
		t.Fatal(err)
	}
	swap := func(from, to string) []byte { return []byte(strings.Replace(string(good), from, to, 1)) }
	for _, c := range []struct {
		name string
		data []byte
		says string
	}{
		{"empty", nil, "it is empty"},
		{"NULs", make([]byte, len(good)), "no whole JSON object"},
		{"NULs behind it", append(append([]byte(nil), good...), 0, 0), "no whole JSON object"},
		{"half", good[:len(good)/2], "no whole JSON object"},
		{"two of them", append(append([]byte(nil), good...), good...), "no whole JSON object"},
		{"not an object", []byte(`"orders"`), "no whole JSON object"},
		{"another object", []byte(`{}`), "its version is 0"},
		{"a later version", swap(`"version":1`, `"version":2`), "its version is 2"},
		{"a changed position", swap("0/10", "0/11"), "its checksum does not fit"},
		{"a changed name", swap("orders", "orderz"), "its checksum does not fit"},
		{"a changed time", swap("1970", "1971"), "its checksum does not fit"},
		{"a changed checksum", swap("sha256:", "sha256:0"), "its checksum does not fit"},
		{"no checksum", swap(`"checksum"`, `"checksun"`), "its checksum does not fit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "place")
			write(t, path, c.data)
			_, err := New(path, name).Load(t.Context())
			f := fault.As(err)
			if f == nil || f.Code != fault.CodeCheckpointUnreadable || f.Exit != fault.ExitPosition {
				t.Fatalf("Load: %v", err)
			}
			if !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Fatalf("Load: %v; want it to name the file and say %q", err, c.says)
			}
			if string(read(t, path)) != string(c.data) {
				t.Fatal("the damaged file was touched")
			}
		})
	}
}

func TestEveryFlippedBitIsSeen(t *testing.T) {
	t.Parallel()
	want := at("pg1;1;0/10")
	good, err := encode(want)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[i] ^= 1 << bit
			if c, err := decode(bad); err == nil && !c.Equal(want) {
				t.Fatalf("byte %d bit %d: %q was taken for %+v", i, bit, bad, c)
			}
		}
	}
}

func TestFileIsADirectory(t *testing.T) {
	t.Parallel()
	s := New(t.TempDir(), name)
	if _, err := s.Load(t.Context()); !fault.Is(err, fault.CodeCheckpointUnreadable) {
		t.Fatalf("Load: %v", err)
	}
	if err := s.Save(t.Context(), at("1")); !fault.Is(err, fault.CodeCheckpointUnreadable) {
		t.Fatalf("Save: %v", err)
	}
}

// A volume that isn't mounted must not look like a first start (I6).
func TestMissingFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "not-there")
	for _, path := range []string{filepath.Join(folder, "place"), filepath.Join(folder, "deeper", "place")} {
		s := New(path, name)
		_, err := s.Load(t.Context())
		wantConfigFault(t, err, filepath.Dir(path))
		wantConfigFault(t, s.Check(t.Context()), filepath.Dir(path))
	}
}

func TestFolderIsAFile(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "file")
	write(t, folder, nil)
	s := New(filepath.Join(folder, "place"), name)
	_, err := s.Load(t.Context())
	wantConfigFault(t, err, folder)
	wantConfigFault(t, s.Check(t.Context()), folder)
}

func wantConfigFault(t *testing.T, err error, folder string) {
	t.Helper()
	f := fault.As(err)
	if f == nil || f.Code != fault.CodeConfig || f.Exit != fault.ExitConfig {
		t.Fatalf("got %v, want %s", err, fault.CodeConfig)
	}
	if !strings.Contains(f.Found, "OUTBOXD_CHECKPOINT") || !strings.Contains(f.Found, folder) {
		t.Fatalf("%v: must name the variable and folder %s", err, folder)
	}
}

func TestFileIsPrivateAndAlone(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "place")
	// What an earlier crash left behind must neither be read nor lend its mode.
	if err := os.WriteFile(path+".tmp", []byte("half a save"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := New(path, name)
	if _, err := s.Load(t.Context()); !errors.Is(err, checkpoint.ErrNone) {
		t.Fatalf("Load: %v", err)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	for _, position := range []source.Position{"1", "2"} {
		if err := s.Save(t.Context(), at(position)); err != nil {
			t.Fatalf("Save: %v", err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatalf("Check: %v", err)
	}
	if got := entries(t, folder); len(got) != 1 {
		t.Fatalf("folder holds %q", got)
	}
	if c, err := s.Load(t.Context()); err != nil || !c.Equal(at("2")) {
		t.Fatalf("Check changed the checkpoint: %+v, %v", c, err)
	}
}

func TestTextThatJSONWouldAlterIsNotSaved(t *testing.T) {
	t.Parallel()
	s := New(filepath.Join(t.TempDir(), "place"), name)
	if err := s.Save(t.Context(), at("\xff")); err == nil {
		t.Fatal("saved a position that can't be read back")
	}
}

// faulty fails one operation.
type faulty struct {
	osDisk
	op  string
	err error
}

func (d *faulty) fail(op string) error {
	if d.op == op {
		return d.err
	}
	return nil
}

func (d *faulty) read(path string) ([]byte, error) {
	if err := d.fail("read"); err != nil {
		return nil, err
	}
	return d.osDisk.read(path)
}

func (d *faulty) write(path string, data []byte) error {
	if err := d.fail("write"); err != nil {
		// As a full disk does: some of it is there.
		_ = d.osDisk.write(path, data[:len(data)/2])
		return err
	}
	return d.osDisk.write(path, data)
}

func (d *faulty) rename(from, to string) error {
	if err := d.fail("rename"); err != nil {
		return err
	}
	return d.osDisk.rename(from, to)
}

func (d *faulty) syncFolder(path string) error {
	if err := d.fail("sync folder"); err != nil {
		return err
	}
	return d.osDisk.syncFolder(path)
}

func TestFailingDisk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		op    string
		err   error
		after source.Position // what a later Load finds
	}{
		{"write", syscall.ENOSPC, "old"},
		{"write", syscall.EIO, "old"},
		{"rename", syscall.EIO, "old"},
		{"sync folder", syscall.EIO, "new"},
	} {
		t.Run(c.op+" "+c.err.Error(), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			path := filepath.Join(folder, "place")
			if err := New(path, name).Save(t.Context(), at("old")); err != nil {
				t.Fatal(err)
			}
			d := &faulty{op: c.op, err: c.err}
			s := New(path, name)
			s.disk = d
			if err := s.Save(t.Context(), at("new")); !errors.Is(err, c.err) || fault.As(err) != nil {
				t.Fatalf("Save: %v; want a plain error for %v", err, c.err)
			}
			if err := s.Check(t.Context()); !errors.Is(err, c.err) || fault.As(err) != nil {
				t.Fatalf("Check: %v; want a plain error for %v", err, c.err)
			}
			if got, err := New(path, name).Load(t.Context()); err != nil || !got.Equal(at(c.after)) {
				t.Fatalf("Load: %+v, %v", got, err)
			}
			if got := entries(t, folder); len(got) != 1 {
				t.Fatalf("folder holds %q", got)
			}
			d.op = ""
			if err := s.Save(t.Context(), at("newer")); err != nil {
				t.Fatalf("Save on a mended disk: %v", err)
			}
		})
	}
}

// Root may write anywhere, so the refusals are injected.
func TestRefusingDisk(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		folder := t.TempDir()
		s := New(filepath.Join(folder, "place"), name)
		s.disk = &faulty{op: "write", err: &fs.PathError{Op: "open", Path: "x", Err: cause}}
		wantConfigFault(t, s.Check(t.Context()), folder)

		s.disk = &faulty{op: "read", err: &fs.PathError{Op: "open", Path: "x", Err: cause}}
		if _, err := s.Load(t.Context()); !errors.Is(err, cause) || fault.As(err) != nil || errors.Is(err, checkpoint.ErrNone) {
			t.Fatalf("Load: %v; want a plain error for %v", err, cause)
		}
	}
}
