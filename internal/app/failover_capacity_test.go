package app

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/sim"
)

// leaves opens a request that its client gives up after some time, and reads what comes.
func (g *gateway) leaves(after time.Duration, model string, stream bool) {
	ctx, cancel := context.WithTimeout(g.t.Context(), after)
	defer cancel()
	resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(strings.Replace(chatBody(stream), "oai-m", model, 1)))
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// F40, F41, F42, I12: who leaves in the queue, during the prefill or amid the answer blames nobody and is tried nowhere else;
// the upstream sees it within 100 ms, and a queued one never reaches it.
func TestF40ToF42ClientsThatLeave(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"F41 before the head": {Hang: true}, "F41 before content": {FirstDelay: time.Hour}, "F42 amid the answer": {Endless: true, Gap: 50 * time.Millisecond},
		"F42 in a silence": {Deltas: []string{"one ", "two"}, Gap: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&b)})
				for range repeats(2, 50) {
					for _, w := range ways() {
						g.leaves(500*time.Millisecond, "to-"+w.id(), w.stream)
						g.settle()
						for _, a := range g.sims["s1"].Calls("") {
							if d := a.Ended.Sub(a.Arrived); a.End != sim.Left || d > 600*time.Millisecond {
								t.Errorf("%v: the upstream saw %s after %v", w, a.End, d)
							}
						}
						g.forget()
					}
				}
				for range 12 {
					g.leaves(300*time.Millisecond, "judge/m", true)
				}
				if n := len(g.sims["s2"].Calls("")) + len(g.sims["ok"].Calls("")); n != 0 {
					t.Errorf("%d calls at other steps for clients who have left", n)
				}
				if list := g.facts("health"); len(list) > 0 {
					t.Errorf("I12: health events %q", list)
				}
			})
		})
	}
	t.Run("F40 in the queue", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			yaml := strings.Replace(steps(2), "{backend: s1, cap: 8", "{backend: s1, cap: 1, queue: 50", 1)
			g := begin(t, setup{yaml: yaml, sims: scripts(&sim.Behaviour{Gap: 5 * time.Second, Deltas: []string{"do", "ne"}}, &sim.Behaviour{})})
			first := g.live(1)
			var all sync.WaitGroup
			for i := range 40 {
				all.Go(func() { g.leaves(time.Duration(i+1)*50*time.Millisecond, "oai-m", i%2 == 0) })
			}
			all.Wait()
			synctest.Wait()
			if u := g.app.graph.pools["s1"].Slots.Usage(); u.Waiting != 0 {
				t.Errorf("%d wait although everybody has left", u.Waiting)
			}
			if first()[0].text() != "done" || len(g.sims["s1"].Calls("")) != 1 || len(g.sims["s2"].Calls("")) != 0 {
				t.Errorf("%d and %d calls", len(g.sims["s1"].Calls("")), len(g.sims["s2"].Calls("")))
			}
		})
	})
}

// F44: a client who leaves harms nobody who runs beside it on the same backend.
func TestF44CancelHarmsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Text: "a b c d e f g {nonce}", Gap: 100 * time.Millisecond})})
		for i := range repeats(40, 1000) {
			w := ways()[i%len(ways())]
			var all sync.WaitGroup
			for j := range 3 {
				all.Go(func() { g.leaves(time.Duration(i%7+j)*90*time.Millisecond, "judge/m", i%2 == 0) })
			}
			all.Go(func() {
				r := g.askFor("judge/m", w.stream)
				text := r.text()
				id := r.id()
				for _, a := range g.sims["s1"].Calls("") {
					if a.Header.Get("X-Request-Id") == id && text != "a b c d e f g "+a.Nonce {
						t.Errorf("I7: text %q, nonce %s", text, a.Nonce)
					}
				}
			})
			all.Wait()
		}
	})
}

