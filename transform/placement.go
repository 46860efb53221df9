package transform

import (
	"fmt"
	"strconv"

	"github.com/outboxd/outboxd/sink"
	"github.com/outboxd/outboxd/source"
)

// Place is where a further column goes.
type Place string

// The places of OUTBOXD_COLUMN_PLACEMENT.
const (
	PlaceHeader    Place = "header"
	PlaceEnvelope  Place = "envelope"  // a member of the value; only in formats that are JSON objects of ours
	PlacePartition Place = "partition" // the record's partition, in place of the key's
)

// Placement sends a further column along, as Debezium's
// table.fields.additional.placement does.
type Placement struct {
	Column string // exactly as the server spells it
	Place  Place
	Alias  string // the name it is sent under; "": the column's
}

func (p Placement) sentAs() string {
	if p.Alias != "" {
		return p.Alias
	}
	return p.Column
}

func checkPlacement(list []Placement, f Format) error {
	partition := false
	for _, p := range list {
		switch p.Place {
		case PlaceHeader:
		case PlaceEnvelope:
			if !f.hasEnvelope() {
				return fmt.Errorf("column %q is placed into the envelope, and there is none in the format %s", p.Column, f)
			}
			if f == FormatCloudEventsJSON && !isExtension(p.sentAs()) {
				return fmt.Errorf("%q can't be the name of a CloudEvents attribute: use 1 to 20 of a-z and 0-9, by an alias", p.sentAs())
			}
		case PlacePartition:
			if partition {
				return fmt.Errorf("two columns are placed as the partition")
			}
			partition = true
		default:
			return fmt.Errorf("%q is no place: there are header, envelope and partition", p.Place)
		}
	}
	return nil
}

func isExtension(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= 20
}

// bindPlacement finds the placed columns. What goes into the envelope is returned.
func (r *rules) bindPlacement(p *plan, bad *problems) (envelope []member) {
	for _, at := range r.cfg.Placement {
		column := p.table.Column(at.Column)
		if column < 0 {
			if !r.cfg.IgnoreMissing {
				bad.add(fmt.Sprintf("table %s has no column %q, which is placed as %s; its columns are %s", p.name, at.Column, at.Place, columns(p.table)),
					fmt.Sprintf("Correct %s, or set %s to ignore.", r.variable("COLUMN_PLACEMENT"), r.variable("ON_MISSING_COLUMN")))
			}
			continue
		}
		switch at.Place {
		case PlaceHeader:
			r.addHeader(p, bound{name: at.sentAs(), column: column}, "COLUMN_PLACEMENT", bad)
		case PlaceEnvelope:
			envelope = append(envelope, member{name: at.sentAs(), column: column})
		case PlacePartition:
			if p.table.Columns[column].Kind != source.Number {
				bad.add(fmt.Sprintf("column %q of table %s is placed as the partition and is no integer but %s", at.Column, p.name, p.table.Columns[column].Type),
					fmt.Sprintf("Place an integer column as partition in %s.", r.variable("COLUMN_PLACEMENT")))
			}
			p.partition = column
		}
	}
	return envelope
}

// pin sets the partition a row asks for. NULL leaves it to the key.
func (p *plan) pin(m *sink.Message, row *source.Row) error {
	v := &row.Values[p.partition]
	if v.State != source.Present {
		return nil
	}
	n, err := strconv.ParseInt(string(v.Data), 10, 32)
	if err != nil || n < 0 {
		return p.refuse(row, ReasonBadPartition, fmt.Sprintf("column %q, the partition, is %.20q, which is no partition's number", p.column(p.partition), v.Data),
			"Take the column out of "+p.rules.variable("COLUMN_PLACEMENT")+".")
	}
	m.Pinned, m.Partition = true, int32(n)
	return nil
}
