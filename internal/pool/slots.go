package pool

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/llm"
)

// Slots counts running calls against a cap and lets others wait in a bounded queue: by priority, first come first
// served inside one. A live cap below the cap follows what the upstream refuses. Slots may be charged to those of another
// pool (Merges); then that pool's cap and queue rule. It is safe for concurrent use and outlives a change of configuration.
type Slots struct {
	root atomic.Pointer[Slots] // what these are charged to: themselves, unless pools have merged
	mu   sync.Mutex            // guards the fields below, of all slots that are charged to these

	name  string // of the pool, where it may merge
	cap   int
	size  int    // of the queue
	own   int    // running calls of this pool
	held  int    // running calls that are charged to these slots
	queue queue  // who waits for these slots
	full  uint64 // of this pool: refused because the queue was full
	late  uint64 // gave up waiting

	live  float64       // the live cap: up to cap
	cut   time.Time     // when it last fell
	mean  time.Duration // for which a slot is held; 0: not known yet
	ramp  time.Time     // a slow start began then
	steep time.Duration // and lasts this long
	raise *time.Timer   // lets waiters in as it goes on; nil outside a slow start
}

// NewSlots returns slots for cap calls and size waiters.
func NewSlots(capacity, size int) *Slots {
	s := &Slots{cap: capacity, size: size, live: float64(capacity)}
	s.root.Store(s)
	return s
}

// lock locks the slots that s is charged to, and returns them. While they are locked s stays charged to them.
func (s *Slots) lock() *Slots {
	for {
		r := s.root.Load()
		r.mu.Lock()
		if s.root.Load() == r {
			return r
		}
		r.mu.Unlock() // pools have merged in this moment, or parted
	}
}

// Acquire takes a slot, waiting up to wait for one; zero waits as long as ctx lives. Errors are *llm.Error: full when
// the queue is at its bound, wait passed or one of a higher priority needed the place, canceled when ctx ended, and what
// Dismiss was given. On success Release must be called exactly once.
func (s *Slots) Acquire(ctx context.Context, priority int, wait time.Duration) error {
	_, _, err := s.acquire(ctx, Need{Priority: priority, Wait: wait})
	return err
}

// acquire returns, too, the place and the guess with which the wait began, zero where there was none.
func (s *Slots) acquire(ctx context.Context, n Need) (place int, guess time.Duration, err error) {
	r := s.lock()
	if r.queue.n > 0 {
		r.grant() // a slow start may have left room
	}
	if r.held < r.limit() {
		s.own++
		r.held++
		r.mu.Unlock()
		return 0, 0, nil
	}
	if err := r.makeRoom(s, n.Priority); err != nil {
		r.mu.Unlock()
		return 0, 0, err
	}
	w := &waiter{slots: s, priority: n.Priority, begun: time.Now(), wait: n.Wait, ready: make(chan struct{})}
	w.place = r.queue.add(w)
	w.waiting, w.guess = r.queue.n, r.guess(w.place)
	r.mu.Unlock()
	return w.place, w.guess, s.await(ctx, w, n.Waiting)
}

// makeRoom sees that one more of a priority may wait: at a full queue the newest of the lowest priority goes, if that is
// a lower one.
func (s *Slots) makeRoom(asks *Slots, priority int) error {
	if s.queue.n < s.size {
		return nil
	}
	last := s.queue.last()
	if last == nil || last.priority >= priority || s.size == 0 {
		asks.full++
		e := llm.Errorf(llm.Full, "all %d slots are taken and %d requests wait already", s.limit(), s.queue.n)
		e.RetryAfter = s.later()
		return e
	}
	last.slots.full++
	e := llm.Errorf(llm.Full, "all %d slots are taken and the queue of %d is full; a request of a higher priority took the place", s.limit(), s.size)
	e.RetryAfter = s.later()
	s.queue.remove(last)
	last.end(e)
	return nil
}

