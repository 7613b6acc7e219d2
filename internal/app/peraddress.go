package app

import (
	"net"
	"net/netip"
	"sync"
)

// perAddress bounds the open connections of each client address: one that opens more is cut at once, and costs the
// others nothing. Trusted proxies stand for many clients and are not bounded.
type perAddress struct {
	net.Listener
	most    int
	trusted []netip.Prefix

	mu   sync.Mutex // guards the field below
	open map[netip.Addr]int
}

// newPerAddress wraps l; with most 0 it is returned as it is.
func newPerAddress(l net.Listener, most int, trusted []netip.Prefix) net.Listener {
	if most <= 0 {
		return l
	}
	return &perAddress{Listener: l, most: most, trusted: trusted, open: map[netip.Addr]int{}}
}

// Accept returns the next connection that is within its address's bound.
func (p *perAddress) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil || p.isTrusted(peer.Addr().Unmap()) {
			return c, nil
		}
		if addr := peer.Addr().Unmap(); p.take(addr) {
			return &counted{Conn: c, done: func() { p.give(addr) }}, nil
		}
		c.Close()
	}
}

func (p *perAddress) isTrusted(a netip.Addr) bool {
	for _, t := range p.trusted {
		if t.Contains(a) {
			return true
		}
	}
	return false
}

func (p *perAddress) take(a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[a] >= p.most {
		return false
	}
	p.open[a]++
	return true
}

func (p *perAddress) give(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open[a]--; p.open[a] == 0 {
		delete(p.open, a)
	}
}

// counted gives its place back when it is closed.
type counted struct {
	net.Conn
	once sync.Once
	done func()
}

// Close closes the connection; a second call gives no second place back.
func (c *counted) Close() error {
	c.once.Do(c.done)
	return c.Conn.Close()
}
