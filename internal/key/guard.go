package key

import (
	"net/netip"
	"sync"
	"time"
)

// Guard slows guessing: after Bad failures from one address within a minute, further bad keys from there are answered
// Limited until that minute is over. Good keys are never held up, so that one client with an old key locks out
// nobody who shares its address; with 256 random bits the limit saves work and logs, it does not keep keys safe.
// Memory is bounded however many addresses there are. The zero value is ready; all methods are safe for concurrent use.
type Guard struct {
	Bad int // failures a minute; 0 means 100

	mu    sync.Mutex // guards the field below
	fails map[netip.Addr]fails
}

type fails struct {
	since time.Time
	n     int
}

const (
	defaultBad   = 100
	maxAddresses = 8192
)

// Check verifies a token that came from addr. The error is ErrUnauthorized, or of kind Limited.
func (g *Guard) Check(s *Set, token string, addr netip.Addr, now time.Time) (*Key, error) {
	k, err := s.Verify(token, now)
	if err == nil {
		return k, nil
	}
	if after := g.Failed(addr, now); after > 0 {
		return nil, limited(after, "too many requests without a valid API key from this address")
	}
	return nil, err
}

// Failed counts a failure of addr (an IPv6 client by its /64) and returns how long it is to be refused; zero is not.
func (g *Guard) Failed(addr netip.Addr, now time.Time) time.Duration {
	addr = network(addr)
	bad := g.Bad
	if bad <= 0 {
		bad = defaultBad
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f, known := g.fails[addr]
	if !known || now.Sub(f.since) >= minute {
		f = fails{since: now}
	}
	if f.n < bad {
		f.n++
		g.makeRoom(known, now)
		g.fails[addr] = f
		return 0
	}
	return minute - now.Sub(f.since)
}

// makeRoom keeps the table bounded: what is over goes, then any entries, down to three quarters, so that a flood of
// addresses pays for one sweep in 2,000.
func (g *Guard) makeRoom(known bool, now time.Time) {
	if g.fails == nil {
		g.fails = map[netip.Addr]fails{}
	}
	if known || len(g.fails) < maxAddresses {
		return
	}
	for a, f := range g.fails {
		if now.Sub(f.since) >= minute {
			delete(g.fails, a)
		}
	}
	for a := range g.fails {
		if len(g.fails) <= maxAddresses*3/4 {
			return
		}
		delete(g.fails, a)
	}
}

func network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
