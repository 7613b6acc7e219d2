package app

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// inside counts the calls that a server got for clients between two times.
func (g *gateway) inside(server string, from, to time.Time) (n int) {
	for _, a := range g.sims[server].Calls("") {
		if a.Arrived.After(from) && a.Arrived.Before(to) && !strings.HasPrefix(a.Header.Get("X-Request-Id"), "probe_") {
			n++
		}
	}
	return n
}

// F07: a refusal that names a time is kept to: of a thousand requests none reaches that backend before it has passed.
func TestF07PauseIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		b     sim.Behaviour
		pause time.Duration
	}{
		"seconds":               {sim.Behaviour{Status: 429, RetryAfter: "5"}, 5 * time.Second},
		"a fraction":            {sim.Behaviour{Status: 429, RetryAfter: "5.5"}, 5500 * time.Millisecond},
		"milliseconds":          {sim.Behaviour{Status: 429, RetryAfterMS: "5250", RetryAfter: "30"}, 5250 * time.Millisecond},
		"a date":                {sim.Behaviour{Status: 429, RetryAfter: "Sat, 01 Jan 2000 00:00:10 GMT"}, 10 * time.Second}, // where a bubble's clock begins
		"a date far off":        {sim.Behaviour{Status: 429, RetryAfter: "Wed, 21 Oct 2099 07:28:00 GMT"}, time.Minute},
		"an absurd number":      {sim.Behaviour{Status: 429, RetryAfter: "99999999999"}, time.Minute},
		"an overload that says": {sim.Behaviour{Status: 529, RetryAfter: "7"}, 7 * time.Second},
		"503":                   {sim.Behaviour{Status: 503, RetryAfter: "9"}, 9 * time.Second},
		"loading":               {sim.Behaviour{Status: 503, Error: []byte(`{"message":"Loading model","type":"unavailable_error","code":503}`)}, 2 * time.Second},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", name, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(2), sims: map[string]sim.Script{
						"s1": {On: map[string]sim.Sequence{"m": {c.b, {Text: "back"}}}}, "s2": {On: map[string]sim.Sequence{"m": {{Text: "meanwhile"}}}},
					}})
					start := time.Now()
					if got := g.chat(stream).text(); got != "meanwhile" {
						t.Fatalf("text %q", got)
					}
					requests := repeats(20, 1000)
					if name == "seconds" && stream {
						requests = 1000
					}
					for i := range requests {
						r := g.chat(stream)
						if got := r.text(); got != "meanwhile" {
							t.Fatalf("%v after the refusal: text %q", time.Since(start), got)
						}
						if i == 0 || i == requests-1 {
							g.end(r.id())
							if got := g.skips(r.id()); len(got) != 1 || !strings.HasPrefix(got[0], "paused s1/m") {
								t.Errorf("skipped %q", got)
							}
						}
						time.Sleep(c.pause * 9 / 10 / time.Duration(requests))
					}
					if n := g.inside("s1", start, start.Add(c.pause)); n != 0 {
						t.Errorf("%d calls inside the window", n)
					}
					time.Sleep(time.Until(start.Add(c.pause)))
					if r := g.chat(stream); r.text() != "back" || r.header.Get("X-Weir-Reroute") != "" {
						t.Errorf("after the pause: %q", r.body)
					}
				})
			})
		}
	}
	// Those that were waiting for a slot when the refusal came keep to it too.
	for _, gone := range []struct {
		name string
		b    sim.Behaviour
	}{
		{"paused", sim.Behaviour{HeaderDelay: time.Second, Status: 429, RetryAfter: "5"}},
		{"gone", sim.Behaviour{HeaderDelay: time.Second, Status: 404}},
		{"denied", sim.Behaviour{HeaderDelay: time.Second, Status: 401}},
	} {
		t.Run("those who wait, "+gone.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				yaml := strings.Replace(steps(2), "{backend: s1, cap: 8", "{backend: s1, cap: 1", 1)
				g := begin(t, setup{yaml: yaml, sims: scripts(&gone.b, &sim.Behaviour{Text: "meanwhile"})})
				var all sync.WaitGroup
				for range 20 {
					all.Go(func() {
						if got := g.chat(true).text(); got != "meanwhile" {
							t.Errorf("text %q", got)
						}
					})
				}
				all.Wait()
				if n := g.clientCalls("s1"); n != 1 {
					t.Errorf("s1 got %d calls, want the one that was refused", n)
				}
			})
		})
	}
}

