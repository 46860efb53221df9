package mysql

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"strings"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
)

// Events as the server's source documents them (libs/mysql/binlog/event, sql/log_event.h of MariaDB).

type wire []byte

func (w wire) u8(v int) wire { return append(w, byte(v)) }
func (w wire) le(n int, v uint64) wire {
	return append(w, binary.LittleEndian.AppendUint64(nil, v)[:n]...)
}
func (w wire) str(s string) wire  { return append(w, s...) }
func (w wire) pstr(s string) wire { return w.u8(len(s)).str(s).u8(0) }

func (w wire) lenenc(n int) wire {
	switch {
	case n < 251:
		return w.u8(n)
	case n < 1<<16:
		return w.u8(0xfc).le(2, uint64(n))
	case n < 1<<24:
		return w.u8(0xfd).le(3, uint64(n))
	}
	return w.u8(0xfe).le(8, uint64(n))
}

// varint is mysql::serialization's: the first byte's trailing ones tell how many follow.
func (w wire) varint(v uint64) wire {
	n := max(0, (bits.Len64(v)-1)/7)
	if n >= 8 {
		return w.u8(0xff).le(8, v)
	}
	return w.le(n+1, v<<(n+1)|(1<<n-1))
}

// binlog writes events behind one another, as a file holds them.
type binlog struct {
	pos      uint64
	checksum bool
	seconds  uint32
	server   uint32
	blind    bool // MariaDB: no place is told
}

func (l *binlog) event(kind byte, body wire) wire {
	size := headerBytes + len(body)
	if l.checksum {
		size += checksumBytes
	}
	l.pos += uint64(size)
	end := l.pos
	if l.blind {
		end = 0
	}
	return l.framed(kind, 0, end, body)
}

func (l *binlog) framed(kind byte, flags int, end uint64, body wire) wire {
	size := headerBytes + len(body)
	if l.checksum {
		size += checksumBytes
	}
	w := wire{}.le(4, uint64(l.seconds)).u8(int(kind)).le(4, uint64(l.server)).le(4, uint64(size)).le(4, end&0xffffffff).le(2, uint64(flags))
	w = append(w, body...)
	if l.checksum {
		w = w.le(4, uint64(crc32.ChecksumIEEE(w)))
	}
	return w
}

func (l *binlog) rotate(file string, pos uint64) wire {
	return l.event(eventRotate, wire{}.le(8, pos).str(file))
}

func (l *binlog) artificialRotate(file string, pos uint64) wire {
	return l.framed(eventRotate, flagArtificial, 0, wire{}.le(8, pos).str(file))
}

// describe says whether checksums follow; it has one of its own in any case.
func (l *binlog) describe(checksums bool) wire {
	body := wire{}.le(2, 4).str("8.4.0").str(strings.Repeat("\x00", 45)).le(4, 0).u8(headerBytes).str(strings.Repeat("\x38", 40))
	if checksums {
		body = body.u8(1)
	} else {
		body = body.u8(0)
	}
	kept := l.checksum
	l.checksum = true
	e := l.event(eventFormatDescription, body)
	l.checksum = kept
	return e
}

var (
	serverA = uuid.MustParse("aaaaaaaa-0000-1111-2222-333333333333")
	serverB = uuid.MustParse("bbbbbbbb-0000-1111-2222-333333333333")
)

const commitMicros = 1_796_042_096_123_456 // 2026-11-30 12:34:56.123456

func (l *binlog) gtid(id uuid.UUID, number uint64) wire {
	return l.event(eventGTID, gtidBody(id, number))
}

func gtidBody(id uuid.UUID, number uint64) wire {
	return append(wire{1}, id[:]...).le(8, number).u8(2).le(8, 0).le(8, 1).le(7, commitMicros|1<<55).le(7, 1).lenenc(300).le(4, 80400)
}

func (l *binlog) taggedGTID(id uuid.UUID, tag string, number uint64) wire {
	return l.event(eventTaggedGTID, taggedBody(id, tag, number))
}

func taggedBody(id uuid.UUID, tag string, number uint64) wire {
	fields := wire{}.varint(1)
	for _, b := range id {
		fields = fields.varint(uint64(b))
	}
	fields = fields.varint(2).varint(number << 1).varint(3).varint(uint64(len(tag))).str(tag)
	fields = fields.varint(4).varint(2).varint(5).varint(4).varint(6).varint(commitMicros).varint(8).varint(300).varint(9).varint(80400)
	w := wire{}.varint(1).varint(uint64(len(fields) + 5)).varint(10).varint(0).varint(0)
	return append(w, fields...)
}

func (l *binlog) anonymous() wire { return l.event(eventAnonymousGTID, gtidBody(uuid.UUID{}, 0)) }

func (l *binlog) mariaGTID(domain, number uint64, flags int) wire {
	return l.event(eventMariaGTID, wire{}.le(8, number).le(4, domain).u8(flags).le(6, 0))
}

