package mysql

import (
	"fmt"
	"hash/crc32"
)

// Event types (libs/mysql/binlog/event/binlog_event.h; MariaDB: sql/log_event.h).
const (
	eventQuery              = 2
	eventStop               = 3
	eventRotate             = 4
	eventIntvar             = 5
	eventRand               = 13
	eventUserVar            = 14
	eventFormatDescription  = 15
	eventXID                = 16
	eventBeginLoadQuery     = 17
	eventExecuteLoadQuery   = 18
	eventTableMap           = 19
	eventWriteRowsV1        = 23
	eventUpdateRowsV1       = 24
	eventDeleteRowsV1       = 25
	eventIncident           = 26
	eventHeartbeat          = 27
	eventIgnorable          = 28
	eventRowsQuery          = 29
	eventWriteRows          = 30
	eventUpdateRows         = 31
	eventDeleteRows         = 32
	eventGTID               = 33
	eventAnonymousGTID      = 34
	eventPreviousGTIDs      = 35
	eventTransactionContext = 36
	eventViewChange         = 37
	eventXAPrepare          = 38
	eventPartialUpdateRows  = 39
	eventPayload            = 40
	eventHeartbeatV2        = 41
	eventTaggedGTID         = 42

	eventAnnotateRows         = 160
	eventBinlogCheckpoint     = 161
	eventMariaGTID            = 162
	eventMariaGTIDList        = 163
	eventStartEncryption      = 164
	eventQueryCompressed      = 165
	eventWriteRowsCompressed  = 166
	eventUpdateRowsCompressed = 167
	eventDeleteRowsCompressed = 168
)

const (
	headerBytes   = 19
	checksumBytes = 4

	flagArtificial = 0x20
	flagIgnorable  = 0x80
)

// event is one event of the log without its checksum.
type event struct {
	kind    byte
	flags   uint16
	seconds uint32 // Unix time of the statement
	server  uint32
	size    uint32 // as it stands in the file
	end     uint32 // offset behind it, modulo 2^32; 0: not told
	body    []byte
}

// header reads the headerBytes of an event.
func header(b []byte) event {
	return event{
		seconds: le.Uint32(b), kind: b[4], server: le.Uint32(b[5:]), size: le.Uint32(b[9:]), end: le.Uint32(b[13:]), flags: le.Uint16(b[17:]),
	}
}

// parseEvent reads an event. checksummed says whether events carry a CRC32.
func parseEvent(b []byte, checksummed bool) (event, error) {
	if len(b) < headerBytes {
		return event{}, errShort
	}
	e := header(b)
	if int(e.size) != len(b) {
		return e, fmt.Errorf("event of type %d: %d bytes came, its header says %d", e.kind, len(b), e.size)
	}
	e.body = b[headerBytes:]
	switch {
	case e.kind == eventRotate:
		// The rotate event that opens a stream comes before the description
		// that says whether there are checksums: judge it by itself.
		if sum, ok := checksum(b); ok && sum {
			e.body = e.body[:len(e.body)-checksumBytes]
		}
	case checksummed && e.kind != eventFormatDescription:
		sum, ok := checksum(b)
		if !ok {
			return e, errShort
		}
		if !sum {
			return e, fmt.Errorf("event of type %d at %d: its checksum is wrong: the log is damaged, or the place is inside an event", e.kind, e.end)
		}
		e.body = e.body[:len(e.body)-checksumBytes]
	}
	return e, nil
}

func checksum(b []byte) (right, there bool) {
	n := len(b) - checksumBytes
	if n < headerBytes {
		return false, false
	}
	return crc32.ChecksumIEEE(b[:n]) == le.Uint32(b[n:]), true
}

// describesChecksums reads a format description event: the byte before its own
// four bytes of checksum is the algorithm, 1 for CRC32.
func describesChecksums(body []byte) (bool, error) {
	if len(body) < 2+50+4+1+1+checksumBytes {
		return false, errShort
	}
	switch algorithm := body[len(body)-checksumBytes-1]; algorithm {
	case 0:
		return false, nil
	case 1:
		return true, nil
	default:
		return false, fmt.Errorf("checksum algorithm %d is not known", algorithm)
	}
}
