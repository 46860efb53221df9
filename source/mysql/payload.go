package mysql

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// payload unpacks a compressed transaction (binlog_transaction_compression).
// Its fields are a type, a length and a value each, up to a zero type; what follows is
// the transaction's events without checksums (Transaction_payload_event).
func (d *decoder) payload(e event) error {
	c := cutter{b: e.body}
	compression := uint64(0)
	for {
		kind := c.lenenc()
		if c.short {
			return errShort
		}
		if kind == 0 {
			break
		}
		field := cutter{b: c.bytes(int(c.lenenc()))}
		if kind == 2 {
			compression = field.lenenc()
		}
	}
	switch compression {
	case 255: // none
		return d.events(bytes.NewReader(c.b))
	case 0:
		if d.zstd == nil {
			var err error
			if d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)); err != nil {
				return fmt.Errorf("decompress a transaction: %w", err)
			}
		}
		if err := d.zstd.Reset(bytes.NewReader(c.b)); err != nil {
			return fmt.Errorf("decompress a transaction: %w", err)
		}
		return d.events(d.zstd)
	}
	return fmt.Errorf("decompress a transaction: compression type %d is not known", compression)
}

// events acts on events as they come, so that a large transaction is never unpacked as a whole.
func (d *decoder) events(r io.Reader) error {
	if d.unpacked == nil {
		d.unpacked = bufio.NewReaderSize(nil, unpackedBytes)
	}
	d.unpacked.Reset(r)
	for {
		b, err := nextEvent(d.unpacked)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("decompress a transaction: %w", err)
		}
		inner, err := parseEvent(b, false)
		if err != nil {
			return err
		}
		if inner.kind == eventPayload {
			return errNested
		}
		if err := d.event(inner); err != nil {
			return err
		}
		if d.promise != nil && d.more != nil {
			if err := d.more(); err != nil {
				return err
			}
		}
	}
}

const unpackedBytes = 64 << 10

// nextEvent gives an event's bytes, which hold until the next one is asked for; io.EOF: there is none.
func nextEvent(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(headerBytes)
	switch {
	case errors.Is(err, io.EOF) && len(head) > 0:
		return nil, errShort
	case err != nil:
		return nil, err
	}
	size := int64(le.Uint32(head[9:]))
	if size < headerBytes {
		return nil, errShort
	}
	if size <= unpackedBytes {
		b, err := r.Peek(int(size))
		if err == nil {
			_, _ = r.Discard(int(size))
		}
		return b, cutShort(err)
	}
	var b bytes.Buffer // it grows as bytes come: what is claimed is not believed
	_, err = io.CopyN(&b, r, size)
	return b.Bytes(), cutShort(err)
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return errShort
	}
	return err
}
