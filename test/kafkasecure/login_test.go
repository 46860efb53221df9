package kafkasecure

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/kafkaconn"
	"github.com/outboxd/outboxd/test/harness"
)

func text(s string) func() (string, error) { return func() (string, error) { return s, nil } }

// reach connects and asks something that takes a login.
func reach(t testing.TB, address string, security kafkaconn.Security) error {
	t.Helper()
	life, cut := context.WithCancel(t.Context())
	defer cut()
	c := kafkaconn.Config{Brokers: []string{address}, Security: security}
	b, err := c.Reach(c.Base(life))
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.GetMetadata(&sarama.MetadataRequest{Version: 5, Topics: []string{"nothing"}})
	return err
}

// Every way of logging in that there is, at a real broker.
func TestLogins(t *testing.T) {
	a, name := authority(t), user(t)
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	a.Issue(t, cert, key, "client", "", time.Hour)
	secure := &kafkaconn.TLS{CAFile: a.File}
	tokens := kafkaconn.TokenFile(file(t, filepath.Join(dir, "token"), token(name, time.Hour)+"\n"))
	endpoint := newEndpoint(t, name)
	for _, c := range []struct {
		name, listener string
		security       kafkaconn.Security
	}{
		{"TLS", "SSL", kafkaconn.Security{TLS: secure}},
		{"TLS by server name", "SSL", kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: a.File, ServerName: "localhost"}}},
		{"mutual TLS", "MTLS", kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: a.File, CertFile: cert, KeyFile: key}}},
		{"PLAIN", "SASL_SSL", kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{Mechanism: kafkaconn.Plain, Username: "plain", Password: text("plain-pw")}}},
		{"PLAIN on this machine without TLS", "SASL_PLAINTEXT", kafkaconn.Security{SASL: &kafkaconn.SASL{Mechanism: kafkaconn.Plain, Username: "plain", Password: text("plain-pw")}}},
		{"SCRAM-SHA-256", "SASL_SSL", kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{Mechanism: kafkaconn.ScramSHA256, Username: name, Password: text(name + "-pw")}}},
		{"SCRAM-SHA-512", "SASL_SSL", kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{Mechanism: kafkaconn.ScramSHA512, Username: name, Password: text(name + "-pw")}}},
		{"SCRAM-SHA-512 without TLS", "SASL_PLAINTEXT", kafkaconn.Security{SASL: &kafkaconn.SASL{Mechanism: kafkaconn.ScramSHA512, Username: name, Password: text(name + "-pw")}}},
		{"OAUTHBEARER from a file", "SASL_SSL", kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{Mechanism: kafkaconn.OAuthBearer, Tokens: tokens}}},
		{"OAUTHBEARER from a token endpoint, with extensions", "SASL_SSL", kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{
			Mechanism: kafkaconn.OAuthBearer, Tokens: endpoint.client("scope-1"), Extensions: map[string]string{"logicalCluster": "one", "identityPoolId": "two"},
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := reach(t, listener(t, c.listener), c.security); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// endpoint is the token endpoint of an OAuth 2 server.
type endpoint struct {
	*httptest.Server
	secret atomic.Value // string: the client's
	life   time.Duration
	given  atomic.Int32 // tokens
	asked  atomic.Int32
}

func newEndpoint(t testing.TB, user string) *endpoint {
	t.Helper()
	e := &endpoint{life: time.Hour}
	e.secret.Store("secret/+ ä")
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		id, secret, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		if r.PostFormValue("grant_type") != "client_credentials" || id != "client%3A1" || secret != escaped(e.secret.Load().(string)) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"error":"invalid_client","error_description":"no such client"}`))
			return
		}
		if scope := r.PostFormValue("scope"); scope != "scope-1" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"error":"invalid_scope"}`))
			return
		}
		e.given.Add(1)
		_, _ = w.Write([]byte(`{"token_type":"Bearer","expires_in":` + seconds(e.life) + `,"access_token":"` + token(user, e.life+time.Second) + `"}`))
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *endpoint) client(scope string) *kafkaconn.ClientCredentials {
	return &kafkaconn.ClientCredentials{URL: e.URL + "/token", ID: "client:1", Scope: scope, Secret: func() (string, error) { return e.secret.Load().(string), nil }}
}

