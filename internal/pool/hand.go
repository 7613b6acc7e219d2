package pool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/event"
	"weir/internal/llm"
)

// unknownReturn is what a client is told to wait for a pool that is out by hand without an end.
const unknownReturn = time.Minute

// Hand is what an operator took out of a pool: the whole of it, or single backends. It is safe for concurrent use and
// outlives a change of configuration. The zero value has nothing out.
type Hand struct {
	mu   sync.Mutex // held by whoever changes outs
	outs atomic.Pointer[[]HandOut]
}

// HandOut is one thing that is out by hand. It ends by itself at Until.
type HandOut struct {
	Backend string // empty: the whole pool
	Since   time.Time
	Until   time.Time // zero: until it is put back
	Why     string    // empty: not said
	Actor   string
}

// Out takes a backend, or the whole pool, out. What is out already stays out since then, with the new end and reason.
func (h *Hand) Out(o HandOut) {
	h.change(func(list []HandOut) []HandOut {
		if i := at(list, o.Backend); i >= 0 {
			if list[i].inForce(o.Since) {
				o.Since = list[i].Since
			}
			list = slices.Delete(list, i, i+1)
		}
		list = append(list, o)
		slices.SortFunc(list, func(a, b HandOut) int { return cmp.Compare(a.Backend, b.Backend) })
		return list
	})
}

// In puts a backend back, or with an empty name the pool and all its backends. It reports whether anything was out.
func (h *Hand) In(backend string) bool {
	was := false
	h.change(func(list []HandOut) []HandOut {
		return slices.DeleteFunc(list, func(o HandOut) bool {
			gone := backend == "" || o.Backend == backend
			was = was || gone
			return gone
		})
	})
	return was
}

// List returns what is out at now, the whole pool first, then backends by name.
func (h *Hand) List(now time.Time) []HandOut {
	return slices.DeleteFunc(slices.Clone(h.seen()), func(o HandOut) bool { return !o.inForce(now) })
}

// Load puts in place what was out before a restart.
func (h *Hand) Load(list []HandOut) {
	for _, o := range list {
		h.Out(o)
	}
}

// expire forgets what has come to its end at now, and returns it.
func (h *Hand) expire(now time.Time) (ended []HandOut) {
	if len(h.seen()) == 0 {
		return nil
	}
	h.change(func(list []HandOut) []HandOut {
		return slices.DeleteFunc(list, func(o HandOut) bool {
			if o.inForce(now) {
				return false
			}
			ended = append(ended, o)
			return true
		})
	})
	return ended
}

// seen returns all entries, those at their end too. The list is never changed.
func (h *Hand) seen() []HandOut {
	if list := h.outs.Load(); list != nil {
		return *list
	}
	return nil
}

func (h *Hand) change(f func([]HandOut) []HandOut) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := f(slices.Clone(h.seen()))
	h.outs.Store(&list)
}

func at(list []HandOut, backend string) int {
	return slices.IndexFunc(list, func(o HandOut) bool { return o.Backend == backend })
}

// handed returns what keeps a backend, or with an empty name the whole pool, out at now; nil for nothing.
func handed(list []HandOut, backend string, now time.Time) *HandOut {
	for i := range list {
		if o := &list[i]; o.Backend == backend && o.inForce(now) {
			return o
		}
	}
	return nil
}

func (o *HandOut) inForce(now time.Time) bool { return o.Until.IsZero() || now.Before(o.Until) }

// detail says who, why and until when.
func (o *HandOut) detail() string { return "by " + o.Actor + o.reason() }

// reason says why and until when.
func (o *HandOut) reason() string {
	var b strings.Builder
	if o.Why != "" {
		b.WriteString(": " + o.Why)
	}
	if o.Until.IsZero() {
		b.WriteString("; until it is put back")
	} else {
		b.WriteString("; until " + o.Until.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	return b.String()
}

// outage is what a client is told, who is not to know where the operator sits. The code keeps its reason for those who learn of it only after they have waited.
func (o *HandOut) outage(what string, now time.Time) Outage {
	e := llm.Errorf(llm.None, "%s taken out by hand%s", what, o.reason())
	e.Code, e.RetryAfter = OutHand, unknownReturn
	if !o.Until.IsZero() {
		e.RetryAfter = max(o.Until.Sub(now), time.Second)
	}
	return Outage{OutHand, e}
}

// byHand returns the outage of a pool of which all is out by hand: as a whole, or each backend, and then until the
// first of them is back.
func (p *Pool) byHand(list []HandOut, now time.Time) (Outage, bool) {
	if len(list) == 0 {
		return Outage{}, false
	}
	if o := handed(list, "", now); o != nil {
		return o.outage("the pool was", now), true
	}
	var first *HandOut
	for i := range p.members {
		o := handed(list, p.members[i].backend.Name, now)
		if o == nil {
			return Outage{}, false
		}
		if first == nil || first.Until.IsZero() || !o.Until.IsZero() && o.Until.Before(first.Until) {
			first = o
		}
	}
	if first == nil {
		return Outage{}, false
	}
	return first.outage("all backends of the pool were", now), true
}

// TakeOut takes a backend, or the whole pool, out by hand. Running calls go on. Who waits for a pool that takes no more
// calls is sent on to the next step at once.
func (p *Pool) TakeOut(o HandOut) {
	p.Hand.Out(o)
	list := p.Hand.seen()
	p.tellHand("out", &o)
	if out, is := p.byHand(list, time.Now()); is {
		p.Slots.Dismiss(out.Err)
	}
}

// PutIn puts back what was taken out by hand: one backend, or with an empty name all of the pool. It reports whether
// anything was out.
func (p *Pool) PutIn(backend, actor string) bool {
	was := p.Hand.In(backend)
	if was {
		p.Emit(event.Event{Name: event.Health, Tier: p.Tier, Pool: p.Name, Reason: "in", To: backend, Actor: actor, Detail: "put back by " + actor})
	}
	return was
}

// Expire tells of what was out by hand and has come to its end, and returns it, so that it is forgotten elsewhere too.
// Calls are taken again without it.
func (p *Pool) Expire(now time.Time) []HandOut {
	ended := p.Hand.expire(now)
	for i := range ended {
		p.Emit(event.Event{Name: event.Health, Tier: p.Tier, Pool: p.Name, Reason: "in", To: ended[i].Backend,
			Detail: fmt.Sprintf("the time it was taken out for is over (%s)", ended[i].detail())})
	}
	return ended
}

func (p *Pool) tellHand(reason string, o *HandOut) {
	p.Emit(event.Event{Name: event.Health, Tier: p.Tier, Pool: p.Name, Reason: reason, To: o.Backend, Actor: o.Actor, Detail: "taken out " + o.detail()})
}
