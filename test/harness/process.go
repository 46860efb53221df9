package harness

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Command is one run of the binary to be.
type Command struct {
	Binary string            // empty: the one under test
	Args   []string          // none: "run"
	Env    map[string]string // all it gets, beside PATH and an own address for HTTP
	Dir    string            // working folder; empty: a new one
	User   uint32            // id of the user it runs as; 0: the test's
}

// Process is a run of the binary. It is killed at the end of the test.
type Process struct {
	Dir  string
	HTTP string // "http://127.0.0.1:port", when HTTP is on

	cmd    *exec.Cmd
	stdout bytes.Buffer
	done   chan struct{} // closed once it ended and its output is read

	mu   sync.Mutex
	log  []Line
	more chan struct{} // closed and replaced at each line
}

// Line is one line of the log.
type Line struct {
	Text   string         // as it was written
	Level  string         // "" when the line is not JSON
	Msg    string         // the same
	Fields map[string]any // the same
}

// Start starts the binary.
func Start(t testing.TB, c Command) *Process {
	t.Helper()
	p := &Process{Dir: c.Dir, done: make(chan struct{}), more: make(chan struct{})}
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	env := maps.Clone(c.Env)
	if env == nil {
		env = make(map[string]string)
	}
	if env["OUTBOXD_HTTP_ADDR"] == "" {
		env["OUTBOXD_HTTP_ADDR"] = FreeAddr(t)
	}
	p.HTTP = "http://" + env["OUTBOXD_HTTP_ADDR"]
	env["PATH"] = os.Getenv("PATH")

	if c.Binary == "" {
		c.Binary = Need(t, binaryVariable)
	}
	if c.User != 0 {
		c.Binary = reachable(t, c.Binary, p.Dir)
	}
	p.cmd = exec.Command(c.Binary, c.Args...)
	p.cmd.Dir, p.cmd.Stdout = p.Dir, &p.stdout
	for _, name := range slices.Sorted(maps.Keys(env)) {
		p.cmd.Env = append(p.cmd.Env, name+"="+env[name])
	}
	if c.User != 0 {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.User, Gid: c.User}}
	}
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatalf("start the binary: %v", err)
	}
	go p.read(stderr)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of process %d:\n%s", p.cmd.Process.Pid, p.Log())
		}
	})
	return p
}

// reachable copies the binary to where every user may run it, and lets every
// user into dir, which is one of the test's own.
func reachable(t testing.TB, binary, dir string) string {
	t.Helper()
	open := t.TempDir()
	for _, d := range []string{filepath.Dir(open), filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(open, "outboxd")
	if err := os.WriteFile(copied, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return copied
}

func (p *Process) read(stderr io.Reader) {
	lines := bufio.NewReader(stderr)
	for {
		text, err := lines.ReadString('\n')
		if text = strings.TrimSuffix(text, "\n"); text != "" {
			p.add(text)
		}
		if err != nil {
			break
		}
	}
	_ = p.cmd.Wait()
	close(p.done)
}

func (p *Process) add(text string) {
	line := Line{Text: text}
	if json.Unmarshal([]byte(text), &line.Fields) == nil {
		line.Level, _ = line.Fields["level"].(string)
		line.Msg, _ = line.Fields["msg"].(string)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, line)
	close(p.more)
	p.more = make(chan struct{})
}

// Signal sends a signal; a process that has ended takes none.
func (p *Process) Signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// Kill ends the process by SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Wait waits for the end and returns the exit code; -1 after a signal.
func (p *Process) Wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(Patience):
		p.Signal(syscall.SIGQUIT) // its goroutines go to the log
		t.Fatalf("waited %v for the end of the process", Patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Stop sends SIGTERM and wants exit code 0.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(t); code != 0 {
		t.Errorf("SIGTERM: exit code %d, want 0", code)
	}
}

// Stdout is what an ended process wrote there.
func (p *Process) Stdout() string {
	<-p.done
	return p.stdout.String()
}

// Lines is the log so far.
func (p *Process) Lines() []Line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

// Log is the log so far as text, its middle left out when it is long.
func (p *Process) Log() string {
	const ends = 60
	lines := p.Lines()
	var b strings.Builder
	for i, l := range lines {
		switch {
		case i < ends || i >= len(lines)-ends:
			b.WriteString(l.Text + "\n")
		case i == ends:
			b.WriteString("…\n")
		}
	}
	return b.String()
}

// WaitLog waits for a line that holds text, the first n lines aside, and
// returns it and the number of lines up to it.
func (p *Process) WaitLog(t testing.TB, text string, n int) (Line, int) {
	t.Helper()
	late := time.After(Patience)
	for {
		ended := !p.Running()
		line, i, more := p.find(text, n)
		if i > 0 {
			return line, i
		}
		if ended {
			t.Fatalf("the process ended with %d and never logged %q", p.cmd.ProcessState.ExitCode(), text)
		}
		select {
		case <-more:
		case <-p.done:
		case <-late:
			t.Fatalf("waited %v for %q in the log", Patience, text)
		}
	}
}

// find also returns the channel that is closed at the next line.
func (p *Process) find(text string, n int) (line Line, end int, more <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := n; i < len(p.log); i++ {
		if strings.Contains(p.log[i].Text, text) {
			return p.log[i], i + 1, p.more
		}
	}
	return Line{}, 0, p.more
}

// FreeAddr returns an address on the loopback that nobody listens on.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
