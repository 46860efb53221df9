package verify

import (
	"strconv"
	"strings"
)

// place is a position header that can be compared with others of its line: an LSN, a
// file and an offset, or a GTID of one server (MariaDB: of one domain), and the row's number.
type place struct {
	line string
	n    [3]uint64
}

func (p place) compare(q place) int {
	for i := range p.n {
		switch {
		case p.n[i] < q.n[i]:
			return -1
		case p.n[i] > q.n[i]:
			return 1
		}
	}
	return 0
}

// parsePlace reads TX#INDEX.
func parsePlace(text string) (p place, ok bool) {
	tx, index, ok := strings.Cut(text, "#")
	if !ok {
		return p, false
	}
	var err error
	if p.n[2], err = strconv.ParseUint(index, 10, 64); err != nil {
		return p, false
	}
	tx = strings.TrimSuffix(tx, "/snapshot")
	if high, low, ok := strings.Cut(tx, "/"); ok {
		h, err1 := strconv.ParseUint(high, 16, 32)
		l, err2 := strconv.ParseUint(low, 16, 32)
		p.line, p.n[0], p.n[1] = "lsn", h, l
		return p, err1 == nil && err2 == nil
	}
	if i := strings.LastIndexByte(tx, ':'); i > 0 {
		if p.n[1], err = strconv.ParseUint(tx[i+1:], 10, 64); err != nil {
			return p, false
		}
		p.line = tx[:i]
		if dot := strings.LastIndexByte(p.line, '.'); dot > 0 { // a binary log
			n, err := strconv.ParseUint(p.line[dot+1:], 10, 64)
			p.line, p.n[0] = p.line[:dot], n
			return p, err == nil
		}
		return p, true
	}
	domain, rest, ok1 := strings.Cut(tx, "-")
	_, sequence, ok2 := strings.Cut(rest, "-")
	p.n[1], err = strconv.ParseUint(sequence, 10, 64)
	p.line = "domain " + domain
	return p, ok1 && ok2 && err == nil
}
