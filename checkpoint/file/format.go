package file

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/outboxd/outboxd/checkpoint"
	"github.com/outboxd/outboxd/source"
)

const version = 1

// content is the file: one JSON object, so that an operator can read it.
type content struct {
	Version  int                 `json:"version"`
	Name     string              `json:"name"`
	Position string              `json:"position"` // empty: the intent of a first start
	SavedAt  string              `json:"saved_at"` // RFC 3339, UTC
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

// sum covers the fields as they stand in the file, each led by its length, so
// that no two contents share one.
func (c *content) sum() string {
	h := sha256.New()
	fmt.Fprintf(h, "%d", c.Version)
	for _, field := range []string{c.Name, c.Position, c.SavedAt} {
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

func encode(c checkpoint.Checkpoint) ([]byte, error) {
	if !utf8.ValidString(c.Name) || !utf8.ValidString(string(c.Position)) {
		return nil, errors.New("name and position must be text") // JSON would alter them
	}
	f := content{
		Version:  version,
		Name:     c.Name,
		Position: string(c.Position),
		SavedAt:  c.SavedAt.UTC().Format(time.RFC3339Nano),
	}
	if c.Done != (checkpoint.Done{}) {
		f.Done = (*done)(&c.Done)
	}
	f.Refused = c.Refused
	f.Checksum = f.sum()
	data, err := json.Marshal(f)
	return append(data, '\n'), err
}

// decode gives the checkpoint, or why data is not one that was saved.
func decode(data []byte) (checkpoint.Checkpoint, error) {
	if len(data) == 0 {
		return checkpoint.Checkpoint{}, errors.New("it is empty")
	}
	var f content
	if err := json.Unmarshal(data, &f); err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("it is no whole JSON object: %w", err)
	}
	if f.Version != version {
		return checkpoint.Checkpoint{}, fmt.Errorf("its version is %d, this program knows %d", f.Version, version)
	}
	if f.Checksum != f.sum() {
		return checkpoint.Checkpoint{}, errors.New("its checksum does not fit its content")
	}
	at, err := time.Parse(time.RFC3339Nano, f.SavedAt)
	if err != nil {
		return checkpoint.Checkpoint{}, fmt.Errorf("its saved_at is no time: %w", err)
	}
	c := checkpoint.Checkpoint{Name: f.Name, Position: source.Position(f.Position), SavedAt: at, Refused: f.Refused}
	if f.Done != nil {
		c.Done = checkpoint.Done(*f.Done)
	}
	return c, nil
}
