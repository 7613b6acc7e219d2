package probe

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// played is a target whose answers a test plays.
type played struct {
	Target
	checks atomic.Int64

	mu    sync.Mutex // guards the fields below
	begun []time.Time
	told  []Status
	part
}

// part is what a test changes.
type part struct {
	verdict Verdict
	took    time.Duration
	proved  time.Time
	rests   bool
}

func play(name string, as part) *played {
	p := &played{part: as}
	p.Target = Target{
		Name: name, Policy: often,
		Check: func(ctx context.Context) Result {
			p.checks.Add(1)
			p.mu.Lock()
			p.begun = append(p.begun, time.Now())
			v, took := p.verdict, p.took
			p.mu.Unlock()
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return Result{}
			}
			return Result{Verdict: v, Why: "as played"}
		},
		Proved: func() time.Time { return p.get().proved },
		Rests:  func() bool { return p.get().rests },
		Tell: func(s Status) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told = append(p.told, s)
		},
	}
	return p
}

func (p *played) get() part {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.part
}

func (p *played) set(as part) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.part = as
}

// all is what the target was told, once all is quiet.
func (p *played) all() []Status {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.told)
}

// last is what it was told last.
func (p *played) last() Status {
	all := p.all()
	return all[len(all)-1]
}

// times are when its probes began.
func (p *played) times() []time.Time {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.begun)
}

// begin lets a Prober run in a bubble until the test ends.
func begin(t *testing.T, targets ...*played) *Prober {
	p := New("seed")
	var list []*Target
	for _, one := range targets {
		list = append(list, &one.Target)
	}
	p.Set(list)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func TestEachIsProbedOnceInAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := play("a", part{verdict: Alive, took: 9 * time.Second})
		begin(t, a)
		time.Sleep(10*time.Minute + time.Millisecond)
		synctest.Wait()
		if n := a.checks.Load(); n < 20 || n > 21 {
			t.Errorf("%d probes in ten minutes, want one each 30 s", n)
		}
		begun := a.times()
		for i := 1; i < len(begun); i++ {
			if gap := begun[i].Sub(begun[i-1]); gap != often.Every {
				t.Errorf("gap %v, want %v from begin to begin", gap, often.Every)
			}
		}
	})
}

func TestFirstProbesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []*played
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			all = append(all, play(name, part{verdict: Alive}))
		}
		start := time.Now()
		begin(t, all...)
		time.Sleep(often.Every)
		synctest.Wait()
		seconds := map[time.Duration]int{}
		for _, p := range all {
			begun := p.times()
			if len(begun) != 1 {
				t.Fatalf("%s was probed %d times in the first period, want once", p.Name, len(begun))
			}
			seconds[begun[0].Sub(start).Round(time.Second)]++
		}
		if len(seconds) < 5 {
			t.Errorf("eight first probes fell on %d seconds of 30", len(seconds))
		}
		if New("one").offset(&all[0].Target) == New("other").offset(&all[0].Target) {
			t.Error("two processes probe in step")
		}
	})
}

func TestRealTrafficSparesProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := play("a", part{verdict: Alive})
		begin(t, a)
		for range 60 {
			a.set(part{verdict: Alive, proved: time.Now()})
			time.Sleep(10 * time.Second)
		}
		if n := a.checks.Load(); n != 0 {
			t.Errorf("%d probes although real traffic proved it all the time", n)
		}
		silent := a.get().proved
		a.set(part{verdict: Failed, took: often.Timeout, proved: silent})
		for a.last().State != Out {
			time.Sleep(time.Second)
		}
		if d, most := time.Since(silent), 2*often.Every+often.Timeout+time.Second; d > most {
			t.Errorf("out %v after the last success, want within %v", d, most)
		}
	})
}

// F39: success of real traffic outranks a failed probe, in the period before and meanwhile.
func TestF39RealTrafficOutranksAFailedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		as := part{verdict: Failed, took: 5 * time.Second}
		a := play("a", as)
		a.Fall = 1
		begin(t, a)
		seen := int64(0)
		for range 600 {
			time.Sleep(time.Second)
			if n := a.checks.Load(); n > seen {
				seen, as.proved = n, time.Now().Add(1) // while the probe is under way, and no oftener
				a.set(as)
			}
		}
		synctest.Wait()
		if a.checks.Load() == 0 {
			t.Error("no probe was made")
		}
		for _, s := range a.all() {
			if s.State != In {
				t.Fatal("taken out although each failed probe saw real traffic answered")
			}
		}
		time.Sleep(2*often.Every + 2*often.Timeout)
		if a.last().State != Out {
			t.Fatal("not out once traffic proved nothing any more")
		}
		as.proved = time.Now()
		a.set(as)
		back := func(s Status) bool { return s.State == In && s.Since.After(as.proved) }
		time.Sleep(2 * often.Every)
		if !slices.ContainsFunc(a.all(), back) {
			t.Error("a call that was answered after it went out does not bring it back")
		}
	})
}

