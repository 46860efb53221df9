package mysqlsource

import (
	"crypto/tls"
	"database/sql"
	"encoding/pem"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// login is a fresh account, with a password that must be quoted in a URL.
type login struct{ name, password string }

func (d database) login(t *testing.T, require string) login {
	t.Helper()
	l := login{harness.Unique("u_"), "pw@:/?#[]%&=" + harness.Unique("")}
	w := d.session(t, "SET SESSION sql_log_bin = 0")
	w.exec(t, fmt.Sprintf("CREATE USER '%s'@'%%' IDENTIFIED BY '%s' %s", l.name, l.password, require))
	w.exec(t, fmt.Sprintf("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'", l.name))
	w.exec(t, fmt.Sprintf("GRANT SELECT ON %s.* TO '%s'@'%%'", d.name, l.name))
	t.Cleanup(func() { _, _ = d.db.Exec("DROP USER '" + l.name + "'@'%'") })
	return l
}

// config names the user in the URL, and the password there or beside it.
func (l login) config(d database, inURL bool, parameters string) mysql.Config {
	c := d.config()
	user := url.User(l.name)
	if inURL {
		user = url.UserPassword(l.name, l.password)
	} else {
		c.Password = func() (string, error) { return l.password, nil }
	}
	c.URL = (&url.URL{Scheme: "mysql", User: user, Host: d.addr, Path: "/" + d.name, RawQuery: parameters}).String()
	return c
}

// authority gives a file with what the server's certificate is signed by.
// MySQL has it in its folder; MariaDB's signs itself, and is seen at a login.
func (d database) authority(t *testing.T, server string) string {
	t.Helper()
	if flavor(server) == "mysql" {
		return filepath.Join(d.session(t).value(t, "SELECT @@datadir"), "ca.pem")
	}
	var shown []byte
	name := harness.Unique("look_")
	if err := driver.RegisterTLSConfig(name, &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { shown = s.PeerCertificates[0].Raw; return nil },
	}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("mysql", "cdc:cdc-pw@tcp("+d.addr+")/?tls="+name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.PingContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: shown}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const tlsAlone = "REQUIRE SSL" // an account that gets in over TLS alone, so that getting in proves it

// Each ssl-mode does what it says, with a fresh account each time: nothing of its
// password is cached by the server. What is refused says why, and no error holds a password.
func TestTLS(t *testing.T) {
	const ca = "&ssl-ca=CA"
	const strange = "&ssl-ca=STRANGE"
	for _, c := range []struct {
		name, server, parameters, require string
		refused                           string // a part of the error
		code                              string // of the fault, when it is one
	}{
		{"no TLS", "mysql", "ssl-mode=DISABLED", "", "", ""},
		{"no TLS", "mariadb118", "ssl-mode=DISABLED", "", "", ""},
		{"no TLS where the account needs it", "mysql", "ssl-mode=DISABLED", tlsAlone, "refuses the login", fault.CodeAccessDenied},
		{"no TLS where the account needs it", "mariadb118", "ssl-mode=DISABLED", tlsAlone, "refuses the login", fault.CodeAccessDenied},
		{"by default", "mysql", "", tlsAlone, "", ""},
		{"by default", "mariadb118", "", tlsAlone, "", ""},
		{"preferred", "mysql", "ssl-mode=PREFERRED", tlsAlone, "", ""},
		{"preferred where there is none", "mariadb1011", "ssl-mode=PREFERRED", "", "", ""},
		{"required", "mysql", "ssl-mode=required", tlsAlone, "", ""},
		{"required", "mariadb118", "ssl-mode=REQUIRED", tlsAlone, "", ""},
		{"required where there is none", "mariadb1011", "ssl-mode=REQUIRED", "", "does not support TLS", fault.CodeConfig},
		{"CA", "mysql", "ssl-mode=VERIFY_CA" + ca, tlsAlone, "", ""},
		{"CA", "mariadb118", "ssl-mode=VERIFY_CA" + ca, tlsAlone, "", ""},
		{"another CA", "mysql", "ssl-mode=VERIFY_CA" + strange, tlsAlone, "signed by unknown authority", fault.CodeConfig},
		{"another CA", "mariadb118", "ssl-mode=VERIFY_CA" + strange, tlsAlone, "x509", fault.CodeConfig},
		{"the system's CAs", "mysql", "ssl-mode=VERIFY_CA", tlsAlone, "x509", fault.CodeConfig},
		{"another name", "mysql", "ssl-mode=VERIFY_IDENTITY" + ca, tlsAlone, "x509", fault.CodeConfig},
		{"another name", "mariadb118", "ssl-mode=VERIFY_IDENTITY" + ca, tlsAlone, "x509", fault.CodeConfig},
	} {
		t.Run(c.name+"/"+c.server, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, c.server, small)
			l := d.login(t, c.require)
			parameters := strings.ReplaceAll(c.parameters, "STRANGE", "CA")
			if authority := c.server; parameters != "" && strings.Contains(parameters, "CA") && strings.Contains(parameters, "ssl-ca") {
				from := d
				if parameters != c.parameters { // the other server's
					authority = map[string]string{"mysql": "mariadb118", "mariadb118": "mysql"}[c.server]
					from = newDatabase(t, authority, small)
				}
				parameters = strings.Replace(parameters, "ssl-ca=CA", "ssl-ca="+url.QueryEscape(from.authority(t, authority)), 1)
			}
			s := newSource(t, l.config(d, c.server == "mysql", parameters))
			if c.refused == "" {
				st := stream(t, s, begin(t, s))
				d.write(t, true, "1")
				got, _ := rows(t, st, 1)
				equal(t, ids(got), "1")
				return
			}
			_, err := s.Acquire(t.Context(), nil)
			l.mustBeRefused(t, err, c.refused, c.code)
		})
	}
}

func (l login) mustBeRefused(t *testing.T, err error, why, code string) {
	t.Helper()
	if err == nil {
		t.Fatal("it got in")
	}
	text := err.Error()
	if f := fault.As(err); (f == nil) != (code == "") || f != nil && (f.Code != code || f.Fix == "") || !strings.Contains(text, why) {
		t.Errorf("refused with %v", err)
	}
	if f := fault.As(err); f != nil {
		text += f.Found + f.Fix
	}
	for _, secret := range []string{l.password, url.QueryEscape(l.password), url.PathEscape(l.password), l.password[12:]} {
		if strings.Contains(text, secret) {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

func TestWrongPassword(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		l := d.login(t, "")
		wrong := login{l.name, "not-" + l.password}
		for _, mode := range []string{"DISABLED", "PREFERRED"} {
			for _, inURL := range []bool{true, false} {
				_, err := newSource(t, wrong.config(d, inURL, "ssl-mode="+mode)).Acquire(t.Context(), nil)
				wrong.mustBeRefused(t, err, "refuses the login", fault.CodeAccessDenied)
			}
		}
	})
}