// What is wrong is named, and what would be right.
func TestRefusedLogins(t *testing.T) {
	a, other, name := authority(t), harness.NewAuthority(t), user(t)
	dir := t.TempDir()
	issue := func(by *harness.Authority, life time.Duration) *kafkaconn.TLS {
		cert := filepath.Join(dir, harness.Unique("cert-"))
		by.Issue(t, cert, cert+".key", "client", "", life)
		return &kafkaconn.TLS{CAFile: a.File, CertFile: cert, KeyFile: cert + ".key"}
	}
	secure := &kafkaconn.TLS{CAFile: a.File}
	scram := func(user, password string) *kafkaconn.SASL {
		return &kafkaconn.SASL{Mechanism: kafkaconn.ScramSHA512, Username: user, Password: text(password)}
	}
	bearer := func(tokens kafkaconn.Tokens) *kafkaconn.SASL {
		return &kafkaconn.SASL{Mechanism: kafkaconn.OAuthBearer, Tokens: tokens}
	}
	e := newEndpoint(t, name)
	wrongSecret := e.client("scope-1")
	wrongSecret.Secret = text("wrong")
	for _, c := range []struct {
		name, address string
		security      kafkaconn.Security
		code, says    string
	}{
		{"an authority that is not the broker's", listener(t, "SSL"), kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: other.File}}, fault.CodeConfig, "an authority that is not trusted"},
		{"the machine's authorities", listener(t, "SSL"), kafkaconn.Security{TLS: &kafkaconn.TLS{}}, fault.CodeConfig, "an authority that is not trusted"},
		{"another name", listener(t, "SSL"), kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: a.File, ServerName: "kafka.example"}}, fault.CodeConfig, "made out for another name"},
		{"an expired certificate of the broker", fakeBroker(t, a, "127.0.0.1", -time.Hour), kafkaconn.Security{TLS: secure}, fault.CodeConfig, "has expired"},
		{"no such CA file", listener(t, "SSL"), kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: "/nowhere"}}, fault.CodeConfig, "OUTBOXD_KAFKA_TLS_CA_FILE"},
		{"a CA file without a certificate", listener(t, "SSL"), kafkaconn.Security{TLS: &kafkaconn.TLS{CAFile: file(t, filepath.Join(dir, "empty"), "no PEM")}}, fault.CodeConfig, "holds no PEM certificate"},
		{"plaintext to a TLS port", listener(t, "SSL"), kafkaconn.Security{}, fault.CodeConfig, "wants TLS"},
		{"plaintext with a login to a TLS port", listener(t, "SASL_SSL"), kafkaconn.Security{SASL: scram(name, name+"-pw")}, fault.CodeConfig, "wants TLS"},
		{"TLS to a plaintext port", plaintext(t), kafkaconn.Security{TLS: secure}, fault.CodeConfig, "speaks no TLS"},
		{"TLS with a login to a port without TLS", listener(t, "SASL_PLAINTEXT"), kafkaconn.Security{TLS: secure, SASL: scram(name, name+"-pw")}, fault.CodeConfig, "speaks no TLS"},
		{"no client certificate", listener(t, "MTLS"), kafkaconn.Security{TLS: secure}, fault.CodeAccessDenied, "no client certificate is set"},
		{"a client certificate of another authority", listener(t, "MTLS"), kafkaconn.Security{TLS: issue(other, time.Hour)}, fault.CodeAccessDenied, "does not accept our TLS handshake"},
		{"a client certificate that has expired", listener(t, "MTLS"), kafkaconn.Security{TLS: issue(a, -time.Hour)}, fault.CodeAccessDenied, "which expired at"},
		{"no login, with TLS", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure}, fault.CodeAccessDenied, "wants a login"},
		{"no login", listener(t, "SASL_PLAINTEXT"), kafkaconn.Security{}, fault.CodeAccessDenied, "wants a login"},
		{"a login where there is none", plaintext(t), kafkaconn.Security{SASL: scram(name, name+"-pw")}, fault.CodeConfig, "takes no login"},
		{"a wrong password", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: scram(name, "wrong")}, fault.CodeAccessDenied, "refuses the login by SCRAM-SHA-512 of user \"" + name},
		{"an unknown user", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: scram("nobody", "x")}, fault.CodeAccessDenied, "refuses the login"},
		{"a wrong password for PLAIN", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: &kafkaconn.SASL{Mechanism: kafkaconn.Plain, Username: "plain", Password: text("wrong")}}, fault.CodeAccessDenied, "refuses the login by PLAIN"},
		{"a mechanism that is not offered", listener(t, "SASL_PLAINTEXT"), kafkaconn.Security{SASL: &kafkaconn.SASL{Mechanism: kafkaconn.ScramSHA256, Username: name, Password: text("x")}}, fault.CodeAccessDenied, "it offers PLAIN, SCRAM-SHA-512"},
		{"a token that has expired", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: bearer(kafkaconn.TokenFile(file(t, filepath.Join(dir, "old"), token(name, -time.Hour))))}, fault.CodeAccessDenied, "refuses the login by OAUTHBEARER"},
		{"no token file", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: bearer(kafkaconn.TokenFile("/nowhere"))}, fault.CodeConfig, "no access token"},
		{"a wrong client secret", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: bearer(wrongSecret)}, fault.CodeAccessDenied, "HTTP status 401 \"invalid_client\" \"no such client\""},
		{"a scope that is not there", listener(t, "SASL_SSL"), kafkaconn.Security{TLS: secure, SASL: bearer(e.client("scope-2"))}, fault.CodeAccessDenied, "invalid_scope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := reach(t, c.address, c.security)
			f := fault.As(err)
			if f == nil || f.Code != c.code || !strings.Contains(err.Error(), c.says) || f.Fix == "" {
				t.Fatalf("got %v, want %s with %q", err, c.code, c.says)
			}
			if !strings.Contains(err.Error(), c.address) && strings.Contains(err.Error(), "broker") && !strings.Contains(err.Error(), "brokers") {
				t.Errorf("the broker is not named: %v", err)
			}
			for _, secret := range []string{name + "-pw", "plain-pw", e.secret.Load().(string)} {
				if strings.Contains(err.Error()+f.Fix, secret) {
					t.Errorf("a secret is told: %v", err)
				}
			}
		})
	}
}

// fakeBroker is a TLS server with a certificate of its own.
func fakeBroker(t testing.TB, a *harness.Authority, name string, life time.Duration) string {
	t.Helper()
	cert := filepath.Join(t.TempDir(), "cert")
	a.Issue(t, cert, cert+".key", name, "", life)
	l := listenTLS(t, cert, cert+".key")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func(c net.Conn) {
				defer c.Close()
				_, _ = c.Read(make([]byte, 1)) // makes the handshake
			}(c)
		}
	}()
	return l.Addr().String()
}
