package pool

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/llm/openai"
)

// handPool is a pool over the backends b0, b1 and so on, and what it told.
func handPool(t *testing.T, capacity, backends int) (p *Pool, told *[]string) {
	var mu sync.Mutex
	told = new([]string)
	o := Options{Name: "p", Tier: "gpu", Slots: NewSlots(capacity, 8), Rate: NewRate("gpu", 0), Emit: func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Name == event.Health {
			*told = append(*told, strings.TrimSpace(e.Reason+" "+e.To))
		}
	}}
	for i := range backends {
		b, err := backend.New(backend.Options{Name: fmt.Sprintf("b%d", i), URL: "http://127.0.0.1:9", Dialect: openai.Dialect{}, Connect: time.Second, IdleConn: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		o.Backends = append(o.Backends, b)
	}
	return New(o), told
}

func byKim(backend string, d time.Duration) HandOut {
	o := HandOut{Backend: backend, Since: time.Now(), Why: "a new power supply", Actor: "kim"}
	if d > 0 {
		o.Until = o.Since.Add(d)
	}
	return o
}

func TestOutByHand(t *testing.T) {
	type taken struct {
		backend string
		d       time.Duration // 0: without an end
	}
	for name, c := range map[string]struct {
		outs  []taken
		retry time.Duration // 0: it takes calls
		says  string
	}{
		"nothing":                              {nil, 0, ""},
		"the pool without an end":              {[]taken{{"", 0}}, time.Minute, "the pool was taken out by hand: a new power supply; until it is put back"},
		"the pool for an hour":                 {[]taken{{"", time.Hour}}, time.Hour, "; until 2000-01-01 01:00:00 UTC"},
		"one of two backends":                  {[]taken{{"b0", 0}}, 0, ""},
		"both backends, one for an hour":       {[]taken{{"b0", 0}, {"b1", time.Hour}}, time.Hour, "all backends of the pool were taken out by hand"},
		"both, the first of them for a minute": {[]taken{{"b0", time.Minute}, {"b1", time.Hour}}, time.Minute, ""},
		"a backend of another pool":            {[]taken{{"b0", 0}, {"b7", 0}}, 0, ""},
		"the pool, and more briefly a backend": {[]taken{{"", time.Hour}, {"b0", time.Minute}}, time.Hour, "the pool was"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, _ := handPool(t, 4, 2)
				for _, o := range c.outs {
					p.TakeOut(byKim(o.backend, o.d))
				}
				o, is := p.Outage("m", time.Now())
				if is != (c.retry > 0) {
					t.Fatalf("out %v: %+v", is, o)
				}
				if !is {
					if !call(t, p, nil) {
						t.Error("a pool with a backend left took no call")
					}
					return
				}
				if o.Reason != OutHand || o.Err.Kind != llm.None || o.Err.Code != OutHand || o.Err.RetryAfter != c.retry || !strings.Contains(o.Err.Msg, c.says) {
					t.Errorf("got %+v, %v; want none within %v that says %q", o, o.Err, c.retry, c.says)
				}
				// By force as well: it is out even if it is the last step.
				if _, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat, Force: true}); llm.AsError(err).Code != OutHand {
					t.Errorf("by force: %v", err)
				}
				if u := p.Slots.Usage(); u.Held != 0 {
					t.Errorf("a refused call holds a slot: %+v", u)
				}
			})
		})
	}
}

func TestABackendOutByHandIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := handPool(t, 100, 3)
		p.TakeOut(byKim("b1", time.Minute))
		var leases []Lease
		take := func(n int) map[string]int {
			got := map[string]int{}
			for range n {
				l, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat})
				if err != nil {
					t.Fatal(err)
				}
				leases = append(leases, l)
				got[l.Backend.Name]++
			}
			return got
		}
		if got := take(20); got["b1"] != 0 || got["b0"] != 10 || got["b2"] != 10 {
			t.Errorf("while b1 is out: %v", got)
		}
		time.Sleep(time.Minute)
		if got := take(10); got["b1"] != 10 {
			t.Errorf("after its time: %v, want all on the one that is free", got)
		}
		for i := range leases {
			leases[i].Done(nil)
		}
	})
}

// A backend that is out by hand is not tried, though its breaker would have it so; the other one, out by its breaker, is
// tried where it is the last step.
func TestABackendOutByHandGetsNoTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := handPool(t, 4, 2)
		for range 20 {
			call(t, p, failure(llm.Refused))
		}
		p.TakeOut(byKim("b0", 0))
		o, is := p.Outage("m", time.Now())
		if !is || o.Reason != OutTraffic {
			t.Fatalf("one by hand, one by its breaker: %+v, %v; want %s", o, is, OutTraffic)
		}
		for range 4 {
			l, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat, Force: true})
			if err != nil || l.Backend.Name != "b1" {
				t.Fatalf("by force: %v, %v; want b1", l.Backend, err)
			}
			l.Done(failure(llm.Refused))
		}
		time.Sleep(3 * time.Minute) // both may be tried by now
		if got := p.States(time.Now()); got[0].State != OutHand || got[1].State != StateTrial || got[1].Kind != "refused" || got[1].Since.IsZero() {
			t.Errorf("states %+v", got)
		}
		for range 3 {
			l, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat})
			if err != nil || l.Backend.Name != "b1" {
				t.Fatalf("the trial: %v, %v; want b1", l.Backend, err)
			}
			l.Done(nil)
		}
	})
}

func TestTheRestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := handPool(t, 4, 2)
		p.TakeOut(byKim("b0", 0))
		call(t, p, failure(llm.Denied))
		if o, is := p.Outage("m", time.Now()); !is || o.Reason != OutDenied || o.Err.RetryAfter > firstReturn {
			t.Errorf("got %+v, %v; want %s, back when its probe passes", o, is, OutDenied)
		}
	})
}

