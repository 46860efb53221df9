package activity

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

func route(messages ...sink.Message) Route {
	return func(_ []source.Row, dst []sink.Message) ([]sink.Message, error) {
		return append(dst, messages...), errors.New("refused")
	}
}

func TestWatchKeepsTheLastEvents(t *testing.T) {
	t.Parallel()
	a := New(Config{})
	for i := range 3 * eventsKept {
		out, err := a.Watch(route(sink.Message{Topic: "order", Key: []byte("k"), ID: fmt.Append(nil, i), Value: []byte("secret")}))(nil, nil)
		if err == nil || len(out) != 1 {
			t.Fatalf("%v %v: the route's result was changed", out, err)
		}
	}
	seen := a.Seen().Events
	if len(seen) != eventsKept || seen[0].ID != fmt.Sprint(3*eventsKept-1) || seen[0].Size != 7 || seen[0].Key != "k" || seen[0].Payload != nil {
		t.Errorf("%d events, newest %+v", len(seen), seen[0])
	}
}

func TestWhatMayBeShown(t *testing.T) {
	t.Parallel()
	big := sink.Message{Key: []byte("kunde"), Value: []byte(strings.Repeat("é", 600)), ID: []byte{0xff}}
	a := New(Config{HideKeys: true, ShowPayloads: true})
	_, _ = a.Watch(route(big, sink.Message{}))(nil, nil)
	seen := a.Seen().Events
	if e := seen[1]; e.Key != "" || e.NoKey != "hidden" || e.ID != "\uFFFD" || *e.Payload != strings.Repeat("é", 512)+"…" {
		t.Errorf("%+v %q", e, *e.Payload)
	}
	if *seen[0].Payload != "tombstone" {
		t.Errorf("a tombstone shows %q", *seen[0].Payload)
	}
	open := New(Config{})
	_, _ = open.Watch(route(sink.Message{}))(nil, nil)
	if e := open.Seen().Events[0]; e.NoKey != "no key" {
		t.Errorf("%+v", e)
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	a := New(Config{})
	a.Delivered("few", 1)
	a.Delivered("many", 5)
	a.Delivered("many", 5)
	for i := range 2 * topicsKept {
		a.Delivered(fmt.Sprint("t", i), 1)
	}
	seen := a.Seen().Topics
	if len(seen) != topicsKept+1 || seen[0].Topic != otherTopic || seen[1].Topic != "many" || seen[1].Delivered != 10 || seen[2].Topic != "few" {
		t.Errorf("%d topics, first %+v", len(seen), seen[:3])
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	a := New(Config{})
	log := zap.New(zapcore.NewNopCore()).WithOptions(zap.WrapCore(func(zapcore.Core) zapcore.Core {
		return a.Core(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&strings.Builder{}), zapcore.InfoLevel))
	})).Named("pipeline").With(zap.String("name", "orders"))
	log.Info("active")
	for range 2 * linesKept {
		log.Warn("interrupted, will try again", zap.Error(errors.New("no broker")), zap.String("code", "x"), zap.String("fix", "start it"))
	}
	seen := a.Seen().Lines
	if len(seen) != linesKept || seen[0].Code != "x" || seen[0].Text != "pipeline: interrupted, will try again: no broker: start it" {
		t.Errorf("%d lines, newest %+v", len(seen), seen)
	}
}
