package mysqlsource

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/internal/preflight"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/mysql"
	"github.com/outboxd/outboxd/test/harness"
)

// An account that has nothing is told right by right what it lacks, with the statement that gives it. Those are enough
// to check, to start and to read, and they are the least.
func TestLeastPrivilege(t *testing.T) {
	eachServer(t, func(t *testing.T, server string) {
		t.Parallel()
		d := newDatabase(t, server, small)
		l := d.login(t, "")
		w := d.session(t, "SET SESSION sql_log_bin = 0")
		w.exec(t, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM '"+l.name+"'@'%'")
		if flavor(server) == "mysql" {
			w.exec(t, "FLUSH PRIVILEGES")
		}
		var granted []string
		var lease source.Lease
		s := newSource(t, l.config(d, false, ""))
		for lease == nil {
			var err error
			if lease, err = s.Acquire(t.Context(), nil); err == nil {
				break
			}
			f := fault.As(err)
			if f == nil || f.Code != fault.CodeGrantMissing || f.Exit != fault.ExitConfig || !strings.HasPrefix(f.Fix, "GRANT ") {
				t.Fatalf("with %q: %v; %+v", granted, err, f)
			}
			if !hasFix(s.Check(t.Context(), source.StartAuto), f.Fix) {
				t.Errorf("check does not name %s", f.Fix)
			}
			granted = append(granted, f.Fix)
			if len(granted) > 5 {
				t.Fatalf("there is no end: %q", granted)
			}
			w.exec(t, f.Fix)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		account := fmt.Sprintf("'%s'@'%%'", l.name)
		client := "REPLICATION CLIENT"
		if flavor(server) == "mariadb" {
			client = "BINLOG MONITOR"
		}
		equal(t, granted, "GRANT SELECT ON `"+d.name+"`.`outbox` TO "+account,
			"GRANT REPLICATION SLAVE ON *.* TO "+account, "GRANT "+client+" ON *.* TO "+account)
		for _, r := range s.Check(t.Context(), source.StartAuto) {
			if r.Status == preflight.Fail {
				t.Errorf("check: %+v", r)
			}
		}
		at, err := s.Begin(t.Context(), source.First{Mode: source.StartAuto})
		if err != nil {
			t.Fatal(err)
		}
		st := stream(t, s, at)
		d.write(t, true, "1")
		got, behind := rows(t, st, 1)
		equal(t, ids(got), "1")
		for _, text := range []string{string(behind), "oldest"} {
			if _, err := s.Locate(t.Context(), text, ""); err != nil {
				t.Errorf("set to %s: %v", text, err)
			}
		}
		_ = stream(t, s, behind)
	})
}

func hasFix(results []preflight.Result, fix string) bool {
	for _, r := range results {
		for _, f := range r.Fix {
			if r.Status == preflight.Fail && f == fix {
				return true
			}
		}
	}
	return false
}

// Client certificates, for accounts that need one.
func TestClientCertificate(t *testing.T) {
	d := newDatabase(t, "mysql", small)
	data := d.session(t).value(t, "SELECT @@datadir")
	l := d.login(t, "REQUIRE X509")
	_, err := newSource(t, l.config(d, true, "ssl-mode=REQUIRED")).Acquire(t.Context(), nil)
	l.mustBeRefused(t, err, "refuses the login", fault.CodeAccessDenied)
	for _, mode := range []string{"REQUIRED", "VERIFY_CA"} {
		c := l.config(d, true, fmt.Sprintf("ssl-mode=%s&ssl-ca=%[2]sca.pem&ssl-cert=%[2]sclient-cert.pem&ssl-key=%[2]sclient-key.pem", mode, data))
		c.Name = harness.Unique("certified-")
		s := newSource(t, c)
		at := begin(t, s)
		d.write(t, true, "1")
		got, _ := rows(t, stream(t, s, at), 1)
		equal(t, ids(got), "1")
		d.exec(t, "DELETE FROM outbox")
	}
	for _, parameters := range []string{"ssl-cert=" + data + "client-cert.pem", "ssl-cert=missing.pem&ssl-key=missing.pem", "ssl-ca=missing.pem", "ssl-ca=" + data + "client-key.pem"} {
		_, err := mysql.New(l.config(d, true, parameters), nil)
		if f := fault.As(err); f == nil || f.Code != fault.CodeConfig || f.Exit != fault.ExitConfig {
			t.Errorf("%s: %v", parameters, err)
		}
	}
}

var statement = regexp.MustCompile(`SET (PERSIST|GLOBAL) \w+ = ('\w+'|\d+)`)

// A setting of the server that is no good is named with the statement that mends it, which works.
func TestSettingsAreMended(t *testing.T) {
	for _, server := range []string{"mysql", "mariadb118"} {
		for _, c := range []struct{ variable, value, id string }{
			{"binlog_format", "STATEMENT", "mysql.server"}, {"binlog_row_image", "MINIMAL", "mysql.row_image"}, {"binlog_row_metadata", "MINIMAL", "mysql.row_metadata"},
			{"sync_binlog", "0", "mysql.sync_binlog"}, {"binlog_expire_logs_seconds", "3600", "mysql.binlog_retention"},
		} {
			t.Run(server+"/"+c.variable, func(t *testing.T) {
				d := newDatabase(t, server, small)
				w := d.session(t)
				before := w.value(t, "SELECT @@global."+c.variable)
				t.Cleanup(func() {
					_, _ = d.db.Exec("RESET PERSIST " + c.variable)
					if _, err := strconv.Atoi(before); err != nil {
						before = "'" + before + "'"
					}
					_, _ = d.db.Exec("SET GLOBAL " + c.variable + " = " + before)
				})
				w.exec(t, "SET GLOBAL "+c.variable+" = "+c.value)
				s := newSource(t, d.config())
				found := func() preflight.Result {
					for _, r := range s.Check(t.Context(), source.StartAuto) {
						if r.ID == c.id {
							return r
						}
					}
					return preflight.Result{Status: preflight.OK}
				}
				r := found()
				if r.Status == preflight.OK || len(r.Fix) == 0 {
					t.Fatalf("%s is %s: %+v", c.variable, c.value, r)
				}
				mend := statement.FindString(r.Fix[0])
				if mend == "" {
					t.Fatalf("no statement in %q", r.Fix)
				}
				w.exec(t, mend)
				if r := found(); r.Status != preflight.OK {
					t.Errorf("after %s: %+v", mend, r)
				}
			})
		}
	}
}

// The server's certificate is that of another name, or fits; each mode says what it looks at.
func TestServerCertificate(t *testing.T) {
	d := newDatabase(t, "mysql", small)
	w := d.session(t)
	data := w.value(t, "SELECT @@datadir")
	const reload = "ALTER INSTANCE RELOAD TLS"
	for _, name := range []string{"ssl_ca", "ssl_cert", "ssl_key"} {
		before := w.value(t, "SELECT @@global."+name)
		t.Cleanup(func() {
			_, _ = d.db.Exec("SET GLOBAL "+name+" = ?", before)
			_, _ = d.db.Exec(reload)
		})
	}
	ca := harness.NewAuthority(t)
	for _, c := range []struct {
		name, host string
		refused    map[string]string // by mode; the others get in
	}{
		{"fits", "127.0.0.1", nil},
		{"another name", "db.example", map[string]string{"VERIFY_IDENTITY": "x509"}},
	} {
		cert, key := filepath.Join(data, harness.Unique("cert-")+".pem"), filepath.Join(data, harness.Unique("key-")+".pem")
		ca.Issue(t, cert, key, c.host, "", time.Hour)
		text, err := os.ReadFile(ca.File)
		if err != nil {
			t.Fatal(err)
		}
		authority := filepath.Join(data, harness.Unique("ca-")+".pem")
		for file, text := range map[string][]byte{authority: text, cert: nil, key: nil} {
			if text != nil {
				err = errors.Join(err, os.WriteFile(file, text, 0o644))
			}
			if err = errors.Join(err, os.Chmod(file, 0o644)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(file) })
		}
		w.exec(t, "SET GLOBAL ssl_ca = ?", authority)
		w.exec(t, "SET GLOBAL ssl_cert = ?", cert)
		w.exec(t, "SET GLOBAL ssl_key = ?", key)
		w.exec(t, reload)
		for _, mode := range []string{"REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"} {
			t.Run(c.name+"/"+mode, func(t *testing.T) {
				l := d.login(t, tlsAlone)
				config := l.config(d, true, "ssl-mode="+mode+"&ssl-ca="+url.QueryEscape(ca.File))
				if mode == "REQUIRED" {
					config = l.config(d, true, "ssl-mode="+mode)
				}
				config.Name = harness.Unique("verify-")
				s := newSource(t, config)
				why, refused := c.refused[mode]
				if !refused {
					take(t, s)
					return
				}
				_, err := s.Acquire(t.Context(), nil)
				l.mustBeRefused(t, err, why, fault.CodeConfig)
			})
		}
	}
}
