package pool

import (
	"context"
	"sync"
	"time"

	"weir/internal/llm"
)

// Slots counts running calls against a cap and lets others wait in a bounded queue: by priority, first come first
// served inside one. It is safe for concurrent use and outlives a change of configuration.
type Slots struct {
	mu      sync.Mutex // guards the fields below
	cap     int
	size    int // of the queue
	held    int
	waiting []*waiter     // highest priority first, oldest first inside one
	ramp    time.Time     // a slow start began then
	steep   time.Duration // and lasts this long
	raise   *time.Timer   // lets waiters in as it goes on; nil outside a slow start
	full    uint64        // refused because the queue was full
	late    uint64        // gave up waiting
}

type waiter struct {
	priority int
	ready    chan struct{} // closed under the lock when the slot is handed over
	granted  bool
}

// NewSlots returns slots for cap calls and size waiters.
func NewSlots(capacity, size int) *Slots { return &Slots{cap: capacity, size: size} }

// Acquire takes a slot, waiting up to wait for one; zero waits as long as ctx lives. Errors are *llm.Error: full when
// the queue is at its bound or wait passed, canceled when ctx ended. On success Release must be called exactly once.
func (s *Slots) Acquire(ctx context.Context, priority int, wait time.Duration) error {
	s.mu.Lock()
	if s.held < s.limit() && len(s.waiting) == 0 {
		s.held++
		s.mu.Unlock()
		return nil
	}
	if len(s.waiting) >= s.size {
		s.full++
		e := llm.Errorf(llm.Full, "all %d slots are taken and %d requests wait already", s.cap, len(s.waiting))
		s.mu.Unlock()
		e.RetryAfter = time.Second
		return e
	}
	w := &waiter{priority: priority, ready: make(chan struct{})}
	s.enqueue(w)
	s.grant() // a raised cap may have left room
	s.mu.Unlock()
	return s.wait(ctx, w, wait)
}

func (s *Slots) enqueue(w *waiter) {
	i := len(s.waiting)
	for i > 0 && s.waiting[i-1].priority < w.priority {
		i--
	}
	s.waiting = append(s.waiting, nil)
	copy(s.waiting[i+1:], s.waiting[i:])
	s.waiting[i] = w
}

func (s *Slots) wait(ctx context.Context, w *waiter, wait time.Duration) error {
	var limit <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		if s.leave(w, false) {
			return &llm.Error{Kind: llm.Canceled, Op: "pool.Acquire", Msg: "the client left while waiting", Err: context.Cause(ctx)}
		}
	case <-limit:
		if s.leave(w, true) {
			e := llm.Errorf(llm.Full, "no slot became free within %v", wait)
			e.RetryAfter = 2 * time.Second
			return e
		}
	}
	// The slot was handed over in the same moment. It is the caller's, and a client who left is noticed by the call.
	return nil
}

// leave takes w out of the queue; false when it has been granted its slot already.
func (s *Slots) leave(w *waiter, late bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.granted {
		return false
	}
	for i, o := range s.waiting {
		if o == w {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			break
		}
	}
	if late {
		s.late++
	}
	return true
}

// Release gives a slot back, to whoever waits first.
func (s *Slots) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
	s.grant()
}

func (s *Slots) grant() {
	for most := s.limit(); s.held < most && len(s.waiting) > 0; {
		w := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		w.granted = true
		s.held++
		close(w.ready)
	}
}

// Resize changes cap and queue. Running calls go on; with a lower cap nobody is admitted until enough have ended, with a
// higher one waiters are let in at once.
func (s *Slots) Resize(capacity, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cap, s.size = capacity, size
	s.grant()
}

// Ramp begins a slow start: from one slot to all of them within d. Who waits is let in as it goes on.
func (s *Slots) Ramp(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ramp, s.steep = time.Now(), d
	if s.raise == nil {
		s.raise = time.AfterFunc(s.pace(), s.climb)
	}
}

// pace is the time in which a slow start gains one slot.
func (s *Slots) pace() time.Duration {
	return max(s.steep/time.Duration(max(s.cap, 1)), 10*time.Millisecond)
}

func (s *Slots) climb() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant()
	if time.Since(s.ramp) >= s.steep {
		s.raise = nil
		return
	}
	s.raise.Reset(s.pace())
}

// limit is how many calls may run now.
func (s *Slots) limit() int {
	if s.raise == nil {
		return s.cap
	}
	gone := time.Since(s.ramp)
	if gone >= s.steep {
		return s.cap
	}
	return min(s.cap, max(1, int(int64(s.cap)*int64(gone)/int64(s.steep))))
}

// Usage is a moment's picture of slots.
type Usage struct {
	Cap     int    `json:"cap"`
	Held    int    `json:"in_flight"`
	Waiting int    `json:"waiting"`
	Size    int    `json:"queue"`
	Full    uint64 `json:"refused_full"`
	Late    uint64 `json:"refused_late"`
}

// Usage returns how things stand.
func (s *Slots) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Usage{Cap: s.cap, Held: s.held, Waiting: len(s.waiting), Size: s.size, Full: s.full, Late: s.late}
}
