package pool

import (
	"math/rand/v2"
	"sync"
	"time"
)

// The breaker's numbers: five failures in a row, or under half of the last ten, take a backend out; the penalty doubles
// with each return that fails and is forgotten once a return has held.
const (
	rowOfFailures = 5
	outcomes      = 10
	firstPenalty  = 5 * time.Second
	mostPenalty   = 120 * time.Second
	rampTime      = 10 * time.Second // of the slow start
)

// Breaker judges one backend of a pool by its live traffic. It is safe for concurrent use and outlives a change of
// configuration.
type Breaker struct {
	mu      sync.Mutex // guards the fields below
	row     int        // failures since the last success
	ring    [outcomes]bool
	n       int       // outcomes in ring, up to its size
	at      int       // where the next one goes
	open    bool      // out, until the trial has shown that it is well
	until   time.Time // when a trial may be made
	since   time.Time // when it went out
	trial   bool      // one is under way
	strikes int       // how often in a row it went out
	back    time.Time // when it came back: the slow start counts from here
	last    string    // the kind that took it out
}

// Stand is how a backend stands with its breaker.
type Stand uint8

// The stands: In takes calls; Trial takes exactly one, whose holder decides; Out takes none.
const (
	In Stand = iota
	Trial
	Out
)

// stand returns how things stand at now, and how long until that may change. It changes nothing.
func (b *Breaker) stand(now time.Time) (Stand, time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.open:
		return In, 0
	case now.Before(b.until):
		return Out, b.until.Sub(now)
	case b.trial:
		return Out, time.Second
	}
	return Trial, 0
}

// take claims the trial where one may be made. It reports whether this call is it.
func (b *Breaker) take(now time.Time) (trial bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open && !b.trial && !now.Before(b.until) {
		b.trial = true
		return true
	}
	return false
}

// room returns how many of most calls may run at now: fewer during the slow start.
func (b *Breaker) room(now time.Time, most int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	gone := now.Sub(b.back)
	if b.back.IsZero() || gone >= rampTime {
		return most
	}
	return max(1, int(int64(most)*int64(gone)/int64(rampTime)))
}

// verdict is what a call showed.
type verdict uint8

const (
	neutral verdict = iota // nothing about the backend: the client left, or was wrong
	good
	bad
)

// change is what a verdict did.
type change uint8

const (
	same change = iota
	ejected
	returned
)

// note takes the verdict of a call; trial says that it was the half-open one.
func (b *Breaker) note(now time.Time, v verdict, kind string, trial bool) change {
	b.mu.Lock()
	defer b.mu.Unlock()
	if trial {
		return b.judge(now, v, kind)
	}
	if v == neutral || b.open { // calls from before it went out say nothing new
		return same
	}
	b.ring[b.at] = v == good
	b.at = (b.at + 1) % outcomes
	b.n = min(b.n+1, outcomes)
	if v == good {
		b.row = 0
		if !b.back.IsZero() && now.Sub(b.back) >= rampTime {
			b.strikes, b.back = 0, time.Time{}
		}
		return same
	}
	b.row++
	if b.row >= rowOfFailures || b.n == outcomes && b.wins() < outcomes/2 {
		b.eject(now, kind)
		return ejected
	}
	return same
}

// judge ends the trial.
func (b *Breaker) judge(now time.Time, v verdict, kind string) change {
	b.trial = false
	switch v {
	case good:
		b.open, b.row, b.n, b.at = false, 0, 0, 0
		b.back = now
		return returned
	case bad:
		b.eject(now, kind)
	}
	return same // neutral: the next call is the trial
}

func (b *Breaker) wins() (n int) {
	for _, ok := range b.ring {
		if ok {
			n++
		}
	}
	return n
}

// eject takes the backend out for a penalty that grows, with a fifth of jitter so that returns do not come in step.
func (b *Breaker) eject(now time.Time, kind string) {
	d := firstPenalty << min(b.strikes, 10)
	d = min(d, mostPenalty)
	d += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(d))
	if !b.open {
		b.since = now
	}
	b.open, b.until, b.last = true, now.Add(d), kind
	b.strikes++
	b.row, b.n, b.at = 0, 0, 0
	b.back = time.Time{}
}
