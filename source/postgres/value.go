package postgres

import (
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxd/outboxd/source"
)

// kindOf tells by the type's OID what its text form is. For a domain that is
// the OID of its base type. Other types of the user's own (enum, composite) are text.
func kindOf(oid uint32) source.Kind {
	switch oid {
	case pgtype.JSONOID, pgtype.JSONBOID:
		return source.JSON
	case pgtype.ByteaOID:
		return source.Bytes
	case pgtype.BoolOID:
		return source.Boolean
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		return source.Number
	case pgtype.DateOID, pgtype.TimeOID, pgtype.TimetzOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		return source.Time
	}
	return source.Text
}

// unhex turns bytea's text (bytea_output=hex) into bytes, in place.
func unhex(text []byte) ([]byte, error) {
	if len(text) < 2 || text[0] != '\\' || text[1] != 'x' {
		return nil, fmt.Errorf("decode bytea: not in hex form")
	}
	n, err := hex.Decode(text, text[2:])
	if err != nil {
		return nil, fmt.Errorf("decode bytea: %w", err)
	}
	return text[:n:n], nil
}
