package probe

import (
	"sync"
	"time"
)

// watchEvery is how often it is looked, while a probe runs, whether this process gets its turns.
const watchEvery = 100 * time.Millisecond

// lag is how late looks were that should have come at a steady pace.
type lag struct {
	begun time.Time
	last  time.Time
	most  time.Duration
}

// look takes the time of one look.
func (l *lag) look(now time.Time) {
	l.most = max(l.most, now.Sub(l.last)-watchEvery)
	l.last = now
}

// late reports that looks came late, or that the wall went on without this process, by slept: the machine was suspended, or
// somebody set the clock, which cannot be told apart.
func (l *lag) late(now time.Time, slept time.Duration) bool {
	l.look(now)
	return l.most > mostLag || slept.Abs() > time.Second
}

// slept returns how much more of the wall's time than of its own has passed for the process.
func (l *lag) slept(now time.Time) time.Duration {
	return now.Round(0).Sub(l.begun.Round(0)) - now.Sub(l.begun)
}

// watchScheduler begins to look; late ends that and tells.
func watchScheduler() (late func() bool) {
	now := time.Now()
	l := lag{begun: now, last: now}
	done := make(chan struct{})
	var looks sync.WaitGroup
	looks.Go(func() {
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				l.look(time.Now())
			}
		}
	})
	return func() bool {
		close(done)
		looks.Wait()
		now := time.Now()
		return l.late(now, l.slept(now))
	}
}
