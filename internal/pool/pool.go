// Package pool leases slots: capacity that is counted together, a bounded queue before it, and the choice of a backend
// that is well.
package pool

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
)

// Options describe a pool. Slots, Rate, Health, Breakers and Accounts may be shared with an earlier pool of the same
// name: they are what outlives a change of configuration.
type Options struct {
	Name     string
	Tier     string
	Backends []*backend.Backend
	Breakers []*Breaker // one a backend; nil: new ones
	Accounts []*Account // one a backend; nil: new ones
	Slots    *Slots
	Rate     *Rate
	Health   *Health           // nil: a new one
	Hand     *Hand             // nil: a new one
	Vendor   string            // the host of all its backends; empty: it never merges
	IDs      []string          // every model id that it serves, those that are sent included; nil: it never merges
	Merges   *Merges           // nil: it never merges
	Window   int               // tokens; 0: unknown
	Emit     func(event.Event) // health and alert events; nil: nowhere
}

// Pool is capacity that is counted together. It is safe for concurrent use.
type Pool struct {
	Options
	members []member
	seat    *seat // among those that may merge; nil: it never does
	turn    atomic.Uint32
	learnt  atomic.Int64 // the window that a refusal told of
	said    heard
}

// Serves reports whether every backend of the pool can be called for r.
func (p *Pool) Serves(r *llm.Request) bool {
	for _, b := range p.Backends {
		if !b.Serves(r) {
			return false
		}
	}
	return true
}

type member struct {
	*Breaker
	backend *backend.Backend
	account *Account
	held    atomic.Int64
}

// New returns a pool over its backends.
func New(o Options) *Pool {
	if o.Health == nil {
		o.Health = &Health{}
	}
	if o.Hand == nil {
		o.Hand = &Hand{}
	}
	if o.Emit == nil {
		o.Emit = func(event.Event) {}
	}
	p := &Pool{Options: o, members: make([]member, len(o.Backends))}
	for i, b := range o.Backends {
		m := &p.members[i]
		m.backend, m.Breaker, m.account = b, &Breaker{}, &Account{}
		if o.Breakers != nil {
			m.Breaker = o.Breakers[i]
		}
		if o.Accounts != nil {
			m.account = o.Accounts[i]
		}
	}
	p.seat = o.Merges.join(&p.Options)
	return p
}

// Need says who asks for a slot and how long it may wait.
type Need struct {
	Model    string // as the pool's backends know it
	Op       llm.Op
	Priority int
	Wait     time.Duration // 0: as long as the client stays
	Force    bool          // also where live traffic has taken the pool out: it is the last step there is

	// Waiting is called once, when the request begins to wait: its place in the queue from 1, how many wait, and how long
	// it will probably be, 0 while that is not known. It may be nil.
	Waiting func(place, waiting int, guess time.Duration)
}

// Lease is a slot in hand. Its holder must call Done exactly once.
type Lease struct {
	Backend *backend.Backend
	Queued  time.Duration
	Place   int           // in the queue, where it began to wait; 0: it did not
	Guess   time.Duration // how long the wait was expected to be; 0: it did not wait, or nothing was known
	begun   time.Time
	pool    *Pool
	member  *member
	model   string
	op      llm.Op
	trial   bool
	done    bool
}

// Reasons why a pool takes no call now.
const (
	OutPaused  = "paused"
	OutDenied  = "denied"
	OutGone    = "gone"
	OutTraffic = "breaker"
	OutHand    = "out"
)

// Outage says why a pool takes no call.
type Outage struct {
	Reason string
	Err    *llm.Error // what a client is told where no step is left
}

