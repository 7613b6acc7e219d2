package key

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"weir/internal/store"
)

// once admits and reserves; it releases where the tokens are refused, as a request that ends.
func once(s *Set, k *Key, tokens int64, now time.Time) (Admission, error) {
	a, err := s.Admit(k, now)
	if err == nil {
		if err = a.Reserve(tokens, now); err != nil {
			a.Release()
		}
	}
	return a, err
}

func retryAfter(t *testing.T, err error) time.Duration {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != Limited {
		t.Fatalf("got %v, want limited", err)
	}
	return e.RetryAfter
}

func TestTokensPerMinuteAreExact(t *testing.T) { // S43, F62
	synctest.Test(t, func(t *testing.T) {
		s, k := &Set{}, &Key{Name: "a", TPM: 100, usage: &usage{}}
		ask := func(n int64) (Admission, error) { return once(s, k, n, time.Now()) }
		for _, n := range []int64{40, 60} { // exactly the limit passes
			if _, err := ask(n); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		_, err := ask(1) // at 20 s
		if d := retryAfter(t, err); d != 40*time.Second {
			t.Errorf("one more: retry after %v, want 40s", d)
		}
		_, err = ask(41)
		if d := retryAfter(t, err); d != 50*time.Second {
			t.Errorf("41 more need both to leave: retry after %v, want 50s", d)
		}
		time.Sleep(40*time.Second - 1)
		if _, err := ask(1); err == nil {
			t.Error("a moment too early it passes")
		}
		time.Sleep(time.Nanosecond)
		if _, err := ask(41); err == nil {
			t.Error("40 have left, 41 pass")
		}
		if _, err := ask(40); err != nil {
			t.Errorf("40 have left: %v", err)
		}
	})
}

// A request that alone needs more than the limit has a minute for itself.
func TestALargeRequestWaitsForAnEmptyWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := &Set{}, &Key{Name: "a", TPM: 100, usage: &usage{}}
		small, err := once(s, k, 1, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := once(s, k, 5000, time.Now()); retryAfter(t, err) != time.Minute {
			t.Errorf("beside another: %v", err)
		}
		small.Settle(0)
		large, err := once(s, k, 5000, time.Now())
		if err != nil {
			t.Fatalf("in an empty window: %v", err)
		}
		if _, err := once(s, k, 1, time.Now()); err == nil {
			t.Error("beside it another passes")
		}
		large.Settle(5000) // it stands over the limit
		if got, want := k.Standing(time.Now()).Tokens, (Left{100, 0, time.Minute}); got != want {
			t.Errorf("standing %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		if got, want := k.Standing(time.Now()).Tokens, (Left{Limit: 100, Remaining: 100}); got != want {
			t.Errorf("a minute later %+v, want %+v", got, want)
		}
	})
}

// C102: five at once that will use 60 of 100 each.
func TestC102TokensAreReservedInOneStep(t *testing.T) {
	for range 100 {
		s, k := &Set{}, &Key{Name: "a", TPM: 100, RPM: 5, usage: &usage{}}
		var passed atomic.Int64
		atOnce(5, func() {
			if a, err := once(s, k, 60, time.Now()); err == nil {
				passed.Add(1)
				a.Settle(60)
				a.Release()
			}
		})
		if n := passed.Load(); n != 1 {
			t.Fatalf("%d passed, want 1", n)
		}
		if l := k.Standing(time.Now()).Requests; l.Remaining != 4 {
			t.Fatalf("refused requests count: %+v", l)
		}
	}
}

// atOnce runs f n times, as much at the same time as can be.
func atOnce(n int, f func()) {
	var all sync.WaitGroup
	gate := make(chan struct{})
	for range n {
		all.Go(func() { <-gate; f() })
	}
	close(gate)
	all.Wait()
}

// F62: a hundred at once where one unit is left: exactly one passes. C102: of a hundred at once, exactly the limit.
func TestF62OneUnitLeft(t *testing.T) {
	for name, c := range map[string]struct {
		key    Key
		before int
		tokens int64
		want   int64
	}{
		"requests":           {Key{RPM: 5}, 4, 1, 1},
		"all requests":       {Key{RPM: 5}, 0, 1, 5},
		"tokens":             {Key{TPM: 100}, 9, 10, 1},
		"at a time":          {Key{Concurrent: 5}, 4, 1, 1},
		"all three":          {Key{RPM: 10, TPM: 100, Concurrent: 10}, 9, 10, 1},
		"tokens, not enough": {Key{TPM: 99}, 9, 10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, k := &Set{}, &c.key
			k.usage = &usage{}
			now := time.Now()
			for range c.before {
				if _, err := once(s, k, c.tokens, now); err != nil {
					t.Fatal(err)
				}
			}
			var passed atomic.Int64
			atOnce(100, func() {
				if _, err := once(s, k, c.tokens, time.Now()); err == nil {
					passed.Add(1)
				}
			})
			if n := passed.Load(); n != c.want {
				t.Errorf("%d passed, want %d", n, c.want)
			}
		})
	}
}

