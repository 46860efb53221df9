package pgsource

import (
	"context"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
	"github.com/outboxd/outboxd/source/postgres"
	"github.com/outboxd/outboxd/test/faultproxy"
	"github.com/outboxd/outboxd/test/harness"
)

// role makes a login of the test's own and gives its URL.
func (d database) role(t *testing.T, attributes string) (name, address string) {
	t.Helper()
	name = harness.Unique("role_")
	d.Exec(t, `CREATE ROLE `+name+` LOGIN PASSWORD '`+name+`' `+attributes)
	t.Cleanup(func() {
		_, _ = d.SQL().Exec(`DROP OWNED BY ` + name)
		_, _ = d.SQL().Exec(`DROP ROLE ` + name)
	})
	u := url.URL{Scheme: "postgres", User: url.UserPassword(name, name), Host: d.Addr(), Path: "/" + d.Name}
	return name, u.String()
}

// start is what run does up to the first place.
func start(t *testing.T, s *postgres.Source) (source.Position, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lease, err := s.Acquire(ctx, nil)
	if err != nil {
		return "", err
	}
	at, err := s.Begin(ctx, source.First{Mode: source.StartAuto, Intended: true})
	if err != nil {
		_ = lease.Release(ctx)
		return "", err
	}
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return at, nil
}

// A login begins with nothing and is given what each refusal names, word by
// word, until it can do its work: that is the least it needs. Nothing is made by it.
func TestLeastPrivilege(t *testing.T) {
	for _, server := range []string{"postgres15", "postgres18"} {
		t.Run(server, func(t *testing.T) {
			d := newDatabase(t, server)
			d.Exec(t, `CREATE SCHEMA shop`)
			d.Exec(t, `ALTER TABLE outbox OWNER TO postgres`)
			d.Exec(t, `ALTER TABLE outbox SET SCHEMA shop`)
			d.Exec(t, `REVOKE CONNECT ON DATABASE `+d.Name+` FROM PUBLIC`)
			_, address := d.role(t, "")
			c := d.config()
			c.URL, c.AutoSetup = address, false
			var given []string
			for range 10 {
				s := newSource(t, c)
				at, err := start(t, s)
				f := fault.As(err)
				if err == nil {
					stream, err := s.Open(t.Context(), at)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = stream.Close(context.Background()) }()
					d.Exec(t, `INSERT INTO shop.outbox VALUES (7, 'a', '{}')`)
					if ids, _ := readUntil(t, stream, "7"); strings.Join(ids, " ") != "6 7" {
						t.Errorf("%v; the slot had 6", ids)
					}
					break
				}
				if f == nil || f.Exit != fault.ExitConfig {
					t.Fatalf("after %q: %v", given, err)
				}
				sql := strings.TrimPrefix(f.Fix, "as a superuser: ")
				given = append(given, sql)
				for one := range strings.SplitSeq(strings.TrimSuffix(sql, ";"), "; ") { // as psql would
					d.Exec(t, one)
				}
				if strings.Contains(sql, "pg_create_logical") { // committed between the slot and the start: it is the slot's
					d.Exec(t, `INSERT INTO shop.outbox VALUES (6, 'a', '{}')`)
				}
			}
			got := strings.Join(given, "\n")
			for i, part := range []string{"GRANT CONNECT ON DATABASE", "REPLICATION", "GRANT USAGE ON SCHEMA", "GRANT SELECT ON", "CREATE PUBLICATION", "pg_create_logical_replication_slot"} {
				at := strings.Index(got, part)
				if at < 0 {
					t.Fatalf("%q was never asked for:\n%s", part, got)
				}
				if i > 0 && len(given) > 5 {
					t.Errorf("one thing at a time:\n%s", got)
				}
			}
			var who string
			if err := d.SQL().QueryRow(`SELECT pubowner::regrole::text FROM pg_publication WHERE pubname = $1`, d.slot).Scan(&who); err != nil || who != "postgres" {
				t.Errorf("the publication is %s's, %v", who, err)
			}
		})
	}
}

