package app

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// NewLogger writes to w. level is one of OUTBOXD_LOG_LEVEL, empty meaning
// info; format is json or console, empty meaning json. Nothing is sampled away.
func NewLogger(w io.Writer, level, format string) *zap.Logger {
	least, err := zapcore.ParseLevel(level)
	if err != nil {
		least = zapcore.InfoLevel
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.ISO8601TimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	if format == "console" {
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(e)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), least))
}
