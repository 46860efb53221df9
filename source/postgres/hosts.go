package postgres

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/internal/fault"
)

// onlyPrimary has a list of hosts searched for the primary, as
// target_session_attrs=primary does, unless the URL asks for read-write.
func onlyPrimary(c *pgx.ConnConfig, sourceURL string) error {
	_, query, _ := strings.Cut(sourceURL, "?")
	params, _ := url.ParseQuery(query) // pgx has judged it already
	switch attrs := params.Get("target_session_attrs"); attrs {
	case "read-write", "primary":
		return nil
	case "standby", "read-only", "prefer-standby":
		return fault.Config(fault.CodeConfig, "target_session_attrs=primary, or read-write", nil, "the source URL asks for target_session_attrs=%s, and the log is read from a primary", attrs)
	}
	if severalHosts(c) {
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	return nil
}

func severalHosts(c *pgx.ConnConfig) bool {
	for _, f := range c.Fallbacks { // a host stands there once more without TLS
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

// pin keeps c to the server that the lease was taken on: while it is held, no
// other one of the list will do, however alive it is.
func (s *Source) pin(c *pgx.ConnConfig) {
	if s.server == "" {
		return
	}
	dial, server := c.DialFunc, s.server
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != server {
			return nil, fmt.Errorf("the lease is held on %s", server)
		}
		return dial(ctx, network, addr)
	}
}
