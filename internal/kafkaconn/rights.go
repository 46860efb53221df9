package kafkaconn

import (
	"strings"
)

// Resources that rights are given on, as kafka-acls.sh names them.
const (
	Topic           = "--topic"
	TransactionalID = "--transactional-id"
)

// Grant is the command by which an administrator gives us rights, separated by
// spaces ("Read Write"), on a resource: Topic or TransactionalID and its name. A
// name that ends in * stands for all that begin so.
func (c Config) Grant(operations, resource, name string) string {
	b := []string{"kafka-acls.sh --bootstrap-server", strings.Join(c.Brokers, ","), "--add --allow-principal", quoted("User:" + c.principal())}
	for operation := range strings.FieldsSeq(operations) {
		b = append(b, "--operation", operation)
	}
	prefix, prefixed := strings.CutSuffix(name, "*")
	switch {
	case !prefixed:
		b = append(b, resource, quoted(name))
	case prefix == "":
		b = append(b, resource, "'*'")
	default:
		b = append(b, resource, quoted(prefix), "--resource-pattern-type prefixed")
	}
	return strings.Join(b, " ")
}

// principal is who we are to the brokers' authorizer, if they make nothing else of it.
func (c Config) principal() string {
	switch {
	case c.SASL != nil && c.SASL.Mechanism == OAuthBearer:
		return "SUBJECT-OF-THE-TOKEN"
	case c.SASL != nil:
		return c.SASL.Username
	}
	if subject := c.TLS.subject(); subject != "" {
		return subject
	}
	return "ANONYMOUS"
}

// quoted is s as one word of a shell.
func quoted(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:=,@/", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
