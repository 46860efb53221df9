package mysql

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxd/outboxd/internal/fault"
)

// tableMap describes the table that the next rows are of. Another table costs a comparison.
func (d *decoder) tableMap(e event) error {
	id, schema, name, rest, err := tableName(e.body)
	if err != nil {
		return err
	}
	for i := range d.outboxes {
		o := &d.outboxes[i]
		if o.Name != string(name) || o.Schema != string(schema) || !d.collects() {
			continue
		}
		if o.known == nil || !bytes.Equal(o.known.raw, rest.b) {
			t, err := d.learn(o, e)
			if err != nil {
				return err
			}
			t.raw = bytes.Clone(rest.b)
			o.known = t
		}
		d.tables[id] = o.known
		return nil
	}
	delete(d.tables, id)
	return nil
}

func (d *decoder) learn(o *outbox, e event) (*table, error) {
	key := o.TableName
	m, err := parseTableMap(e.body)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", key, err)
	}
	m.mariadb = d.server.mariadb
	t := &table{}
	if m.names != nil {
		t.Table, t.columns, err = m.shape(d.collation)
		if err == nil {
			err = d.uncover(key, t)
		}
		return t, err
	}
	described, err := d.describe(key, time.Unix(int64(e.seconds), 0))
	if err != nil {
		return nil, err
	}
	t.Table, t.columns, err = m.shapeFrom(described, d.charset)
	var changed mismatch
	if errors.As(err, &changed) {
		return nil, schemaUnknown(key, "it was changed since: "+changed.Error())
	}
	if err != nil {
		return nil, err
	}
	from := logPlace{d.began.file, d.began.pos} // where an event begins, which MariaDB does not tell inside a transaction
	if from.before(o.unchanged) {
		from = o.unchanged
	}
	o.unchanged, err = d.unchanged(key, from)
	return t, err
}

// uncover asks for what the log does not tell beside the names: the types that MariaDB logs as BINARY or without their length, and without
// which nothing can be read, and the forms of numbers, which a table that is gone or changed has taken with it.
func (d *decoder) uncover(key TableName, t *table) error {
	veiled := func(c column) bool { return c.old() || d.server.mariadb && c.hidden() }
	types := slices.ContainsFunc(t.columns, veiled)
	if !types && !slices.ContainsFunc(t.columns, func(c column) bool { return c.formed() }) {
		return nil
	}
	described, err := d.describe(key, time.Time{})
	if f := fault.As(err); f != nil && f.Code == fault.CodeSchemaUnknown && !types {
		return nil
	}
	if err != nil {
		return err
	}
	for i := range t.columns {
		c, name := &t.columns[i], t.Columns[i].Name
		at := slices.IndexFunc(described, func(c describedColumn) bool { return c.name == name })
		switch {
		case veiled(*c) && at < 0:
			return schemaUnknown(key, fmt.Sprintf("column %q, whose type the log does not tell whole, is no longer there", name))
		case c.old():
			if !c.oldAs(described[at]) {
				return schemaUnknown(key, fmt.Sprintf("column %q was a %s of MariaDB's old format, and is %s now", name, typeName(c.kind), described[at].columnType))
			}
			t.Columns[i] = c.named(name)
		case veiled(*c):
			c.uncover(described[at].dataType)
			t.Columns[i] = c.named(name)
		case c.formed() && at >= 0 && c.fits(described[at]):
			c.form = described[at].form()
		}
	}
	return nil
}

// charset gives a character set by its name.
func (d *decoder) charset(name string) (*charset, error) {
	if c := d.charsets[name]; c != nil {
		return c, nil
	}
	c, ok := charsetNamed(name)
	if !ok {
		if tabled[name] == nil {
			return nil, fmt.Errorf("character set %q is not known", name)
		}
		table, err := d.table(name)
		if err != nil {
			return nil, err
		}
		c = table.charset(name)
	}
	d.charsets[name] = c
	return c, nil
}

// collation gives the character set of a collation, as the log tells them.
func (d *decoder) collation(id uint64) (*charset, error) {
	name, ok := d.server.collations[id]
	if !ok {
		return nil, fmt.Errorf("collation %d is not known", id)
	}
	return d.charset(name)
}