// F64: failures of probes during which Weir itself did not get its turns take nothing out.
func TestF64OwnStarvationIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := play("a", part{verdict: Failed})
		var starved atomic.Bool
		starved.Store(true)
		p := New("")
		p.watch = func() func() bool { return starved.Load }
		p.Set([]*Target{&a.Target})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := a.last(); s.State != In || a.checks.Load() < 100 {
			t.Errorf("state %v after %d probes, want in", s.State, a.checks.Load())
		}
		starved.Store(false)
		time.Sleep(2*often.Every + time.Second)
		synctest.Wait()
		if s := a.last(); s.State != Out {
			t.Error("not out although Weir has all it needs")
		}
		starved.Store(true)
		a.set(part{verdict: Alive}) // an answer is an answer, however late it was read
		time.Sleep(often.Every * 2)
		synctest.Wait()
		if s := a.last(); s.State != In {
			t.Error("an answer during starvation does not count")
		}
		cancel()
		<-ended
	})
}

func TestWhatRestsIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := play("a", part{verdict: Failed, rests: true})
		begin(t, a)
		time.Sleep(time.Hour)
		if n := a.checks.Load(); n != 0 {
			t.Errorf("%d probes", n)
		}
		a.set(part{verdict: Failed})
		time.Sleep(2 * often.Every)
		if n := a.checks.Load(); n == 0 {
			t.Error("no probe within two periods of its rest")
		}
	})
}

func TestCountsOutliveNewTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next, other := play("a", part{verdict: Failed}), play("a", part{verdict: Failed}), play("b", part{verdict: Alive})
		p := begin(t, old)
		time.Sleep(often.Every) // one failure
		p.Set([]*Target{&next.Target, &other.Target})
		time.Sleep(often.Every)
		synctest.Wait()
		if s := next.last(); s.State != Out {
			t.Errorf("state %v, want out by one failure before and one after", s.State)
		}
		p.Set([]*Target{&other.Target})
		synctest.Wait()
		if s := next.last(); s.State != In || s.Why != "" {
			t.Errorf("what is not probed any more was told %+v, want in", s)
		}
		n := next.checks.Load()
		time.Sleep(time.Hour)
		if next.checks.Load() != n || other.checks.Load() == 0 {
			t.Error("the wrong target is probed")
		}
	})
}

// A probe that is under way when its target is dropped tells nothing more.
func TestADroppedTargetIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := play("a", part{verdict: Failed, took: 5 * time.Second})
		a.Fall = 1
		p := begin(t, a)
		for a.checks.Load() == 0 {
			time.Sleep(time.Second)
		}
		p.Set(nil)
		n := len(a.all())
		time.Sleep(time.Minute)
		if len(a.all()) != n || a.last().State != In {
			t.Errorf("told %d times after that, last %+v", len(a.all())-n, a.last())
		}
	})
}

func TestLag(t *testing.T) {
	begun := time.Now()
	ms := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Millisecond) }
	for name, c := range map[string]struct {
		looks []int
		end   int
		wall  time.Duration
		want  bool
	}{
		"a steady pace":                       {[]int{100, 200, 301, 399}, 450, 0, false},
		"a little late":                       {[]int{100, 400}, 500, 0, false},
		"late once":                           {[]int{100, 460, 500}, 600, 0, true},
		"late before the first look":          {[]int{500, 600}, 650, 0, true},
		"late, and no look since":             {[]int{100, 200}, 700, 0, true},
		"no look at all in a short probe":     {nil, 90, 0, false},
		"the machine slept meanwhile":         {[]int{100, 200}, 250, 8 * time.Hour, true},
		"the clock was set back":              {[]int{100, 200}, 250, -time.Hour, true},
		"the clock was slewed by a few steps": {[]int{100, 200}, 250, 20 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := lag{begun: begun, last: begun}
			for _, n := range c.looks {
				l.look(ms(n))
			}
			if got := l.late(ms(c.end), c.wall); got != c.want {
				t.Errorf("late %v, want %v", got, c.want)
			}
		})
	}
}

// The watch of the scheduler finds nothing where nothing is late, and leaves nothing behind.
func TestTheWatchIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := watchScheduler()
		time.Sleep(10 * time.Second)
		if late() {
			t.Error("late although every look came in time")
		}
	})
}

// C096: a fault in Weir's own code behind a probe ends the process at once and is seen; it does not leave a Weir that probes
// nothing any more.
func TestC096AFaultInACheckIsSeen(t *testing.T) {
	if os.Getenv("WEIR_TEST_FAULT") != "" {
		p := New("")
		p.Set([]*Target{{Name: "a", Policy: Policy{Every: time.Millisecond, Timeout: time.Millisecond, Fall: 1, Rise: 1}, Check: func(context.Context) Result { panic("a fault in a check") }, Tell: func(Status) {}}})
		p.Run(t.Context())
		return
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestC096AFaultInACheckIsSeen$", "-test.timeout=20s")
	c.Env = append(os.Environ(), "WEIR_TEST_FAULT=1")
	out, err := c.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() == 0 || !strings.Contains(string(out), "panic: a fault in a check") {
		t.Errorf("it ended with %v:\n%s", err, out)
	}
}
