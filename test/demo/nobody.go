package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// rootCache keeps the Postgres archive when the demo is started by root. It
// belongs to the user that runs the demo then.
const rootCache = "/var/cache/outboxd-demo"

// asNobody runs the demo once more as an unprivileged user, since Postgres
// refuses root, and returns its exit code. Both programs are copied into the
// work folder: where they were built may be closed to that user.
func asNobody(o options) int {
	code, err := runAsNobody(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "run the demo as an unprivileged user: %v (start it as an ordinary user instead)\n", err)
		return 1
	}
	return code
}

func runAsNobody(o options) (int, error) {
	uid, gid := nobody()
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	demo, relay := filepath.Join(o.work, "demo"), filepath.Join(o.work, "outboxd")
	if err := errors.Join(copyProgram(self, demo), copyProgram(o.binary, relay), os.Chown(o.work, uid, gid)); err != nil {
		return 0, err
	}
	if o.cache == "" {
		o.cache = cacheOf(uid, gid, o.work)
	}
	cmd := exec.Command(demo,
		"-binary", relay, "-orders", strconv.Itoa(o.orders), "-sabotage", o.sabotage,
		"-work", o.work, "-cache", o.cache, "-repository", o.repository, "-mysql", o.mysql)
	cmd.Dir = o.work
	cmd.Env = append(os.Environ(), "HOME="+o.work, "TMPDIR="+o.work)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil // ended by a signal
}

// nobody returns the ids of the user nobody, or the usual ones.
func nobody() (uid, gid int) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return 65534, 65534
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if uidErr != nil || gidErr != nil || uid <= 0 {
		return 65534, 65534
	}
	return uid, gid
}

// cacheOf returns a folder that outlives the run and belongs to uid, or else one in work.
func cacheOf(uid, gid int, work string) string {
	if os.MkdirAll(filepath.Dir(rootCache), 0o755) == nil {
		err := os.Mkdir(rootCache, 0o755)
		if err == nil {
			err = os.Chown(rootCache, uid, gid)
		}
		if err == nil || errors.Is(err, os.ErrExist) {
			return rootCache
		}
	}
	return filepath.Join(work, "cache")
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
