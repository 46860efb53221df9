// Package mysql reads an outbox from the binary log of MySQL or MariaDB.
//
// It connects as a replica does and asks for the log from a GTID set, or from
// file and position where GTIDs are off. Events of other tables cost a header
// and a table id; rows of the outbox tables are printed once, straight to the
// text the server itself prints. A transaction is handed on when its end is known to be
// a commit: the log also holds transactions that end in ROLLBACK.
//
// go-mysql connects, logs in and knows GTID sets; the packets of the log, rows
// and JSON are read here, since its own decoding loses detail (key order and
// number text of JSON, trailing zero bytes of BINARY) and costs several times more.
package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// Config is what a Source needs to know.
type Config struct {
	// URL is mysql://user@host[:port][,host…]/database?ssl-mode=…, or mariadb://….
	// Parameters are the mysql client's words: ssl-mode, ssl-ca, ssl-cert, ssl-key, socket.
	URL string
	// User overrides the URL's user when not empty.
	User string
	// Password is asked at each connect, so that a rotated secret is found.
	Password func() (string, error)
	// Name of the connector: names the lease.
	Name string
	// Tables are the outbox tables. An empty schema means the URL's database.
	Tables []TableName
	// ServerID is our id among the server's replicas; 0 derives one.
	ServerID uint32
	// Place is how a first place is written; PlaceAuto takes GTIDs where they are on.
	Place PlaceMode
	// Hold is how many bytes of one transaction's outbox rows are held in memory until it is
	// known to be committed; a larger one is read twice. 0 is 32 MiB.
	Hold int64
	// Snapshot says what a first snapshot publishes.
	Snapshot Snapshot
	// OnUpdate says what an UPDATE on an outbox table means.
	OnUpdate OnUpdate
	// Validate is called with each outbox table as the server describes it
	// now, before anything is read. Its error refuses the start. May be nil.
	Validate func(*source.Table) error
}

// PlaceMode chooses the coordinates of a first place.
type PlaceMode string

// The values of OUTBOXD_MYSQL_POSITION.
const (
	PlaceAuto PlaceMode = "auto"
	PlaceGTID PlaceMode = "gtid"
	PlaceFile PlaceMode = "file"
)

// OnUpdate is what happens at an UPDATE of an outbox row, which is never an event.
type OnUpdate string

// The values of OUTBOXD_ON_UPDATE; empty means ignore when the table has
// columns a relay would mark, else warn.
const (
	UpdateIgnore OnUpdate = "ignore"
	UpdateWarn   OnUpdate = "warn"
	UpdateStop   OnUpdate = "stop"
)

// TableName names a table literally.
type TableName struct{ Schema, Name string }

// String gives the name as SQL, quoted.
func (t TableName) String() string { return quote(t.Schema) + "." + quote(t.Name) }

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Times of the lease and the stream. Each depends on the others (docs/architecture.md, "The lease").
const (
	leasePing      = 5 * time.Second
	leaseTrust     = 10 * time.Second
	leaseIdle      = 15 * time.Second // wait_timeout: after which the server ends a frozen holder's session
	standbyPoll    = time.Second
	heartbeat      = 3 * time.Second // the server's sign of life when the log stands still
	silenceLimit   = 3 * heartbeat   // a server without one for that long is gone
	writeTimeout   = 24 * time.Hour  // net_write_timeout of our session: a slow Kafka must not cost the dump thread
	connectTimeout = 10 * time.Second
	idleInterval   = 60 * time.Second // idle progress: the longest wait …
	idleBytes      = 16 << 20         // … and the most log
)

// endpoint is a Config's URL taken apart.
type endpoint struct {
	user, password string
	addrs          []string
	database       string
	tls            *tls.Config
	tlsOptional    bool
}

const urlForm = "mysql://user@host[:port][,host[:port]]/database[?ssl-mode=…&ssl-ca=…&ssl-cert=…&ssl-key=…]"

