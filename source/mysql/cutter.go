package mysql

// cutter cuts fields; once something is short, everything after is empty.
type cutter struct {
	b     []byte
	short bool
}

func (c *cutter) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.b, c.short = nil, true
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cutter) skip(n int) { c.bytes(n) }

// fixed reads an n-byte little-endian number.
func (c *cutter) fixed(n int) uint64 {
	var v uint64
	for i, x := range c.bytes(n) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// lenenc reads a length-encoded integer of the client/server protocol.
func (c *cutter) lenenc() uint64 {
	switch first := c.fixed(1); first {
	case 0xfc:
		return c.fixed(2)
	case 0xfd:
		return c.fixed(3)
	case 0xfe:
		return c.fixed(8)
	default:
		return first
	}
}

func (c *cutter) err() error {
	if c.short {
		return errShort
	}
	return nil
}
