package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canPace = true

func setLowWater(raw syscall.RawConn, n int) error {
	var err error
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) }); cerr != nil {
		return cerr
	}
	return err
}

// queued is how many bytes can be read at once.
func queued(fd uintptr) int {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
