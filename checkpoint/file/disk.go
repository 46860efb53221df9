package file

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/outboxd/outboxd/internal/fault"
)

// disk is what the store needs of the operating system; tests make it fail.
type disk interface {
	read(path string) ([]byte, error)
	stat(path string) error
	// write makes the file, which must not exist, with mode 0600, and syncs it.
	write(path string, data []byte) error
	rename(from, to string) error
	remove(path string) error
	syncFolder(path string) error
}

// Check proves that a save is possible, by doing one beside the checkpoint
// file, which it leaves alone: another instance may be saving to it now. A
// missing or read-only folder is a *fault.Error that names the variable.
func (s *Store) Check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	probe := s.path + ".probe-" + rand.Text()
	defer s.disk.remove(probe) //nolint:errcheck // it may not exist
	if err := s.replace(probe+".tmp", probe, []byte("probe\n")); err != nil {
		return s.folderFault(err)
	}
	return nil
}

// replace puts data at path, whole or not at all.
func (s *Store) replace(temp, path string, data []byte) error {
	// A cut-short save may have left one, with any content and mode.
	if err := s.disk.remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := s.disk.write(temp, data)
	if err == nil {
		err = s.disk.rename(temp, path)
	}
	if err != nil {
		_ = s.disk.remove(temp)
		return err
	}
	return s.disk.syncFolder(s.folder())
}

// folderFault makes what only the operator can mend a *fault.Error.
func (s *Store) folderFault(err error) error {
	for _, cause := range []error{fs.ErrNotExist, fs.ErrPermission, syscall.ENOTDIR, syscall.EROFS} {
		if errors.Is(err, cause) {
			return fault.Config(fault.CodeConfig,
				"Create the folder and let this user write to it, or name another one in "+variable+".",
				err, "%s=file:%s: nothing can be saved in folder %q", variable, s.path, s.folder())
		}
	}
	return fmt.Errorf("save in folder %q: %w", s.folder(), err)
}

type osDisk struct{}

func (osDisk) read(path string) ([]byte, error) { return os.ReadFile(path) }
func (osDisk) rename(from, to string) error     { return os.Rename(from, to) }
func (osDisk) remove(path string) error         { return os.Remove(path) }

func (osDisk) stat(path string) error {
	_, err := os.Stat(path)
	return err
}

func (osDisk) write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

func (osDisk) syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}
