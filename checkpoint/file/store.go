// Package file keeps a checkpoint in one file.
//
// A save writes a new file beside the old one, syncs it, renames it over the
// old one and syncs the folder, so that after a crash at any point either the
// old or the new checkpoint is there, whole (I6). What can't be read back for
// certain is refused and never taken for "nothing was saved".
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/internal/fault"
)

const variable = "OUTBOXD_CHECKPOINT"

// Store is a checkpoint.Store on a file that belongs to one connector. It is
// not safe for concurrent use; two processes may share the path as long as
// only the holder of the lease saves.
type Store struct {
	path string
	name string
	disk disk
	// ours is true once the file was seen to be absent or to hold our name, so
	// that a save can't bury a checkpoint nobody looked at.
	ours bool
}

// New returns the store of the connector called name. It touches nothing yet.
func New(path, name string) *Store {
	return &Store{path: path, name: name, disk: osDisk{}}
}

// Load reads the checkpoint. It returns checkpoint.ErrNone when there is no
// file in an existing folder; a *fault.Error when the folder is missing, the
// file is damaged or it is another connector's; any other error may pass.
func (s *Store) Load(ctx context.Context) (checkpoint.Checkpoint, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Checkpoint{}, err
	}
	data, err := s.disk.read(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A folder that isn't there (a volume not mounted) says nothing about
		// what was saved in it.
		if err := s.disk.stat(s.folder()); err != nil {
			return checkpoint.Checkpoint{}, s.folderFault(err)
		}
		s.ours = true
		return checkpoint.Checkpoint{}, checkpoint.ErrNone
	case errors.Is(err, syscall.EISDIR):
		return checkpoint.Checkpoint{}, s.unreadable(errors.New("it is a directory"))
	case errors.Is(err, syscall.ENOTDIR):
		return checkpoint.Checkpoint{}, s.folderFault(err)
	case err != nil:
		return checkpoint.Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	c, err := decode(data)
	if err != nil {
		return checkpoint.Checkpoint{}, s.unreadable(err)
	}
	if c.Name != s.name {
		return checkpoint.Checkpoint{}, s.foreign(c.Name)
	}
	s.ours = true
	return c, nil
}

// Save replaces the checkpoint. When it fails, the one before is still there,
// unless only the last sync of the folder failed: then either may be found
// after a crash of the machine.
func (s *Store) Save(ctx context.Context, c checkpoint.Checkpoint) error {
	if c.Name != s.name {
		return s.foreign(c.Name)
	}
	if !s.ours {
		if _, err := s.Load(ctx); err != nil && !errors.Is(err, checkpoint.ErrNone) {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := encode(c)
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	if err := s.replace(s.temp(), s.path, data); err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// Delete removes the checkpoint and what a cut-short save left beside it. A
// damaged file is removed too; another connector's is not.
func (s *Store) Delete(ctx context.Context) error {
	if _, err := s.Load(ctx); err != nil && !errors.Is(err, checkpoint.ErrNone) &&
		!fault.Is(err, fault.CodeCheckpointUnreadable) {
		return err
	}
	for _, path := range []string{s.temp(), s.path} {
		if err := s.disk.remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("delete checkpoint: %w", err)
		}
	}
	if err := s.disk.syncFolder(s.folder()); err != nil {
		return fmt.Errorf("delete checkpoint: %w", err)
	}
	s.ours = true
	return nil
}

// Close does nothing: no file is kept open.
func (s *Store) Close() error { return nil }

func (s *Store) folder() string { return filepath.Dir(s.path) }
func (s *Store) temp() string   { return s.path + ".tmp" }

func (s *Store) unreadable(cause error) error {
	return fault.Position(fault.CodeCheckpointUnreadable,
		"Restore the file from a copy, or remove it with `outboxd checkpoint delete`.",
		cause, "checkpoint file %q can't be read back", s.path)
}

func (s *Store) foreign(name string) error {
	return fault.Position(fault.CodeForeign,
		"Give this connector a file of its own in "+variable+", or set OUTBOXD_NAME to the name the checkpoint was saved under.",
		nil, "checkpoint file %q: it is for connector %q, this one is %q", s.path, name, s.name)
}