// TestHistoriesOfTokens compares the limits with a list of all that was admitted: whatever ends in whatever order, no more
// than the limits pass, and no less.
func TestHistoriesOfTokens(t *testing.T) {
	type running struct {
		a  Admission
		at time.Time
	}
	rapid.Check(t, func(rt *rapid.T) {
		s, k := &Set{}, &Key{Name: "a", usage: &usage{}}
		k.TPM, k.RPM = rapid.Int64Range(1, 300).Draw(rt, "tpm"), rapid.IntRange(0, 20).Draw(rt, "rpm")
		now := time.Unix(1_790_000_000, 0)
		var live []*running
		used := map[*running]int64{}
		requests := map[*running]bool{}
		inside := func() (sum int64, n int) {
			for r, u := range used {
				if now.Sub(r.at) < minute {
					sum += u
				}
			}
			for r := range requests {
				if now.Sub(r.at) < minute {
					n++
				}
			}
			return sum, n
		}
		take := func(rt *rapid.T) *running {
			if len(live) == 0 {
				rt.Skip()
			}
			i := rapid.IntRange(0, len(live)-1).Draw(rt, "which")
			r := live[i]
			live = append(live[:i], live[i+1:]...)
			return r
		}
		rt.Repeat(map[string]func(*rapid.T){
			"ask": func(rt *rapid.T) {
				n := rapid.Int64Range(-1, 400).Draw(rt, "tokens")
				a, err := once(s, k, n, now)
				sum, count := inside()
				n = min(max(n, 1), k.TPM)
				if want := sum+n <= k.TPM && (k.RPM == 0 || count < k.RPM); want != (err == nil) {
					rt.Fatalf("%d tokens beside %d of %d, %d of %d requests: %v", n, sum, k.TPM, count, k.RPM, err)
				}
				if err == nil {
					r := &running{a, now}
					live = append(live, r)
					used[r], requests[r] = n, k.RPM > 0
					if k.RPM == 0 {
						delete(requests, r)
					}
				}
			},
			"settle": func(rt *rapid.T) {
				r := take(rt)
				u := rapid.Int64Range(-1, 500).Draw(rt, "used")
				r.a.Settle(u)
				r.a.Release()
				used[r] = max(u, 0)
			},
			"end without a word": func(rt *rapid.T) { r := take(rt); r.a.Release() },
			"withdraw": func(rt *rapid.T) {
				r := take(rt)
				r.a.Withdraw()
				r.a.Release()
				delete(used, r)
				delete(requests, r)
			},
			"wait": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 30_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"reload": func(rt *rapid.T) { // which may change the limits, and keeps the counts
				next := *k
				next.TPM, k = rapid.Int64Range(1, 300).Draw(rt, "tpm"), &next
			},
			"": func(rt *rapid.T) {
				sum, n := inside()
				l := k.Standing(now)
				if l.Tokens.Remaining != max(0, k.TPM-sum) || k.RPM > 0 && l.Requests.Remaining != int64(max(0, k.RPM-n)) || k.usage.running != len(live) {
					rt.Fatalf("standing %+v, %d running; want %d tokens and %d requests used, %d running", l, k.usage.running, sum, n, len(live))
				}
			},
		})
	})
}

