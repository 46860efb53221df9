package config

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"strings"
)

// Security is how brokers are spoken to: TLS, and a login.
type Security struct {
	TLS        bool
	CAFile     string // PEM; empty: the authorities this machine trusts
	CertFile   string // PEM; empty: no client certificate
	KeyFile    string // PEM, without a passphrase
	ServerName string // empty: the host of each broker

	Mechanism string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER; empty: no login
	Username  string
	Password  Secret // asked for at each login
	OAuth     OAuth

	AllowPlaintext bool // a secret may go over the network unencrypted
}

// OAuth says where the tokens of OAUTHBEARER come from. Either TokenURL or TokenFile is set.
type OAuth struct {
	TokenURL     string
	ClientID     string
	ClientSecret Secret // asked for with each token
	Scope        string
	TokenFile    string
	Extensions   map[string]string
}

const (
	saslPrefix  = "OUTBOXD_KAFKA_SASL_"
	oauthBearer = "OAUTHBEARER"
)

func securityRows() []Variable {
	file := func(field func(*Config) *string) kind {
		k := text(field)
		k.legal = "the path of a PEM file"
		return k
	}
	return []Variable{
		{Name: "OUTBOXD_KAFKA_TLS", Default: "off", Meaning: "TLS to the brokers, 1.2 or later; their certificates are always verified",
			kind: kind{"on, off", func(c *Config, v string) error {
				if v != "on" && v != "off" && v != "true" && v != "false" {
					return errors.New("is neither on nor off")
				}
				c.Kafka.Security.TLS = v == "on" || v == "true"
				return nil
			}}},
		{Name: "OUTBOXD_KAFKA_TLS_CA_FILE", Unset: "the authorities this machine trusts", Meaning: "the authorities whose certificates the brokers may have; like all TLS files read anew for each connection",
			kind: file(func(c *Config) *string { return &c.Kafka.Security.CAFile })},
		{Name: "OUTBOXD_KAFKA_TLS_CERT_FILE", Unset: "no client certificate", Meaning: "our own certificate and what stands between it and its authority, for mutual TLS",
			kind: file(func(c *Config) *string { return &c.Kafka.Security.CertFile })},
		{Name: "OUTBOXD_KAFKA_TLS_KEY_FILE", Unset: "no client certificate", Meaning: "the key of our own certificate, without a passphrase",
			kind: file(func(c *Config) *string { return &c.Kafka.Security.KeyFile })},
		{Name: "OUTBOXD_KAFKA_TLS_SERVER_NAME", Unset: "the host of each broker", Meaning: "the name that the brokers' certificates must be made out for",
			kind: checked("a host name or an IP address", func(c *Config) *string { return &c.Kafka.Security.ServerName },
				func(s string) bool { return hostName.MatchString(s) || net.ParseIP(s) != nil })},
		{Name: saslPrefix + "MECHANISM", Unset: "no login", Meaning: "how to log in at the brokers",
			kind: choice(func(c *Config) *string { return &c.Kafka.Security.Mechanism }, []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", oauthBearer})},
		{Name: saslPrefix + "USERNAME", Unset: "required by PLAIN and SCRAM", Meaning: "the user",
			kind: text(func(c *Config) *string { return &c.Kafka.Security.Username })},
		{Name: saslPrefix + "PASSWORD", Unset: "required by PLAIN and SCRAM", Secret: true, Meaning: "the password; asked for at each login",
			kind: text(func(*Config) *string { return new(string) })},
		{Name: saslPrefix + "OAUTH_TOKEN_URL", Unset: "one of it and the file is required by OAUTHBEARER", Meaning: "the token endpoint of the OAuth 2 server, which gives a token for the client's credentials (RFC 6749, 4.4)",
			kind: kind{"https://host/path, or http:// on this machine", func(c *Config, v string) error {
				u, err := url.Parse(v)
				switch {
				case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
					return errors.New("is no http address")
				case u.User != nil:
					return errors.New("holds a user; use OUTBOXD_KAFKA_SASL_OAUTH_CLIENT_ID and _CLIENT_SECRET")
				}
				c.Kafka.Security.OAuth.TokenURL = v
				return nil
			}}},
		{Name: saslPrefix + "OAUTH_CLIENT_ID", Unset: "required by the token endpoint", Meaning: "the client's id at the OAuth server",
			kind: text(func(c *Config) *string { return &c.Kafka.Security.OAuth.ClientID })},
		{Name: saslPrefix + "OAUTH_CLIENT_SECRET", Unset: "required by the token endpoint", Secret: true, Meaning: "the client's secret; asked for with each token",
			kind: text(func(*Config) *string { return new(string) })},
		{Name: saslPrefix + "OAUTH_SCOPE", Unset: "none", Meaning: "the scope that is asked for, several with spaces",
			kind: text(func(c *Config) *string { return &c.Kafka.Security.OAuth.Scope })},
		{Name: saslPrefix + "OAUTH_TOKEN_FILE", Unset: "one of it and the URL is required by OAUTHBEARER", Meaning: "a file that holds an access token, which somebody else keeps fresh; read at each login",
			kind: kind{"the path of a file", func(c *Config, v string) error { c.Kafka.Security.OAuth.TokenFile = v; return nil }}},
		{Name: saslPrefix + "OAUTH_EXTENSIONS", Unset: "none", Meaning: "SASL extensions that go with the token, such as `logicalCluster=lkc-1`",
			kind: kind{"a list of name=value; names of letters, not auth", func(c *Config, v string) (err error) {
				c.Kafka.Security.OAuth.Extensions, err = parseExtensions(v)
				return err
			}}},
		{Name: "OUTBOXD_KAFKA_ALLOW_PLAINTEXT", Default: "false", Meaning: "`true`: what PLAIN and OAUTHBEARER send may go over the network without TLS, where anybody on the way can take it and use it; without it that is refused to other hosts than this one",
			kind: boolean(func(c *Config) *bool { return &c.Kafka.Security.AllowPlaintext })},
	}
}

var (
	extensionName  = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[!-~ \t]+$`)
)

func parseExtensions(s string) (map[string]string, error) {
	all := map[string]string{}
	for e := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(e), "=")
		if !ok || !extensionName.MatchString(name) || name == "auth" || !extensionValue.MatchString(value) || all[name] != "" {
			return nil, errors.New("has a form that is not legal")
		}
		all[name] = value
	}
	return all, nil
}

// security names what does not fit together in TLS and login, and fills in the secrets.
func (l *loader) security(rows []Variable) {
	s := &l.c.Kafka.Security
	s.Password, s.OAuth.ClientSecret = l.secretOf(saslPrefix+"PASSWORD"), l.secretOf(saslPrefix+"OAUTH_CLIENT_SECRET")
	set := func(name string) bool { _, ok := l.taken[name]; return ok }
	refuse := func(name, reason, legal string) {
		l.problems = append(l.problems, Problem{Name: l.givenName(name), Reason: reason, Legal: legal})
	}
	required := func(by string, names ...string) {
		for _, name := range names {
			if !set(name) && !l.wrong(rows, name) {
				refuse(name, "is required by "+by, "")
			}
		}
	}
	for i := range rows {
		name := rows[i].Name
		switch {
		case !set(name):
		case strings.HasPrefix(name, "OUTBOXD_KAFKA_TLS_") && !s.TLS && !l.wrong(rows, "OUTBOXD_KAFKA_TLS"):
			refuse(name, "is set and OUTBOXD_KAFKA_TLS is off", "set OUTBOXD_KAFKA_TLS=on, or leave it unset")
		case !strings.HasPrefix(name, saslPrefix) || name == saslPrefix+"MECHANISM" || l.wrong(rows, saslPrefix+"MECHANISM"):
		case s.Mechanism == "":
			refuse(name, "is set and "+saslPrefix+"MECHANISM is not", "set the mechanism, or leave it unset")
		case strings.HasPrefix(name, saslPrefix+"OAUTH_") != (s.Mechanism == oauthBearer):
			refuse(name, "has no use with "+saslPrefix+"MECHANISM="+s.Mechanism, "leave it unset")
		}
	}
	if set("OUTBOXD_KAFKA_TLS_CERT_FILE") != set("OUTBOXD_KAFKA_TLS_KEY_FILE") {
		required("the other half of the client certificate", "OUTBOXD_KAFKA_TLS_CERT_FILE", "OUTBOXD_KAFKA_TLS_KEY_FILE")
	}
	const mechanism, endpoint, file = saslPrefix + "MECHANISM", saslPrefix + "OAUTH_TOKEN_URL", saslPrefix + "OAUTH_TOKEN_FILE"
	switch {
	case s.Mechanism == "":
	case s.Mechanism != oauthBearer:
		required(mechanism+"="+s.Mechanism, saslPrefix+"USERNAME", saslPrefix+"PASSWORD")
	case set(endpoint) && set(file):
		refuse(endpoint, "and "+file+" are both set", "one of them")
	case set(endpoint):
		required(endpoint, saslPrefix+"OAUTH_CLIENT_ID", saslPrefix+"OAUTH_CLIENT_SECRET")
		if u, err := url.Parse(s.OAuth.TokenURL); err == nil && u.Scheme == "http" && !s.AllowPlaintext && !local(u.Hostname()) {
			refuse(endpoint, "would send the client's secret unencrypted", "https://…, or OUTBOXD_KAFKA_ALLOW_PLAINTEXT=true")
		}
	case !set(file):
		required(mechanism+"="+s.Mechanism+", unless "+file+" is set", endpoint)
	}
	if (s.Mechanism == "PLAIN" || s.Mechanism == oauthBearer) && !s.TLS && !s.AllowPlaintext {
		for _, b := range l.c.Kafka.Brokers {
			if host, _, err := net.SplitHostPort(b); err == nil && !local(host) {
				refuse(mechanism, s.Mechanism+" would send a secret unencrypted to "+host, "OUTBOXD_KAFKA_TLS=on, or SCRAM-SHA-512, or OUTBOXD_KAFKA_ALLOW_PLAINTEXT=true")
				break
			}
		}
	}
}

// local reports whether what is sent to host stays on this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// secretOf gives a secret that is read again at each call; nil when it is not set.
func (l *loader) secretOf(name string) Secret { return l.taken[name].secret }

// givenName is the name that a row was set by.
func (l *loader) givenName(name string) string {
	if s, ok := l.taken[name]; ok {
		return s.name
	}
	return name
}

// wrong reports whether a row's setting was already found wrong.
func (l *loader) wrong(rows []Variable, name string) bool {
	for i := range rows {
		if rows[i].Name != name {
			continue
		}
		for _, p := range l.problems {
			for _, n := range rows[i].names() {
				if p.Name == n {
					return true
				}
			}
		}
	}
	return false
}
