package pool

import (
	"maps"
	"slices"
	"time"
)

// StateIn is the state of what takes calls, StateTrial that of a backend whose next call decides whether it is well. The
// other states are the reasons of an Outage.
const (
	StateIn    = "in"
	StateTrial = "trial"
)

// BackendState is a moment's picture of one backend of a pool.
type BackendState struct {
	Name    string
	State   string
	Held    int       // running calls
	Since   time.Time // when it went out; zero: it is in
	Until   time.Time // when it may come back, or is asked next; zero: it is in, or that is not known
	Kind    string    // breaker: of the failure that took it out
	Strikes int       // breaker: how often in a row it went out
	Why     string    // out, denied: human words
}

// States returns how each backend of the pool stands. What keeps the whole pool out is not in it: Outage tells that.
func (p *Pool) States(now time.Time) []BackendState {
	hand := p.Hand.seen()
	list := make([]BackendState, len(p.members))
	for i := range p.members {
		m := &p.members[i]
		s := m.picture(now)
		if o, is := m.account.isDenied(); is {
			s = BackendState{State: OutDenied, Since: o.since, Until: o.next, Why: o.msg}
		}
		if o := handed(hand, m.backend.Name, now); o != nil {
			s = BackendState{State: OutHand, Since: o.Since, Until: o.Until, Why: o.detail()}
		}
		s.Name, s.Held = m.backend.Name, int(m.held.Load())
		list[i] = s
	}
	return list
}

// picture is what the breaker knows of its backend.
func (b *Breaker) picture(now time.Time) BackendState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return BackendState{State: StateIn}
	}
	s := BackendState{State: OutTraffic, Since: b.since, Until: b.until, Kind: b.last, Strikes: b.strikes}
	if !now.Before(b.until) {
		s.State = StateTrial
	}
	return s
}

// Gone returns the models that the pool's server does not have any more, by name.
func (h *Health) Gone() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.gone))
}
