package app

import (
	"os"
	"os/user"

	"go.uber.org/zap"
)

// audit writes the one line that tells who changed what.
func audit(log *zap.Logger, action, object, before, after string) {
	log.Info("audit", zap.String("actor", actor()), zap.String("action", action),
		zap.String("object", object), zap.String("before", before), zap.String("after", after))
}

// actor is the login and the machine.
func actor() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}
