package mysql

import (
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
	var buf bytes.Buffer
	for {
		buf.Reset()
		_, err := io.CopyN(&buf, r, headerBytes)
		if errors.Is(err, io.EOF) && buf.Len() == 0 {
			return nil
		}
		if err == nil {
			err = errShort
			if size := int64(le.Uint32(buf.Bytes()[9:])); size >= headerBytes {
				_, err = io.CopyN(&buf, r, size-headerBytes)
			}
		}
		if errors.Is(err, io.EOF) {
			err = errShort
		}
		if err != nil {
			return fmt.Errorf("decompress a transaction: %w", err)
		}
		inner, err := parseEvent(buf.Bytes(), false)
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
