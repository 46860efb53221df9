package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// relay is one run of the outboxd binary.
type relay struct {
	cmd  *exec.Cmd
	log  string
	addr string
	done chan struct{} // closed when the process has ended
	err  error         // how it ended, once done is closed
}

// settings are what outboxd is told: where the database and the brokers are.
// The table's name, outbox, and a checkpoint in Kafka are its defaults.
type settings struct {
	binary, work, source string
	brokers              []string
}

func (s settings) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.binary, args...)
	cmd.Dir = s.work
	cmd.Env = []string{"OUTBOXD_SOURCE_URL=" + s.source, "OUTBOXD_KAFKA_BROKERS=" + strings.Join(s.brokers, ",")}
	return cmd
}

// checkpoint asks outboxd for the position it has saved.
func (s settings) checkpoint(ctx context.Context) (string, error) {
	cmd := s.command("checkpoint", "show", "--json")
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("outboxd checkpoint show: %w\n%s", err, problem.String())
	}
	var shown struct{ Position string }
	if err := json.Unmarshal(out, &shown); err != nil {
		return "", fmt.Errorf("read what outboxd checkpoint show printed: %w", err)
	}
	return shown.Position, nil
}

// startRelay starts outboxd as anybody would.
func startRelay(s settings) (*relay, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	r := &relay{
		log:  filepath.Join(s.work, "outboxd.log"),
		addr: fmt.Sprintf("127.0.0.1:%d", port),
		done: make(chan struct{}),
	}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r.cmd = s.command()
	r.cmd.Env = append(r.cmd.Env, "OUTBOXD_HTTP_ADDR="+r.addr) // the default port may be taken on this machine
	r.cmd.Stdout, r.cmd.Stderr = log, log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the demo, which stops it in turn
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start outboxd: %w", err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	return r, nil
}

// ready waits until outboxd says that it follows the log.
func (r *relay) ready(ctx context.Context) error {
	client := http.Client{Timeout: time.Second}
	for {
		if resp, err := client.Get("http://" + r.addr + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-r.done:
			return r.ended()
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// kill ends outboxd without a word, by SIGKILL, and waits until it is gone.
func (r *relay) kill() {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
}

// stop asks outboxd to drain and waits for a clean end.
func (r *relay) stop(timeout time.Duration) error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM) // how it ended is seen below
	select {
	case <-r.done:
		return r.ended()
	case <-time.After(timeout):
		r.kill()
		return fmt.Errorf("stop outboxd: still there after %v", timeout)
	}
}

// ended tells of an end that was not clean, with the last lines of the log.
func (r *relay) ended() error {
	if r.err == nil {
		return nil
	}
	text, err := os.ReadFile(r.log)
	if err != nil {
		return errors.Join(r.err, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-10):]
	return fmt.Errorf("outboxd ended: %w\n%s", r.err, strings.Join(lines, "\n"))
}

func (r *relay) pid() int { return r.cmd.Process.Pid }

// alive returns a context that ends when outboxd does, before it was told to.
func (r *relay) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-r.done:
			cancel(fmt.Errorf("nobody stopped outboxd: %w", cmp.Or(r.ended(), errors.New("it ended by itself"))))
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
