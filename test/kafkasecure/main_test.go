// Package kafkasecure tests TLS, logins, rights and idle links against a broker
// that has them all.
package kafkasecure

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxd/outboxd/test/harness"
)

func TestMain(m *testing.M) {
	if brokers := os.Getenv("OUTBOXD_TEST_KAFKA_SECURE"); brokers != "" {
		_ = os.Setenv("OUTBOXD_TEST_KAFKA", brokers) // the harness makes and reads topics there, as the administrator; no NUL is in it
	}
	harness.Main(m)
}

// listener is the address of one of the broker's listeners: SSL, MTLS, SASL_SSL, SASL_PLAINTEXT.
func listener(t testing.TB, name string) string {
	t.Helper()
	return harness.Need(t, "OUTBOXD_TEST_KAFKA_SECURE_"+name)
}

// plaintext is the address of the listener with neither TLS nor a login.
func plaintext(t testing.TB) string { return harness.Brokers(t)[0] }

// authority is the one that signed the broker's certificate.
func authority(t testing.TB) *harness.Authority {
	t.Helper()
	folder := harness.Need(t, "OUTBOXD_TEST_KAFKA_SECURE_CERTIFICATES")
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "ca.pem"), filepath.Join(folder, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return harness.AuthorityOf(filepath.Join(folder, "ca.pem"), cert, pair.PrivateKey.(*ecdsa.PrivateKey))
}

// admin runs do as the administrator.
func admin(t testing.TB, do func(context.Context, *kadm.Client) error) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(plaintext(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	if err := do(ctx, kadm.NewClient(client)); err != nil {
		t.Fatalf("administer Kafka: %v", err)
	}
}

// password gives a user a password for SCRAM, in place of one there was.
func password(t testing.TB, user, password string) {
	t.Helper()
	admin(t, func(ctx context.Context, a *kadm.Client) error {
		for _, mechanism := range []kadm.ScramMechanism{kadm.ScramSha256, kadm.ScramSha512} {
			answer, err := a.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: user, Mechanism: mechanism, Iterations: 4096, Password: password}})
			if err == nil {
				err = answer.Error()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// user makes a user of SCRAM that nobody else has.
func user(t testing.TB) string {
	t.Helper()
	name := harness.Unique("user-")
	password(t, name, name+"-pw")
	return name
}

// allowAll lets a principal do everything.
func allowAll(t testing.TB, principal string) {
	t.Helper()
	admin(t, func(ctx context.Context, a *kadm.Client) error {
		all := kadm.NewACLs().Allow("User:" + principal).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).
			Topics("*").Groups("*").TransactionalIDs("*").Clusters().Operations(kadm.OpAll)
		answer, err := a.CreateACLs(ctx, all)
		for _, r := range answer {
			if err == nil {
				err = r.Err
			}
		}
		return err
	})
}

// token is an access token for a user that lives that long. The broker looks at no signature.
func token(name string, life time.Duration) string {
	part := func(v any) string {
		b, _ := json.Marshal(v) // maps of text and numbers
		return base64.RawURLEncoding.EncodeToString(b)
	}
	now := time.Now()
	claims := map[string]any{"sub": name, "iat": now.Add(-time.Minute).Unix(), "exp": now.Add(life).Unix(), "jti": fmt.Sprint(now.UnixNano())}
	return part(map[string]string{"alg": "none"}) + "." + part(claims) + "."
}

// file writes a file as whoever rotates secrets does: it is never there by half.
func file(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// with gives a copy of env with settings written as NAME=VALUE, all of which begin with OUTBOXD_KAFKA_.
func with(env map[string]string, settings ...string) map[string]string {
	out := map[string]string{}
	for name, value := range env {
		out[name] = value
	}
	for _, s := range settings {
		name, value, _ := strings.Cut(s, "=")
		out["OUTBOXD_KAFKA_"+name] = value
	}
	return out
}

func listenTLS(t testing.TB, cert, key string) net.Listener {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func escaped(s string) string        { return url.QueryEscape(s) }
func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
