// Package activity remembers the little that the status page shows beside the
// engine's status: events per topic, the last events read, and the last warnings
// and errors of the log. It is fed by the engine's hooks, by the router's way,
// and by the logger; none of them knows of it.
package activity

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/internal/admin"
	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

const (
	eventsKept = 20
	linesKept  = 12
	topicsKept = 100 // by name; metrics count more
	otherTopic = "other topics"
	shownMost  = 1024 // bytes of a key, an id, a payload, a line
)

// Config says what may be shown.
type Config struct {
	HideKeys, ShowPayloads bool
}

// Activity is safe for concurrent use.
type Activity struct {
	Config
	mu     sync.Mutex
	topics map[string]uint64
	events []admin.Event // oldest first
	lines  []admin.Line  // oldest first
}

// New makes one that has seen nothing.
func New(c Config) *Activity { return &Activity{Config: c, topics: map[string]uint64{}} }

// Delivered counts n events delivered to a topic.
func (a *Activity) Delivered(topic string, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.topics[topic]; !known && len(a.topics) >= topicsKept {
		topic = otherTopic
	}
	a.topics[topic] += uint64(n)
}

// Route is what a pipeline calls to turn rows into messages.
type Route func(rows []source.Row, dst []sink.Message) ([]sink.Message, error)

// Watch gives route, with a look at the last messages of each batch.
func (a *Activity) Watch(route Route) Route {
	return func(rows []source.Row, dst []sink.Message) ([]sink.Message, error) {
		before := len(dst)
		out, err := route(rows, dst)
		a.read(out[max(before, len(out)-eventsKept):])
		return out, err
	}
}

func (a *Activity) read(messages []sink.Message) {
	if len(messages) == 0 {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range messages {
		a.events = append(a.events, a.event(&messages[i], now))
	}
	a.events = slices.Delete(a.events, 0, max(0, len(a.events)-eventsKept))
}

func (a *Activity) event(m *sink.Message, now time.Time) admin.Event {
	e := admin.Event{At: now, Topic: m.Topic, ID: shown(m.ID), Size: m.Size()}
	switch {
	case a.HideKeys:
		e.NoKey = "hidden"
	case m.Key == nil:
		e.NoKey = "no key"
	default:
		e.Key = shown(m.Key)
	}
	if a.ShowPayloads {
		p := "tombstone"
		if m.Value != nil {
			p = shown(m.Value)
		}
		e.Payload = &p
	}
	return e
}

// Seen returns a copy, newest first.
func (a *Activity) Seen() admin.Activity {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := admin.Activity{Events: slices.Clone(a.events), Lines: slices.Clone(a.lines)}
	slices.Reverse(out.Events)
	slices.Reverse(out.Lines)
	for t, n := range a.topics {
		out.Topics = append(out.Topics, admin.Topic{Topic: t, Delivered: n})
	}
	slices.SortFunc(out.Topics, func(a, b admin.Topic) int {
		return cmp.Or(cmp.Compare(b.Delivered, a.Delivered), strings.Compare(a.Topic, b.Topic))
	})
	return out
}

// Core gives core, with warnings and errors remembered.
func (a *Activity) Core(core zapcore.Core) zapcore.Core { return &tap{core, a} }

type tap struct {
	zapcore.Core
	seen *Activity
}

// With implements zapcore.Core.
func (t *tap) With(fields []zapcore.Field) zapcore.Core { return &tap{t.Core.With(fields), t.seen} }

// Check implements zapcore.Core.
func (t *tap) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if t.Enabled(e.Level) {
		return to.AddCore(e, t)
	}
	return to
}

// Write implements zapcore.Core.
func (t *tap) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if e.Level >= zapcore.WarnLevel {
		t.seen.line(e, fields)
	}
	return t.Core.Write(e, fields)
}

func (a *Activity) line(e zapcore.Entry, fields []zapcore.Field) {
	m := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(m)
	}
	l := admin.Line{At: e.Time, Text: e.Message}
	if e.LoggerName != "" {
		l.Text = e.LoggerName + ": " + l.Text
	}
	l.Code, _ = m.Fields["code"].(string)
	for _, name := range []string{"found", "error", "fix"} {
		if s, ok := m.Fields[name].(string); ok && s != "" {
			l.Text += ": " + s
		}
	}
	l.Text = shown([]byte(l.Text))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, l)
	a.lines = slices.Delete(a.lines, 0, max(0, len(a.lines)-linesKept))
}

// shown makes text of b that a reader can bear.
func shown(b []byte) string {
	cut := len(b) > shownMost
	if cut {
		n := shownMost
		for n > shownMost-utf8.UTFMax && !utf8.RuneStart(b[n]) {
			n--
		}
		b = b[:n]
	}
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	if cut {
		s += "…"
	}
	return s
}
