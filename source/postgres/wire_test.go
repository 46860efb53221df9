package postgres

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Messages as the manual's "Logical Replication Message Formats" lays them out.

type wire []byte

func (w wire) u8(v byte) wire    { return append(w, v) }
func (w wire) u16(v int) wire    { return binary.BigEndian.AppendUint16(w, uint16(v)) }
func (w wire) u32(v uint32) wire { return binary.BigEndian.AppendUint32(w, v) }
func (w wire) u64(v uint64) wire { return binary.BigEndian.AppendUint64(w, v) }
func (w wire) str(s string) wire { return append(append(w, s...), 0) }

type col struct {
	name string
	oid  uint32
}

var outboxColumns = []col{{"id", pgtype.Int8OID}, {"key", pgtype.TextOID}, {"payload", pgtype.JSONBOID}, {"raw", pgtype.ByteaOID}}

func relationMessage(oid uint32, schema, name string, columns ...col) wire {
	w := wire{'R'}.u32(oid).str(schema).str(name).u8('d').u16(len(columns))
	for _, c := range columns {
		w = w.u8(0).str(c.name).u32(c.oid).u32(0xFFFFFFFF)
	}
	return w
}

func beginMessage(commitLSN uint64, at time.Time) wire {
	return wire{'B'}.u64(commitLSN).u64(uint64(at.UnixMicro() - postgresEpoch)).u32(700)
}

func commitMessage(commitLSN, endLSN uint64, at time.Time) wire {
	return wire{'C'}.u8(0).u64(commitLSN).u64(endLSN).u64(uint64(at.UnixMicro() - postgresEpoch))
}

// insertMessage takes nil for NULL, and the text "\x00unchanged" for unchanged TOAST.
func insertMessage(oid uint32, values ...any) wire {
	w := wire{'I'}.u32(oid).u8('N').u16(len(values))
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			w = w.u8('n')
		case string:
			if v == unchanged {
				w = w.u8('u')
				continue
			}
			w = append(w.u8('t').u32(uint32(len(v))), v...)
		}
	}
	return w
}

func truncateMessage(options byte, oids ...uint32) wire {
	w := wire{'T'}.u32(uint32(len(oids))).u8(options)
	for _, oid := range oids {
		w = w.u32(oid)
	}
	return w
}

const unchanged = "\x00unchanged"

// walData wraps a pgoutput message as the walsender does.
func walData(lsn uint64, m wire) wire {
	return copyData(append(wire{'w'}.u64(lsn).u64(lsn).u64(0), m...))
}

func keepalive(end uint64, reply bool) wire {
	w := wire{'k'}.u64(end).u64(0)
	if reply {
		return copyData(w.u8(1))
	}
	return copyData(w.u8(0))
}

func copyData(m wire) wire { return framed('d', m) }

func framed(kind byte, m wire) wire {
	return append(wire{kind}.u32(uint32(len(m)+4)), m...)
}
