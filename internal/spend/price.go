// Package spend knows what calls cost and holds them to ceilings: of a key, of a pool, and of all together, in a day and
// in a month of UTC. Money is whole nano-dollars everywhere. What a call may cost at most is held back before it is made,
// and what it cost in truth is booked after it; the Book's counters are kept by date in the store and never reset. An
// unknown price is unknown, never zero.
package spend

import (
	"math"
	"math/bits"

	"weir/internal/config"
)

const (
	perPrice  = 1_000_000 // tokens that a price is told for
	mostUsage = 1 << 24   // tokens of one call: several times what any window holds, with room for some choices
	unknown   = -1        // a rate
)

// Usage counts the tokens of one call. A negative number is unknown, but for Cached and Written: there it is none that
// anybody knows of. Both are parts of In; reasoning is a part of Out.
type Usage struct{ In, Out, Cached, Written int64 }

// Price is what a model costs. It is read-only and safe for concurrent use; nil is an unknown price.
type Price struct {
	in, out, cached, written int64 // nano-dollars per million tokens, or unknown
}

// NewPrice takes a price from the configuration. It is nil, unknown, where p is, or says neither in nor out.
func NewPrice(p *config.Price) *Price {
	if p == nil || p.In == nil && p.Out == nil {
		return nil
	}
	n := &Price{in: rate(p.In, unknown), out: rate(p.Out, unknown)}
	n.cached, n.written = rate(p.Cached, n.in), rate(p.Written, n.in)
	return n
}

// rate is a field of a price; a negative one, which no rule lets pass, is unknown.
func rate(u *config.USD, absent int64) int64 {
	switch {
	case u == nil:
		return absent
	case *u < 0:
		return unknown
	}
	return int64(*u)
}

// Cost returns what a call costs that used u, in nano-dollars: exact to the end, then rounded once, half up. It is known if
// every part that u has tokens of has a price, and no number of u is unknown or absurd. Where it is not known, nanos is
// what is certain of it. It never wraps and is never negative; what is larger than any amount is the largest one.
func (p *Price) Cost(u Usage) (nanos int64, known bool) {
	if p == nil {
		return 0, false
	}
	s := sum128{known: true}
	in := s.tokens(u.In, p.in)
	cached := min(max(u.Cached, 0), in)
	written := min(max(u.Written, 0), in-cached)
	s.add(in-cached-written, p.in)
	s.add(cached, p.cached)
	s.add(written, p.written)
	s.add(s.tokens(u.Out, p.out), p.out)
	return s.nanos(), s.known
}

// priced reports whether anything costs something. What is unknown does not.
func (p *Price) priced() bool {
	return p != nil && (p.in > 0 || p.out > 0 || p.cached > 0 || p.written > 0)
}

// most is what a call is taken to cost at most: of a prompt, the dearest of what its tokens may become. It is 0 where
// nothing costs anything, else at least 1.
func (p *Price) most(u Usage) int64 {
	if !p.priced() {
		return 0
	}
	var s sum128
	s.add(s.tokens(u.In, 0), max(p.in, p.cached, p.written))
	s.add(s.tokens(u.Out, 0), p.out)
	return max(s.nanos(), 1)
}

// sum128 adds up costs in 128 bits: with tokens up to mostUsage it cannot overflow.
type sum128 struct {
	hi, lo uint64
	known  bool
}

// tokens brings a count into bounds. One that is out of them makes the sum unknown, unless such tokens are free.
func (s *sum128) tokens(n, rate int64) int64 {
	in := min(max(n, 0), mostUsage)
	if in != n && rate != 0 {
		s.known = false
	}
	return in
}

func (s *sum128) add(tokens, rate int64) {
	switch {
	case tokens == 0:
	case rate < 0:
		s.known = false
	default:
		hi, lo := bits.Mul64(uint64(tokens), uint64(rate))
		var carry uint64
		s.lo, carry = bits.Add64(s.lo, lo, 0)
		s.hi, _ = bits.Add64(s.hi, hi, carry)
	}
}

func (s *sum128) nanos() int64 {
	lo, carry := bits.Add64(s.lo, perPrice/2, 0)
	hi := s.hi + carry
	if hi >= perPrice {
		return math.MaxInt64
	}
	n, _ := bits.Div64(hi, lo, perPrice)
	return int64(min(n, math.MaxInt64))
}

// plus adds two amounts, neither of them negative. What is larger than any amount is the largest one.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// reaches reports whether an amount is at least percent of a ceiling.
func reaches(amount, ceiling int64, percent uint64) bool {
	ah, al := bits.Mul64(uint64(amount), 100)
	ch, cl := bits.Mul64(uint64(ceiling), percent)
	return ah > ch || ah == ch && al >= cl
}

// Prices are the prices of one configuration. They are read-only and safe for concurrent use.
type Prices struct{ pools, models map[string]*Price }

// NewPrices takes the prices of all pools and models.
func NewPrices(c *config.Config) *Prices {
	p := &Prices{pools: make(map[string]*Price, len(c.Pools)), models: make(map[string]*Price, len(c.Prices.Models))}
	for name, pool := range c.Pools {
		if n := NewPrice(pool.Price); n != nil {
			p.pools[name] = n
		}
	}
	for id, price := range c.Prices.Models {
		if n := NewPrice(price); n != nil {
			p.models[id] = n
		}
	}
	return p
}

// For returns what a model costs in a pool: the pool's own price, else that of the id which is sent to the backend, else
// that of the id which steps name; nil where none is known. It allocates nothing.
func (p *Prices) For(pool, model, sent string) *Price {
	if n := p.pools[pool]; n != nil {
		return n
	}
	if n := p.models[sent]; n != nil {
		return n
	}
	return p.models[model]
}