// C084: whatever Retry-After says, it is understood or replaced by a default, and never makes a pause of years.
func TestC084RetryAfterInEveryForm(t *testing.T) {
	for _, c := range []struct {
		name, after, ms string
		want            string        // that the client gets
		tries           int           // at the server
		pause           time.Duration // of the pool
	}{
		{"120", "120", "", "60", 1, time.Minute},
		{"a date", "Wed, 21 Oct 2099 07:28:00 GMT", "", "60", 1, time.Minute},
		{"a date that has passed", "Wed, 21 Oct 1998 07:28:00 GMT", "", "1", 2, 0},
		{"1.5", "1.5", "", "2", 2, 0},
		{"-3", "-3", "", "1", 2, 0},
		{"soon", "soon", "", "1", 2, 0},
		{"99999999999", "99999999999", "", "60", 1, time.Minute},
		{"milliseconds", "30", "250", "1", 2, 0},
		{"none", "", "", "1", 2, 0},
	} {
		for _, w := range ways() {
			if w.steps != 1 {
				continue
			}
			t.Run(c.name+", "+w.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: waysYAML("http", ""), sims: waysSims(&sim.Behaviour{Status: 429, RetryAfter: c.after, RetryAfterMS: c.ms})})
					r := g.askWay(w)
					if r.failed(); r.status != 429 || r.header.Get("Retry-After") != c.want || g.callsOf("s1", r.id()) != c.tries {
						t.Errorf("%d, Retry-After %q, %d calls; want 429, %q, %d", r.status, r.header.Get("Retry-After"), g.callsOf("s1", r.id()), c.want, c.tries)
					}
					o, out := g.app.graph.pools[w.id()+"-1"].Outage("m", time.Now())
					if out != (c.pause > 0) || out && o.Err.RetryAfter != c.pause {
						t.Errorf("paused %v: %+v; want %v", out, o, c.pause)
					}
				})
			})
		}
	}
}

// C077: while the one backend cools, the client gets its error again with the time that is left, and nothing is sent.
func TestC077CoolingAnswersWithTheTimeLeft(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{sims: oai(sim.Behaviour{Status: 429, RetryAfter: "30"})})
				for at, want := range []string{"30", "29", "28"} {
					r := g.chat(stream)
					if f := r.failed(); r.status != 429 || f.Type != "rate_limit_error" || r.header.Get("Retry-After") != want || r.header.Get("Retry-After-Ms") != want+"000" {
						t.Errorf("%d s later: %d, Retry-After %q, %s", at, r.status, r.header.Get("Retry-After"), r.body)
					}
					time.Sleep(time.Second)
				}
				if n := len(g.sim().Calls("")); n != 1 {
					t.Errorf("%d calls upstream, want 1", n)
				}
				time.Sleep(26500 * time.Millisecond)
				if r := g.chat(stream); r.failed() != nil && r.header.Get("Retry-After") != "1" {
					t.Errorf("half a second before the end: Retry-After %q, want it rounded up to 1", r.header.Get("Retry-After"))
				}
			})
		})
	}
	t.Run("two that cool: the one that ends soonest", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{Status: 429, RetryAfter: "30"}, &sim.Behaviour{Status: 429, RetryAfter: "12"})})
			for _, want := range []string{"12", "11"} {
				r := g.chat(true)
				if f := r.failed(); r.status != 429 || r.header.Get("Retry-After") != want || !strings.Contains(f.Message, "(steps: s1/m ") {
					t.Errorf("%d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
				}
				time.Sleep(time.Second)
			}
		})
	})
	t.Run("all fail and cool: 503", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{sims: oai(sim.Behaviour{Status: 503, RetryAfter: "30"})})
			for _, want := range []string{"30", "29"} {
				if r := g.chat(true); r.failed() == nil || r.status != 503 || r.header.Get("Retry-After") != want {
					t.Errorf("%d, Retry-After %q, want 503 and %s", r.status, r.header.Get("Retry-After"), want)
				}
				time.Sleep(time.Second)
			}
			if n := len(g.sim().Calls("")); n != 1 {
				t.Errorf("%d calls upstream, want 1", n)
			}
		})
	})
}

// C085: every backend that failed in one request counts its failure: both are out for the next.
func TestC085EachAttemptIsCounted(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bad := &sim.Behaviour{Status: 500}
				g := begin(t, setup{yaml: steps(3), sims: scripts(bad, bad, &sim.Behaviour{Text: "third"})})
				for range 5 {
					g.chat(stream).text()
				}
				if list := g.facts("health"); !slices.Equal(list, []string{"ejected s1", "ejected s2"}) {
					t.Errorf("health %q, want both ejected, once each", list)
				}
				r := g.chat(stream)
				if r.text() != "third" || r.header.Get("X-Weir-Attempts") != "1" {
					t.Errorf("%s attempts, want 1", r.header.Get("X-Weir-Attempts"))
				}
				g.end(r.id())
				if got := g.skips(r.id()); !slices.Equal(got, []string{"breaker s1/m none", "breaker s2/m none"}) {
					t.Errorf("skipped %q", got)
				}
			})
		})
	}
}

