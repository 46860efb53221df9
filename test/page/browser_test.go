package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// browser is a headless Chromium, steered through a pair of pipes.
type browser struct {
	out     *os.File
	in      *bufio.Reader
	session string
	calls   int
}

// open starts the browser with one empty page. It ends with the test.
func open(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if p, err := exec.LookPath(name); err == nil && path == "" {
			path = p
		}
	}
	if path == "" {
		t.Fatal("no browser: test/tools installs what this test needs")
	}
	theirIn, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
		"--remote-debugging-pipe", "about:blank") // its profile is its own matter, and removed by it
	cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	t.Cleanup(func() {
		_, _ = fmt.Fprint(out, `{"id":0,"method":"Browser.close"}`, "\x00")
		_ = cmd.Wait()
		_, _ = out.Close(), in.Close()
	})
	b := &browser{out: out, in: bufio.NewReaderSize(in, 1<<20)}
	_ = in.SetReadDeadline(time.Now().Add(2 * time.Minute))
	target := b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"})
	b.session = b.call(t, "Target.attachToTarget", map[string]any{"targetId": target["targetId"], "flatten": true})["sessionId"].(string)
	return b
}

// call does one command of the DevTools protocol.
func (b *browser) call(t *testing.T, method string, params map[string]any) map[string]any {
	t.Helper()
	b.calls++
	m := map[string]any{"id": b.calls, "method": method, "params": params}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	message, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.out.Write(append(message, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		text, err := b.in.ReadBytes(0)
		if err != nil {
			t.Fatalf("%s: %v", method, err)
		}
		var answer struct {
			ID     int
			Result map[string]any
			Error  any
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			t.Fatal(err)
		}
		if answer.ID != b.calls {
			continue
		}
		if answer.Error != nil {
			t.Fatalf("%s: %v", method, answer.Error)
		}
		return answer.Result
	}
}

// eval gives an expression's value as text.
func (b *browser) eval(t *testing.T, expression string) string {
	t.Helper()
	r := b.call(t, "Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")"})
	return fmt.Sprint(r["result"].(map[string]any)["value"])
}

// size makes the window so wide, and as high as needed.
func (b *browser) size(t *testing.T, width, height int) {
	t.Helper()
	b.call(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500})
}

// picture keeps what is seen as bin/page/NAME.png.
func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(b.call(t, "Page.captureScreenshot", nil)["data"].(string))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join("..", "..", "bin", "page")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}
