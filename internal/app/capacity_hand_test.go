package app

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/admin"
	"weir/internal/sim"
	"weir/internal/store"
)

// byHand is a pool of two backends that can be taken out, and a smaller one behind it.
const byHand = `
backends:
  b1: {url: "http://b1.sim", tier: gpu}
  b2: {url: "http://b2.sim", tier: gpu}
  f: {url: "http://f.sim", tier: floor}
pools:
  big: {backends: [b1, b2], cap: 2, models: [m]}
  small: {backend: f, cap: 8, models: [m]}
routes:
  quick: {steps: [big/m, small/m]}
aliases: {auto: quick}
`

func byHandSims(first time.Duration) map[string]sim.Script {
	slow := sim.Script{On: map[string]sim.Sequence{"m": {{FirstDelay: first}}}}
	return map[string]sim.Script{"b1": slow, "b2": slow, "f": {On: map[string]sim.Sequence{"m": {{}}}}}
}

// order sends an order to the admin API.
func (g *gateway) order(path, body string) *reply {
	g.t.Helper()
	token, err := admin.Token(g.cfg.Beside(g.cfg.Data))
	if err != nil {
		g.t.Fatal(err)
	}
	r := g.do(g.t.Context(), "POST", g.admin+"/api/v1/pools/"+path, strings.NewReader(body), "Authorization", "Bearer "+token)
	if r.status != 200 {
		g.t.Fatalf("%s %s: %d %s", path, body, r.status, r.body)
	}
	return r
}

// outs returns what the store has as out by hand, as "pool/backend".
func (g *gateway) outs() string {
	g.t.Helper()
	list, err := g.app.Store().HandOuts(context.WithoutCancel(g.t.Context()))
	if err != nil {
		g.t.Fatal(err)
	}
	var names []string
	for _, o := range list {
		names = append(names, strings.TrimSuffix(o.Pool+"/"+o.Backend, "/"))
	}
	return strings.Join(names, " ")
}

// Running calls go on, who waits takes the next step in the same moment, who comes later is never sent there.
func TestAPoolTakenOutByHandDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: byHand, sims: byHandSims(10 * time.Second)})
		var all sync.WaitGroup
		for i := range 4 { // two run, two wait
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				begun := time.Now()
				r := g.askFor("auto", i%2 == 0)
				pool, took := r.header.Get("X-Weir-Pool"), time.Since(begun)
				if want := []string{"big", "big", "small", "small"}[i]; r.status != 200 || pool != want {
					t.Errorf("request %d: %d from %s, want %s", i, r.status, pool, want)
				}
				if i >= 2 && took > 1100*time.Millisecond || i < 2 && took < 10*time.Second {
					t.Errorf("request %d took %v", i, took)
				}
				if i < 2 {
					return
				}
				if e := g.end(r.id()); e.Reroute == nil || *e.Reroute != "fallback" {
					t.Errorf("request %d: reroute %v", i, e.Reroute)
				}
				if got := strings.Join(g.skips(r.id()), ", "); !strings.HasPrefix(got, "out big/m") {
					t.Errorf("request %d skipped %q", i, got)
				}
			})
		}
		time.Sleep(time.Second)
		g.order("out", `{"pool":"big","why":"new fan"}`)
		if r := g.askFor("auto", true); r.status != 200 || r.header.Get("X-Weir-Pool") != "small" {
			t.Errorf("a later request: %d from %s", r.status, r.header.Get("X-Weir-Pool"))
		}
		all.Wait()
		if r := g.askFor("big/m", false); r.status != 503 || !strings.Contains(string(r.body), "new fan") || !strings.Contains(string(r.body), `"code":"no_backend"`) {
			t.Errorf("its only step out: %d %s", r.status, r.body)
		}
		if n := len(g.sims["b1"].Calls("")) + len(g.sims["b2"].Calls("")); n != 2 {
			t.Errorf("the pool's backends got %d calls, want 2", n)
		}
	})
}

// It ends by itself, and what else is out of the pool stays out, after a restart as well.
func TestOutByHandEndsByItselfAndSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := t.TempDir()
		g := begin(t, setup{yaml: byHand, sims: byHandSims(0), data: data})
		g.order("out", `{"pool":"big","for":"1m"}`)
		g.order("out", `{"pool":"big","backend":"b1","why":"slow disk"}`)
		if got := g.outs(); got != "big big/b1" {
			t.Errorf("the store has %q", got)
		}
		g.settle()
		g.stop()

		g = begin(t, setup{yaml: byHand, sims: byHandSims(0), data: data})
		if r := g.askFor("auto", true); r.header.Get("X-Weir-Pool") != "small" {
			t.Errorf("after a restart %s answers", r.header.Get("X-Weir-Pool"))
		}
		time.Sleep(time.Minute)
		for range 4 {
			if r := g.askFor("auto", true); r.header.Get("X-Weir-Pool") != "big" {
				t.Errorf("after its time %s answers", r.header.Get("X-Weir-Pool"))
			}
		}
		if n, m := len(g.sims["b1"].Calls("")), len(g.sims["b2"].Calls("")); n != 0 || m != 4 {
			t.Errorf("the backend that is out got %d calls, the other one %d; want 0 and 4", n, m)
		}
		time.Sleep(2 * time.Second)
		if got := g.outs(); got != "big/b1" {
			t.Errorf("after the pool's time the store has %q, want the backend alone", got)
		}
		g.order("in", `{"pool":"big"}`)
		if got := g.outs(); got != "" {
			t.Errorf("after all was put back the store has %q", got)
		}
		if got := strings.Join(g.facts("health"), ", "); got != "in big, in big" {
			t.Errorf("told %q", got)
		}
		rows, err := g.app.Store().Facts(t.Context(), store.Query{Event: "audit"})
		if err != nil {
			t.Fatal(err)
		}
		var audit []string
		for _, r := range rows {
			if strings.HasPrefix(r.To, "pool ") {
				audit = append(audit, r.To+": "+r.Detail)
			}
		}
		if got, want := strings.Join(audit, "; "), "pool big: taken out for 1m; pool big backend b1: taken out until it is put back: slow disk; pool big: put back"; got != want {
			t.Errorf("audit %q, want %q", got, want)
		}
	})
}
