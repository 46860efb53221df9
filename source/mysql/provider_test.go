package mysql

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxd/outboxd/internal/preflight"
)

// A way out is told in the words of who runs the server.
func TestProviders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, version, basedir string
		set, log               string // parts of the words
	}{
		{"MySQL", "9.7.4", "/usr/", "SET PERSIST binlog_row_image = 'FULL'", "--log-bin"},
		{"MariaDB", "11.8.9-MariaDB-log", "/usr", "SET GLOBAL binlog_row_image = 'FULL'; and binlog_row_image = FULL under [mysqld]", "--log-bin"},
		{"RDS", "8.0.42", "/rdsdbbin/mysql-8.0.42.R1/", "DB parameter group", "backup retention period"},
		{"RDS for MariaDB", "10.11.13-MariaDB-log", "/rdsdbbin/mariadb-10.11.13.R1/", "DB parameter group", "backup retention period"},
		{"Aurora", "8.0.39", "/rdsdbbin/oscar-8.0.mysql_aurora.3.08.2/", "DB cluster parameter group", "DB cluster parameter group"},
		{"Cloud SQL", "8.4.5-google", "/usr/", "--database-flags=binlog_row_image=FULL", "--enable-bin-log"},
	} {
		v := server{provider: providerOf(c.version, c.basedir), mariadb: strings.Contains(c.version, "MariaDB")}
		if text := v.set("binlog_row_image", "FULL"); !strings.Contains(text, c.set) {
			t.Errorf("%s: %s", c.name, text)
		}
		if text := v.turnOnLog(); !strings.Contains(text, c.log) {
			t.Errorf("%s: %s", c.name, text)
		}
	}
}

func TestRDSRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hours string
		err   error
		want  preflight.Status
	}{
		"not set":        {"", nil, preflight.Warn},
		"not to be seen": {"", errors.New("denied"), preflight.Warn},
		"short":          {"12", nil, preflight.Warn},
		"long":           {"168", nil, preflight.OK},
	} {
		status, found, fix := rdsRetention(c.hours, c.err)
		if status != c.want || found == "" || (status == preflight.Warn) != strings.Contains(strings.Join(fix, " "), "CALL mysql.rds_set_configuration('binlog retention hours', 168)") {
			t.Errorf("%s: %s %s %q", name, status, found, fix)
		}
	}
}
