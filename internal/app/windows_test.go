package app

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// A pool without a window in its configuration learns it from a local server; one that names it keeps its own.
func TestAContextWindowIsReadFromALocalServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: `
backends:
  s1: {url: "http://s1.sim", server: llamacpp, tier: gpu}
  s2: {url: "http://s2.sim", server: llamacpp, tier: floor}
pools:
  p1: {backend: s1, cap: 4, models: [m]}
  p2: {backend: s2, cap: 4, models: [m], window: 2000}
routes: {r: {steps: [p1/m, p2/m]}}
aliases: {oai-m: r}
`, sims: map[string]sim.Script{
			"s1": {Server: sim.LlamaCPP, Models: []string{"m"}, Context: 512},
			"s2": {Server: sim.LlamaCPP, Models: []string{"m"}, Context: 4096},
		}})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := g.app.graph.pools["p1"].ContextWindow(); got != 512 {
			t.Fatalf("the window of p1 is %d, want 512 as its server says", got)
		}
		if got := g.app.graph.pools["p2"].ContextWindow(); got != 2000 {
			t.Errorf("the window of p2 is %d, want the configured 2000", got)
		}
		// About 1,000 tokens: over the first window by far, within the second.
		r := g.post("/v1/chat/completions", `{"model":"oai-m","messages":[{"role":"user","content":"`+strings.Repeat("word ", 800)+`"}]}`)
		if r.status != 200 || r.header.Get("X-Weir-Pool") != "p2" {
			t.Errorf("status %d from %q, want 200 from p2: %s", r.status, r.header.Get("X-Weir-Pool"), r.body)
		}
		if n := len(g.sims["s1"].Calls("m")); n != 0 {
			t.Errorf("the small window was asked %d times", n)
		}
	})
}