// C088, F09: an account that is refused is out after one call, whatever shape that has: an alert, a probe of its own at
// growing gaps, and a return without a client's doing.
func TestC088RefusedAccountIsOut(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"401": {Status: 401},
		"402": {Status: 402, Error: []byte(`{"message":"Insufficient credits","code":402}`)},
		"400 that is about the account": {Status: 400, Headers: map[string]string{"Content-Type": "application/json"},
			Body: `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits."}}`},
		"429 that is about the quota": {Status: 429, Error: []byte(`{"message":"You exceeded your current quota, please check your plan","code":"insufficient_quota"}`)},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", name, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(2), sims: scripts(&b, &sim.Behaviour{Text: "second"})})
					for i := range 20 {
						r := g.chat(stream)
						if got := r.text(); got != "second" {
							t.Fatalf("text %q", got)
						}
						want := "denied s1/m denied"
						if i == 0 {
							want = "failed s1/m denied"
						}
						g.end(r.id())
						if got := g.skips(r.id()); !slices.Equal(got, []string{want}) {
							t.Errorf("request %d: skipped %q, want %q", i, got, want)
						}
					}
					if n := g.clientCalls("s1"); n != 1 {
						t.Errorf("%d calls at the refused account, want 1", n)
					}
					g.returns(t, "s1", "denied", stream)
				})
			})
		}
	}
	t.Run("an ordinary 400 never is", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{Status: 400, Error: []byte(`{"message":"the tool billing_report has no parameters","type":"invalid_request_error"}`)}, &sim.Behaviour{})})
			for range 20 {
				if r := g.chat(true); r.failed() == nil || r.status != 400 {
					t.Errorf("status %d", r.status)
				}
			}
			if a, b := g.clientCalls("s1"), g.clientCalls("s2"); a != 20 || b != 0 || len(g.facts("alert")) != 0 {
				t.Errorf("calls %d and %d, alerts %q", a, b, g.facts("alert"))
			}
		})
	})
}

// returns follows what is out for a reason: a probe after 5 s, later ones after 30, 60, 120 s; then healthy again, the next
// one brings it back.
func (g *gateway) returns(t *testing.T, server, reason string, stream bool) {
	t.Helper()
	begun := time.Now()
	time.Sleep(230 * time.Second)
	synctest.Wait()
	var at []time.Duration
	for _, a := range g.sims[server].Calls("") {
		if strings.HasPrefix(a.Header.Get("X-Request-Id"), "probe_") {
			at = append(at, a.Arrived.Sub(begun).Round(time.Second))
			if len(a.Body) > 300 || !strings.Contains(string(a.Body), `"max_tokens":16`) {
				t.Errorf("a probe of %s", a.Body)
			}
		}
	}
	if len(at) != 4 || at[0] > 6*time.Second || at[1]-at[0] < 29*time.Second || at[2]-at[1] < 59*time.Second || at[3]-at[2] < 119*time.Second {
		t.Errorf("probes after %v", at)
	}
	if err := g.sims[server].Set("m", sim.Behaviour{Text: "back"}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Minute)
	if got := g.facts("alert"); !slices.Equal(got, []string{reason + " " + server, reason + " resolved " + server}) {
		t.Errorf("alerts %q", got)
	}
	if r := g.chat(stream); r.text() != "back" || r.header.Get("X-Weir-Reroute") != "" {
		t.Errorf("after the return: %q", r.body)
	}
	if n := g.probesAt(server); n != 5 {
		t.Errorf("%d probes, want 5: none once it is back", n)
	}
}

// gone: a model that is not there is out, the pool's others are not; it returns as an account does.
func TestGoneModelIsOut(t *testing.T) {
	yaml := strings.Replace(steps(2), "{backend: s1, cap: 8, models: [m]}", "{backend: s1, cap: 8, models: [m, other]}", 1)
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("stream %v", stream), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := scripts(&sim.Behaviour{Status: 404}, &sim.Behaviour{Text: "second"})
				s["s1"].On["other"] = sim.Sequence{{Text: "another model"}}
				g := begin(t, setup{yaml: yaml, sims: s})
				for range 20 {
					if got := g.chat(stream).text(); got != "second" {
						t.Fatalf("text %q", got)
					}
				}
				if got := g.askFor("s1/other", stream).text(); got != "another model" {
					t.Errorf("text %q", got)
				}
				if n := len(g.sims["s1"].Calls("m")); n != 1 {
					t.Errorf("%d calls for the model that is gone, want 1", n)
				}
				r := g.askFor("s1/m", stream)
				if f := r.failed(); r.status != 503 || f.Code != "no_backend" || r.header.Get("Retry-After") == "" || !strings.Contains(f.Message, "s1/m gone") {
					t.Errorf("alone: %d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
				}
				g.returns(t, "s1", "gone", stream)
			})
		})
	}
}

// Retry-After of a route on which nothing can be called is the time of the next return probe.
func TestNoneTellsTheNextProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: steps(1), sims: scripts(&sim.Behaviour{Status: 404})})
		g.chat(true).failed()
		time.Sleep(20 * time.Second) // a probe at 5 s; the next is at 35 s
		r := g.chat(true)
		r.failed()
		if got := r.header.Get("Retry-After"); got != "15" && got != "16" {
			t.Errorf("Retry-After %q, want the 15 s until the next probe", got)
		}
	})
}
