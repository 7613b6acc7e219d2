// Package probe makes scheduled checks of servers and counts what they show: when one is out, and when it is back. It knows
// neither pools nor how a server is asked: both are functions of its user.
package probe

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// Result is what one check brought.
type Result struct {
	Verdict
	Why   string // human words; empty: all is well
	Kind  string // of a failure
	Model string // that was asked for; empty: none
}

// Status is how a target stands.
type Status struct {
	State  State
	Since  time.Time // of the state
	Next   time.Time // when it is probed again
	Last   time.Time // when the last probe began; zero: there was none
	Result           // of that probe
}

// Target is one server that is probed, and what is to be done. Its functions are called by one goroutine at a time.
type Target struct {
	Name string // what its counts are kept under, and its first probe is put off by
	Policy

	// Check makes the probe. It blocks; it ends soon after ctx, and by itself within a time of its own.
	Check func(ctx context.Context) Result
	// Proved returns when real traffic last showed that the server answers; zero: it never did. nil: nobody knows.
	Proved func() time.Time
	// Rests reports that it is not to be probed now, and that this says nothing about it. nil: it never rests.
	Rests func() bool
	// Tell is told of each change of the status, in order, while Run runs. It does not block.
	Tell func(Status)
}

// Prober probes targets, each on its own schedule. The zero value is not usable: call New. It is safe for concurrent use.
type Prober struct {
	seed  string
	watch func() (late func() bool) // of the scheduler, during one probe
	woken chan struct{}

	mu      sync.Mutex // guards the fields below
	entries []*entry
	untold  []news // of which Tell is told once the lock is free
}

type news struct {
	target *Target
	status Status
}

// entry is one target with its counts.
type entry struct {
	target  *Target
	count   Counter
	last    time.Time
	result  Result
	running bool
}

// New returns a Prober without targets. Different seeds, such as one of each process, put the first probes of the same
// target off by different times.
func New(seed string) *Prober {
	return &Prober{seed: seed, watch: watchScheduler, woken: make(chan struct{}, 1)}
}

// Set makes the targets those that are probed. Counts go on for one whose name there was; one that is no longer there is
// told that it is in.
func (p *Prober) Set(targets []*Target) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.entries
	p.entries = nil
	for _, t := range targets {
		i := slices.IndexFunc(old, func(e *entry) bool { return e.target.Name == t.Name })
		if i < 0 {
			e := &entry{target: t, count: NewCounter(t.Policy, now, now.Add(p.offset(t)))}
			p.note(e)
			p.entries = append(p.entries, e)
			continue
		}
		e := old[i]
		old = slices.Delete(old, i, i+1)
		if latest := now.Add(t.Every); e.count.State != Out && e.count.Next.After(latest) {
			e.count.Next = latest
		}
		e.target, e.count.Policy = t, t.Policy
		p.note(e)
		p.entries = append(p.entries, e)
	}
	for _, e := range old {
		p.untold = append(p.untold, news{e.target, Status{State: In, Since: now}})
	}
	p.wake()
}

func (p *Prober) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// offset spreads first probes over a period.
func (p *Prober) offset(t *Target) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.seed + "\n" + t.Name))
	return time.Duration(h.Sum64() % uint64(t.Every))
}

// longestRest is how long the schedule is not looked at where nothing is due.
const longestRest = time.Hour

// Run probes until ctx ends, and returns once every probe has ended.
func (p *Prober) Run(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	for {
		wait := p.launch(ctx, &probes)
		p.tell()
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-p.woken:
			t.Stop()
		case <-t.C:
		}
	}
}

// launch begins the probes that are due, and returns the time until the next one is.
func (p *Prober) launch(ctx context.Context, probes *sync.WaitGroup) time.Duration {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := longestRest
	for _, e := range p.entries {
		if e.running {
			continue
		}
		if !e.count.Next.After(now) {
			p.begin(e, now)
		}
		if e.running {
			probes.Go(func() { p.check(ctx, e, now) })
			continue
		}
		wait = min(wait, max(e.count.Next.Sub(now), time.Millisecond))
	}
	return wait
}

// begin claims a probe that is due, unless none is needed or none is to be made.
func (p *Prober) begin(e *entry, now time.Time) {
	if e.target.Rests != nil && e.target.Rests() {
		e.count.Note(now, now, Nothing)
		p.note(e)
		return
	}
	if at, fresh := e.proved(now.Add(-e.count.Every)); fresh {
		e.count.Proved(at, now)
		p.note(e)
		return
	}
	e.running = true
}

// proved returns when real traffic last showed life, if that was after a time; of what takes no calls, after it went out.
func (e *entry) proved(after time.Time) (time.Time, bool) {
	if e.target.Proved == nil {
		return time.Time{}, false
	}
	at := e.target.Proved()
	if c := &e.count; c.State == Out || c.State == IsWarming {
		after = c.Since
	}
	return at, !at.IsZero() && at.After(after)
}

// mostLag is how late Weir itself may be while a probe runs: beyond it a failure may be its own.
const mostLag = 250 * time.Millisecond

// check makes one probe and counts it.
func (p *Prober) check(ctx context.Context, e *entry, due time.Time) {
	p.mu.Lock()
	t := e.target
	p.mu.Unlock()
	begun := time.Now()
	late := p.watch()
	r := t.Check(ctx)
	starved := late() || begun.Sub(due) > mostLag
	now := time.Now()

	p.mu.Lock()
	defer func() {
		p.mu.Unlock()
		p.wake()
	}()
	e.running = false
	if ctx.Err() != nil || !slices.Contains(p.entries, e) {
		return
	}
	if r.Verdict == Failed && starved {
		r.Verdict, r.Why = Nothing, "Weir itself was short of processor time, or the machine slept: "+r.Why
	}
	e.last, e.result = begun, r
	if at, fresh := e.proved(begun); r.Verdict == Failed && fresh {
		e.result.Verdict, e.result.Why = Nothing, "real traffic was answered meanwhile: "+r.Why
		e.count.Proved(at, now)
	} else {
		e.count.Note(begun, now, r.Verdict)
	}
	p.note(e)
}

// note keeps how a target stands, for tell.
func (p *Prober) note(e *entry) {
	p.untold = append(p.untold, news{e.target, Status{State: e.count.State, Since: e.count.Since, Next: e.count.Next, Last: e.last, Result: e.result}})
}

// tell tells targets how they stand.
func (p *Prober) tell() {
	p.mu.Lock()
	list := p.untold
	p.untold = nil
	p.mu.Unlock()
	for _, n := range list {
		n.target.Tell(n.status)
	}
}
