package topic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/source"
)

const version = 1

// The kinds of records a connector has. The key is the name, a slash and the
// kind: a name holds no slash, so no two connectors share one.
const (
	place  = "place"  // the checkpoint, or the intent of a first start
	birth  = "birth"  // when the first of them was saved
	filler = "filler" // holds nothing, see producer.settle
)

func key(name, kind string) string { return name + "/" + kind }

// content is a record's value: one JSON object, so that an operator can read it.
type content struct {
	Version  int                 `json:"version"`
	Kind     string              `json:"kind"`
	Name     string              `json:"name"`
	Position string              `json:"position,omitempty"` // empty: an intent, or a birth
	SavedAt  string              `json:"saved_at"`           // RFC 3339, UTC
	Done     *done               `json:"done,omitempty"`
	Refused  *checkpoint.Refused `json:"refused,omitempty"`
	Checksum string              `json:"checksum"` // over all the others
}

// done is a checkpoint.Done.
type done struct {
	Tx   string `json:"tx"`
	Rows uint32 `json:"rows"`
	ID   string `json:"id"`
}

// sum covers the fields as they stand in the record, each led by its length,
// so that no two contents share one.
func (c *content) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d", c.Version)
	for _, field := range []string{c.Kind, c.Name, c.Position, c.SavedAt} {
		fmt.Fprintf(h, "\n%d:%s", len(field), field)
	}
	if d := c.Done; d != nil {
		fmt.Fprintf(h, "\n%d:%s\n%d\n%d:%s", len(d.Tx), d.Tx, d.Rows, len(d.ID), d.ID)
	}
	if r := c.Refused; r != nil {
		fmt.Fprintf(h, "\n%q", []string{r.Tx, strconv.Itoa(int(r.Row)), r.ID, r.Table, r.Reason, strconv.FormatBool(r.Skip), r.Why})
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Encode gives the record that stands for c in the topic, for those who write
// it in a transaction of their own. Name and position must be valid UTF-8.
func Encode(c checkpoint.Checkpoint) (recordKey, value []byte) { return encode(place, c) }

func encode(kind string, c checkpoint.Checkpoint) (recordKey, value []byte) {
	v := content{
		Version: version, Kind: kind, Name: c.Name, Position: string(c.Position),
		SavedAt: c.SavedAt.UTC().Format(time.RFC3339Nano),
	}
	if c.Done != (checkpoint.Done{}) {
		v.Done = (*done)(&c.Done)
	}
	v.Refused = c.Refused
	v.Checksum = v.sum()
	value, _ = json.Marshal(v) // strings and a number: it can't fail
	return []byte(key(c.Name, kind)), value
}

// decode gives what was saved as a record of that kind, or why value is none.
func decode(kind string, value []byte) (checkpoint.Checkpoint, error) {
	var v content
	if err := json.Unmarshal(value, &v); err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("it is no whole JSON object: %w", err)
	}
	if v.Version != version {
		return checkpoint.Checkpoint{}, fmt.Errorf("its version is %d, this program knows %d", v.Version, version)
	}
	if v.Checksum != v.sum() {
		return checkpoint.Checkpoint{}, errors.New("its checksum does not fit its content")
	}
	if v.Kind != kind {
		return checkpoint.Checkpoint{}, fmt.Errorf("it is a %s record, not a %s record", v.Kind, kind)
	}
	at, err := time.Parse(time.RFC3339Nano, v.SavedAt)
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("its saved_at is no time: %w", err)
	}
	c := checkpoint.Checkpoint{Name: v.Name, Position: source.Position(v.Position), SavedAt: at, Refused: v.Refused}
	if v.Done != nil {
		c.Done = checkpoint.Done(*v.Done)
	}
	return c, nil
}
