package pool

import (
	"time"

	"weir/internal/llm"
)

// Numbers of the live cap and of guesses.
const (
	fallShare   = 0.7         // what a refusal for load leaves of the live cap
	fallEvery   = time.Second // at most
	meanShare   = 8           // a slot's time moves the mean by one part in so many
	leastLater  = time.Second
	mostLater   = time.Minute
	climbEvery  = 10 * time.Millisecond // a slow start lets in no oftener
	climbLowest = 1                     // a slow start begins with so many slots
)

// load is what the end of a call says of how many may run: a good one that one more may, a refusal for load that fewer.
func (l *Lease) load(err error) verdict {
	switch {
	case l.op == llm.Count:
		return neutral
	case err == nil:
		return good
	case llm.KindOf(err) == llm.Busy:
		return bad
	}
	return neutral
}

// rise lets a good end raise the live cap: by one when as many calls as may run have ended well.
func (s *Slots) rise() {
	if top := float64(s.cap); s.live < top {
		s.live = min(top, s.live+1/max(s.live, 1))
	}
}

// fall lets a refusal for load lower the live cap.
func (s *Slots) fall() {
	now := time.Now()
	if !s.cut.IsZero() && now.Sub(s.cut) < fallEvery {
		return // one overload is told of by all calls that run
	}
	s.cut = now
	s.live = min(float64(s.cap), max(1, float64(int(s.live*fallShare))))
}

// limit is how many calls may run now: what the live cap and a slow start both allow.
func (s *Slots) limit() int {
	most := int(s.live)
	if s.raise == nil {
		return most
	}
	gone := time.Since(s.ramp)
	if gone >= s.steep {
		return most
	}
	return min(most, max(climbLowest, int(int64(s.cap)*int64(gone)/int64(s.steep))))
}

// Ramp begins a slow start: from one slot to all of them within d. Who waits is let in as it goes on. Slots that are
// charged to another pool's have none of their own: that pool's rules.
func (s *Slots) Ramp(d time.Duration) {
	r := s.lock()
	defer r.mu.Unlock()
	if r != s {
		return
	}
	s.ramp, s.steep = time.Now(), d
	if s.raise == nil {
		s.raise = time.AfterFunc(s.pace(), s.climb)
	}
}

// pace is the time in which a slow start gains one slot.
func (s *Slots) pace() time.Duration {
	return max(s.steep/time.Duration(max(s.cap, 1)), climbEvery)
}

func (s *Slots) climb() {
	r := s.lock()
	defer r.mu.Unlock()
	if time.Since(s.ramp) >= s.steep {
		s.raise = nil
	} else {
		s.raise.Reset(s.pace())
	}
	r.grant()
}

// measure takes the time that a slot was held.
func (s *Slots) measure(held time.Duration) {
	switch {
	case held <= 0:
	case s.mean == 0:
		s.mean = held
	default:
		s.mean += (held - s.mean) / meanShare
	}
}

// guess returns how long the wait at a place will be, zero while nothing is known.
func (s *Slots) guess(place int) time.Duration {
	return time.Duration(place) * s.mean / time.Duration(max(s.limit(), 1))
}

// later returns when one who was refused may come again: as long as the wait at the last place, within bounds.
func (s *Slots) later() time.Duration {
	return min(max(s.guess(max(s.queue.n, 1)), leastLater), mostLater)
}