// await waits for w's turn, its limit or its leaving, and tells before that it does.
func (s *Slots) await(ctx context.Context, w *waiter, tell func(place, waiting int, guess time.Duration)) error {
	var limit <-chan time.Time
	if w.wait > 0 {
		t := time.NewTimer(w.wait)
		defer t.Stop()
		limit = t.C
	}
	if tell != nil {
		tell(w.place, w.waiting, w.guess)
	}
	select {
	case <-w.ready:
		return w.failure()
	case <-ctx.Done():
		if s.leave(w, nil) {
			return &llm.Error{Kind: llm.Canceled, Op: "pool.Acquire", Msg: "the client left while waiting", Err: context.Cause(ctx)}
		}
	case <-limit:
		e := llm.Errorf(llm.Full, "no slot became free within %v", w.wait)
		if s.leave(w, e) {
			return e
		}
	}
	// The slot was handed over in the same moment. It is the caller's, and a client who left is noticed by the call.
	return w.failure()
}

// leave takes w out of the queue; false when its wait has ended already. Who is late is told when to come again.
func (s *Slots) leave(w *waiter, late *llm.Error) bool {
	r := s.lock()
	defer r.mu.Unlock()
	if w.ended {
		return false
	}
	if late != nil {
		s.late++
		late.RetryAfter = r.later()
	}
	r.queue.remove(w)
	w.ended = true
	return true
}

// Release gives a slot back, to whoever waits first. It says nothing of how the call went.
func (s *Slots) Release() { s.release(0, neutral) }

// release gives a slot back that was held so long, zero for one that says nothing of others; how tells what the end means
// for the live cap.
func (s *Slots) release(held time.Duration, how verdict) {
	r := s.lock()
	defer r.mu.Unlock()
	s.own--
	r.held--
	r.measure(held)
	switch how {
	case good:
		r.rise()
	case bad:
		r.fall()
	}
	r.grant()
}

// grant hands free slots to who waits. s is what others are charged to, and locked.
func (s *Slots) grant() {
	for most := s.limit(); s.held < most && s.queue.n > 0; {
		w := s.queue.next()
		s.queue.remove(w)
		w.slots.own++
		s.held++
		w.end(nil)
	}
}

// Resize changes cap and queue. Running calls go on; with a lower cap nobody is admitted until enough have ended, with a
// higher one waiters are let in at once. A live cap that the upstream has lowered stays, below the new cap.
func (s *Slots) Resize(capacity, size int) {
	r := s.lock()
	defer r.mu.Unlock()
	if s.live >= float64(s.cap) {
		s.live = float64(capacity)
	}
	s.live = min(s.live, float64(capacity))
	s.cap, s.size = capacity, size
	r.grant()
}

// Dismiss ends the wait of everybody who waits for this pool: Acquire returns a copy of err to each.
func (s *Slots) Dismiss(err *llm.Error) {
	r := s.lock()
	defer r.mu.Unlock()
	for _, w := range r.queue.all() {
		if w.slots == s {
			e := *err
			r.queue.remove(w)
			w.end(&e)
		}
	}
}

// Usage is a moment's picture of slots. What is charged to another pool is in that pool's numbers and not in these, so
// that sums are right; cap, queue and what was refused are always the pool's own.
type Usage struct {
	Cap        int    `json:"cap"`
	Live       int    `json:"live"`      // how many may run now, of the pool that serves
	Held       int    `json:"in_flight"` // of all that is charged here
	Own        int    `json:"own"`       // running calls of this pool, wherever they are charged
	Waiting    int    `json:"waiting"`   // of all who wait here
	Size       int    `json:"queue"`
	Full       uint64 `json:"refused_full"`
	Late       uint64 `json:"refused_late"`
	MergedInto string `json:"merged_into,omitempty"` // the pool that serves; empty: itself
}

// Usage returns how things stand.
func (s *Slots) Usage() Usage {
	r := s.lock()
	defer r.mu.Unlock()
	u := Usage{Cap: s.cap, Live: r.limit(), Held: s.held, Own: s.own, Waiting: s.queue.n, Size: s.size, Full: s.full, Late: s.late}
	if r != s {
		u.MergedInto = r.name
	}
	return u
}

// call gives the slots their pool's name.
func (s *Slots) call(name string) {
	r := s.lock()
	defer r.mu.Unlock()
	s.name = name
}

// most returns the cap that rules.
func (s *Slots) most() int {
	r := s.lock()
	defer r.mu.Unlock()
	return r.cap
}
