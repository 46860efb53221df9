package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const fileSuffix = "_FILE"

// Value is one variable as it holds now, fit to be shown.
type Value struct {
	Name   string `json:"name"`
	Value  string `json:"value"`  // masked; empty: none
	Origin string `json:"origin"` // default, environment, env-file, file:PATH, derived
	Unset  string `json:"unset,omitempty"`
}

// Values lists every variable in the table's order, secrets masked. Variables
// that are not there yet are left out unless they were set.
func (c *Config) Values() []Value { return c.values }

// Load reads the environment (entries KEY=VALUE), and beneath it the entries
// of an env file; real variables win. The error is a *fault.Error that names
// every fault. The Config is never nil; after an error it is fit to be shown only.
func Load(environ []string, envFile ...string) (*Config, []Warning, error) {
	l := loader{
		c:      &Config{},
		levels: []level{{"environment", own(environ)}, {"env-file", own(envFile)}},
		taken:  map[string]setting{},
	}
	rows := Variables()
	for i := range rows {
		l.row(&rows[i])
	}
	rows = append(rows, l.own()...)
	l.routing()
	l.require(rows)
	l.fit(rows)
	l.derive()
	l.transactions()
	l.security(rows)
	l.unknown(rows)
	return l.c, l.warnings, l.problems.fault()
}

// own reads the settings of tables with an alias, and gives their rows: one for
// each row of the section of the event.
func (l *loader) own() []Variable {
	var rows []Variable
	for _, t := range l.c.Tables {
		if t.Alias == "" {
			continue
		}
		e := l.c.Event
		topic, route := false, false
		for _, v := range eventRows() {
			if v.Name == "OUTBOXD_TOPIC_PREFIX" { // one for the connector
				continue
			}
			general := v.Name
			v.Name = t.Variables() + strings.TrimPrefix(general, Prefix)
			rows = append(rows, v)
			s, ok := l.find(&v)
			if !ok {
				continue
			}
			l.show(&v, s)
			switch {
			case general == "OUTBOXD_TOPIC":
				topic = true
			case strings.HasPrefix(general, "OUTBOXD_TOPIC_ROUTE_") && !route:
				route, e.Route = true, Route{}
			}
			c := Config{Event: e}
			if err := v.set(&c, s.value); err != nil {
				l.problem(&v, s, err)
				continue
			}
			e = c.Event
			l.taken[v.Name] = s
		}
		switch {
		case topic && route:
			l.twoTopics(t.Variables())
		case topic:
			e.Route = Route{}
		}
		l.c.Aliased = append(l.c.Aliased, Aliased{Table: t, Event: e})
	}
	return rows
}

// routing names two ways to the topic.
func (l *loader) routing() {
	if _, both := l.taken["OUTBOXD_TOPIC"]; both && l.c.Route != (Route{}) {
		l.twoTopics(Prefix)
	}
}

func (l *loader) twoTopics(prefix string) {
	l.problems = append(l.problems, Problem{Name: prefix + "TOPIC", Reason: "and " + prefix + "TOPIC_ROUTE_… are both set", Legal: "one of the two ways"})
}

type level struct {
	origin string
	vars   map[string]string
}

// own picks our variables; an empty one counts as unset.
func own(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" && strings.HasPrefix(name, Prefix) {
			vars[name] = value
		}
	}
	return vars
}

// setting is what one row was given.
type setting struct {
	name   string // the variable that was set
	value  string
	origin string
	secret Secret
}

type loader struct {
	c        *Config
	levels   []level
	taken    map[string]setting // by the row's name
	problems SettingErrors
	warnings []Warning
}

func (l *loader) row(v *Variable) {
	if strings.HasSuffix(v.Name, "*") {
		l.wildcard(v)
		return
	}
	s, ok := l.find(v)
	if !ok {
		if v.Default != "" {
			// A default is read like a setting, so that what the docs say is what holds.
			if err := v.set(l.c, v.Default); err != nil {
				l.problem(v, setting{name: v.Name, value: v.Default}, err)
			}
		}
		if !v.Later {
			l.show(v, setting{value: v.Default, origin: "default"})
		}
		return
	}
	l.show(v, s)
	if err := v.set(l.c, s.value); err != nil {
		l.problem(v, s, err)
		return
	}
	l.taken[v.Name] = s
}

// find looks a row up under all its names. Two names at once are a fault
// unless an alias says the same.
func (l *loader) find(v *Variable) (setting, bool) {
	for _, lv := range l.levels {
		var set []setting
		for _, name := range v.names() {
			if value, ok := lv.vars[name]; ok {
				set = append(set, setting{name: name, value: value, origin: lv.origin, secret: plain(value)})
			}
		}
		if len(set) == 0 {
			continue
		}
		if len(set) > 1 && (v.Secret || set[0].value != set[1].value) {
			l.problems = append(l.problems, Problem{Name: set[0].name, Reason: "and " + set[1].name + " are both set", Legal: "one of them"})
			return setting{}, false
		}
		s := set[0]
		if v.Secret && s.name == v.Name+fileSuffix && !v.Later {
			return l.readFile(v, s)
		}
		return s, true
	}
	return setting{}, false
}