// C086: a client that gives up and asks again, on a backend of one slot: each giving up ends its call, Weir repeats none,
// and at most one runs at a time.
func TestC086RetriesDoNotStack(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				yaml := strings.Replace(oneBackend(""), "cap: 64", "cap: 1", 1)
				g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"a": {Slots: 1, On: map[string]sim.Sequence{"oai-m": {{HeaderDelay: 10 * time.Second, Text: "late"}}}}}})
				for range 4 {
					g.leaves(3*time.Second, "oai-m", stream)
					time.Sleep(10 * time.Millisecond) // the upstream is told within 100 ms, 10 is the aim
				}
				g.settle()
				calls := g.sim().Calls("")
				if len(calls) != 4 || g.sim().Peak("oai-m") != 1 {
					t.Errorf("%d calls, %d at once; want 4 and 1", len(calls), g.sim().Peak("oai-m"))
				}
				for _, a := range calls {
					if a.End != sim.Left || a.Ended.Sub(a.Arrived) > 3100*time.Millisecond {
						t.Errorf("a call ended as %s after %v", a.End, a.Ended.Sub(a.Arrived))
					}
				}
			})
		})
	}
	t.Run("Weir's own limit repeats none either", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: "limits: {first_content: 3s}\n" + oneBackend(""), sims: oai(sim.Behaviour{Hang: true})})
			for range 4 {
				if r := g.chat(true); r.failed() == nil || r.status != 504 || r.header.Get("X-Should-Retry") != "false" {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			if n := len(g.sim().Calls("")); n != 4 {
				t.Errorf("%d calls for 4 requests", n)
			}
		})
	})
}

// The breaker as clients see it: five failures, then the pool is passed over; one trial after a penalty that doubles; one
// good trial, and it is back with a slow start.
func TestBreakerOfAPool(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{"refused": {Status: 500}, "slow": {Hang: true}, "unavailable": {Status: 503, RetryAfter: "2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: "limits: {first_content: 1s}\n" + steps(2), sims: scripts(&b, &sim.Behaviour{Text: "second"})})
				for len(g.facts("health")) == 0 {
					if got := g.chat(true).text(); got != "second" || len(g.sims["s1"].Calls("")) > 10 {
						t.Fatalf("text %q, %d calls", got, len(g.sims["s1"].Calls("")))
					}
				}
				if n := len(g.sims["s1"].Calls("")); n != 5 && name != "unavailable" || n > 6 {
					t.Errorf("%d calls until it was out, want 5", n)
				}
				// Asked four times a second it gets a trial after 5, 10 and 20 s, each a fifth more or less.
				last, gaps := time.Now(), []time.Duration{}
				for begun := time.Now(); time.Since(begun) < 55*time.Second; time.Sleep(250 * time.Millisecond) {
					n := len(g.sims["s1"].Calls(""))
					if got := g.chat(true).text(); got != "second" {
						t.Fatalf("text %q", got)
					}
					if len(g.sims["s1"].Calls("")) > n {
						gaps, last = append(gaps, time.Since(last)), time.Now()
					}
				}
				for i, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
					least := want * 7 / 10
					if i == 0 {
						least = time.Second // the clock of the test began later
					}
					if i >= len(gaps) || gaps[i] < least || gaps[i] > want*13/10+2*time.Second {
						t.Fatalf("trials after %v", gaps)
					}
				}
				if err := g.sims["s1"].Set("m", sim.Behaviour{Text: "first", HeaderDelay: 400 * time.Millisecond}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if got := g.chat(true).text(); got != "first" {
					t.Errorf("the trial: text %q", got)
				}
				g.sims["s1"].Reset()
				var all sync.WaitGroup
				for range 8 {
					all.Go(func() { g.chat(true).text() })
				}
				all.Wait()
				if peak := g.sims["s1"].Peak("m"); peak > 2 {
					t.Errorf("%d at once at the slow start's begin, want 1 or 2 of 8", peak)
				}
				time.Sleep(12 * time.Second)
				for range 8 {
					all.Go(func() { g.chat(true).text() })
				}
				all.Wait()
				if peak := g.sims["s1"].Peak("m"); peak != 8 {
					t.Errorf("%d at once after the slow start, want 8", peak)
				}
				if list := g.facts("health"); !slices.Equal(list, []string{"ejected s1", "returned s1"}) {
					t.Errorf("health %q", list)
				}
			})
		})
	}
}

// F02: a host that swallows connections costs its connect limit until it is out, then nothing; a trial costs one client
// that limit again.
func TestF02OpenBreakerCostsNothing(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: steps(2), sims: scripts(nil, &sim.Behaviour{Text: "second"})})
				g.net.BlackHole("s1.sim:80")
				slow := 0
				for i := range 100 {
					start := time.Now()
					if got := g.chat(stream).text(); got != "second" {
						t.Fatalf("text %q", got)
					}
					switch took := time.Since(start); {
					case took > 2050*time.Millisecond, i < 5 && took < 2*time.Second:
						t.Errorf("request %d took %v", i, took)
					case took > 5*time.Millisecond:
						slow++
					}
					time.Sleep(200 * time.Millisecond)
				}
				if slow > 5+3 { // in 20 s there is room for two trials, and the one that the last delay hides
					t.Errorf("%d of 100 requests waited", slow)
				}
			})
		})
	}
}

