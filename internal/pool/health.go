package pool

import (
	"maps"
	"slices"
	"sync"
	"time"

	"weir/internal/llm"
)

// Health is what is known of a pool beside its slots: pauses asked for by the upstream, accounts that are refused, models
// that are gone. It is safe for concurrent use and outlives a change of configuration.
type Health struct {
	mu      sync.Mutex // guards the fields below
	paused  time.Time  // no call before this
	asked   llm.Kind   // the kind of the refusal that asked for the pause
	gone    map[string]*out
	retries int // under way
	window  [2]traffic
	turned  time.Time // when window was last turned
}

// traffic counts calls and retries of a stretch of time.
type traffic struct{ calls, retries int }

// out is a reason that stands until a probe has passed.
type out struct {
	since time.Time
	op    llm.Op // of the call that was refused: the probe does the same
	model string
	msg   string
	next  time.Time // of the return probe
	tries int
}

// Account is one backend's credentials, shared by all pools on it.
type Account struct {
	mu     sync.Mutex // guards the field below
	denied *out
}

// Bounds of a pause, and of the return probes.
const (
	mostPause    = time.Minute
	firstReturn  = 5 * time.Second
	nextReturn   = 30 * time.Second // doubling: longer than a probe may take, so that two never run at once
	mostReturn   = 5 * time.Minute
	budgetWindow = 10 * time.Second
	budgetFloor  = 3  // retries under way that are always allowed
	budgetShare  = 10 // one retry in so many calls
)

// pause keeps calls away for d, as a refusal of kind asked.
func (h *Health) pause(now time.Time, d time.Duration, kind llm.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := now.Add(min(d, mostPause)); until.After(h.paused) {
		h.paused, h.asked = until, kind
	}
}

// pausedFor returns the rest of a pause and the kind that asked for it.
func (h *Health) pausedFor(now time.Time) (time.Duration, llm.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paused.Sub(now), h.asked
}

// lose notes that a model is gone. It reports whether that is news.
func (h *Health) lose(now time.Time, model string, op llm.Op, msg string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone == nil {
		h.gone = map[string]*out{}
	}
	if h.gone[model] != nil {
		return false
	}
	h.gone[model] = newOut(now, op, msg)
	return true
}

// find takes a model back.
func (h *Health) find(model string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, was := h.gone[model]
	delete(h.gone, model)
	return was
}

func (h *Health) isGone(model string) (out, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o := h.gone[model]; o != nil {
		return *o, true
	}
	return out{}, false
}

// due returns the models whose return probe is due, each with its operation, and puts their next one off.
func (h *Health) due(now time.Time) []Probe {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []Probe
	for _, m := range slices.Sorted(maps.Keys(h.gone)) {
		if o := h.gone[m]; o.isDue(now) {
			list = append(list, Probe{Model: m, Op: o.op})
		}
	}
	return list
}

func newOut(now time.Time, op llm.Op, msg string) *out {
	return &out{since: now, op: op, msg: msg, next: now.Add(firstReturn)}
}

// until returns how long it is until the next return probe, at least a moment.
func (o *out) until(now time.Time) time.Duration { return max(o.next.Sub(now), time.Second) }

// isDue reports whether the return probe is due, and puts the next one off.
func (o *out) isDue(now time.Time) bool {
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(min(nextReturn<<min(o.tries, 10), mostReturn))
	o.tries++
	return true
}

// deny notes that the account is refused. It reports whether that is news.
func (a *Account) deny(now time.Time, model string, op llm.Op, msg string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied != nil {
		return false
	}
	a.denied = newOut(now, op, msg)
	a.denied.model = model
	return true
}

// grant takes the account back.
func (a *Account) grant() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.denied != nil
	a.denied = nil
	return was
}

func (a *Account) isDenied() (out, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied != nil {
		return *a.denied, true
	}
	return out{}, false
}

// due returns the return probe of the account, if it is due.
func (a *Account) due(now time.Time) (Probe, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.denied == nil || !a.denied.isDue(now) {
		return Probe{}, false
	}
	return Probe{Model: a.denied.model, Op: a.denied.op}, true
}

// called counts a call for the retry budget.
func (h *Health) called(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn(now)
	h.window[0].calls++
}

// Retry claims one retry of the pool's budget: at most a tenth of its traffic, or three under way. The claim must be
// ended by Retried.
func (h *Health) Retry(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn(now)
	calls, retries := h.window[0].calls+h.window[1].calls, h.window[0].retries+h.window[1].retries
	if h.retries >= budgetFloor && (retries+1)*budgetShare > calls-retries { // a retry is a call too, and earns no other one
		return false
	}
	h.retries++
	h.window[0].retries++
	return true
}

// Retried ends a claim.
func (h *Health) Retried() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retries--
}

// turn moves the window on: what is counted lies between one and two windows back.
func (h *Health) turn(now time.Time) {
	switch gone := now.Sub(h.turned); {
	case gone >= 2*budgetWindow:
		h.window, h.turned = [2]traffic{}, now
	case gone >= budgetWindow:
		h.window[1], h.window[0] = h.window[0], traffic{}
		h.turned = now
	}
}