// Outage returns why the pool takes no call for model now, false when it takes one.
func (p *Pool) Outage(model string, now time.Time) (Outage, bool) {
	hand := p.Hand.seen()
	if o, out := p.byHand(hand, now); out {
		return o, true
	}
	if o, gone := p.Health.isGone(model); gone {
		e := llm.Errorf(llm.Gone, "%s", o.msg)
		e.RetryAfter = o.until(now)
		return Outage{OutGone, e}, true
	}
	if d, kind := p.Health.pausedFor(now); d > 0 {
		e := llm.Errorf(kind, "the model's server asked for a pause, of which %.0f s are left", d.Seconds())
		e.RetryAfter = d
		return Outage{OutPaused, e}, true
	}
	taken, denied, soonest := 0, 0, time.Duration(math.MaxInt64)
	var last out
	for i := range p.members {
		m := &p.members[i]
		if handed(hand, m.backend.Name, now) != nil {
			taken++
			continue
		}
		if o, is := m.account.isDenied(); is {
			if denied == 0 || o.next.Before(last.next) {
				last = o
			}
			denied++
			continue
		}
		stand, wait := m.stand(now)
		if stand != Out {
			return Outage{}, false
		}
		soonest = min(soonest, wait)
	}
	if denied+taken == len(p.members) {
		e := llm.Errorf(llm.Denied, "%s", last.msg)
		e.RetryAfter = last.until(now)
		return Outage{OutDenied, e}, true
	}
	e := llm.Errorf(llm.None, "the model's server has failed again and again and rests for %.0f s", max(soonest.Seconds(), 1))
	e.RetryAfter = soonest
	return Outage{OutTraffic, e}, true
}

// Acquire waits for a slot and chooses a backend that is well, the one with the fewest running calls. Errors are
// *llm.Error: full when the queue is at its bound or the wait passes, canceled when ctx ends, and what Outage tells
// where no backend is left meanwhile.
func (p *Pool) Acquire(ctx context.Context, n Need) (Lease, error) {
	begun := time.Now()
	place, guess, err := p.Slots.acquire(ctx, n)
	if err != nil {
		return Lease{}, err
	}
	now := time.Now()
	if o, out := p.Outage(n.Model, now); out && o.Reason != OutTraffic { // learnt from another call while this one waited
		p.Slots.Release()
		return Lease{}, o.Err
	}
	m, trial := p.choose(now, n.Force)
	if m == nil {
		p.Slots.Release()
		o, out := p.Outage(n.Model, time.Now())
		if !out {
			o.Err = llm.Errorf(llm.Full, "the model's server is being tried by another request")
			o.Err.RetryAfter = time.Second
		}
		return Lease{}, o.Err
	}
	m.held.Add(1)
	p.Health.called(now)
	return Lease{
		Backend: m.backend, Queued: now.Sub(begun), Place: place, Guess: guess, begun: now,
		pool: p, member: m, model: n.Model, op: n.Op, trial: trial,
	}, nil
}

// choose takes the trial of a member that is out and may be tried: without it a pool that has others would never be
// whole again. Else it takes a member that is in, the one with the fewest running calls, in turn where several have as
// few, and one in its slow start only within that. By force it takes one that traffic has taken out.
func (p *Pool) choose(now time.Time, force bool) (best *member, trial bool) {
	first := int(p.turn.Add(1))
	var spare *member
	most := p.Slots.most()
	hand := p.Hand.seen()
	for i := range p.members {
		m := &p.members[(first+i)%len(p.members)]
		if _, denied := m.account.isDenied(); denied || handed(hand, m.backend.Name, now) != nil {
			continue
		}
		if m.take(now) {
			return m, true
		}
		stand, _ := m.stand(now)
		switch held := m.held.Load(); {
		case stand != In:
			if spare == nil && force {
				spare = m
			}
		case held >= int64(m.room(now, most)):
			spare = m
		case best == nil || held < best.held.Load():
			best = m
		}
	}
	if best == nil {
		return spare, false
	}
	return best, false
}

// Done gives the slot back and judges the backend by how the call ended. A second call does nothing.
func (l *Lease) Done(err error) {
	if l.done || l.pool == nil {
		return
	}
	l.done = true
	l.member.held.Add(-1)
	now := time.Now()
	l.judge(now, err)
	l.pool.Slots.release(now.Sub(l.begun), l.load(err))
}

// judge turns the end of a call into what is known of the backend. Only what is the backend's own fault lowers its
// health; a refusal that names a time is kept to.
func (l *Lease) judge(now time.Time, err error) {
	p, m := l.pool, l.member
	v, kind := neutral, ""
	switch {
	case l.op == llm.Count: // a counter says nothing of who answers
	case err == nil:
		v = good
	default:
		e := llm.AsError(err)
		if e.Kind.Blames() || e.Kind == llm.Busy && l.trial {
			v = bad
		}
		kind = e.Kind.String()
		p.learnFrom(now, l, e)
	}
	switch m.note(now, v, kind, l.trial) {
	case ejected:
		p.tell(event.Health, m, l.model, "ejected", kind, "live traffic failed again and again")
	case returned:
		if p.alone(m, now) {
			p.Slots.Ramp(rampTime)
		}
		p.tell(event.Health, m, l.model, "returned", "", "the trial with a real request passed")
	}
}