// A backend that fails fast attracts no traffic: of two in a pool the good one serves.
func TestFastFailureAttractsNoTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: `
backends:
  s1: {url: "http://s1.sim", tier: gpu}
  s2: {url: "http://s2.sim", tier: gpu}
  s3: {url: "http://s3.sim", tier: gpu}
pools:
  two: {backends: [s1, s2], cap: 16, models: [m]}
  one: {backend: s3, cap: 16, models: [m]}
routes: {way: {steps: [two/m, one/m]}}
aliases: {oai-m: way}
`, sims: scripts(&sim.Behaviour{Status: 500}, &sim.Behaviour{HeaderDelay: time.Second, Text: "slow and good"}, &sim.Behaviour{Text: "last"})})
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() { g.chat(true).text() })
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		if n := len(g.sims["s1"].Calls("")); n > 10 {
			t.Errorf("the failing backend got %d of 200 calls", n)
		}
		if n := len(g.sims["s3"].Calls("")); n > 10 {
			t.Errorf("%d of 200 requests went to the next step although the pool has a good backend", n)
		}
	})
}

// F45: five hundred who wait when a backend comes back are let in little by little, none is lost, and it stays in.
func TestF45HerdAtTheReturn(t *testing.T) {
	for range repeats(2, 20) {
		synctest.Test(t, func(t *testing.T) {
			yaml := strings.Replace(oneBackend(""), "cap: 64", "cap: 64, queue: 600", 1)
			g := begin(t, setup{yaml: yaml, sims: oai(sim.Behaviour{Status: 500}), edit: func(c *config.Config) { c.Limits.Wait = config.Duration(5 * time.Minute) }})
			for range 5 {
				g.chat(true).failed()
			}
			if err := g.sim().Set("oai-m", sim.Behaviour{Text: "back", HeaderDelay: 500 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			g.chat(true).text() // the trial
			g.sim().Reset()
			var all sync.WaitGroup
			for range 500 {
				all.Go(func() {
					if got := g.chat(true).text(); got != "back" {
						t.Errorf("text %q", got)
					}
				})
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if peak := g.sim().Peak("oai-m"); peak > 8 || peak < 1 {
				t.Errorf("%d at once in the first second, want about 6 of 64", peak)
			}
			all.Wait()
			if list := g.facts("health"); !slices.Equal(list, []string{"ejected a", "returned a"}) {
				t.Errorf("health %q", list)
			}
		})
	}
}

// F46: the last backend there is fails half of the time: it is never given up, and one repeat of a 503 helps where it may.
func TestF46LastOneFailsHalf(t *testing.T) {
	for _, c := range []struct {
		status int
		least  int // percent
	}{{503, 68}, {500, 40}} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(46, 46))
				var list sim.Sequence
				for range 2000 {
					if rnd.IntN(2) == 0 {
						list = append(list, sim.Behaviour{Status: c.status})
					} else {
						list = append(list, sim.Behaviour{Text: "ok"})
					}
				}
				g := begin(t, setup{sims: map[string]sim.Script{"a": {On: map[string]sim.Sequence{"oai-m": list}}}})
				var mu sync.Mutex
				good := 0
				const requests = 240
				for range requests / 3 {
					var all sync.WaitGroup
					for range 3 {
						all.Go(func() {
							r := g.chat(true)
							s := r.said()
							if g.callsOf("a", r.id()) == 0 && !strings.Contains(string(r.body), "being tried") {
								t.Errorf("given up: %s", r.body)
							}
							mu.Lock()
							defer mu.Unlock()
							if s.failure == nil {
								good++
							}
						})
					}
					all.Wait()
				}
				if good*100 < c.least*requests {
					t.Errorf("%d of %d succeeded, want %d %%", good, requests, c.least)
				}
			})
		})
	}
}