func queryBody(schema, text string) wire {
	return wire{}.le(4, 7).le(4, 0).u8(len(schema)).le(2, 0).le(2, 3).str("xyz").str(schema).u8(0).str(text)
}

func (l *binlog) query(text string) wire { return l.event(eventQuery, queryBody("shop", text)) }

func (l *binlog) xid() wire { return l.event(eventXID, wire{}.le(8, 99)) }

// col is a column of a table map.
type col struct {
	name      string
	kind      byte
	meta      wire
	unsigned  bool
	collation int      // of a string
	labels    []string // of ENUM (SET is not built here)
}

const (
	utf8Collation   = 45
	binaryCollation = 63
	latin1Collation = 8
)

var outboxCols = []col{
	{name: "id", kind: typeLongLong, unsigned: true},
	{name: "k", kind: typeVarchar, meta: wire{}.le(2, 1020), collation: utf8Collation},
	{name: "payload", kind: typeJSON, meta: wire{4}},
	{name: "raw", kind: typeString, meta: wire{typeString, 4}, collation: binaryCollation},
}

// tableMap describes a table; with full it names the columns.
func (l *binlog) tableMap(id uint64, schema, name string, full bool, cols ...col) wire {
	return l.event(eventTableMap, tableMapBody(id, schema, name, full, cols...))
}

func tableMapBody(id uint64, schema, name string, full bool, cols ...col) wire {
	w := wire{}.le(6, id).le(2, 1).pstr(schema).pstr(name).lenenc(len(cols))
	var meta, signs, charsets, names, enums, enumCharsets wire
	numbers := 0
	for _, c := range cols {
		w, meta = w.u8(int(c.kind)), append(meta, c.meta...)
		names = names.lenenc(len(c.name)).str(c.name)
		switch c.kind {
		case typeLongLong, typeLong, typeTiny, typeYear:
			if numbers%8 == 0 {
				signs = signs.u8(0)
			}
			if c.unsigned {
				signs[numbers/8] |= 0x80 >> (numbers % 8)
			}
			numbers++
		}
		if c.labels != nil {
			enums = enums.lenenc(len(c.labels))
			for _, label := range c.labels {
				enums = enums.lenenc(len(label)).str(label)
			}
			enumCharsets = enumCharsets.lenenc(c.collation)
		} else if c.collation != 0 {
			charsets = charsets.lenenc(c.collation)
		}
	}
	w = append(w.lenenc(len(meta)), meta...)
	w = append(w, make(wire, (len(cols)+7)/8)...)
	for kind, field := range []wire{1: signs, 3: charsets, 4: names, 6: enums, 11: enumCharsets} {
		if len(field) > 0 && (full || kind == 1 || kind == 3) {
			w = append(w.u8(kind).lenenc(len(field)), field...)
		}
	}
	return append(w.u8(200).lenenc(3), "???"...) // a kind that is not known
}

// insert is a WRITE_ROWS event, version 2 with extra data.
func (l *binlog) insert(id uint64, columns int, rows ...wire) wire {
	return l.event(eventWriteRows, insertBody(id, columns, rows...))
}

func insertBody(id uint64, columns int, rows ...wire) wire {
	w := wire{}.le(6, id).le(2, 1).le(2, 5).str("abc").lenenc(columns)
	for range (columns + 7) / 8 {
		w = w.u8(0xff)
	}
	for _, r := range rows {
		w = append(w, r...)
	}
	return w
}

// outboxRow is a row of outboxCols; raw without the zeros at its end.
func outboxRow(id uint64, key string, payload wire, raw string) wire {
	return append(wire{0xf0}.le(8, id).le(2, uint64(len(key))).str(key).le(4, uint64(len(payload))), payload...).u8(len(raw)).str(raw)
}

// smallJSON is {"a": n}.
func smallJSON(n int16) wire {
	return wire{jsonSmallObject}.le(2, 1).le(2, 12).le(2, 11).le(2, 1).u8(jsonInt16).le(2, uint64(uint16(n))).str("a")
}

// payloadEvent packs events, which have no checksums, into one.
func (l *binlog) payload(compression int, events ...wire) wire {
	all := bytes.Join(asBytes(events), nil)
	packed := all
	if compression == 0 {
		z, _ := zstd.NewWriter(nil)
		packed = z.EncodeAll(all, nil)
	}
	field := wire{}.lenenc(compression)
	w := append(wire{}.lenenc(2).lenenc(len(field)), field...)
	size := wire{}.lenenc(len(all))
	w = append(w.lenenc(3).lenenc(len(size)), size...)
	return l.event(eventPayload, append(w.lenenc(0), packed...))
}

func asBytes(w []wire) [][]byte {
	b := make([][]byte, len(w))
	for i := range w {
		b[i] = w[i]
	}
	return b
}

// deflated is MariaDB's compressed form.
func deflated(b []byte) wire {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(b)
	_ = w.Close()
	return append(wire{0x82}.u8(len(b)>>8).u8(len(b)&0xff), z.Bytes()...)
}