// A restart opens no window: what the last minute's requests used is counted again.
func TestLimitsSurviveARestart(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	now := time.Now()
	row := func(ago time.Duration, key, kind string, in, out int64) store.Request {
		return store.Request{Time: now.Add(-ago), Request: "r", Op: "chat", Key: key, Kind: kind, TokensIn: in, TokensOut: out, First: -1, TokensCached: -1,
			TokensReasoning: -1, TokensWritten: -1, Cost: -1, TokensEst: 7, MaxTokens: 20, Attempts: `[{"sent":true}]`}
	}
	unsent := row(5*time.Second, "a", "none", -1, -1)
	unsent.Attempts = `[{"sent":false}]`
	first := openStore(t, dir)
	tokens := map[string]string{
		"a": add(t, first, Spec{Name: "a", RPM: 10, TPM: 1000, SpendDay: 5, SpendMonth: 7}), "b": add(t, first, Spec{Name: "b", Concurrent: 3}),
		"c": add(t, first, Spec{Name: "c", TPM: 100}),
	}
	err := first.WriteRequests(ctx, []store.Request{
		row(61*time.Second, "a", "", 500, 500),               // has left
		row(59*time.Second, "a", "", 100, 50),                // 150
		row(40*time.Second, "a", "canceled", -1, -1),         // 27, the estimate
		row(30*time.Second, "a", "limited", 1000, 1000),      // refused
		row(30*time.Second, "a", "unauthorized", 1000, 1000), // refused
		row(20*time.Second, "a", "refused", -1, -1),          // no answer: no tokens
		unsent,
		row(-time.Hour, "a", "", 3, 4), // the clock was set back: now
		row(time.Second, "b", "", 100, 50), row(time.Second, "", "", 100, 50), row(10*time.Second, "c", "", 100, 50), row(time.Second, "gone", "", 1, 1),
	})
	if err == nil {
		err = first.Close()
	}
	if err != nil {
		t.Fatal(err)
	}

	s, err := NewSet(ctx, openStore(t, dir), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Recover(ctx, now); err != nil {
		t.Fatal(err)
	}
	find := func(name string) *Key {
		k, err := s.Verify(tokens[name], now)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	want := Standing{Requests: Left{10, 5, minute}, Tokens: Left{1000, 1000 - 150 - 27 - 7, minute}}
	if d := cmp.Diff(want, find("a").Standing(now)); d != "" {
		t.Errorf("after the restart (-want +got):\n%s", d)
	}
	later := now.Add(time.Second + time.Millisecond) // the row of 59 s ago has left
	want = Standing{Requests: Left{10, 6, minute - 1001*time.Millisecond}, Tokens: Left{1000, 1000 - 27 - 7, minute - 1001*time.Millisecond}}
	if d := cmp.Diff(want, find("a").Standing(later)); d != "" {
		t.Errorf("a second later (-want +got):\n%s", d)
	}
	if a := find("a"); a.SpendDay != 5 || a.SpendMonth != 7 {
		t.Errorf("ceilings %d, %d", a.SpendDay, a.SpendMonth)
	}
	if d := cmp.Diff(Standing{}, find("b").Standing(now)); d != "" {
		t.Error(d)
	}
	if _, err := once(s, find("c"), 1, now); retryAfter(t, err).Round(time.Millisecond) != 50*time.Second {
		t.Errorf("a window that is full: %v", err)
	}
}

func TestRecoverTellsOfAStoreThatIsGone(t *testing.T) {
	s, st, token := fixture(t, Spec{Name: "a", TPM: 10})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Recover(ctx, time.Now()); err == nil {
		t.Error("no error")
	}
	st.Close()
	k, err := s.Verify(token, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := once(s, k, 10, time.Now()); err != nil {
		t.Errorf("its key is refused: %v", err)
	}
}

// Keys without limits cost nothing, and what has them does not allocate for each request.
func TestLimitsDoNotAllocate(t *testing.T) {
	for name, k := range map[string]*Key{"none": {}, "all": {RPM: 10, TPM: 100_000, Concurrent: 5}} {
		s, now := &Set{}, time.Now()
		k.usage = &usage{}
		n := testing.AllocsPerRun(1000, func() {
			a, err := once(s, k, 100, now)
			if err != nil {
				t.Fatal(err)
			}
			a.Settle(50)
			a.Release()
			now = now.Add(10 * time.Second)
		})
		if n != 0 {
			t.Errorf("limits %s: %v allocations", name, n)
		}
	}
}

// A successor has every limit of the key it replaces.
func TestRotationKeepsLimits(t *testing.T) {
	want := Spec{Name: "a", RPM: 1, TPM: 2, Concurrent: 3, SpendDay: 4, SpendMonth: 5}
	_, st, _ := fixture(t, want)
	if _, _, err := (Change{Store: st, Now: time.Now()}).Rotate(t.Context(), "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	keys, err := List(t.Context(), st)
	if err != nil || len(keys) != 2 {
		t.Fatalf("%v, %d keys", err, len(keys))
	}
	for _, k := range keys {
		got := Spec{Name: k.Name, RPM: k.RPM, TPM: k.TPM, Concurrent: k.Concurrent, SpendDay: k.SpendDay, SpendMonth: k.SpendMonth}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("key %s (-want +got):\n%s", k.Prefix, d)
		}
	}
}

// A row whose limit was made negative is left out: it is no key without that limit.
func TestLimitsBelowZeroAreNoLimits(t *testing.T) {
	for _, r := range []store.Key{{RPM: -1}, {TPM: -1}, {Concurrent: -1}, {SpendDay: -1}, {SpendMonth: -1}} {
		r.Hash, r.Prefix, r.Boundary = make([]byte, 32), "abcdefgh", Any
		if k, err := fromRow(&r); err == nil {
			t.Errorf("%+v is taken as %+v", r, k)
		}
	}
}
