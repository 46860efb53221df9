package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	postgresLegal = "postgres://user@host[:port][,host[:port]]/database[?sslmode=…]"
	urlLegal      = postgresLegal + ", mysql://user@host[:port][,host[:port]]/database[?ssl-mode=…]"
)

// address is a database URL taken apart. Nothing here but password is secret.
type address struct {
	scheme   string
	user     string // as written, percent-encoded
	password string
	hosts    string
	path     string // as written
	query    []string
	database string
}

var errURLChars = errors.New("can't be taken apart: percent-encode % / ? # @ and : within user and password, or give the password as OUTBOXD_SOURCE_PASSWORD")

// parseURL splits a database URL. It is not net/url's job: a list of hosts
// with ports is legal here and not there. No error repeats any part of s.
func parseURL(s string) (address, error) {
	var a address
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		return a, errors.New("is not a URL")
	}
	a.scheme = strings.ToLower(scheme)
	switch a.scheme {
	case "postgres", "postgresql":
		a.scheme = "postgres"
	case "mysql", "mariadb":
	default:
		return a, errors.New("names no database that is known here")
	}
	if strings.Contains(rest, "#") {
		return a, errURLChars
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	a.path = path
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		login := authority[:at]
		a.hosts = authority[at+1:]
		user, password, _ := strings.Cut(login, ":")
		var err error
		if _, err = url.PathUnescape(user); err != nil {
			return a, errURLChars
		}
		if a.password, err = url.PathUnescape(password); err != nil {
			return a, errURLChars
		}
		a.user = user
	} else {
		a.hosts = authority
	}
	if err := checkHosts(a.hosts); err != nil {
		return a, err
	}
	database, err := url.PathUnescape(path)
	if err != nil || strings.Contains(path, "/") || strings.Contains(path, "@") {
		return a, errURLChars
	}
	a.database = database
	if a.scheme == "postgres" {
		err = a.takeQuery(query)
	} else if a.database != "" {
		err = a.takeMySQLQuery(query)
	}
	if err == nil && a.database == "" {
		err = errors.New("names no database")
	}
	return a, err
}

var sslModes = []string{"DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"}

// takeMySQLQuery takes the parameters that source/mysql knows. Files are opened there.
func (a *address) takeMySQLQuery(query string) error {
	if strings.Contains(query, "@") {
		return errURLChars // what stands before it may be half a password
	}
	given := map[string]string{}
	for p := range strings.SplitSeq(query, "&") {
		if p == "" {
			continue
		}
		name, value, ok := strings.Cut(p, "=")
		text, err := url.QueryUnescape(value)
		_, twice := given[name]
		switch {
		case !ok || err != nil:
			return errors.New("has a malformed parameter")
		case !slices.Contains([]string{"ssl-mode", "ssl-ca", "ssl-cert", "ssl-key", "socket"}, name):
			return fmt.Errorf("has the parameter %q, which is not known; there is ssl-mode, ssl-ca, ssl-cert, ssl-key, socket", name)
		case twice || text == "":
			return fmt.Errorf("has the parameter %s twice, or without a value", name)
		case name == "ssl-mode" && !slices.Contains(sslModes, strings.ToUpper(text)):
			return fmt.Errorf("has an ssl-mode that is none of %s", strings.Join(sslModes, ", "))
		}
		given[name] = text
		a.query = append(a.query, p)
	}
	switch {
	case a.hosts == "" && given["socket"] == "":
		return errors.New("names no host")
	case (given["ssl-cert"] == "") != (given["ssl-key"] == ""):
		return errors.New("has one of ssl-cert and ssl-key without the other")
	}
	return nil
}

// takeQuery keeps the parameters but for the password, which has its own place.
func (a *address) takeQuery(query string) error {
	host := false
	for p := range strings.SplitSeq(query, "&") {
		if p == "" {
			continue
		}
		name, value, ok := strings.Cut(p, "=")
		text, err := url.QueryUnescape(value)
		if !ok || err != nil {
			return errors.New("has a malformed parameter")
		}
		switch name {
		case "password":
			a.password = text
			continue
		case "dbname":
			a.database = text
		case "host", "hostaddr":
			host = true
		}
		a.query = append(a.query, p)
	}
	if a.hosts == "" && !host {
		return errors.New("names no host")
	}
	return nil
}

func checkHosts(hosts string) error {
	if hosts == "" {
		return nil
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if _, _, err := splitHostPort(h); err != nil {
			return err
		}
	}
	return nil
}

// splitHostPort takes host, host:port, [v6] and [v6]:port. port is "" when absent.
func splitHostPort(s string) (host, port string, err error) {
	bad := errors.New("has a host that is not host[:port]")
	host = s
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return "", "", bad
		}
		host, s = s[1:end], s[end+1:]
		if s != "" && s[0] != ':' {
			return "", "", bad
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, s = s[:i], s[i:]
	} else {
		s = ""
	}
	if host == "" || strings.ContainsAny(host, " \t/@\"") {
		return "", "", bad
	}
	if s != "" {
		port = s[1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", bad
		}
	}
	return host, port, nil
}

// String is the URL without the password.
func (a address) String() string { return a.text(false) }

// masked is the URL as it may be shown: with *** where a password stands.
func (a address) masked() string { return a.text(true) }

func (a address) text(masked bool) string {
	login := a.user
	if masked && a.password != "" {
		login += ":***"
	}
	if login != "" {
		login += "@"
	}
	query := strings.Join(a.query, "&")
	if masked {
		query = keyPassword.ReplaceAllString(query, "sslpassword=***")
	}
	if query != "" {
		query = "?" + query
	}
	return a.scheme + "://" + login + a.hosts + "/" + a.path + query
}

// keyPassword opens a client key's file. It stays in the URL, for no other
// place carries it to the driver.
var keyPassword = regexp.MustCompile(`\bsslpassword=[^&]*`)
