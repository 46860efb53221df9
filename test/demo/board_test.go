package main

import (
	"os"
	"testing"
	"time"
)

func TestBoardPrintsAnOrderWhenItIsDone(t *testing.T) {
	t.Parallel()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	b := newBoard(out, time.Now())
	for _, r := range recordsOf(1, 3, 2) {
		b.show(r, false)
	}
	b.show(recordsOf(2)[0], true)
	b.show(recordsOf(6)[0], false)
	b.show(recordsOf(3)[0], true) // its line is printed already
	b.close()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := "order    b  placed cancelled\norder    a  placed paid paid*\n"
	if string(text) != want {
		t.Errorf("board printed\n%swant\n%s", text, want)
	}
}
