package verify

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
)

const (
	parts      = 256
	partBuffer = 16 << 10
)

// spill is a set of files that entries are spread over by a key.
type spill struct {
	path  string // of the files, without their number
	seed  maphash.Seed
	files [parts]*os.File // made when they are needed
	bufs  [parts]*bufio.Writer
}

func newSpill(dir, name string) *spill {
	return &spill{path: filepath.Join(dir, name), seed: maphash.MakeSeed()}
}

func (s *spill) buffer(n uint64) (*bufio.Writer, error) {
	if s.bufs[n] == nil {
		f, err := os.OpenFile(fmt.Sprintf("%s.%03d", s.path, n), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, fmt.Errorf("make a temporary file: %w", err)
		}
		s.files[n], s.bufs[n] = f, bufio.NewWriterSize(f, partBuffer)
	}
	return s.bufs[n], nil
}

func (s *spill) close() {
	for _, f := range s.files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// add writes an entry into the file of key.
func (s *spill) add(key, entry []byte) error {
	b, err := s.buffer(maphash.Bytes(s.seed, key) % parts)
	if err != nil {
		return err
	}
	var head [binary.MaxVarintLen64]byte
	if _, err := b.Write(binary.AppendUvarint(head[:0], uint64(len(entry)))); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	if _, err := b.Write(entry); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	return nil
}

// each hands the entries of file n over; they stay good.
func (s *spill) each(n int, take func(entry []byte) error) error {
	if s.bufs[n] == nil {
		return nil
	}
	if err := s.bufs[n].Flush(); err != nil {
		return fmt.Errorf("write a temporary file: %w", err)
	}
	f := s.files[n]
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read a temporary file: %w", err)
	}
	r := bufio.NewReaderSize(f, 256<<10)
	for {
		size, err := binary.ReadUvarint(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		entry := make([]byte, size)
		if err == nil {
			_, err = io.ReadFull(r, entry)
		}
		if err != nil {
			return fmt.Errorf("read a temporary file: %w", err)
		}
		if err := take(entry); err != nil {
			return err
		}
	}
}

// entry writes and reads the fields of one entry.
type entry struct{ b []byte }

func (e *entry) int(v int64)    { e.b = binary.AppendVarint(e.b, v) }
func (e *entry) bytes(v []byte) { e.b = append(binary.AppendUvarint(e.b, uint64(len(v))), v...) }
func (e *entry) string(v string) {
	e.b = append(binary.AppendUvarint(e.b, uint64(len(v))), v...)
}

func (e *entry) readInt() int64 {
	v, n := binary.Varint(e.b)
	e.b = e.b[max(n, 0):]
	return v
}

func (e *entry) readBytes() []byte {
	size, n := binary.Uvarint(e.b)
	e.b = e.b[max(n, 0):]
	v := e.b[:min(size, uint64(len(e.b)))]
	e.b = e.b[len(v):]
	return v
}