// F47: a primary that fails every time, at 200 requests a second: the upstream sees at most a tenth more than there were
// requests, and the floor of three; with another step nobody notices.
func TestF47RetryStorm(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"503": {Status: 503}, "503 soon": {Status: 503, RetryAfter: "1"}, "429": {Status: 429}, "500": {Status: 500}, "busy in a 200": {StreamError: &sim.StreamError{Error: []byte(`{"message":"slow down","code":429}`)}},
	} {
		for _, n := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s, %d steps", name, n), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					yaml := strings.ReplaceAll(steps(n), "cap: 8", "cap: 1000")
					g := begin(t, setup{yaml: yaml, sims: scripts([]*sim.Behaviour{&b, {Text: "second"}}[:n]...)})
					requests := repeats(300, 12000)
					var all sync.WaitGroup
					for range requests {
						all.Go(func() {
							r := g.chat(true)
							if n == 2 {
								if got := r.text(); got != "second" {
									t.Errorf("text %q", got)
								}
								return
							}
							r.failed()
						})
						time.Sleep(5 * time.Millisecond)
					}
					all.Wait()
					calls := len(g.sims["s1"].Calls(""))
					if most := requests*11/10 + 3; calls > most {
						t.Errorf("%d calls for %d requests, want at most %d", calls, requests, most)
					}
				})
			})
		}
	}
}

// F49: who waits for a slot is served in the order of coming, and the time of waiting is recorded.
func TestF49QueueIsFair(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				yaml := strings.Replace(oneBackend(""), "cap: 64", "cap: 1", 1)
				g := begin(t, setup{yaml: yaml, sims: oai(sim.Behaviour{HeaderDelay: time.Second, Text: "ok"}), edit: func(c *config.Config) { c.Limits.Wait = config.Duration(time.Minute) }})
				const n = 20
				ids := make([]string, n)
				var all sync.WaitGroup
				for i := range n {
					all.Go(func() {
						r := g.chat(stream)
						r.text()
						ids[i] = r.id()
					})
					time.Sleep(10 * time.Millisecond)
				}
				all.Wait()
				for i, a := range g.sim().Calls("") {
					at := slices.Index(ids, a.Header.Get("X-Request-Id"))
					if at != i {
						t.Errorf("request %d was served as number %d", at, i)
					}
					e := g.end(ids[i])
					want := time.Duration(i) * 990 * time.Millisecond
					if got := e.Attempts[0].Queue; got < want-5*time.Millisecond || got > want+50*time.Millisecond {
						t.Errorf("request %d: %v in the queue is recorded, want %v", i, got, want)
					}
				}
				if g.sim().Peak("oai-m") != 1 {
					t.Errorf("%d at once through a cap of 1", g.sim().Peak("oai-m"))
				}
			})
		})
	}
}

// F50, F51: a full queue is told at once, a wait at its limit; the next step is taken where there is one. Nobody is blamed.
func TestF50F51FullQueueAndLongWait(t *testing.T) {
	for _, n := range []int{1, 2, 3} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d steps, stream %v", n, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					list := []*sim.Behaviour{{Gap: 3 * time.Second, Chunks: 4}, {Gap: 3 * time.Second, Chunks: 4}, {}}[:n]
					if n > 1 {
						list[n-1] = &sim.Behaviour{Text: "free"}
					}
					yaml := strings.ReplaceAll("limits: {wait: 2s}\n"+steps(n), "cap: 8", "cap: 1, queue: 1")
					yaml = strings.Replace(yaml, fmt.Sprintf("s%d: {backend: s%[1]d, cap: 1, queue: 1", max(n, 2)), fmt.Sprintf("s%d: {backend: s%[1]d, cap: 64", max(n, 2)), 1)
					g := begin(t, setup{yaml: yaml, sims: scripts(list...)})
					var busy sync.WaitGroup
					for i := range max(1, n-1) { // each but the last has one who runs
						busy.Go(func() { g.askFor(fmt.Sprintf("s%d/m", i+1), true).text() })
					}
					time.Sleep(100 * time.Millisecond)
					start := time.Now()
					check := func(r *reply, after time.Duration) {
						took := time.Since(start)
						if took < after || took > after+50*time.Millisecond {
							t.Errorf("after %v, want %v", took, after)
						}
						if n > 1 {
							if got := r.text(); got != "free" {
								t.Errorf("text %q", got)
							}
							return
						}
						if f := r.failed(); r.status != 503 || f.Code != "queue_full" || r.header.Get("Retry-After") == "" {
							t.Errorf("%d %s", r.status, r.body)
						}
					}
					var all sync.WaitGroup
					all.Go(func() { check(g.chat(stream), time.Duration(max(1, n-1))*2*time.Second) }) // waits
					if n < 3 {
						synctest.Wait()
						for range 20 { // the queue has one already
							all.Go(func() { check(g.chat(stream), 0) })
						}
					}
					all.Wait()
					busy.Wait()
					if list := g.facts("health"); len(list) != 0 {
						t.Errorf("I12: %q", list)
					}
				})
			})
		}
	}
}