func (l *loader) readFile(v *Variable, s setting) (setting, bool) {
	s.origin, s.secret = "file:"+s.value, fromFile(s.value)
	content, err := s.secret()
	if err != nil {
		l.problems = append(l.problems, Problem{Name: s.name, Value: s.value, Reason: "can't be used: " + err.Error(), Legal: "the path of a file that holds the secret"})
		l.taken[v.Name] = s
		return s, false
	}
	s.value = content
	return s, true
}

// wildcard refuses every variable a row NAME_* stands for.
func (l *loader) wildcard(v *Variable) {
	for _, lv := range l.levels {
		for _, name := range slices.Sorted(maps.Keys(lv.vars)) {
			if v.matches(name) {
				l.problems = append(l.problems, Problem{Name: name, Reason: "is not there yet", Legal: v.legal})
			}
		}
	}
}

func (l *loader) problem(v *Variable, s setting, err error) {
	l.problems = append(l.problems, Problem{Name: s.name, Value: mask(v, s.value), Reason: err.Error(), Legal: v.legal})
}

func (l *loader) show(v *Variable, s setting) {
	value := Value{Name: v.Name, Value: mask(v, s.value), Origin: s.origin}
	if value.Value == "" {
		value.Unset = strings.ReplaceAll(v.Unset, "`", "")
	}
	l.c.values = append(l.c.values, value)
}

// mask gives the form of a value that may be shown.
func mask(v *Variable, value string) string {
	if !v.Secret || value == "" {
		return value
	}
	if a, err := parseURL(value); err == nil {
		return a.masked()
	}
	return "***"
}

// require names what is missing, unless what was set was already found wrong.
func (l *loader) require(rows []Variable) {
	missing := func(name, reason string) {
		i := slices.IndexFunc(rows, func(v Variable) bool { return v.Name == name })
		wrong := func(p Problem) bool { return slices.Contains(rows[i].names(), p.Name) }
		if !slices.ContainsFunc(l.problems, wrong) {
			l.problems = append(l.problems, Problem{Name: name, Reason: reason, Legal: rows[i].legal})
		}
	}
	if _, ok := l.taken["OUTBOXD_SOURCE_URL"]; !ok {
		missing("OUTBOXD_SOURCE_URL", "is required")
	}
	if tables, ok := l.taken["OUTBOXD_TABLES"]; ok && len(l.c.Tables) == 0 && l.c.Postgres.MessagePrefix == "" {
		missing("OUTBOXD_POSTGRES_MESSAGE_PREFIX", "is required by OUTBOXD_TABLES="+tables.value)
	}
	switch {
	case len(l.c.Kafka.Brokers) > 0:
	case l.c.Sink == "kafka":
		missing("OUTBOXD_KAFKA_BROKERS", "is required")
	case l.c.Checkpoint.Topic != "":
		missing("OUTBOXD_KAFKA_BROKERS", "is required by OUTBOXD_CHECKPOINT="+l.c.Checkpoint.String())
	}
}

// fit names what was set for another database than the URL's.
func (l *loader) fit(rows []Variable) {
	for i := range rows {
		v := &rows[i]
		s, set := l.taken[v.Name]
		switch {
		case !set:
		case !suits(v.Name, l.c.Source):
			l.problems = append(l.problems, Problem{Name: s.name, Reason: "is set and the source is " + l.c.Source.Scheme + "://", Legal: "leave it unset"})
		case v.Name == "OUTBOXD_SETUP_URL" && l.c.Source.Scheme == "postgres" && !strings.HasPrefix(l.c.SetupURL.URL, "postgres://"):
			l.problems = append(l.problems, Problem{Name: s.name, Reason: "leads to another kind of database than OUTBOXD_SOURCE_URL", Legal: v.legal})
		}
	}
}

// transactions names what exactly-once delivery can't do without.
func (l *loader) transactions() {
	c := l.c
	if c.Delivery != ExactlyOnce {
		return
	}
	refuse := func(name, reason, legal string) {
		l.problems = append(l.problems, Problem{Name: name, Reason: reason, Legal: legal})
	}
	if c.Sink != "kafka" {
		refuse("OUTBOXD_SINK", "knows no transactions, and OUTBOXD_DELIVERY is exactly-once", "kafka, or OUTBOXD_DELIVERY=at-least-once")
	} else if c.Checkpoint.Path != "" {
		refuse("OUTBOXD_CHECKPOINT", "is a file, and OUTBOXD_DELIVERY is exactly-once", "kafka:TOPIC, or OUTBOXD_DELIVERY=at-least-once")
	}
	if c.Transaction.Timeout > 0 && c.Transaction.Interval > c.Transaction.Timeout/3 {
		refuse("OUTBOXD_TRANSACTION_INTERVAL", fmt.Sprintf("is more than a third of OUTBOXD_TRANSACTION_TIMEOUT (%s)", c.Transaction.Timeout), "at most a third of it")
	}
}