// alone reports whether no other member is in: then the whole pool has just come back.
func (p *Pool) alone(m *member, now time.Time) bool {
	for i := range p.members {
		if o := &p.members[i]; o != m {
			if stand, _ := o.stand(now); stand == In {
				return false
			}
		}
	}
	return true
}

// learnFrom keeps what a refusal says of the future.
func (p *Pool) learnFrom(now time.Time, l *Lease, e *llm.Error) {
	const (
		short   = 2 * time.Second // a pause up to this is waited out by a retry
		warming = 2 * time.Second
	)
	if l.op.Passes() && (e.Kind == llm.Gone || e.Kind == llm.Denied) {
		return // most servers have no such path, and no small probe could show that it is back
	}
	switch e.Kind {
	case llm.Busy, llm.Unavailable:
		if e.RetryAfter > short {
			p.Health.pause(now, e.RetryAfter, e.Kind)
		}
	case llm.Loading:
		p.Health.pause(now, max(e.RetryAfter, warming), llm.Loading)
	case llm.Gone:
		if p.Health.lose(now, l.model, l.op, e.Msg) {
			p.tell(event.Alert, l.member, l.model, "gone", "gone", e.Msg)
		}
	case llm.Denied:
		if l.member.account.deny(now, l.model, l.op, e.Msg) {
			p.tell(event.Alert, l.member, l.model, "denied", "denied", e.Msg)
		}
	case llm.TooLong:
		if e.Window > 0 {
			p.learnt.Store(int64(e.Window))
		}
	}
}

func (p *Pool) tell(name event.Name, m *member, model, reason, kind, detail string) {
	p.Emit(event.Event{Name: name, Tier: p.Tier, Pool: p.Name, Model: model, Reason: reason, Kind: kind, To: m.backend.Name, Detail: detail})
}

// ContextWindow returns the pool's window in tokens, as configured or as a refusal told of it; 0 when it is unknown.
func (p *Pool) ContextWindow() int {
	if w := int(p.learnt.Load()); w > 0 && (p.Window == 0 || w < p.Window) {
		return w
	}
	return p.Window
}

// Probe is a small real call that shows whether what was refused is there again.
type Probe struct {
	Backend *backend.Backend
	Model   string
	Op      llm.Op
}

// LearnWindow notes the window that a server told of; the configured one, where there is one, stands.
func (p *Pool) LearnWindow(tokens int) { p.learnt.Store(int64(tokens)) }

// Due returns the return probes that are due now; each is put off further by being returned. What is out by hand is not
// asked meanwhile.
func (p *Pool) Due(now time.Time) (list []Probe) {
	hand := p.Hand.seen()
	var well *member // for models, which all members have
	for i := range p.members {
		if handed(hand, "", now) != nil || handed(hand, p.members[i].backend.Name, now) != nil {
			continue
		}
		if well == nil {
			well = &p.members[i]
		}
		if pr, is := p.members[i].account.due(now); is {
			pr.Backend = p.members[i].backend
			list = append(list, pr)
		}
	}
	if well == nil {
		return list
	}
	for _, pr := range p.Health.due(now) {
		pr.Backend = well.backend
		list = append(list, pr)
	}
	return list
}

// Passed notes that a probe of model on b has passed: the model is there, the account is taken.
func (p *Pool) Passed(b *backend.Backend, model string) {
	for i := range p.members {
		m := &p.members[i]
		if m.backend != b {
			continue
		}
		if p.Health.find(model) {
			p.tell(event.Alert, m, model, "gone resolved", "", fmt.Sprintf("%s answers again", model))
		}
		if m.account.grant() {
			p.tell(event.Alert, m, model, "denied resolved", "", "the account is taken again")
		}
	}
}

// Allowance returns the time that the prefill of a prompt is known to need, over the first-content limit.
func (p *Pool) Allowance(tokens int) time.Duration { return p.Rate.Allowance(tokens) }

// Learn takes what an answer told of the prefill: tokens evaluated per second.
func (p *Pool) Learn(tokens int64, perSecond float64) { p.Rate.Learn(tokens, perSecond) }
