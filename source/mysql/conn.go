package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
)

// session is a connection for SQL. One goroutine uses it.
type session struct {
	*client.Conn
	source *Source
	addr   string // where it is connected to
}

// connect logs in: while the lease is held at the address it was taken at, else at the first one that will do.
func (s *Source) connect(ctx context.Context) (*session, error) {
	if s.held != "" {
		return s.connectTo(ctx, s.held)
	}
	var errs []error
	for _, addr := range s.endpoint.addrs {
		q, err := s.connectTo(ctx, addr)
		if err == nil && len(s.endpoint.addrs) > 1 {
			if err = q.mustTakeWrites(ctx); err != nil {
				q.close()
				err = fmt.Errorf("connect to %s: %w", addr, err)
			}
		}
		if err == nil {
			return q, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (s *Source) connectTo(ctx context.Context, addr string) (*session, error) {
	conn, err := s.dial(ctx, addr)
	if err != nil {
		return nil, s.explain(fmt.Errorf("connect to %s: %w", addr, err))
	}
	return &session{Conn: conn, source: s, addr: addr}, nil
}

// mustTakeWrites passes a replica of a list of hosts over: two instances with leases on two servers would both be active.
func (q *session) mustTakeWrites(ctx context.Context) error {
	readOnly, err := q.value(ctx, "SELECT @@global.read_only")
	if err != nil {
		return fmt.Errorf("ask whether the server takes writes: %w", err)
	}
	if readOnly == "1" {
		return errReplica
	}
	return nil
}

// errReplica passes when somebody promotes the server.
var errReplica = errors.New("the server is read_only, and one of several hosts that takes writes is looked for")

func (s *Source) dial(ctx context.Context, addr string) (*client.Conn, error) {
	conn, err := s.dialWith(ctx, addr, s.endpoint.tls != nil)
	if s.endpoint.tlsOptional && lacksTLS(err) {
		return s.dialWith(ctx, addr, false)
	}
	return conn, err
}

// lacksTLS reports whether the server offers no TLS. The library has no error value for this.
func lacksTLS(err error) bool {
	return err != nil && strings.Contains(err.Error(), "does not support TLS")
}

func (s *Source) dialWith(ctx context.Context, addr string, secure bool) (*client.Conn, error) {
	password := s.endpoint.password
	if s.cfg.Password != nil {
		given, err := s.cfg.Password()
		if err != nil {
			return nil, fmt.Errorf("read the source password: %w", err)
		}
		if given != "" {
			password = given
		}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var raw net.Conn
	stop := func() bool { return true }
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		var err error
		raw, err = (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil { // the library's login knows no context
			stop = context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
		}
		return raw, err
	}
	conn, err := client.ConnectWithDialer(ctx, "", addr, s.endpoint.user, password, "", dial, func(c *client.Conn) error {
		if err := c.SetCollation("utf8mb4_general_ci"); err != nil { // the library's own is one that MariaDB lacks
			return err
		}
		if secure {
			t := s.endpoint.tls.Clone()
			t.ServerName, _, _ = net.SplitHostPort(addr)
			c.SetTLSConfig(t)
		}
		return nil
	})
	if !stop() && err == nil {
		_ = conn.Close()
		return nil, context.Cause(ctx)
	}
	return conn, err
}

// query runs one statement; it ends with ctx.
func (q *session) query(ctx context.Context, statement string, args ...any) (*mysql.Result, error) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = q.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { _ = q.SetDeadline(time.Unix(1, 0)) })
	r, err := q.Execute(statement, args...)
	if !stop() && err != nil {
		return nil, context.Cause(ctx)
	}
	_ = q.SetDeadline(time.Time{})
	if err != nil {
		return nil, q.source.explain(err)
	}
	return r, nil
}

// value gives the first column of the first row; "" when there is none or NULL.
func (q *session) value(ctx context.Context, statement string, args ...any) (string, error) {
	r, err := q.query(ctx, statement, args...)
	if err != nil {
		return "", err
	}
	if r.RowNumber() == 0 {
		return "", nil
	}
	return r.GetString(0, 0)
}

func (q *session) close() { _ = q.Quit() }

// explain turns the server's refusals into faults; everything else passes and is tried again.
func (s *Source) explain(err error) error {
	switch errorCode(err) {
	case 1045, 1044, 1698: // access denied
		return fault.Config(fault.CodeAccessDenied, "check OUTBOXD_SOURCE_USER, OUTBOXD_SOURCE_PASSWORD, and that the account may connect from this host (and without TLS, if it does)", err, "the database refuses the login")
	case 1142, 1143, 1227:
		return fault.Config(fault.CodeGrantMissing, "grant what the message names to the account outboxd logs in with", err, "a right is missing")
	case 1049:
		return fault.Config(fault.CodeConfig, "correct the database name in OUTBOXD_SOURCE_URL", err, "the database does not exist")
	}
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return fault.Config(fault.CodeConfig, "give ssl-ca the certificate that signed the server's, and the URL a name that is in it; ssl-mode=VERIFY_CA does not compare the name, REQUIRED verifies nothing", err, "the server's certificate is not accepted")
	case lacksTLS(err):
		return fault.Config(fault.CodeConfig, "turn TLS on in the server; or ssl-mode=PREFERRED, which goes without it where there is none", err, "the server offers no TLS, and ssl-mode asks for it")
	}
	return err
}

// errorCode is the server's error number, or 0.
func errorCode(err error) uint16 {
	var my *mysql.MyError
	if errors.As(err, &my) {
		return my.Code
	}
	return 0
}

// server is what we need to know of the server we are connected to.
type server struct {
	account    string // we are logged in as, user@host
	mariadb    bool
	version    string
	uuid       string // MySQL only
	id         string // server_id
	identity   string // tells the server from another at the same address
	gtids      bool   // GTIDs are on
	metadata   string // binlog_row_metadata
	image      string // binlog_row_image
	provider   provider
	folds      bool              // names are kept in lower case
	collations map[uint64]string // character set of each
}

// ask reads the server's settings and refuses one that can't serve.
func (s *Source) ask(ctx context.Context, q *session) (server, error) {
	r, err := q.query(ctx, "SELECT @@version, @@log_bin, @@binlog_format, @@binlog_row_image, @@lower_case_table_names, CURRENT_USER(), @@server_id, @@basedir")
	if err != nil {
		return server{}, fmt.Errorf("ask the server's settings: %w", err)
	}
	text := func(i int) string { v, _ := r.GetString(0, i); return v }
	v := server{version: text(0), account: text(5), id: text(6), mariadb: strings.Contains(text(0), "MariaDB")}
	v.folds, v.image, v.provider = text(4) != "0", text(3), providerOf(text(0), text(7))
	if text(1) != "1" {
		return v, fault.Config(fault.CodeServerSetting, v.turnOnLog(), nil, "the binary log is off (log_bin)")
	}
	if format := text(2); format != "ROW" {
		return v, fault.Config(fault.CodeServerSetting, v.set("binlog_format", "ROW")+"; then reconnect the services", nil, "binlog_format is %q, rows are logged only with \"ROW\"", format)
	}
	if v.image != "FULL" {
		s.log.Warn("binlog_row_image is not FULL: a column an INSERT does not name may be absent from the log", zap.String("binlog_row_image", v.image),
			zap.String("fix", v.set("binlog_row_image", "FULL")))
	}
	if v.metadata, err = q.value(ctx, "SELECT @@binlog_row_metadata"); err != nil && errorCode(err) != 1193 {
		return v, fmt.Errorf("ask the server's settings: %w", err)
	}
	if v.mariadb {
		v.gtids = true
		v.identity, err = q.value(ctx, "SELECT CONCAT_WS(' ', @@server_id, @@hostname, @@port, @@datadir)")
		if err != nil {
			return v, fmt.Errorf("ask the server's identity: %w", err)
		}
	} else if err := v.askMySQL(ctx, q); err != nil {
		return v, err
	}
	v.collations, err = v.askCollations(ctx, q)
	return v, err
}

// logged is a table's name as the log has it.
func (v *server) logged(t TableName) TableName {
	if v.folds {
		return TableName{strings.ToLower(t.Schema), strings.ToLower(t.Name)}
	}
	return t
}

func (v *server) askMySQL(ctx context.Context, q *session) error {
	r, err := q.query(ctx, "SELECT @@server_uuid, @@gtid_mode")
	if err != nil {
		return fmt.Errorf("ask the server's identity: %w", err)
	}
	v.uuid, _ = r.GetString(0, 0)
	v.identity = v.uuid
	mode, _ := r.GetString(0, 1)
	v.gtids = mode == "ON"
	return nil
}

// askCollations reads which character set each collation number stands for.
func (v *server) askCollations(ctx context.Context, q *session) (map[uint64]string, error) {
	r, err := q.query(ctx, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL")
	if err != nil { // MySQL, and MariaDB before 10.10, have the numbers elsewhere
		r, err = q.query(ctx, "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL")
	}
	if err != nil {
		return nil, fmt.Errorf("read the collations: %w", err)
	}
	m := make(map[uint64]string, r.RowNumber())
	for i := range r.RowNumber() {
		text, _ := r.GetString(i, 0)
		name, _ := r.GetString(i, 1)
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			continue
		}
		m[id] = name
	}
	return m, nil
}
