package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Authority signs certificates for one test.
type Authority struct {
	File string // its own certificate, PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), key: newKey(t)}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: Unique("ca ")}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.File, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// Issue writes a certificate of that name (the host's, or the user's), and its
// key, encrypted when there is a passphrase. life may be negative.
func (a *Authority) Issue(t testing.TB, certFile, keyFile, name, passphrase string, life time.Duration) {
	t.Helper()
	key := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := &pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}
	if passphrase != "" {
		//nolint:staticcheck // old and weak, and the form that libpq's sslpassword is for
		if block, err = x509.EncryptPEMBlock(rand.Reader, block.Type, raw, []byte(passphrase), x509.PEMCipherAES256); err != nil {
			t.Fatal(err)
		}
	}
	writePEM(t, keyFile, block)
	writePEM(t, certFile, &pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// writePEM replaces a file at once, so that nobody reads half of it.
func writePEM(t testing.TB, file string, block *pem.Block) {
	t.Helper()
	if err := os.WriteFile(file+".new", pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// TLS has the server offer TLS, with a certificate for name that lives that
// long, and take client certificates of the same authority, until the end of the test.
func (p *Postgres) TLS(t testing.TB, a *Authority, name string, life time.Duration) {
	t.Helper()
	var data string
	if err := p.db.QueryRow(`SHOW data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	cert, key, root := filepath.Join(data, "test.crt"), filepath.Join(data, "test.key"), filepath.Join(data, "test-root.crt")
	a.Issue(t, cert, key, name, "", life)
	own, err := os.ReadFile(a.File)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(root, own, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{cert, key, root} {
		giveTo(t, file, data)
	}
	p.Exec(t, `ALTER SYSTEM SET ssl_cert_file = 'test.crt'`)
	p.Exec(t, `ALTER SYSTEM SET ssl_key_file = 'test.key'`)
	p.Exec(t, `ALTER SYSTEM SET ssl_ca_file = 'test-root.crt'`)
	p.Exec(t, `ALTER SYSTEM SET ssl = on`)
	t.Cleanup(func() {
		_, _ = p.db.Exec(`ALTER SYSTEM RESET ALL`)
		p.reload(t, "off")
	})
	p.reload(t, "on")
}

// reload waits until new sessions see it.
func (p *Postgres) reload(t testing.TB, ssl string) {
	t.Helper()
	p.db.SetMaxIdleConns(0)
	defer p.db.SetMaxIdleConns(20)
	if _, err := p.db.Exec(`SELECT pg_reload_conf()`); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the settings are read again", func() bool {
		var is string
		return p.db.QueryRow(`SHOW ssl`).Scan(&is) == nil && is == ssl
	})
}

// LoginRule puts a line before all others of pg_hba.conf, until the end of the test.
func (p *Postgres) LoginRule(t testing.TB, line string) {
	t.Helper()
	var file string
	if err := p.db.QueryRow(`SHOW hba_file`).Scan(&file); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text []byte) {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Error(err)
		}
		_, _ = p.db.Exec(`SELECT pg_reload_conf()`)
	}
	write(append([]byte(line+"\n"), before...))
	t.Cleanup(func() { write(before) })
}

// giveTo makes the owner of folder the owner of file.
func giveTo(t testing.TB, file, folder string) {
	t.Helper()
	info, err := os.Stat(folder)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}

// AuthorityOf is the authority whose own certificate is in file.
func AuthorityOf(file string, cert *x509.Certificate, key *ecdsa.PrivateKey) *Authority {
	return &Authority{File: file, cert: cert, key: key}
}
