package key

import (
	"sync"
	"time"
)

const window = time.Minute

// usage counts what the keys of one name do. It outlives reloads and rotation.
type usage struct {
	mu      sync.Mutex // guards the fields below
	running int
	times   []time.Time // a ring of the admissions of the last window, at most RPM of them: 24 bytes each
	head, n int
}

// Admission is one admitted request. The zero value is one without limits. It belongs to one goroutine.
type Admission struct{ u *usage }

// Release ends the admission: call it once the request has ended. Calling it again does nothing.
func (a *Admission) Release() {
	if a.u == nil {
		return
	}
	a.u.mu.Lock()
	a.u.running--
	a.u.mu.Unlock()
	a.u = nil
}

// Admit counts a request against the limits of k: never more than RPM are admitted in any 60 s, and never more than
// Concurrent run at a time. Both are checked and counted as one step; a refused request counts for nothing. The error
// is of kind Limited. Keys of one name, such as a key and its successor in the overlap, share their counts.
// now must carry the monotonic clock, as time.Now gives it, so that setting the clock changes nothing.
func (s *Set) Admit(k *Key, now time.Time) (Admission, error) {
	if k.RPM <= 0 && k.Concurrent <= 0 {
		return Admission{}, nil
	}
	u := k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if k.Concurrent > 0 && u.running >= k.Concurrent {
		return Admission{}, limited(time.Second, "this key may run %d requests at a time: wait until one has ended", k.Concurrent)
	}
	if k.RPM > 0 {
		if after := u.full(k.RPM, now); after > 0 {
			return Admission{}, limited(after, "this key may send %d requests per minute", k.RPM)
		}
		u.add(k.RPM, now)
	}
	u.running++
	return Admission{u}, nil
}

// full drops what has left the window and returns how long the next request must wait; zero is not at all.
func (u *usage) full(rpm int, now time.Time) time.Duration {
	for u.n > 0 && now.Sub(u.times[u.head]) >= window {
		u.head, u.n = (u.head+1)%len(u.times), u.n-1
	}
	if u.n < rpm {
		return 0
	}
	// The limit may have been lowered: then more than one must leave.
	return window - now.Sub(u.times[(u.head+u.n-rpm)%len(u.times)])
}

func (u *usage) add(rpm int, now time.Time) {
	if u.n == len(u.times) {
		bigger := make([]time.Time, min(max(16, 2*u.n), max(rpm, u.n+1)))
		for i := range u.n {
			bigger[i] = u.times[(u.head+i)%len(u.times)]
		}
		u.times, u.head = bigger, 0
	}
	u.times[(u.head+u.n)%len(u.times)] = now
	u.n++
}
