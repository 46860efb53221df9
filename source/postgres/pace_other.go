//go:build !linux

package postgres

import "syscall"

const canPace = false

func setLowWater(syscall.RawConn, int) error { return nil }

func queued(uintptr) int { return 0 }
