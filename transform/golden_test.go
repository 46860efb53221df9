package transform

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden routes testdata/NAME.rows.json and compares with NAME.messages.json.
func TestGolden(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob("testdata/*.rows.json")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no golden inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".rows.json")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := goldenRun(t, input)
			golden := filepath.Join("testdata", name+".messages.json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("messages differ from %s\ngot:\n%s", golden, got)
			}
		})
	}
}

type goldenInput struct {
	About  string
	Config Config
	Schema string
	Table  string
	// Columns are "name type"; the kind follows from the type.
	Columns []string
	Rows    [][]goldenBytes
}

type goldenOutput struct {
	Mapping  *Mapping        `json:"mapping,omitempty"`
	Messages []goldenMessage `json:"messages,omitempty"`
	Error    string          `json:"error,omitempty"`
}

type goldenMessage struct {
	Topic     string         `json:"topic"`
	Key       goldenBytes    `json:"key"`
	Value     goldenBytes    `json:"value"`
	Headers   []goldenHeader `json:"headers"`
	Timestamp time.Time      `json:"timestamp"`
	Table     string         `json:"table"`
	ID        goldenBytes    `json:"id"`
}

type goldenHeader struct {
	Name  string      `json:"name"`
	Value goldenBytes `json:"value"`
}

// goldenBytes is null, "text", {"base64": "…"}, or {"absent": true}.
type goldenBytes struct{ source.Value }

func (g *goldenBytes) UnmarshalJSON(b []byte) error {
	var text *string
	if json.Unmarshal(b, &text) == nil {
		if g.State = source.Null; text != nil {
			g.Value = source.Value{State: source.Present, Data: []byte(*text)}
		}
		return nil
	}
	var other struct {
		Base64 []byte
		Absent bool
	}
	err := json.Unmarshal(b, &other)
	if !other.Absent {
		g.Value = source.Value{State: source.Present, Data: other.Base64}
	}
	return err
}

func (g goldenBytes) MarshalJSON() ([]byte, error) {
	switch {
	case g.Data == nil:
		return []byte("null"), nil
	case utf8.Valid(g.Data):
		return json.Marshal(string(g.Data))
	}
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(g.Data)})
}

func goldenRun(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var in goldenInput
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(in.route()); err != nil {
		t.Fatal(err)
	}
	return []byte(b.String())
}

func (in goldenInput) route() goldenOutput {
	r, err := New(in.Config)
	if err != nil {
		return goldenOutput{Error: describe(err)}
	}
	table := newTable(in.Schema, in.Table, in.Columns...)
	mapping, err := r.Describe(table)
	if err != nil {
		return goldenOutput{Error: describe(err)}
	}
	tx := &source.Tx{ID: "0/16B3748", CommitAt: time.Date(2026, 11, 30, 12, 34, 56, 123456000, time.UTC)}
	var rows []source.Row
	for i, values := range in.Rows {
		row := source.Row{Table: table, Tx: tx, Index: uint32(i)}
		for _, v := range values {
			row.Values = append(row.Values, v.Value)
		}
		rows = append(rows, row)
	}
	messages, err := r.Route(rows, nil)
	out := goldenOutput{Mapping: &mapping, Error: describe(err)}
	for _, m := range messages {
		out.Messages = append(out.Messages, goldenOf(m))
	}
	return out
}

func goldenOf(m sink.Message) goldenMessage {
	g := goldenMessage{
		Topic: m.Topic, Key: shown(m.Key), Value: shown(m.Value),
		Headers: []goldenHeader{}, Timestamp: m.Timestamp, Table: m.Table, ID: shown(m.ID),
	}
	for _, h := range m.Headers {
		g.Headers = append(g.Headers, goldenHeader{h.Name, shown(h.Value)})
	}
	return g
}

func shown(b []byte) goldenBytes { return goldenBytes{source.Value{Data: b}} }
