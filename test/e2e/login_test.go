package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/test/harness"
)

// The password is changed under load, first in the server and a while later in
// the file. Sessions that break meanwhile wait for it, and nothing is lost or repeated.
func TestPasswordRotated(t *testing.T) {
	eachParallel(t, []stage{on("postgres15"), {"postgres18", inTopic, harness.Debezium}}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		role := harness.Unique("rotated_")
		s.exec("CREATE ROLE " + role + " LOGIN REPLICATION PASSWORD 'old' IN ROLE cdc")
		s.dropLater(role)
		file := filepath.Join(s.dir, "password")
		write := func(password string) {
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("old")
		s.env["OUTBOXD_SOURCE_USER"], s.env["OUTBOXD_SOURCE_PASSWORD_FILE"] = role, file
		s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], "cdc:cdc-pw@", "", 1)
		p := s.active()
		l := s.committing(500)
		seen := 0
		for _, password := range []string{"new", "newer"} {
			s.more(100)
			s.exec("ALTER ROLE " + role + " PASSWORD '" + password + "'")
			s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + role + "'")
			_, seen = p.WaitLog(t, "access_denied", seen)
			write(password)
		}
		s.more(100)
		s.end(l)
		s.finish(p, "password rotated", 0)
	})
}

// The same on MySQL, where the server ends no session when a password is changed.
func TestPasswordRotatedOfMySQL(t *testing.T) {
	eachParallel(t, []stage{{"mysql", inFile, harness.Debezium}, on("mariadb118")}, func(t *testing.T, at stage) {
		s := newScene(t, at).withTopics()
		file := filepath.Join(s.dir, "password")
		write := func(password string) {
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("cdc-pw")
		s.env["OUTBOXD_SOURCE_PASSWORD_FILE"] = file
		s.env["OUTBOXD_SOURCE_URL"] = strings.Replace(s.env["OUTBOXD_SOURCE_URL"], ":cdc-pw@", "@", 1)
		p := s.active()
		l := s.committing(500)
		seen := 0
		for _, password := range []string{"new", "newer"} {
			s.more(100)
			s.exec("ALTER USER " + s.db.(*harness.MySQL).Name + " IDENTIFIED BY '" + password + "'")
			harness.Eventually(t, "the log is read", func() bool { return s.db.EndReaders(t) > 0 })
			_, seen = p.WaitLog(t, "access_denied", seen)
			write(password)
		}
		s.more(100)
		s.end(l)
		s.finish(p, "password rotated", 0)
	})
}

// The client's certificate and the server's are replaced under load, by
// certificates of another authority, and the file of authorities with them.
func TestCertificatesRotated(t *testing.T) {
	s := newScene(t, on("postgres18")).withTopics()
	db := s.db.(*harness.Postgres)
	role := harness.Unique("certified_")
	s.exec("CREATE ROLE " + role + " LOGIN REPLICATION IN ROLE cdc")
	s.dropLater(role)
	file := func(name string) string { return filepath.Join(s.dir, name) }
	rotate := func() {
		ca := harness.NewAuthority(t)
		text, err := os.ReadFile(ca.File)
		if err == nil {
			err = os.WriteFile(file("ca.pem"), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		ca.Issue(t, file("client.crt"), file("client.key"), role, "", time.Hour)
		db.TLS(t, ca, "localhost", time.Hour)
	}
	rotate()
	db.LoginRule(t, "hostssl all "+role+" all cert")
	_, rest, _ := strings.Cut(s.env["OUTBOXD_SOURCE_URL"], "@")
	s.env["OUTBOXD_SOURCE_URL"] = "postgres://" + role + "@" + strings.Replace(rest, "127.0.0.1", "localhost", 1) +
		"?sslmode=verify-full&sslrootcert=" + file("ca.pem") + "&sslcert=" + file("client.crt") + "&sslkey=" + file("client.key")
	p := s.active()
	l := s.committing(500)
	for range 2 {
		s.more(100)
		rotate()
		s.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + role + "'")
	}
	s.more(100)
	s.end(l)
	s.finish(p, "certificates rotated", 0)
}

// dropLater drops a Postgres role and what it made.
func (s *scene) dropLater(role string) {
	s.t.Cleanup(func() {
		_, _ = s.db.SQL().Exec("DROP OWNED BY " + role)
		_, _ = s.db.SQL().Exec("DROP ROLE " + role)
	})
}
