package sinktest

import (
	"errors"
	"testing"

	"github.com/outboxd/outboxd/sink"
)

func TestFakeContract(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Rig {
		f := &Fake{}
		return Rig{
			Sink:  f,
			Topic: "t",
			Read: func(*testing.T) []sink.Message {
				all := f.Delivered()
				for i := range all {
					all[i].Timestamp = all[i].Timestamp.Truncate(1e6)
				}
				return all
			},
			Break: func(*testing.T) { f.FailAfter(0, errors.New("broken")) },
		}
	})
}

func TestFakeSettlesOnCue(t *testing.T) {
	t.Parallel()
	f := &Fake{}
	got := map[string]error{}
	publish := func(id string) {
		f.Publish(t.Context(), []sink.Message{{ID: []byte(id)}}, func(err error) { got[id] = err })
	}
	f.Hold()
	for _, id := range []string{"a", "b", "c", "d"} {
		publish(id)
	}
	if len(got) != 0 || f.Held() != 4 {
		t.Fatalf("settled %v while held, %d held", got, f.Held())
	}
	f.Release(2) // c
	f.ReleaseN(1)
	if err, ok := got["c"]; !ok || err != nil {
		t.Fatalf("settled %v, want c", got)
	}
	if _, ok := got["a"]; !ok || len(got) != 2 {
		t.Fatalf("settled %v, want a and c", got)
	}
	down := errors.New("down")
	f.Fail(down)
	publish("e")
	for _, id := range []string{"b", "d", "e"} {
		if !errors.Is(got[id], down) {
			t.Fatalf("%s was settled with %v", id, got[id])
		}
	}
	if d := f.Delivered(); len(d) != 2 || string(d[0].ID) != "c" {
		t.Fatalf("delivered %v", d)
	}
	if m := f.Messages(); len(m) != 4 {
		t.Fatalf("took %d", len(m))
	}
	if err := f.Wait(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
}

func TestFakeJudges(t *testing.T) {
	t.Parallel()
	refusal := &sink.Refusal{Reason: "too_large"}
	f := &Fake{Refuse: func(m *sink.Message) *sink.Refusal {
		if len(m.Value) > 3 {
			return refusal
		}
		return nil
	}}
	var j sink.Judge = f
	if j.Judge(&sink.Message{Value: []byte("1234")}) != refusal || j.Judge(&sink.Message{}) != nil {
		t.Fatal("Refuse was not asked")
	}
}
