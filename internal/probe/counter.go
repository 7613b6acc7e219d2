package probe

import (
	"math/rand/v2"
	"time"
)

// Policy says when something is probed and how many verdicts change its state. All fields are positive.
type Policy struct {
	Every   time.Duration // between the begins of two probes
	Timeout time.Duration // of one probe; shorter than Every
	Fall    int           // failures in a row that take it out
	Rise    int           // successes in a row that bring it back
}

// Verdict is what one probe has shown.
type Verdict uint8

// The verdicts. Nothing says nothing about the server: there was no slot in time, no money, or Weir itself was starved.
const (
	Nothing Verdict = iota
	Alive
	Failed
	Warming // it says that it loads
	Cold    // the model is not loaded, and a probe would load it
)

// State is how a server stands by its probes.
type State uint8

// The states. What is In or IsCold takes calls; what is Out or IsWarming takes none.
const (
	In State = iota
	Out
	IsWarming
	IsCold
)

// Bounds of what is not asked at the usual pace.
const (
	mostBackoff = 5 * time.Minute
	mostWarming = 15 * time.Minute // who loads longer has failed
	jitter      = 0.2              // of a backoff, to both sides
)

// Counter makes states of verdicts. It is a plain value without a clock or lock of its own.
type Counter struct {
	Policy
	State State
	Since time.Time // of the state
	Next  time.Time // when the next probe is due

	fails, passes int // in a row
	step          int // of the backoff
}

// NewCounter returns the counter of something that is in until probes say otherwise, with its first probe due at first.
func NewCounter(p Policy, now, first time.Time) Counter {
	return Counter{Policy: p, Since: now, Next: first}
}

// Note takes the verdict of a probe that began at begun and has ended at now.
func (c *Counter) Note(begun, now time.Time, v Verdict) {
	if v == Warming && c.State == IsWarming && now.Sub(c.Since) > mostWarming {
		v = Failed
	}
	c.Next = begun.Add(c.Every)
	switch v {
	case Nothing:
		if c.State == Out {
			c.Next = now.Add(c.backoff())
		}
	case Alive:
		c.fails, c.step = 0, 0
		c.passes++
		if c.State == IsCold || c.State != In && c.passes >= c.Rise {
			c.turn(In, now)
		}
	case Failed:
		c.passes = 0
		c.fails++
		switch {
		case c.State == Out:
			c.Next = now.Add(c.backoff())
			c.step++
		case c.fails >= c.Fall:
			c.step = 0
			c.turn(Out, now)
			c.Next = now.Add(c.backoff())
			c.step++
		}
	case Warming:
		c.fails, c.passes, c.step = 0, 0, 0
		if c.State != Out { // what went out comes back by what it answers
			c.turn(IsWarming, now)
		}
	case Cold: // kept out it would never be asked for, so never load
		c.fails, c.passes, c.step = 0, 0, 0
		c.turn(IsCold, now)
	}
	if c.Next.Before(now) { // it took longer than a period
		c.Next = now
	}
}

// Proved notes that real traffic has shown at t that the server answers: that is as good as a probe that passed, and better
// than one that failed.
func (c *Counter) Proved(t, now time.Time) {
	c.Note(t, now, Alive)
}

// turn changes the state, if it is another one.
func (c *Counter) turn(s State, now time.Time) {
	if c.State != s {
		c.State, c.Since = s, now
	}
}

// backoff is the time to the next probe of what is out: it doubles, with jitter so that many that went out together do not
// come back in step.
func (c *Counter) backoff() time.Duration {
	most := max(mostBackoff, c.Every)
	d := min(c.Every<<min(c.step, 16), most)
	if d <= 0 {
		d = most
	}
	return d + time.Duration((rand.Float64()*2-1)*jitter*float64(d))
}
