package kafkasecure

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/harness"
)

// scene is an outbox whose connector comes by a listener with a login.
func scene(t *testing.T, address string, exactlyOnce bool, settings ...string) *harness.Outbox {
	t.Helper()
	make := harness.NewOutbox
	if exactlyOnce {
		make = harness.NewExactlyOnce
	}
	o := make(t, "postgres17", 3)
	o.Env = with(o.Env, append(settings, "BROKERS="+address)...)
	return o
}

// underLoad commits events until done.
func underLoad(t *testing.T, o *harness.Outbox, done func() bool) {
	t.Helper()
	harness.Eventually(t, "it has come about under load", func() bool {
		o.Commit(t, 5)
		return done()
	})
}

// lost counts the connections to brokers that were lost.
func lost(p *harness.Process) (n int) {
	for _, line := range p.Lines() {
		if line.Msg == "connection to a broker lost" {
			n++
		}
	}
	return n
}

// settled waits until the connections carry events, and counts those that were
// lost until then: a broker may hang up on a connection that is being opened.
func settled(t *testing.T, o *harness.Outbox, p *harness.Process) int {
	t.Helper()
	o.Commit(t, 50)
	o.Tail.WaitEvents(t, len(o.DB.Truth(t, harness.Plain.Checker())))
	return lost(p)
}

// The broker lets a login live for 2.5 s, and hangs up on who goes on without
// another (KIP-368). It is made again on the connection there is.
func TestLoginIsMadeAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		exactlyOnce bool
	}{{"at least once", false}, {"exactly once", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			name := user(t)
			allowAll(t, name)
			o := scene(t, listener(t, "SASL_SSL"), c.exactlyOnce, "TLS=on", "TLS_CA_FILE="+authority(t).File,
				"SASL_MECHANISM=SCRAM-SHA-512", "SASL_USERNAME="+name, "SASL_PASSWORD="+name+"-pw")
			p := harness.Start(t, harness.Command{Env: o.Env})
			p.WaitActive(t)
			before := settled(t, o, p)
			begun := time.Now()
			underLoad(t, o, func() bool { return time.Since(begun) > 8*time.Second })
			o.Finish(t, p, "logins that run out", 0)
			if n := lost(p) - before; n > 0 {
				t.Errorf("%d connections lost", n)
			}
		})
	}
}

// Whoever changes a password changes it in Kafka and in the file, one after the
// other. In between outboxd can't log in, and says so.
func TestPasswordRotation(t *testing.T) {
	t.Parallel()
	name := user(t)
	allowAll(t, name)
	secret := file(t, filepath.Join(t.TempDir(), "secret"), name+"-pw\n")
	o := scene(t, listener(t, "SASL_SSL"), false, "TLS=on", "TLS_CA_FILE="+authority(t).File,
		"SASL_MECHANISM=SCRAM-SHA-512", "SASL_USERNAME="+name, "SASL_PASSWORD_FILE="+secret)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	seen := 0
	for i, next := range []string{"canary-2", "canary-3"} {
		o.Commit(t, 200)
		password(t, name, next)
		var line harness.Line
		underLoad(t, o, func() bool {
			for n, l := range p.Lines() {
				if n >= seen && strings.Contains(l.Text, "refuses the login") {
					line, seen = l, n+1
					return true
				}
			}
			return false
		})
		if !strings.Contains(line.Text, "access_denied") || !strings.Contains(line.Text, name) {
			t.Errorf("rotation %d: %s", i, line.Text)
		}
		file(t, secret, next+"\n")
		o.Commit(t, 200)
		o.Tail.WaitEvents(t, len(o.DB.Truth(t, harness.Plain.Checker())))
		seen = len(p.Lines())
	}
	o.Finish(t, p, "two rotations of the password", 0)
	canary(t, p, name+"-pw", "canary-2", "canary-3")
}

// A token lives for a few seconds, and the client's secret changes.
func TestTokenRotation(t *testing.T) {
	t.Parallel()
	name := harness.Unique("client-")
	allowAll(t, name)
	e := newEndpoint(t, name)
	e.life = 6 * time.Second
	secret := file(t, filepath.Join(t.TempDir(), "secret"), e.secret.Load().(string)+"\n")
	o := scene(t, listener(t, "SASL_SSL"), false, "TLS=on", "TLS_CA_FILE="+authority(t).File,
		"SASL_MECHANISM=OAUTHBEARER", "SASL_OAUTH_TOKEN_URL="+e.URL, "SASL_OAUTH_CLIENT_ID=client:1", "SASL_OAUTH_CLIENT_SECRET_FILE="+secret,
		"SASL_OAUTH_SCOPE=scope-1", "SASL_OAUTH_EXTENSIONS=logicalCluster=one")
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	before := settled(t, o, p)
	begin := e.given.Load()
	underLoad(t, o, func() bool { return e.given.Load() >= begin+2 })
	if n := lost(p) - before; n > 0 {
		t.Errorf("%d connections lost while tokens ran out", n)
	}
	refused := e.asked.Load() - e.given.Load()
	e.secret.Store("canary-4")
	underLoad(t, o, func() bool { return e.asked.Load()-e.given.Load() > refused })
	file(t, secret, "canary-4\n")
	begin = e.given.Load()
	underLoad(t, o, func() bool { return e.given.Load() > begin })
	o.Finish(t, p, "tokens that run out, and another client secret", 0)
	canary(t, p, "canary-4", "secret/+")
}

// A client certificate is replaced before it runs out. The next connection has the new one.
func TestCertificateRotation(t *testing.T) {
	a, dir := authority(t), t.TempDir()
	harness.Disturb(t, "kafka-secure")
	allowAll(t, "CN=outboxd")
	cert, key := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	a.Issue(t, cert, key, "outboxd", "", 15*time.Second)
	until := time.Now().Add(15 * time.Second)
	o := scene(t, listener(t, "MTLS"), false, "TLS=on", "TLS_CA_FILE="+a.File, "TLS_CERT_FILE="+cert, "TLS_KEY_FILE="+key)
	p := harness.Start(t, harness.Command{Env: o.Env})
	p.WaitActive(t)
	o.Commit(t, 200)
	if left := expiry(t, p); left > 15 {
		t.Errorf("the certificate lives for %v more seconds", left)
	}
	a.Issue(t, cert, key, "outboxd", "", time.Hour)
	if left := expiry(t, p); left < 600 {
		t.Errorf("the new certificate lives for %v more seconds", left)
	}
	underLoad(t, o, func() bool { return time.Now().After(until) })
	harness.Ctl(t, "stop", "kafka-secure")
	harness.Ctl(t, "start", "kafka-secure")
	o.Commit(t, 200)
	o.Finish(t, p, "another client certificate", 0)
}

// expiry is what the metric says.
func expiry(t *testing.T, p *harness.Process) float64 {
	t.Helper()
	left, ok := p.Metric("outboxd_tls_certificate_expiry_seconds")
	if !ok {
		t.Error("no outboxd_tls_certificate_expiry_seconds")
	}
	return left
}

// canary fails when a secret stands in the log or on a page.
func canary(t *testing.T, p *harness.Process, secrets ...string) {
	t.Helper()
	text := p.Log()
	for _, l := range p.Lines() {
		text += l.Text
	}
	for _, s := range secrets {
		if strings.Contains(text, s) {
			t.Errorf("secret %q is in the log", s)
		}
	}
}