// Who may replicate is found out by trying: a superuser may without the
// attribute, as a member of RDS's role may. Where that role is, it is what is asked for.
func TestReplicationIsJudgedByItsEffect(t *testing.T) {
	d := newDatabase(t, "postgres16")
	_, address := d.role(t, "SUPERUSER NOREPLICATION")
	c := d.config()
	c.URL = address
	if _, err := start(t, newSource(t, c)); err != nil {
		t.Errorf("no attribute, and the right: %v", err)
	}
	d.Exec(t, `CREATE ROLE rds_replication`)
	t.Cleanup(func() { _, _ = d.SQL().Exec(`DROP ROLE rds_replication`) })
	name, address := d.role(t, "")
	c.URL = address
	_, err := start(t, newSource(t, c))
	if f := fault.As(err); f == nil || f.Code != fault.CodeGrantMissing || !strings.Contains(f.Fix, `GRANT rds_replication TO "`+name+`"`) {
		t.Errorf("on RDS: %v", err)
	}
}

// Each sslmode does what it says, as in libpq; what is refused says why.
func TestTLS(t *testing.T) {
	ca, strange := harness.NewAuthority(t), harness.NewAuthority(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, server := range []string{"postgres15", "postgres18"} {
		d := newDatabase(t, server)
		check := func(t *testing.T, role, address, parameters, code, found string) {
			t.Helper()
			c := d.config()
			c.URL = strings.Replace(address, "127.0.0.1", "localhost", 1) + "?" + parameters
			s, err := postgres.New(c, zaptest.NewLogger(t))
			var lease source.Lease
			if err == nil {
				lease, err = s.Acquire(t.Context(), nil)
			}
			if err == nil {
				defer func() { _ = lease.Release(context.Background()) }()
			}
			if f := fault.As(err); code != "" {
				if f == nil || f.Code != code || f.Exit != fault.ExitConfig || !strings.Contains(err.Error(), found) {
					t.Errorf("%s: %v", parameters, err)
				}
				return
			}
			if err != nil {
				t.Errorf("%s: %v", parameters, err)
				return
			}
			var is string
			if err := d.SQL().QueryRow(`SELECT CASE WHEN bool_and(s.ssl) THEN 'TLS' ELSE 'plain' END FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) WHERE a.usename = $1`, role).Scan(&is); err != nil || is != found {
				t.Errorf("%s: %s, %v", parameters, is, err)
			}
		}
		t.Run(server+"/no TLS offered", func(t *testing.T) {
			role, address := d.role(t, "REPLICATION")
			check(t, role, address, "sslmode=prefer", "", "plain")
			check(t, role, address, "sslmode=require", fault.CodeConfig, "offers no TLS")
			check(t, role, address, "sslmode=verify-full&sslrootcert="+ca.File, fault.CodeConfig, "offers no TLS")
		})
		t.Run(server, func(t *testing.T) {
			d.TLS(t, ca, "localhost", time.Hour)
			role, address := d.role(t, "REPLICATION")
			for parameters, want := range map[string]string{"sslmode=disable": "plain", "sslmode=allow": "plain", "sslmode=prefer": "TLS", "": "TLS", "sslmode=require": "TLS",
				"sslmode=verify-ca&sslrootcert=" + ca.File: "TLS", "sslmode=verify-full&sslrootcert=" + ca.File: "TLS"} {
				check(t, role, address, parameters, "", want)
			}
			for _, mode := range []string{"require", "verify-ca", "verify-full"} {
				check(t, role, address, "sslmode="+mode+"&sslrootcert="+strange.File, fault.CodeConfig, "unknown authority")
			}
			check(t, role, address, "sslmode=verify-full&sslrootcert="+file("absent.pem"), fault.CodeConfig, "absent.pem")
			ip := strings.Replace(address, "localhost", "127.0.0.1", 1)
			c := d.config()
			c.URL = ip + "?sslmode=verify-full&sslrootcert=" + ca.File
			if _, err := newSource(t, c).Acquire(t.Context(), nil); !fault.Is(err, fault.CodeConfig) || !strings.Contains(err.Error(), "127.0.0.1") {
				t.Errorf("another name: %v", err)
			}

			d.LoginRule(t, "hostssl all "+role+" all cert")
			ca.Issue(t, file("user.crt"), file("user.key"), role, "", time.Hour)
			ca.Issue(t, file("locked.crt"), file("locked.key"), role, "open sesame", time.Hour)
			ca.Issue(t, file("late.crt"), file("late.key"), role, "", -time.Hour)
			ca.Issue(t, file("other.crt"), file("other.key"), "cdc", "", time.Hour)
			base := "sslmode=verify-full&sslrootcert=" + ca.File
			cert := func(name string) string {
				return base + "&sslcert=" + file(name+".crt") + "&sslkey=" + file(name+".key")
			}
			check(t, role, address, cert("user"), "", "TLS")
			check(t, role, address, cert("locked")+"&sslpassword=open%20sesame", "", "TLS")
			check(t, role, address, cert("locked")+"&sslpassword=wrong", fault.CodeConfig, "key")
			check(t, role, address, base, fault.CodeAccessDenied, "certificate")
			check(t, role, address, cert("other"), fault.CodeAccessDenied, "")
			check(t, role, address, cert("late"), fault.CodeAccessDenied, "certificate")
		})
		t.Run(server+"/expired", func(t *testing.T) {
			d.TLS(t, ca, "localhost", -time.Hour)
			role, address := d.role(t, "REPLICATION")
			check(t, role, address, "sslmode=verify-ca&sslrootcert="+ca.File, fault.CodeConfig, "expired")
		})
	}
}

// A standby that stands first in the list is passed over, and so is a primary
// that does not answer. What the URL asks for must not lead to a standby.
func TestHosts(t *testing.T) {
	d := newDatabase(t, "postgres17")
	standby := d.Standby(t)
	dead := harness.FreeAddr(t)
	for _, c := range []struct {
		name, hosts, parameters string
		ok                      bool
	}{
		{"standby first", standby.Addr() + "," + d.Addr(), "", true},
		{"standby first, any", standby.Addr() + "," + d.Addr(), "?target_session_attrs=any", true},
		{"standby first, read-write", standby.Addr() + "," + d.Addr(), "?target_session_attrs=read-write", true},
		{"dead one first", dead + "," + d.Addr(), "?target_session_attrs=primary", true},
		{"standbys alone", dead + "," + standby.Addr(), "", false},
		{"one standby", standby.Addr(), "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := d.config()
			cfg.URL = strings.Replace(cfg.URL, d.Addr(), c.hosts, 1) + c.parameters
			_, err := start(t, newSource(t, cfg))
			if c.ok != (err == nil) || fault.As(err) != nil {
				t.Errorf("%v", err)
			}
			d.Exec(t, `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '`+d.slot+`'`)
		})
	}
	cfg := d.config()
	cfg.URL += "?target_session_attrs=prefer-standby"
	if _, err := postgres.New(cfg, nil); !fault.Is(err, fault.CodeConfig) {
		t.Errorf("prefer-standby: %v", err)
	}
}

// While the lease is held on one server, the log is read from no other one,
// although the list has another primary and the first one can't be reached.
func TestLogIsReadWhereTheLeaseIs(t *testing.T) {
	d := newDatabase(t, "postgres17")
	front, err := faultproxy.New(d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	cfg := d.config()
	cfg.URL = strings.Replace(cfg.URL, d.Addr(), front.Addr()+","+d.Addr(), 1)
	s := newSource(t, cfg)
	at, err := start(t, s)
	if err != nil {
		t.Fatal(err)
	}
	front.Close() // the address is gone, and the lease is not known to be
	if _, err = s.Open(t.Context(), at); err == nil || !strings.Contains(err.Error(), "the lease is held on "+front.Addr()) {
		t.Errorf("open: %v", err)
	}
	host, _, _ := net.SplitHostPort(d.Addr())
	if fault.As(err) != nil {
		t.Errorf("final on %s: %v", host, err)
	}
}