// parseURL takes the URL apart. No error repeats any part of it.
func parseURL(text string) (endpoint, error) {
	var e endpoint
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "mysql" && scheme != "mariadb" {
		return e, errors.New("is not " + urlForm)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, password, _ := strings.Cut(authority[:i], ":")
		authority = authority[i+1:]
		var err1, err2 error
		e.user, err1 = url.PathUnescape(user)
		e.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return e, errors.New("has a user or password that is not percent-encoded")
		}
	}
	var err error
	if e.database, err = url.PathUnescape(path); err != nil || e.database == "" {
		return e, errors.New("names no database")
	}
	for host := range strings.SplitSeq(authority, ",") {
		if host == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
		}
		e.addrs = append(e.addrs, host)
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return e, errors.New("has malformed parameters")
	}
	return e, e.parameters(values)
}

func (e *endpoint) parameters(values url.Values) error {
	mode, ca, cert, key := "", "", "", ""
	for name := range values {
		value := values.Get(name)
		switch name {
		case "ssl-mode":
			mode = strings.ToUpper(value)
		case "ssl-ca":
			ca = value
		case "ssl-cert":
			cert = value
		case "ssl-key":
			key = value
		case "socket":
			e.addrs = []string{value}
		default:
			return fmt.Errorf("has the parameter %q, which is not known", name)
		}
	}
	if len(e.addrs) == 0 {
		return errors.New("names no host")
	}
	return e.secure(mode, ca, cert, key)
}

// secure builds the TLS settings as the mysql client understands its modes.
func (e *endpoint) secure(mode, ca, cert, key string) error {
	if mode == "" { // as the mysql client: who names an authority wants the server verified
		mode = "PREFERRED"
		if ca != "" {
			mode = "VERIFY_CA"
		}
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("ssl-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return errors.New("ssl-ca holds no certificate")
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("ssl-cert, ssl-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch mode {
	case "DISABLED":
		if ca != "" || cert != "" || key != "" {
			return errors.New("has ssl files and ssl-mode=DISABLED")
		}
		return nil
	case "PREFERRED":
		e.tlsOptional = true
		c.InsecureSkipVerify = true //nolint:gosec // the mode's meaning: encrypt if possible, verify nothing
	case "REQUIRED":
		c.InsecureSkipVerify = true //nolint:gosec // the mode's meaning: encrypt, verify nothing
	case "VERIFY_CA":
		c.InsecureSkipVerify = true //nolint:gosec // the name is not verified in this mode; the chain is, below
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, c.RootCAs) }
	case "VERIFY_IDENTITY":
	default:
		return errors.New("has an ssl-mode that is not DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY")
	}
	e.tls = c
	return nil
}

func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server shows no certificate")
	}
	others := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		others.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others}); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}

// Source implements source.Source.
type Source struct {
	cfg      Config
	endpoint endpoint
	log      *zap.Logger
	server   server // of the last session
	held     string // address of the server that the lease was taken on; "" without one
	lease    *lease // the last one

	view     *view                           // of a snapshot that is under way in this process
	keys     map[TableName][]describedColumn // of each table, by its name in the log, while a snapshot begins
	progress atomic.Pointer[source.Snapshot]
}

var (
	_ source.Source      = (*Source)(nil)
	_ source.Snapshotter = (*Source)(nil)
)

// New checks cfg without connecting.
func New(cfg Config, log *zap.Logger) (*Source, error) {
	if len(cfg.Tables) == 0 {
		return nil, fault.Config(fault.CodeConfig, "set OUTBOXD_TABLES", nil, "no outbox table is named")
	}
	e, err := parseURL(cfg.URL)
	if err != nil {
		return nil, fault.Config(fault.CodeConfig, "OUTBOXD_SOURCE_URL is "+urlForm, nil, "the source URL %s", err)
	}
	if cfg.User != "" {
		e.user = cfg.User
	}
	tables := make([]TableName, len(cfg.Tables))
	for i, t := range cfg.Tables {
		if t.Schema == "" {
			t.Schema = e.database
		}
		tables[i] = t
	}
	cfg.Tables = tables
	if cfg.Hold == 0 {
		cfg.Hold = holdBytes
	}
	if cfg.ServerID == 0 {
		cfg.ServerID = deriveServerID(cfg.Name, e)
	}
	return &Source{cfg: cfg, endpoint: e, log: log}, nil
}

// deriveServerID gives an id in the upper half, where replicas set by hand seldom are.
func deriveServerID(name string, e endpoint) uint32 {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s %s", name, strings.Join(e.addrs, ","), e.database)
	return h.Sum32() | 1<<31
}
