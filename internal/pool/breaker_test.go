package pool

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/backend"
	"weir/internal/event"
	"weir/internal/llm"
	"weir/internal/llm/openai"
)

func testPool(t *testing.T, capacity, size, backends int, emit func(event.Event)) *Pool {
	o := Options{Name: "p", Tier: "gpu", Slots: NewSlots(capacity, size), Rate: NewRate("gpu", 0), Emit: emit}
	for range backends {
		b, err := backend.New(backend.Options{Name: "b", URL: "http://127.0.0.1:9", Dialect: openai.Dialect{}, Connect: time.Second, IdleConn: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		o.Backends = append(o.Backends, b)
	}
	return New(o)
}

func failure(kind llm.Kind) error { return &llm.Error{Kind: kind, Msg: "x"} }

// call makes one call that ends with err. It reports whether it was let in.
func call(t *testing.T, p *Pool, err error) bool {
	t.Helper()
	if _, out := p.Outage("m", time.Now()); out {
		return false
	}
	l, aerr := p.Acquire(t.Context(), Need{Model: "m", Op: llm.Chat, Wait: time.Second})
	if aerr != nil {
		return false
	}
	l.Done(err)
	return true
}

func TestTheBreakerOpensAndTriesAgain(t *testing.T) {
	for name, c := range map[string]struct {
		ends []llm.Kind // zero: good
		out  bool
	}{
		"five failures in a row":                    {[]llm.Kind{llm.Refused, llm.Slow, llm.Stalled, llm.Unavailable, llm.Refused}, true},
		"four in a row":                             {[]llm.Kind{llm.Refused, llm.Slow, llm.Stalled, llm.Unavailable}, false},
		"under half of ten":                         {[]llm.Kind{0, llm.Slow, llm.Slow, 0, llm.Slow, llm.Slow, 0, 0, llm.Slow, llm.Slow}, true},
		"half of ten":                               {[]llm.Kind{0, llm.Slow, 0, llm.Slow, 0, llm.Slow, 0, llm.Slow, 0, llm.Slow}, false},
		"what is not the backend's fault":           {[]llm.Kind{llm.Invalid, llm.TooLong, llm.Canceled, llm.Busy, llm.Full, llm.Stale, llm.Rejected, llm.Invalid, llm.Busy}, false},
		"failures with the client's faults between": {[]llm.Kind{llm.Slow, llm.Invalid, llm.Slow, llm.Canceled, llm.Slow, llm.Slow, llm.Invalid, llm.Slow}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := testPool(t, 4, 4, 1, nil)
				for _, k := range c.ends {
					var err error
					if k != 0 {
						err = failure(k)
					}
					if !call(t, p, err) {
						t.Fatal("out before the end")
					}
				}
				o, out := p.Outage("m", time.Now())
				if out != c.out || out && (o.Reason != OutTraffic || o.Err.RetryAfter < 4*time.Second || o.Err.RetryAfter > 6*time.Second) {
					t.Errorf("out %v, %+v; want %v within 5 s ± a fifth", out, o, c.out)
				}
			})
		})
	}
}

func TestThePenaltyGrowsAndOneTrialDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		p := testPool(t, 4, 4, 1, func(e event.Event) { told = append(told, e.Reason) })
		for range 5 {
			call(t, p, failure(llm.Slow))
		}
		want := firstPenalty
		for range 7 {
			o, _ := p.Outage("m", time.Now())
			if d := o.Err.RetryAfter; d < want*8/10 || d > want*12/10 {
				t.Fatalf("a penalty of %v, want %v ± a fifth", d, want)
			}
			time.Sleep(o.Err.RetryAfter)
			trial, err := p.Acquire(t.Context(), Need{Model: "m"})
			if err != nil || !trial.trial {
				t.Fatalf("the trial: %v, %v", trial.trial, err)
			}
			if _, err := p.Acquire(t.Context(), Need{Model: "m"}); err == nil {
				t.Fatal("a second call is let in while the trial is under way")
			}
			trial.Done(failure(llm.Slow))
			want = min(2*want, mostPenalty)
		}
		o, _ := p.Outage("m", time.Now())
		time.Sleep(o.Err.RetryAfter)
		if !call(t, p, failure(llm.Canceled)) {
			t.Error("no trial")
		}
		if !call(t, p, failure(llm.Busy)) {
			t.Error("a trial that said nothing does not leave room for the next one")
		}
		if call(t, p, nil) {
			t.Error("a trial that was refused brings the backend back")
		}
		o, _ = p.Outage("m", time.Now())
		time.Sleep(o.Err.RetryAfter)
		for range 2 {
			if !call(t, p, nil) {
				t.Error("a good trial does not bring the backend back")
			}
		}
		if len(told) != 2 || told[0] != "ejected" || told[1] != "returned" {
			t.Errorf("told %v, want ejected and returned", told)
		}
	})
}

func TestASlowStartAfterTheReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, 20, 1000, 1, nil)
		for range 5 {
			call(t, p, failure(llm.Slow))
		}
		time.Sleep(6 * time.Second)
		if !call(t, p, nil) {
			t.Fatal("no trial")
		}
		// 200 who wait: they are let in little by little, and nobody is refused (F45).
		var mu sync.Mutex // guards the two
		var most, now int
		done := make(chan struct{})
		begun := time.Now()
		for range 200 {
			go func() {
				defer func() { done <- struct{}{} }()
				l, err := p.Acquire(t.Context(), Need{Model: "m"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if now++; time.Since(begun) < time.Second {
					most = max(most, now)
				}
				mu.Unlock()
				time.Sleep(500 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
				l.Done(nil)
			}()
			synctest.Wait()
		}
		for range 200 {
			<-done
		}
		if most > 2 {
			t.Errorf("%d at a time in the first second of the slow start, want at most 2 of 20", most)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("the slow start held the work up for %v", took)
		}
	})
}

func TestARefusalThatNamesATimeIsKeptTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			kind        llm.Kind
			asked, want time.Duration
		}{
			{llm.Busy, 30 * time.Second, 30 * time.Second},
			{llm.Unavailable, 5 * time.Second, 5 * time.Second},
			{llm.Busy, 2 * time.Second, 0}, // waited out by a retry
			{llm.Busy, time.Hour, time.Minute},
			{llm.Loading, 0, 2 * time.Second},
			{llm.Loading, 10 * time.Second, 10 * time.Second},
		} {
			p := testPool(t, 4, 4, 1, nil)
			call(t, p, &llm.Error{Kind: c.kind, RetryAfter: c.asked})
			o, out := p.Outage("m", time.Now())
			if out != (c.want > 0) || out && (o.Err.Kind != c.kind || o.Err.RetryAfter != c.want || o.Reason != OutPaused) {
				t.Errorf("%v, %v: got %+v, %v", c.kind, c.asked, o, out)
			}
			time.Sleep(c.want)
			if _, out := p.Outage("m", time.Now()); out {
				t.Errorf("%v, %v: still out after the pause", c.kind, c.asked)
			}
		}
	})
}

func TestGoneAndDeniedStandUntilAProbePasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		emit := func(e event.Event) { told = append(told, string(e.Name)+" "+e.Reason) }
		p := testPool(t, 4, 4, 2, emit)
		l, err := p.Acquire(t.Context(), Need{Model: "a", Op: llm.Embeddings})
		if err != nil {
			t.Fatal(err)
		}
		l.Done(failure(llm.Gone))
		if o, out := p.Outage("a", time.Now()); !out || o.Reason != OutGone {
			t.Errorf("the model that is gone: %+v, %v", o, out)
		}
		if _, out := p.Outage("b", time.Now()); out {
			t.Error("another model of the pool is out with it")
		}
		call(t, p, failure(llm.Denied))
		if _, out := p.Outage("m", time.Now()); out {
			t.Error("the pool is out although one account is good")
		}
		call(t, p, failure(llm.Denied))
		if o, out := p.Outage("m", time.Now()); !out || o.Reason != OutDenied {
			t.Errorf("both accounts refused: %+v, %v", o, out)
		}
		if _, err := p.Acquire(t.Context(), Need{Model: "m", Force: true}); llm.KindOf(err) != llm.Denied {
			t.Errorf("by force: %v, want denied: force is for live traffic alone", err)
		}
		if list := p.Due(time.Now()); len(list) != 0 {
			t.Errorf("probes due at once: %v", list)
		}
		time.Sleep(firstReturn)
		list := p.Due(time.Now())
		if len(list) != 3 || list[2].Model != "a" || list[2].Op != llm.Embeddings {
			t.Fatalf("probes due: %+v", list)
		}
		if again := p.Due(time.Now()); len(again) != 0 {
			t.Errorf("the same probes are due again at once: %v", again)
		}
		for _, pr := range list {
			p.Passed(pr.Backend, pr.Model)
		}
		for _, m := range []string{"a", "m"} {
			if o, out := p.Outage(m, time.Now()); out {
				t.Errorf("%s is out after the probes: %+v", m, o)
			}
		}
		if len(told) != 6 {
			t.Errorf("told %q, want an alert for each and each resolved", told)
		}
	})
}

func TestRetriesKeepToTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &Health{}
		for range budgetFloor {
			if !h.Retry(time.Now()) {
				t.Fatal("the floor is not there")
			}
			h.called(time.Now()) // a retry takes a slot as every call does
		}
		if h.Retry(time.Now()) {
			t.Error("over the floor without traffic")
		}
		for range 100 {
			h.called(time.Now())
		}
		got := budgetFloor
		for h.Retry(time.Now()) {
			got++
			h.called(time.Now())
		}
		if got != 10 {
			t.Errorf("%d retries for 100 calls, want 10", got)
		}
		time.Sleep(3 * budgetWindow)
		if h.Retry(time.Now()) {
			t.Error("calls of long ago still count")
		}
		for range 10 {
			h.Retried()
		}
		if !h.Retry(time.Now()) {
			t.Error("the floor did not come back")
		}
	})
}

func TestAPoolPrefersTheMemberThatIsWell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testPool(t, 8, 8, 2, nil)
		bad := p.members[0].backend
		for range 200 {
			l, err := p.Acquire(context.Background(), Need{Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			if l.member.backend == bad {
				l.Done(failure(llm.Slow))
			} else {
				l.Done(nil)
			}
		}
		if stand, _ := p.members[0].stand(time.Now()); stand == In {
			t.Error("the failing member is in")
		}
		if _, out := p.Outage("m", time.Now()); out {
			t.Error("the pool is out although a member is well")
		}
	})
}
