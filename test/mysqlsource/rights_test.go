package mysqlsource

import (
	"context"
	"fmt"
	"strings"
	"testing"

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
