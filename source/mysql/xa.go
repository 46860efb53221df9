package mysql

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/internal/fault"
	"github.com/outboxd/outboxd/source"
)

// An XA transaction stands in the log twice: its rows when it is prepared, and later, or never, its decision.
// Rows of ours are held until then. With MySQL's GTIDs the one of the prepare stays out of the set
// that is saved, so the server sends it again. Elsewhere the place also tells where the oldest
// prepare begins: the log is read from there, and what was handed on since is passed over.

// prepared is an XA transaction with rows of ours that is not decided.
type prepared struct {
	id    string // as the log tells it: X'…',X'…',1
	began began  // by its prepare
	rows  []source.Row
	bytes int
	read  time.Time // when we read it
}

// xaID is the name of a transaction in an XA PREPARE event, as statements in the log write it.
func xaID(c *cutter) string {
	format, global, branch := int32(c.fixed(4)), int(c.fixed(4)), int(c.fixed(4))
	return fmt.Sprintf("x'%x',x'%x',%d", c.bytes(global), c.bytes(branch), format)
}

// xa reads a statement from behind the word XA.
func (d *decoder) xa(l *lexer) error {
	switch t := l.next(); {
	case t.one("START", "BEGIN"):
		d.inside, d.collect = true, true
		return nil
	case t.word("END"):
		return nil
	case t.one("COMMIT", "ROLLBACK"):
		return d.decided(strings.ToLower(strings.TrimSpace(l.rest)), t.word("COMMIT"))
	}
	return d.end(true)
}

// collects reports whether rows are taken, though the group is passed over: it may be decided later.
func (d *decoder) collects() bool { return !d.passing || d.collect && d.promise == nil }

// prepares ends the group of a transaction that is decided later; in one phase it is a commit
// (XA_prepare_event in libs/mysql/binlog/event/control_events.h).
func (d *decoder) prepares(e event) error {
	c := cutter{b: e.body}
	onePhase := c.fixed(1) != 0
	id := xaID(&c)
	if c.short && !onePhase {
		return errShort
	}
	if onePhase || d.seen == 0 || !d.collects() {
		return d.end(true)
	}
	if d.lost != nil {
		return d.end(true)
	}
	p := &prepared{id: id, began: d.began, rows: slices.Clone(d.rows[d.settled:]), bytes: d.held, read: time.Now()}
	held := p.bytes
	for _, other := range d.prepared {
		held += other.bytes
	}
	if d.ahead || held > d.hold {
		return fault.Refused("decide the XA transactions that are prepared (XA RECOVER lists them), raise OUTBOXD_BUFFER_BYTES, or write outbox rows in plain transactions; "+
			"to leave the outbox rows of this one out for good: "+setTo(string(d.behind().position())), nil,
			"%d prepared XA transactions, the last one %s at %s:%d, hold more outbox rows than OUTBOXD_BUFFER_BYTES", len(d.prepared)+1, id, d.file, d.pos)
	}
	d.forgetPrepared(id)
	d.prepared = append(d.prepared, p)
	d.drop()
	if d.at.byGTID && !d.at.mariadb && !d.passing { // its GTID is counted when it is decided
		d.tx, d.inside, d.collect, d.saves, d.moved = nil, false, false, d.saves[:0], true
		return nil
	}
	return d.end(true)
}

// decided ends what was prepared.
func (d *decoder) decided(id string, commit bool) error {
	p := d.forgetPrepared(id)
	if p == nil || d.passing {
		return d.end(true)
	}
	if commit {
		for i := range p.rows {
			tx := p.rows[i].Tx
			tx.ID, tx.CommitAt = d.began.String(), d.tx.CommitAt
		}
		d.rows = append(d.rows, p.rows...)
		for _, r := range p.rows {
			for _, v := range r.Values {
				d.bytes += len(v.Data)
			}
		}
	}
	d.also = &p.began
	return d.end(true)
}

// forgetPrepared takes a transaction off the list; nil when it isn't there.
func (d *decoder) forgetPrepared(id string) *prepared {
	i := slices.IndexFunc(d.prepared, func(p *prepared) bool { return p.id == id })
	if i < 0 {
		return nil
	}
	p := d.prepared[i]
	d.prepared = slices.Delete(d.prepared, i, i+1)
	return p
}

// reading notes in the place where the oldest transaction begins that is not decided.
func (d *decoder) reading() {
	d.at.heldFile, d.at.heldPos = "", 0
	if len(d.prepared) > 0 && (d.at.mariadb || !d.at.byGTID) {
		d.at.heldFile, d.at.heldPos = d.prepared[0].began.file, d.prepared[0].began.from
	}
}

// behind is the place behind the transaction under way, as if it had ended without rows.
func (d *decoder) behind() place {
	p := d.at
	p.file, p.pos, p.from, p.last, p.at = d.file, d.pos, 0, "", time.Time{}
	p.gtids = d.gtids()
	switch {
	case !d.began.counted():
	case p.mariadb:
		set, err := p.set()
		if err == nil && set.Update(d.began.String()) == nil {
			p.gtids = set.String()
		}
	case p.byGTID:
		p.gtids = union(p.gtids, d.began.String())
	}
	return p
}

// warnOfPrepared tells of a transaction that nobody decides: the log must be kept from its prepare on.
func (d *decoder) warnOfPrepared(now time.Time) {
	if len(d.prepared) == 0 {
		return
	}
	oldest := d.prepared[0]
	if now.Sub(oldest.read) < time.Minute || now.Sub(d.preparedWarnedAt) < time.Minute {
		return
	}
	d.preparedWarnedAt = now
	d.log.Warn("an XA transaction with outbox rows is prepared and not decided; its rows wait, and a restart reads the log from there",
		zap.String("xid", oldest.id), zap.String("file", oldest.began.file), zap.Uint64("position", oldest.began.from), zap.Int("prepared", len(d.prepared)),
		zap.Duration("for", now.Sub(oldest.read).Round(time.Second)),
		zap.String("fix", "find out what became of its coordinator, and XA COMMIT or XA ROLLBACK it (XA RECOVER lists it) before the server purges that file"))
}