// suits reports whether a variable has to do with the source. There is nothing
// to set up in MySQL, so it needs no login for that.
func suits(name string, s Source) bool {
	switch {
	case s.Scheme == "":
		return true
	case s.MySQL():
		return !strings.HasPrefix(name, "OUTBOXD_POSTGRES_") && name != "OUTBOXD_SETUP_URL"
	}
	return !strings.HasPrefix(name, "OUTBOXD_MYSQL_")
}

// derive fills in what follows from other settings.
func (l *loader) derive() {
	c := l.c
	c.Source.Password = l.password("OUTBOXD_SOURCE_PASSWORD", "OUTBOXD_SOURCE_URL")
	c.HTTPViewToken = l.taken["OUTBOXD_HTTP_VIEW_TOKEN"].secret
	if c.SetupURL.URL != "" {
		c.SetupURL.Password = l.password("", "OUTBOXD_SETUP_URL")
	}
	if c.Name == "" && c.Source.Database != "" && len(c.Tables) == 0 && c.Postgres.MessagePrefix != "" {
		c.Name = deriveName(c.Source.Database, "", Table{Name: c.Postgres.MessagePrefix})
		l.derived("OUTBOXD_NAME", c.Name)
	}
	if c.Name == "" && c.Source.Database != "" && len(c.Tables) > 0 {
		home := "public"
		if c.Source.MySQL() {
			home = c.Source.Database
		}
		c.Name = deriveName(c.Source.Database, home, c.Tables[0])
		l.derived("OUTBOXD_NAME", c.Name)
	}
	if c.Checkpoint.Topic == "" && c.Checkpoint.Path == "" {
		text := fileCheckpoint
		switch {
		case c.Sink == "kafka" && c.Delivery == ExactlyOnce:
			text = kafkaCheckpoint + "." + c.Name // a neighbour's open transaction must not delay our start
		case c.Sink == "kafka":
			text = kafkaCheckpoint
		}
		_ = c.Checkpoint.set(text) // it is legal
		l.derived("OUTBOXD_CHECKPOINT", text)
	}
	c.values = slices.DeleteFunc(c.values, func(v Value) bool { return v.Origin == "default" && !suits(v.Name, c.Source) })
	if c.Name == "" || c.Source.MySQL() {
		return
	}
	pgName := strings.ReplaceAll(c.Name, "-", "_")
	if c.Postgres.Slot == "" {
		c.Postgres.Slot = pgName
		l.derived("OUTBOXD_POSTGRES_SLOT", pgName)
	}
	if c.Postgres.Publication == "" {
		c.Postgres.Publication = pgName
		l.derived("OUTBOXD_POSTGRES_PUBLICATION", pgName)
	}
}

func (l *loader) derived(name, value string) {
	for i := range l.c.values {
		if v := &l.c.values[i]; v.Name == name && v.Origin == "default" {
			v.Value, v.Origin, v.Unset = value, "derived", ""
		}
	}
}

// password is the password variable's if it is set, else the URL's.
func (l *loader) password(name, urlName string) Secret {
	if s, ok := l.taken[name]; ok {
		return s.secret
	}
	u, ok := l.taken[urlName]
	if !ok {
		return plain("")
	}
	return func() (string, error) {
		text, err := u.secret()
		if err != nil {
			return "", err
		}
		a, err := parseURL(text)
		if err != nil {
			return "", errors.New(urlName + " " + err.Error())
		}
		return a.password, nil
	}
}

// unknown names every variable of our prefix that is in no row.
func (l *loader) unknown(rows []Variable) {
	known := knownNames(rows)
	names := map[string]string{}
	for _, lv := range slices.Backward(l.levels) {
		maps.Copy(names, lv.vars)
	}
	strict := true
	if s, ok := l.taken["OUTBOXD_STRICT_ENV"]; ok {
		strict = s.value == "true"
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains(known, name) || serviceLink(name, names) ||
			slices.ContainsFunc(rows, func(v Variable) bool { return v.matches(name) }) {
			continue
		}
		reason := "is not a variable of outboxd" + hint(name, rows)
		if strings.HasPrefix(name, Prefix+"TABLE_") && !slices.ContainsFunc(l.c.Tables, func(t Table) bool { return t.Alias != "" && strings.HasPrefix(name, t.Variables()) }) {
			reason = "belongs to no table: OUTBOXD_TABLES has no such alias" + l.aliases()
		}
		if strict {
			l.problems = append(l.problems, Problem{Name: name, Reason: reason})
		} else {
			l.warnings = append(l.warnings, Warning{Name: name, Text: reason})
		}
	}
}

// aliases lists them, as a half sentence.
func (l *loader) aliases() string {
	var names []string
	for _, t := range l.c.Tables {
		if t.Alias != "" {
			names = append(names, t.Alias)
		}
	}
	if names == nil {
		return "; write it as alias=table there"
	}
	return ", it has " + strings.Join(names, ", ")
}
