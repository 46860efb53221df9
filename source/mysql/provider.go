package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/outboxd/outboxd/internal/preflight"
)

// provider is who runs the server, which decides in what words a setting is changed.
type provider string

const (
	selfManaged provider = ""
	rds         provider = "Amazon RDS or Aurora"
	cloudSQL    provider = "Google Cloud SQL"
)

func providerOf(version, basedir string) provider {
	switch {
	case strings.HasPrefix(basedir, "/rdsdbbin"):
		return rds
	case strings.Contains(version, "-google"):
		return cloudSQL
	}
	return selfManaged
}

// set tells how a setting of the server is changed for good.
func (v *server) set(name, value string) string {
	switch {
	case v.provider == rds:
		return fmt.Sprintf("set %s to %s in the DB parameter group of the instance (Aurora: in the DB cluster parameter group)", name, value)
	case v.provider == cloudSQL:
		return fmt.Sprintf("gcloud sql instances patch INSTANCE --database-flags=%s=%s (with the other flags that are set: it replaces all)", name, value)
	}
	quoted := value
	if _, err := strconv.Atoi(value); err != nil {
		quoted = "'" + value + "'"
	}
	if v.mariadb {
		return fmt.Sprintf("SET GLOBAL %s = %s; and %[1]s = %[3]s under [mysqld] in its configuration file", name, quoted, value)
	}
	return fmt.Sprintf("SET PERSIST %s = %s", name, quoted)
}

// turnOnLog tells how a server that writes no binary log is made to.
func (v *server) turnOnLog() string {
	switch v.provider {
	case rds:
		return "turn automated backups on (a backup retention period above 0); on Aurora set binlog_format to ROW in the DB cluster parameter group and restart the writer"
	case cloudSQL:
		return "gcloud sql instances patch INSTANCE --enable-bin-log"
	}
	return "start the server with --log-bin"
}

// leastRetention is how long a log should be kept: outboxd may stand still over a night.
const leastRetention = 24 * time.Hour

// checkRetention looks at how long the server keeps its log.
func (s *Source) checkRetention(ctx context.Context, q *session) preflight.Result {
	r := preflight.Result{Status: preflight.OK, ID: "mysql.binlog_retention"}
	if s.server.provider == rds { // where binlog_expire_logs_seconds says nothing
		hours, err := q.value(ctx, "SELECT value FROM mysql.rds_configuration WHERE name = 'binlog retention hours'")
		r.Status, r.Found, r.Fix = rdsRetention(hours, err)
		return r
	}
	text, err := q.value(ctx, "SELECT @@global.binlog_expire_logs_seconds")
	seconds, perr := strconv.ParseInt(text, 10, 64)
	kept := time.Duration(seconds) * time.Second
	switch {
	case err != nil || perr != nil:
		r.Status, r.Found = preflight.Warn, "how long the server keeps its log can't be seen"
		r.Fix = []string{"SHOW VARIABLES LIKE '%expire_logs%'"}
	case seconds == 0:
		r.Found = "the server keeps its log until somebody purges it"
	case kept < leastRetention:
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("the server keeps its log for %s: what it purges while outboxd is stopped is lost", kept)
		r.Fix = []string{s.server.set("binlog_expire_logs_seconds", strconv.Itoa(7*86400))}
	default:
		r.Found = fmt.Sprintf("the server keeps its log for %s", kept)
	}
	return r
}

// rdsRetention judges "binlog retention hours"; "" when it is not set.
func rdsRetention(hours string, err error) (status preflight.Status, found string, fix []string) {
	call := []string{"CALL mysql.rds_set_configuration('binlog retention hours', 168);"}
	n, perr := strconv.Atoi(hours)
	switch {
	case err != nil:
		return preflight.Warn, "how long RDS keeps the log can't be seen by this account; binlog_expire_logs_seconds says nothing of it", append([]string{"CALL mysql.rds_show_configuration;"}, call...)
	case perr != nil:
		return preflight.Warn, "RDS purges the log as soon as it can: \"binlog retention hours\" is not set", call
	case time.Duration(n)*time.Hour < leastRetention:
		return preflight.Warn, fmt.Sprintf("RDS keeps the log for %d hours: what it purges while outboxd is stopped is lost", n), call
	}
	return preflight.OK, fmt.Sprintf("RDS keeps the log for %d hours", n), nil
}

// checkSync looks at whether the log outlives a crash of the host.
func (s *Source) checkSync(ctx context.Context, q *session) preflight.Result {
	r := preflight.Result{Status: preflight.OK, ID: "mysql.sync_binlog", Found: "each commit is on the disk before it is published"}
	if value, err := q.value(ctx, "SELECT @@global.sync_binlog"); err == nil && value != "1" && s.server.provider != rds {
		r.Status, r.Found = preflight.Warn, fmt.Sprintf("sync_binlog is %s: after a crash of the host, events may have been published whose rows are gone", value)
		r.Fix = []string{s.server.set("sync_binlog", "1")}
	}
	return r
}