// Running calls go on; who waits is sent on at once; who comes later is refused.
func TestTakingOutDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told := handPool(t, 1, 1)
		held, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat})
		if err != nil {
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		begun := time.Now()
		go func() {
			_, err := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat, Wait: time.Minute})
			waited <- err
		}()
		synctest.Wait()
		p.TakeOut(byKim("", time.Hour))
		err = <-waited
		if e := llm.AsError(err); e.Kind != llm.None || e.Code != OutHand || time.Since(begun) != 0 {
			t.Errorf("who waits: %v after %v; want to be sent on at once", err, time.Since(begun))
		}
		held.Done(nil)
		if u := p.Slots.Usage(); u.Held != 0 || u.Waiting != 0 {
			t.Errorf("got %+v", u)
		}
		if !p.PutIn("", "kim") || p.PutIn("", "kim") {
			t.Error("put back: want once, and nothing to put back the second time")
		}
		if !call(t, p, nil) {
			t.Error("a pool that was put back takes no call")
		}
		if got := strings.Join(*told, ", "); got != "out, in" {
			t.Errorf("told %q", got)
		}
	})
}

func TestWhatIsOutEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, told := handPool(t, 1, 2)
		p.TakeOut(byKim("", time.Minute))
		p.TakeOut(byKim("b1", time.Hour))
		time.Sleep(time.Minute - 1)
		if got := p.Expire(time.Now()); got != nil || call(t, p, nil) {
			t.Errorf("before its end: ended %v", got)
		}
		time.Sleep(time.Nanosecond)
		if !call(t, p, nil) {
			t.Error("at its end, before it is noticed, it takes no call")
		}
		if got := p.Expire(time.Now()); len(got) != 1 || got[0].Backend != "" {
			t.Errorf("ended %+v, want the pool", got)
		}
		if got := p.Expire(time.Now()); got != nil {
			t.Errorf("ended twice: %+v", got)
		}
		if got := p.Hand.List(time.Now()); len(got) != 1 || got[0].Backend != "b1" {
			t.Errorf("still out: %+v", got)
		}
		if got := strings.Join(*told, ", "); got != "out, out b1, in" {
			t.Errorf("told %q", got)
		}
	})
}

// It outlives a change of configuration and a restart: the next pool has the same Hand, or one that was loaded.
func TestHandIsSharedAndLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := handPool(t, 1, 2)
		p.TakeOut(byKim("", time.Hour))
		time.Sleep(time.Minute)
		again := byKim("", 2*time.Hour)
		again.Why = "two of them"
		p.TakeOut(again)
		list := p.Hand.List(time.Now())
		if len(list) != 1 || list[0].Why != "two of them" || time.Since(list[0].Since) != time.Minute {
			t.Fatalf("taken out twice: %+v; want the new reason, out since the first time", list)
		}
		o := p.Options
		if _, is := New(o).Outage("m", time.Now()); !is {
			t.Error("the next pool of the same name takes calls")
		}
		o.Hand = &Hand{}
		next := New(o)
		next.Hand.Load(list)
		if _, is := next.Outage("m", time.Now()); !is {
			t.Error("after a restart it takes calls")
		}
		time.Sleep(2 * time.Hour)
		if _, is := next.Outage("m", time.Now()); is {
			t.Error("it is out beyond its time")
		}
	})
}

// Who was taken out is not asked whether it is back meanwhile; a passed probe would not put it back anyway.
func TestReturnProbesLeaveWhatIsOutByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := handPool(t, 4, 2)
		call(t, p, failure(llm.Gone))
		p.TakeOut(byKim("b0", 0))
		time.Sleep(firstReturn)
		due := p.Due(time.Now())
		if len(due) != 1 || due[0].Backend.Name != "b1" {
			t.Fatalf("due %+v; want the backend that is in", due)
		}
		p.TakeOut(byKim("", 0))
		time.Sleep(mostReturn)
		if due := p.Due(time.Now()); len(due) != 0 {
			t.Errorf("due %+v while the pool is out by hand", due)
		}
		p.Passed(p.Backends[0], "m")
		if o, is := p.Outage("m", time.Now()); !is || o.Reason != OutHand {
			t.Errorf("a passed probe put it back: %+v", o)
		}
	})
}

func TestTheLastWordOfTheVendorIsKept(t *testing.T) {
	p, _ := handPool(t, 1, 1)
	if h, said := p.Heard(); said {
		t.Errorf("heard %+v before anything was said", h)
	}
	for _, left := range []int64{60, 59} {
		p.Hear(backend.Rates{Requests: backend.Rate{Limit: 60, Remaining: left}})
	}
	if h, said := p.Heard(); !said || h.Requests.Remaining != 59 || h.Time.IsZero() {
		t.Errorf("heard %+v, %v", h, said)
	}
}

func TestRateOfOutput(t *testing.T) {
	r := NewRate("gpu", 0)
	if _, known := r.Output(); known {
		t.Error("known before it was measured")
	}
	r.LearnOutput(7, time.Second) // too short to say anything
	r.LearnOutput(100, 0)
	if _, known := r.Output(); known {
		t.Error("learnt from an answer that says nothing")
	}
	r.LearnOutput(100, 2*time.Second)
	if got, known := r.Output(); got != 50 || !known {
		t.Errorf("the first: %v, %v", got, known)
	}
	r.LearnOutput(100, time.Second)
	if got, _ := r.Output(); got != 56.25 {
		t.Errorf("the second moves it by an eighth: %v", got)
	}
	if got, measured := r.Value(); got != 400 || measured {
		t.Errorf("the prefill rate moved too: %v", got)
	}
}
