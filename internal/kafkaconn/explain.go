package kafkaconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// explain turns what a broker has against us into a fault that names it. What
// says nothing, a connection that was closed, it looks into, with a connection of
// its own. All else passes, and is tried again.
func (d *dialer) explain(ctx context.Context, network, address string, err error) error {
	var wrong mechanismError
	var no refusal
	var refused handshakeError
	var record tls.RecordHeaderError
	switch {
	case fault.As(err) != nil || d.life.Err() != nil:
		return err
	case errors.Is(err, errWantsTLS):
		return fault.Config(fault.CodeConfig, "Set OUTBOXD_KAFKA_TLS=on, or give OUTBOXD_KAFKA_BROKERS the port of a listener without TLS.", err, "broker %s wants TLS", address)
	case errors.As(err, &wrong) && len(wrong.offered) > 0:
		return fault.Config(fault.CodeAccessDenied, "Set OUTBOXD_KAFKA_SASL_MECHANISM to one of: "+strings.Join(wrong.offered, ", ")+".", nil,
			"broker %s does not take SASL mechanism %s; it offers %s", address, wrong.asked, strings.Join(wrong.offered, ", "))
	case errors.Is(err, errNoLogin):
		return fault.Config(fault.CodeConfig, "Unset OUTBOXD_KAFKA_SASL_…, or give OUTBOXD_KAFKA_BROKERS the port of a listener with a login.", nil, "broker %s takes no login at this port", address)
	case errors.As(err, &no):
		return fault.Config(fault.CodeAccessDenied, d.SASL.loginFix(), err, "broker %s refuses the login by %s%s", address, d.SASL.Mechanism, d.SASL.who())
	case errors.As(err, &record):
		return plaintextThere(address, err)
	case strings.Contains(err.Error(), "remote error: tls: "): // crypto/tls has no type for it
		return d.clientCertificate(address, err)
	case errors.As(err, &refused):
		return d.explainHandshake(ctx, network, address, err)
	case closed(err) && d.SASL == nil && !d.proven.Load():
		return d.wantsLogin(ctx, network, address, err)
	}
	return err
}

// explainHandshake tells why a TLS handshake failed.
func (d *dialer) explainHandshake(ctx context.Context, network, address string, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	from := "broker " + address
	switch {
	case errors.As(err, &unknown):
		return fault.Config(fault.CodeConfig, "Give OUTBOXD_KAFKA_TLS_CA_FILE the certificate of the authority that signed the brokers'.", err, "the certificate of %s comes from an authority that is not trusted", from)
	case errors.As(err, &name):
		return fault.Config(fault.CodeConfig, "Name the brokers in OUTBOXD_KAFKA_BROKERS and advertised.listeners as their certificates do, or set OUTBOXD_KAFKA_TLS_SERVER_NAME.", err, "the certificate of %s is made out for another name", from)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fault.Config(fault.CodeConfig, "Give the broker a certificate that is valid now, or set the clock.", err, "the certificate of %s has expired or is not valid yet", from)
	case errors.As(err, &verification):
		return fault.Config(fault.CodeConfig, "Give the broker another certificate.", err, "the certificate of %s is not accepted", from)
	case closed(err) && !d.proven.Load() && d.speaksPlaintext(ctx, network, address):
		return plaintextThere(address, err)
	}
	return fmt.Errorf("broker %s: %w", address, err)
}

func plaintextThere(address string, err error) error {
	return fault.Config(fault.CodeConfig, "Unset OUTBOXD_KAFKA_TLS, or give OUTBOXD_KAFKA_BROKERS the port of a TLS listener.", err, "broker %s speaks no TLS at this port", address)
}

// clientCertificate tells what a broker has against ours, which it says by a TLS alert.
func (d *dialer) clientCertificate(address string, err error) error {
	if d.TLS.CertFile == "" {
		return fault.Config(fault.CodeAccessDenied, "Set OUTBOXD_KAFKA_TLS_CERT_FILE and OUTBOXD_KAFKA_TLS_KEY_FILE: as a rule the broker wants a client certificate.", err, "broker %s ends the TLS handshake, and no client certificate is set", address)
	}
	found := ""
	if at, ok := d.TLS.Expiry(); ok && time.Now().After(at) {
		found = ", which expired at " + at.UTC().Format(time.RFC3339)
	}
	return fault.Config(fault.CodeAccessDenied, "Replace the files of OUTBOXD_KAFKA_TLS_CERT_FILE and OUTBOXD_KAFKA_TLS_KEY_FILE: the broker must trust the certificate's authority (ssl.truststore), and it must be valid now.", err,
		"broker %s does not accept our TLS handshake, as a rule for the client certificate%s", address, found)
}

// wantsLogin finds out whether a broker that hangs up wants a login: it hangs up
// on any question, and offers mechanisms.
func (d *dialer) wantsLogin(ctx context.Context, network, address string, err error) error {
	try := func(question func(net.Conn) error) error {
		c, failed := d.secure(ctx, network, address)
		if failed != nil {
			return failed
		}
		defer c.Close()
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		return question(c)
	}
	answers := try(func(c net.Conn) error { _, err := ask(c, listGroups, 0, nil); return err }) == nil
	var offered mechanismError
	if answers || !errors.As(try(func(c net.Conn) error { return handshake(c, "-") }), &offered) || len(offered.offered) == 0 {
		return err
	}
	return fault.Config(fault.CodeAccessDenied, "Set OUTBOXD_KAFKA_SASL_MECHANISM to one of "+strings.Join(offered.offered, ", ")+", and what it needs.", err, "broker %s wants a login, and OUTBOXD_KAFKA_SASL_MECHANISM is not set", address)
}

// speaksPlaintext finds out whether a broker answers without TLS.
func (d *dialer) speaksPlaintext(ctx context.Context, network, address string) bool {
	plaintext := dialer{life: d.life}
	c, err := plaintext.secure(ctx, network, address)
	if err != nil {
		return false
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_, err = ask(c, apiVersions, 0, nil)
	return err == nil
}

// closed reports whether the other end hung up without a word.
func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

func (s *SASL) who() string {
	if s.Mechanism == OAuthBearer {
		return ""
	}
	return fmt.Sprintf(" of user %q", s.Username)
}

func (s *SASL) loginFix() string {
	if s.Mechanism == OAuthBearer {
		return "Look at what the broker demands of a token (audience, issuer, scope, signing keys), and whether clocks agree."
	}
	return "Check OUTBOXD_KAFKA_SASL_USERNAME and OUTBOXD_KAFKA_SASL_PASSWORD(_FILE), and that the user has credentials for " + s.Mechanism + " in Kafka."
}
