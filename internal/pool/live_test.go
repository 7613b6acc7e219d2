package pool

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/llm"
)

func TestTheLiveCapFollowsRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		cap   int
		steps string // b: busy, B: busy after a second, g: a good end, o: another end, 0–9: the cap becomes that
		want  int
	}{
		"nothing said":                         {10, "", 10},
		"one refusal":                          {10, "b", 7},
		"all calls tell of one overload":       {10, "bbbbbbbb", 7},
		"again a second later":                 {10, "bB", 4},
		"never below one":                      {10, "bBBBBBBBBBBB", 1},
		"a cap of one stays":                   {1, "bBB", 1},
		"good ends never raise it over":        {5, "gggggggggggg", 5},
		"as many good ends as may run: 1 more": {5, "bggg", 3},
		"and one more":                         {5, "bgggg", 4},
		"up to the cap and no further":         {5, "bggggggggggggggggggggggggggg", 5},
		"other ends say nothing":               {5, "booooooooooooooooo", 3},
		"a lower cap lowers it":                {9, "b4", 4},
		"a higher cap waits for good ends":     {5, "b9", 3},
		"and reaches it by them":               {5, "b9gggg", 4},
		"a raised cap holds at once":           {5, "9", 9},
		"lower, then higher: the newest":       {5, "28", 8},
		"no cap, then one":                     {5, "03", 3},
		"a refusal without a cap":              {5, "0b3", 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(100, 1)
				p.Slots.Resize(c.cap, 0)
				for _, s := range c.steps {
					l := Lease{Backend: p.Backends[0], pool: p, member: &p.members[0], begun: time.Now()}
					p.members[0].held.Add(1)
					p.Slots.own++
					p.Slots.held++
					switch s {
					case 'B':
						time.Sleep(time.Second)
						fallthrough
					case 'b':
						l.Done(failure(llm.Busy))
					case 'g':
						l.Done(nil)
					case 'o':
						l.Done(failure(llm.Slow))
					default:
						l.Done(failure(llm.Canceled))
						p.Slots.Resize(int(s-'0'), 0)
					}
				}
				if u := p.Slots.Usage(); u.Live != c.want || u.Held != 0 {
					t.Errorf("got %+v, want %d live", u, c.want)
				}
			})
		})
	}
}

func TestCountersSayNothingOfTheLoad(t *testing.T) {
	p := newPool(8, 1)
	for range 3 {
		l, err := p.Acquire(t.Context(), Need{Op: llm.Count})
		if err != nil {
			t.Fatal(err)
		}
		l.Done(failure(llm.Busy))
	}
	if u := p.Slots.Usage(); u.Live != 8 {
		t.Errorf("got %+v", u)
	}
}

// An upstream takes fewer than the cap: what runs settles about what it takes, nobody who runs is stopped, and when it
// takes all again all run.
func TestTheLiveCapFindsWhatTheUpstreamTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, 20, 100, 1, nil)
		takes := int64(6)
		var running, refused atomic.Int64
		load := func() {
			for range 40 {
				go func() {
					l, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat})
					if err != nil {
						t.Error(err)
						return
					}
					var end error
					took := 200 * time.Millisecond
					if running.Add(1) > takes {
						refused.Add(1)
						end, took = failure(llm.Busy), 10*time.Millisecond
					}
					time.Sleep(took)
					running.Add(-1)
					l.Done(end)
				}()
			}
		}
		for range 30 {
			load()
			time.Sleep(2 * time.Second)
		}
		if live := p.Slots.Usage().Live; live < 3 || live > 9 {
			t.Errorf("%d may run where the upstream takes 6", live)
		}
		takes = 20
		refused.Store(0)
		for range 30 {
			load()
			time.Sleep(2 * time.Second)
		}
		if u := p.Slots.Usage(); u.Live != 20 || refused.Load() > 40 {
			t.Errorf("%d may run, %d were refused, where the upstream takes all 20 again", u.Live, refused.Load())
		}
	})
}

func TestSlowStartAndLiveCapBothHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(10, 100)
		s.Ramp(10 * time.Second)
		if got := s.Usage().Live; got != 1 {
			t.Errorf("at first %d may run, want 1", got)
		}
		s.own, s.held = 1, 1
		s.release(0, bad) // 7
		time.Sleep(4 * time.Second)
		if got := s.Usage().Live; got != 4 {
			t.Errorf("after 4 s %d may run, want 4", got)
		}
		time.Sleep(5 * time.Second)
		if got := s.Usage().Live; got != 7 {
			t.Errorf("after 9 s %d may run, want 7", got)
		}
		time.Sleep(time.Minute)
		if got := s.Usage().Live; got != 7 || s.raise != nil {
			t.Errorf("%d may run, want 7", got)
		}
	})
}

// Goodput does not fall under overload: what runs is always as much as may.
func TestF52GoodputAtTenTimes(t *testing.T) {
	for _, times := range []int{1, 2, 5, 10} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(4, 1)
				p.Slots.Resize(4, 16)
				var served atomic.Int64
				for i := range 60 * 4 * times { // a minute of calls of a second
					go func() {
						l, err := p.Acquire(t.Context(), Need{Priority: i % 2, Wait: 3 * time.Second})
						if err == nil {
							time.Sleep(time.Second)
							served.Add(1)
							l.Done(nil)
						}
					}()
					time.Sleep(time.Second / time.Duration(4*times))
				}
				at := served.Load()
				time.Sleep(time.Minute)
				if at < 60*4*9/10 {
					t.Errorf("%d served in a minute at %d times the load, want at least 216", at, times)
				}
			})
		})
	}
}

func TestGuesses(t *testing.T) {
	s := NewSlots(4, 100)
	if got := s.guess(9); got != 0 {
		t.Errorf("nothing is known, but the guess is %v", got)
	}
	if got := s.later(); got != leastLater {
		t.Errorf("got %v", got)
	}
	s.measure(0)
	s.measure(8 * time.Second)
	if got := s.guess(3); got != 6*time.Second {
		t.Errorf("got %v, want 6s", got)
	}
	s.measure(16 * time.Second)
	if got := s.guess(4); got != 9*time.Second {
		t.Errorf("got %v, want 9s", got)
	}
	s.live = 1
	if got := s.guess(4); got != 36*time.Second {
		t.Errorf("with a live cap of one: got %v, want 36s", got)
	}
	s.measure(time.Hour)
	if got := s.later(); got != mostLater {
		t.Errorf("got %v", got)
	}
}
