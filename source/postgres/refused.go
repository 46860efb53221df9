package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxd/outboxd/internal/fault"
)

// explain turns refusals into faults; everything else passes and is tried again.
func (s *Source) explain(err error) error {
	if err == nil || fault.As(err) != nil {
		return err
	}
	var pg *pgconn.PgError
	switch {
	case certificateRefused(err):
		return fault.Config(fault.CodeConfig, "give sslrootcert the certificate that signed the server's, and the URL a name that is in it; sslmode=verify-ca does not compare the name, require without sslrootcert verifies nothing", err, "the server's certificate is not accepted")
	case strings.Contains(err.Error(), "remote error: tls: "): // crypto/tls has no type for it
		return fault.Config(fault.CodeAccessDenied, "compare sslcert and sslkey with what the server's ssl_ca_file signed, and their dates", err, "the server does not accept our TLS handshake, as a rule for the client certificate")
	case !errors.As(err, &pg):
		return err
	}
	switch pg.Code {
	case "28P01", "28000":
		return fault.Config(fault.CodeAccessDenied, "check OUTBOXD_SOURCE_USER, OUTBOXD_SOURCE_PASSWORD, the client certificate if the server asks for one, and the server's pg_hba.conf", err, "the database refuses the login")
	case "3D000":
		return fault.Config(fault.CodeConfig, "correct the database name in OUTBOXD_SOURCE_URL", err, "the database does not exist")
	case "42501":
		return fault.Config(fault.CodeGrantMissing, "grant what the message names to the role outboxd logs in with", err, "a right is missing")
	case "08P01":
		return s.pooled(err) // PostgreSQL has nothing against what we say, PgBouncer has
	}
	if strings.Contains(pg.Message, "RDS Proxy") || strings.Contains(strings.ToLower(pg.Message), "pgbouncer") {
		return s.pooled(err)
	}
	return err
}

// explainConnect is explain for an error of connecting by c.
func (s *Source) explainConnect(c *pgconn.Config, err error) error {
	secure := c.TLSConfig != nil
	for _, f := range c.Fallbacks {
		secure = secure && f.TLSConfig != nil
	}
	if secure && strings.Contains(err.Error(), "server refused TLS connection") { // the driver has no type for it
		return fault.Config(fault.CodeConfig, "turn ssl on in the server; or sslmode=prefer, which goes without it where there is none", err, "the server offers no TLS, and sslmode asks for it")
	}
	return s.explain(err)
}

// certificateRefused: with verify-ca the driver verifies by itself, and its errors are bare.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &invalid) || errors.As(err, &name)
}

// pooled names a connection pooler as the cause. A lease and a log reader need
// sessions of their own.
func (s *Source) pooled(cause error) error {
	return fault.Config(fault.CodeConfig, "give OUTBOXD_SOURCE_URL the address of the database server itself", cause,
		"the source URL leads to a connection pooler (PgBouncer, RDS Proxy or the like), and neither a lease nor a log can be held through one")
}

// mustBeDirect finds out a pooler that lets us in: the session it shows us is not the
// server's own. A lock taken through it would belong to whoever gets that session next.
func (s *Source) mustBeDirect(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	var timeout string
	err := conn.QueryRow(ctx, `SELECT pg_backend_pid(), current_setting('idle_session_timeout')`, pgx.QueryExecModeSimpleProtocol).Scan(&pid, &timeout)
	if err != nil {
		return s.explain(fmt.Errorf("ask which session this is: %w", err))
	}
	if told := conn.PgConn().PID(); told != pid {
		return s.pooled(fmt.Errorf("the session was announced with pid %d, and has pid %d in the server", told, pid))
	}
	if timeout == "0" {
		return s.pooled(errors.New("idle_session_timeout, which the lease sets for its session, did not reach the server"))
	}
	return nil
}
