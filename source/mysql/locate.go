package mysql

import (
	"context"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Locate gives the position that text names, as `checkpoint show` prints it. It
// is judged as Open would judge it, and nothing is read. The lease must be held.
func (s *Source) Locate(ctx context.Context, text string, _ source.Position) (source.Position, error) {
	at, err := parsePlace(source.Position(text))
	if err != nil {
		return "", fault.Config(fault.CodeConfig, "Give it as outboxd checkpoint show prints it.", err, "%q is no position", text)
	}
	q, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	defer q.close()
	if s.server, err = s.ask(ctx, q); err != nil {
		return "", err
	}
	if err := s.judge(ctx, q, at); err != nil {
		return "", err
	}
	return at.position(), nil
}
