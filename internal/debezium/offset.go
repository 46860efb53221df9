package debezium

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Offset is a place that Debezium stored.
type Offset struct {
	Snapshot any    `json:"snapshot"`
	LSN      uint64 `json:"lsn"`
	File     string `json:"file"`
	Pos      uint64 `json:"pos"`
	GTIDs    string `json:"gtids"`
	Event    int64  `json:"event"`
	Row      int64  `json:"row"`
}

// ParseOffset reads the JSON of one offset.
func ParseOffset(text []byte) (o Offset, err error) {
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read the offset: %w", err)
	}
	if done := o.Snapshot == nil || o.Snapshot == false || o.Snapshot == "false" || o.Snapshot == "last"; !done {
		return o, errors.New("the connector is within its first snapshot: let it end first")
	}
	return o, nil
}

// Place is where to go on, as `outboxd checkpoint set` takes it: never within a transaction.
// On MySQL that is the set of transactions before the one Debezium was in, on MariaDB the end of
// the one before it.
func (o Offset) Place(kind string) (string, error) {
	switch {
	case kind == "postgres":
		return SlotPlace, nil
	case kind == "mysql" && o.GTIDs != "":
		return o.GTIDs, nil
	case o.File != "" && o.Pos > 0:
		return fmt.Sprintf("%s:%d", o.File, o.Pos), nil
	}
	return "", errors.New("the offset has neither gtids nor file and pos")
}

// Repeats tells what comes again behind Place.
func (o Offset) Repeats() string {
	if o.Event == 0 && o.Row == 0 {
		return "none that Debezium saved; events it published since its last flush of offsets (offset.flush.interval.ms) come again, at most"
	}
	return "the transaction that Debezium was in, from its beginning, and what it published since its last flush of offsets"
}

// SlotPlace is the word for the place that a Postgres slot was confirmed up to.
const SlotPlace = "slot"

// OffsetKey reports whether key is that of a connector's offsets.
func OffsetKey(key []byte, name, prefix string) bool {
	var parts []json.RawMessage
	var connector string
	var partition struct{ Server string }
	return json.Unmarshal(key, &parts) == nil && len(parts) == 2 && json.Unmarshal(parts[0], &connector) == nil && connector == name &&
		json.Unmarshal(parts[1], &partition) == nil && partition.Server == prefix
}
