package app

import (
	"time"

	"github.com/outboxd/outboxd/internal/config"
	"github.com/outboxd/outboxd/internal/kafkaconn"
)

// security says how brokers are spoken to.
func security(c *config.Config) kafkaconn.Security {
	var out kafkaconn.Security
	s := &c.Kafka.Security
	if s.TLS {
		out.TLS = &kafkaconn.TLS{CAFile: s.CAFile, CertFile: s.CertFile, KeyFile: s.KeyFile, ServerName: s.ServerName}
	}
	if s.Mechanism == "" {
		return out
	}
	out.SASL = &kafkaconn.SASL{
		Mechanism: s.Mechanism, Username: s.Username, Password: s.Password,
		Extensions: s.OAuth.Extensions, AllowPlaintext: s.AllowPlaintext,
	}
	switch {
	case s.Mechanism != kafkaconn.OAuthBearer:
	case s.OAuth.TokenFile != "":
		out.SASL.Tokens = kafkaconn.TokenFile(s.OAuth.TokenFile)
	default:
		out.SASL.Tokens = &kafkaconn.ClientCredentials{URL: s.OAuth.TokenURL, ID: s.OAuth.ClientID, Secret: s.OAuth.ClientSecret, Scope: s.OAuth.Scope}
	}
	return out
}

// certificateExpiry tells when the certificate that we show to Kafka runs out; ok
// is false when there is none.
func certificateExpiry(c *config.Config) func() (at time.Time, ok bool) {
	return security(c).TLS.Expiry
}
