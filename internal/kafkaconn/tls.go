package kafkaconn

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// TLS says whom we trust and, with a certificate, who we are. The files are PEM
// and are read for each connection, so replacing them is enough. It is at least TLS 1.2.
type TLS struct {
	CAFile     string // empty: the authorities that this machine trusts
	CertFile   string // our own certificate; empty: none
	KeyFile    string // its key
	ServerName string // that the brokers' certificates must be made out for; empty: the host of each
}

// client gives the settings for a connection to address.
func (t *TLS) client(address string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if c.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		c.ServerName = host
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		c.RootCAs = x509.NewCertPool()
		if err == nil && !c.RootCAs.AppendCertsFromPEM(pem) {
			err = fmt.Errorf("file %q holds no PEM certificate", t.CAFile)
		}
		if err != nil {
			return nil, unusable("OUTBOXD_KAFKA_TLS_CA_FILE", err)
		}
	}
	if t.CertFile != "" {
		own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, unusable("OUTBOXD_KAFKA_TLS_CERT_FILE and OUTBOXD_KAFKA_TLS_KEY_FILE", err)
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

func unusable(variable string, err error) error {
	return fault.Config(fault.CodeConfig, "Give "+variable+" PEM files that outboxd may read, the key without a passphrase.", err, "%s can't be used", variable)
}

// Expiry tells when our own certificate runs out, as its file is now; ok is
// false when there is none, or it can't be read.
func (t *TLS) Expiry() (at time.Time, ok bool) {
	if own := t.own(); own != nil {
		return own.NotAfter, true
	}
	return time.Time{}, false
}

// subject is whom our own certificate is made out for; empty: there is none.
func (t *TLS) subject() string {
	if own := t.own(); own != nil {
		return own.Subject.String()
	}
	return ""
}

// own is our own certificate as its file is now; nil: there is none.
func (t *TLS) own() *x509.Certificate {
	if t == nil || t.CertFile == "" {
		return nil
	}
	own, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil
	}
	return own.Leaf
}
