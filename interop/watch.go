package main

import (
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
)

// watched counts what matters in the multiplexer frames of a connection, in both directions.
type watched struct {
	net.Conn
	in, out counter
}

type counter struct {
	mu      sync.Mutex
	head    []byte
	payload uint32
	resets  atomic.Int64
	goaways atomic.Int64
	pings   atomic.Int64
	acks    atomic.Int64
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.in.take(p[:n])
	return n, err
}

func (w *watched) Write(p []byte) (int, error) {
	w.out.take(p)
	return w.Conn.Write(p)
}

func (c *counter) take(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		if c.payload > 0 {
			n := min(uint32(len(p)), c.payload)
			c.payload -= n
			p = p[n:]
			continue
		}
		n := min(len(p), 12-len(c.head))
		c.head = append(c.head, p[:n]...)
		p = p[n:]
		if len(c.head) < 12 {
			return
		}
		kind, flags := c.head[1], binary.BigEndian.Uint16(c.head[2:])
		switch kind {
		case 0:
			c.payload = binary.BigEndian.Uint32(c.head[8:])
		case 2:
			c.pings.Add(1)
		case 3:
			c.goaways.Add(1)
		}
		if kind < 2 && flags&8 != 0 {
			c.resets.Add(1)
		}
		if kind < 2 && flags&2 != 0 {
			c.acks.Add(1)
		}
		c.head = c.head[:0]
	}
}
