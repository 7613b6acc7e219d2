package key

import (
	"sync"
	"time"
)

// usage counts what the keys of one name do. It outlives reloads and rotation.
type usage struct {
	mu       sync.Mutex // guards the fields below
	running  int
	base     time.Time // the times of the windows count from here
	last     time.Duration
	requests window
	tokens   window
}

// since returns the time of the windows at now. Who took now first may have come second: time never falls.
func (u *usage) since(now time.Time) time.Duration {
	if u.base.IsZero() {
		u.base = now.Add(-2 * minute) // room for what is recovered
	}
	u.last = max(u.last, now.Sub(u.base))
	return u.last
}

// Admission is one admitted request. The zero value is one without limits, for which all methods do nothing. It belongs to
// one goroutine.
type Admission struct {
	k        *Key
	counted  time.Duration // when it was counted as a request; 0: it was not
	reserved time.Duration // when its tokens were; 0: they were not
	tokens   int64
}

// Admit counts a request against the limits of k: never more than RPM are admitted in any 60 s, and never more than
// Concurrent run at a time. Both are checked and counted as one step; a refused request counts for nothing. The error
// is of kind Limited. Keys of one name, such as a key and its successor in the overlap, share their counts.
// now must carry the monotonic clock, as time.Now gives it, so that setting the clock changes nothing.
func (s *Set) Admit(k *Key, now time.Time) (Admission, error) {
	if k.RPM <= 0 && k.Concurrent <= 0 && k.TPM <= 0 {
		return Admission{}, nil
	}
	u := k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	if k.Concurrent > 0 && u.running >= k.Concurrent {
		return Admission{}, limited(time.Second, "this key may run %d requests at a time: wait until one has ended", k.Concurrent)
	}
	a := Admission{k: k}
	if k.RPM > 0 {
		at := u.since(now)
		if after := u.requests.wait(1, int64(k.RPM), at); after > 0 {
			return Admission{}, limited(after, "this key may send %d requests per minute", k.RPM)
		}
		u.requests.add(1, at, false)
		a.counted = at
	}
	u.running++
	return a, nil
}

// Reserve counts the tokens that the request may use: never more than TPM are reserved in any 60 s. What is more than TPM
// alone counts as TPM, and so has a minute for itself. It is called once at most, before the request goes on. The error is of kind
// Limited; then the request counts for nothing, but runs until Release.
func (a *Admission) Reserve(tokens int64, now time.Time) error {
	if a.k == nil || a.k.TPM <= 0 || a.reserved != 0 {
		return nil
	}
	limit := min(a.k.TPM, maxTPM)
	n := min(max(tokens, 1), limit)
	u := a.k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.since(now)
	if after := u.tokens.wait(n, limit, at); after > 0 {
		a.withdraw()
		return limited(after, "this key may use %d tokens per minute, and this request may need %d: its prompt and the longest answer that it asks for", a.k.TPM, tokens)
	}
	u.tokens.add(n, at, true)
	a.reserved, a.tokens = at, n
	return nil
}

// Settle says how many tokens the request used in truth. What it needed less is free for others at once; what it needed
// more may stand over the limit. It is called once at most.
func (a *Admission) Settle(tokens int64) {
	if a.reserved == 0 {
		return
	}
	a.k.usage.mu.Lock()
	defer a.k.usage.mu.Unlock()
	a.settle(min(max(tokens, 0), most))
}

// Withdraw takes the request out of all counts of a minute: it was refused for a limit. It runs until Release.
func (a *Admission) Withdraw() {
	if a.k == nil {
		return
	}
	a.k.usage.mu.Lock()
	defer a.k.usage.mu.Unlock()
	a.withdraw()
}

// withdraw needs the lock, as settle does.
func (a *Admission) withdraw() {
	if a.counted != 0 {
		a.k.usage.requests.change(a.counted, -1)
		a.counted = 0
	}
	a.settle(0)
}

func (a *Admission) settle(tokens int64) {
	if a.reserved != 0 {
		a.k.usage.tokens.change(a.reserved, tokens-a.tokens)
		a.reserved = 0
	}
}

// Release ends the admission: call it once the request has ended. Calling it again does nothing.
func (a *Admission) Release() {
	if a.k == nil {
		return
	}
	u := a.k.usage
	u.mu.Lock()
	u.running--
	u.mu.Unlock()
	*a = Admission{}
}

// Standing is what a key has left of its limits per minute. A limit of 0 is none.
type Standing struct{ Requests, Tokens Left }

// Left is what is left of one limit, and how long it takes until all of it is there again.
type Left struct {
	Limit, Remaining int64
	Reset            time.Duration
}

// Standing returns what the key has left at now.
func (k *Key) Standing(now time.Time) Standing {
	var s Standing
	if k.RPM <= 0 && k.TPM <= 0 {
		return s
	}
	u := k.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.since(now)
	if k.RPM > 0 {
		s.Requests = u.requests.left(int64(k.RPM), at)
	}
	if k.TPM > 0 {
		s.Tokens = u.tokens.left(min(k.TPM, maxTPM), at)
	}
	return s
}

func (w *window) left(limit int64, now time.Duration) Left {
	reset := w.reset(now)
	return Left{Limit: limit, Remaining: max(0, limit-w.sum), Reset: reset}
}
