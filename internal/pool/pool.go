// Package pool leases slots: capacity that is counted together, a bounded queue before it, and the choice of a backend.
package pool

import (
	"context"
	"sync/atomic"
	"time"

	"weir/internal/backend"
)

// Options describe a pool.
type Options struct {
	Name     string
	Tier     string
	Backends []*backend.Backend
	Slots    *Slots
	Rate     *Rate
	Window   int // tokens; 0: unknown
}

// Pool is capacity that is counted together. It is safe for concurrent use.
type Pool struct {
	Options
	members []member
	turn    atomic.Uint32
}

type member struct {
	backend *backend.Backend
	held    atomic.Int64
}

// New returns a pool over its backends.
func New(o Options) *Pool {
	p := &Pool{Options: o, members: make([]member, len(o.Backends))}
	for i, b := range o.Backends {
		p.members[i].backend = b
	}
	return p
}

// Need says who asks for a slot and how long it may wait.
type Need struct {
	Priority int
	Wait     time.Duration // 0: as long as the client stays
}

// Lease is a slot in hand. Its holder must call Done exactly once.
type Lease struct {
	Backend *backend.Backend
	Queued  time.Duration
	pool    *Pool
	member  *member
	done    bool
}

// Acquire waits for a slot and chooses the backend with the fewest running calls. Errors are *llm.Error of kind full or
// canceled.
func (p *Pool) Acquire(ctx context.Context, n Need) (Lease, error) {
	begun := time.Now()
	if err := p.Slots.Acquire(ctx, n.Priority, n.Wait); err != nil {
		return Lease{}, err
	}
	m := p.choose()
	m.held.Add(1)
	return Lease{Backend: m.backend, Queued: time.Since(begun), pool: p, member: m}, nil
}

// choose takes the member with the fewest running calls, in turn where several have as few.
func (p *Pool) choose() *member {
	if len(p.members) == 1 {
		return &p.members[0]
	}
	first := int(p.turn.Add(1))
	best := &p.members[first%len(p.members)]
	for i := range p.members {
		if m := &p.members[(first+i)%len(p.members)]; m.held.Load() < best.held.Load() {
			best = m
		}
	}
	return best
}

// Done gives the slot back. err is how the call ended. A second call does nothing.
func (l *Lease) Done(err error) {
	if l.done || l.pool == nil {
		return
	}
	l.done = true
	l.member.held.Add(-1)
	l.pool.Slots.Release()
}

// Allowance returns the time that the prefill of a prompt is known to need, over the first-content limit.
func (p *Pool) Allowance(tokens int) time.Duration { return p.Rate.Allowance(tokens) }

// Learn takes what an answer told of the prefill: tokens evaluated in d.
func (p *Pool) Learn(tokens int64, perSecond float64) { p.Rate.Learn(tokens, perSecond) }
