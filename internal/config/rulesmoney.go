package config

import (
	"slices"
	"time"
)

// oldPrices is the age from which prices are not taken for granted any more.
const oldPrices = 180 * 24 * time.Hour

// money checks prices, ceilings and this Weir's share.
func (r *rules) money() {
	r.asOf(root("prices").key("as_of"))
	r.share()
	r.ceiling(r.c.Spend, root("spend"))
	for _, name := range sorted(r.c.Pools) {
		r.spending(name, r.c.Pools[name])
	}
}

// asOf checks the day of the prices. A day to come is a warning alone: a clock that stands wrong must stop nobody.
func (r *rules) asOf(p *path) {
	text := r.c.Prices.AsOf
	if text == "" || r.bad[p.text] {
		return
	}
	day, err := time.Parse(time.DateOnly, text)
	now := time.Now()
	switch age := now.Sub(day); {
	case err != nil:
		r.fault(p, "must be a day such as 2026-11-30, not %s", show(text))
	case age > oldPrices:
		r.warn(p, "these prices are %d days old: look them up again, or read newer ones with weir prices import", int(age/(24*time.Hour)))
	case age < -48*time.Hour:
		r.warn(p, "these prices are of a day to come: either it or this machine's clock is wrong")
	}
}

// share checks this Weir's part of the caps.
func (r *rules) share() {
	p := root("cap_share")
	if r.c.CapShare == "" || r.bad[p.text] {
		return
	}
	n, m, ok := parseShare(r.c.CapShare)
	if !ok {
		r.fault(p, "must be a part such as 1/2: two whole numbers, the second at most 1000 and the first at most the second")
		return
	}
	for _, name := range sorted(r.c.Pools) {
		if pool := r.c.Pools[name]; pool.Cap > 0 && r.outside(pool) && pool.Cap*n < m {
			r.warn(root("pools").key(name).key("cap"), "is too small for a part of %s: this Weir takes one slot, and all together may take more than %d", r.c.CapShare, pool.Cap)
		}
	}
}

// ceiling checks that the two ceilings of one block fit each other.
func (r *rules) ceiling(c Ceiling, p *path) {
	if c.Month > 0 && c.Day > c.Month {
		r.warn(p.key("day"), "never matters: it is more than the month may cost (%s)", c.Month)
	}
}

// spending checks one pool's ceiling, and that ceilings which hold it know what it costs.
func (r *rules) spending(name string, pool *Pool) {
	p := root("pools").key(name)
	r.ceiling(pool.Spend, p.key("spend"))
	if len(pool.Models) == 0 || r.bad[p.key("models").text] || r.bad["prices"] {
		return // told already
	}
	var unknown []string
	for _, m := range pool.Models {
		if !r.priced(pool, m) {
			unknown = append(unknown, m.ID)
		}
	}
	own := pool.Spend != Ceiling{}
	switch {
	case len(unknown) == 0:
	case own && len(unknown) == len(pool.Models):
		r.fault(p.key("spend"), "needs to know what the pool costs: give it a price, or its models in prices")
	case own || r.c.Spend != Ceiling{} && r.outside(pool):
		r.warn(p.key("models"), "what pool %s spends on %s is unknown and no ceiling holds it: give it a price, or the model in prices", show(name), names(unknown))
	}
}

// priced reports whether the price of a model is known. What takes any id is known by its pool's price, or as far as
// prices go.
func (r *rules) priced(pool *Pool, m Model) bool {
	if known(pool.Price) {
		return true
	}
	if m.ID == "*" {
		return len(r.c.Prices.Models) > 0
	}
	return known(r.c.Prices.Models[m.ServedAs]) || known(r.c.Prices.Models[m.ID])
}

// known reports whether a price says anything.
func known(p *Price) bool { return p != nil && (p.In != nil || p.Out != nil) }

// names quotes names for a message, three at most.
func names(list []string) string {
	var quoted []string
	for _, name := range list {
		quoted = append(quoted, show(name))
	}
	return either(slices.Compact(quoted))
}

// loopGuard checks the numbers of the loop guard.
func (r *rules) loopGuard() {
	g, p := r.c.LoopGuard, root("loop_guard")
	if g.Slow > 0 {
		if g.Refuse > 0 && g.Refuse < g.Slow {
			r.fault(p.key("refuse"), "must be at least slow (%d): requests are slowed first", g.Slow)
		}
		return
	}
	for _, part := range []struct {
		key string
		set bool
	}{{"refuse", g.Refuse > 0}, {"window", g.Window > 0}, {"wait", g.Wait > 0}} {
		if part.set && !r.bad[p.key("slow").text] {
			r.warn(p.key(part.key), "has no effect: the loop guard is off until slow says from how many same requests on")
		}
	}
}
