package app

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/pool"
	"weir/internal/sim"
	"weir/internal/store"
)

// twoPools are two pools of one vendor, of which the second has the smaller cap.
const twoPools = `
backends:
  vendor: {url: "http://v.sim", tier: cloud}
pools:
  va: {backend: vendor, cap: 6, queue: 64, models: [glm-5, {id: glm-4, served_as: glm-5}]}
  vb: {backend: vendor, cap: 3, queue: 64, models: [kimi]}
limits: {wait: 5m}
aliases: {a: va/glm-5, old: va/glm-4, b: vb/kimi}
`

// busiest is how many calls a server had at a time since then.
func busiest(list []sim.Attempt, since time.Time) (most int) {
	for i := range list {
		if list[i].Arrived.Before(since) {
			continue
		}
		n := 0
		for j := range list {
			if !list[j].Arrived.After(list[i].Arrived) && list[j].Ended.After(list[i].Arrived) {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// crowd asks every model n times at once and waits for the answers, which must all be whole.
func (g *gateway) crowd(n int, models ...string) {
	g.t.Helper()
	var all sync.WaitGroup
	for range n {
		for _, model := range models {
			all.Go(func() {
				if r := g.askFor(model, true); r.status != 200 {
					g.t.Errorf("%s: %d %.200s", model, r.status, r.body)
				}
			})
		}
	}
	all.Wait()
}

// The story of a vendor that merges two pools: three of three answers come back from the other one. From then on the calls of
// both count together, against the cap of the pool that serves; it outlives a restart, and the operator can undo it.
func TestAVendorMergesPools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := sim.Behaviour{Model: "kimi", FirstDelay: 2 * time.Second}
		script := map[string]sim.Script{"v": {On: map[string]sim.Sequence{"glm-5": {slow}, "kimi": {{FirstDelay: 2 * time.Second}}}}}
		data := t.TempDir()
		g := begin(t, setup{yaml: twoPools, sims: script, data: data})
		g.crowd(8, "b")
		if n := busiest(g.sims["v"].Calls(""), time.Time{}); n != 3 {
			t.Fatalf("%d calls at a time before the merge, want the cap of 3", n)
		}
		for i := range 3 {
			r := g.askFor("a", i != 1) // also from an answer that is assembled
			e := g.end(r.id())
			if e.Reroute == nil || *e.Reroute != "vendor" || r.header.Get("X-Weir-Reroute") != "vendor served vb/kimi" {
				t.Errorf("answer %d: reroute %v, header %q", i, e.Reroute, r.header.Get("X-Weir-Reroute"))
			}
		}
		synctest.Wait()
		if got := g.facts("alert"); len(got) != 1 || !strings.Contains(got[0], "merged") {
			t.Errorf("alerts %q, want one that the pools are merged", got)
		}
		since := time.Now()
		g.crowd(20, "a", "b")
		if n := busiest(g.sims["v"].Calls(""), since); n != 3 {
			t.Errorf("%d calls at a time after the merge, want the cap of 3 of the pool that serves", n)
		}
		g.crowd(40, "a")
		synctest.Wait()
		time.Sleep(time.Second) // rows are written in batches
		if n, err := g.app.Store().CountRequests(t.Context(), store.Query{Event: "reroute", Reason: "vendor", Since: time.Now().Add(-30 * time.Minute)}); n != 63 || err != nil {
			t.Errorf("%d reroutes in half an hour are in the store, %v, want 63", n, err)
		}
		g.settle()
		g.stop()

		again := begin(t, setup{yaml: twoPools, sims: script, data: data})
		since = time.Now()
		again.crowd(10, "a", "b")
		if n := busiest(again.sims["v"].Calls(""), since); n != 3 {
			t.Errorf("%d calls at a time after a restart, want 3", n)
		}
		if got := again.facts("alert"); len(got) != 0 {
			t.Errorf("told again after a restart: %q", got)
		}
		if err := again.app.merges.Undo("va"); err != nil {
			t.Fatal(err)
		}
		since = time.Now()
		again.crowd(20, "a", "b")
		if n := busiest(again.sims["v"].Calls(""), since); n != 9 {
			t.Errorf("%d calls at a time once that is undone, want both caps: 9", n)
		}
		if got := again.app.merges.List(); len(got) != 1 || got[0].State != pool.Undone {
			t.Errorf("%+v, want one pair that is undone: what comes now merges nothing", got)
		}
	})
}

// A pool that lists an id as another one serves it so by the operator's will: each such request is a reroute all the same.
func TestACollapsedIDIsAReroute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: twoPools, sims: map[string]sim.Script{"v": {}}})
		for _, stream := range []bool{true, false} {
			r := g.askFor("old", stream)
			e := g.end(r.id())
			if e.Reroute == nil || *e.Reroute != "collapse" || r.header.Get("X-Weir-Reroute") != "collapse to va/glm-5" {
				t.Errorf("stream %v: reroute %v, header %q", stream, e.Reroute, r.header.Get("X-Weir-Reroute"))
			}
			if got := strings.Join(g.events(r.id()), " "); !strings.Contains(got, "reroute:collapse") {
				t.Errorf("events %s", got)
			}
		}
		if r := g.askFor("a", true); r.header.Get("X-Weir-Reroute") != "" {
			t.Errorf("a request for the id itself is called a reroute: %q", r.header.Get("X-Weir-Reroute"))
		}
	})
}

// What is no evidence merges nothing: dated names, files, ids that nobody has, the model's own name between, and a vendor's
// answer that comes by another host.
func TestWhatIsNoEvidenceMergesNothing(t *testing.T) {
	for name, models := range map[string][]string{
		"a dated name":         {"glm-5-2026-11-20"},
		"a file":               {"/models/kimi.gguf"},
		"an id that is nobody": {"glm-6-turbo"},
		"its own between":      {"kimi", "kimi", "glm-5"},
		"none":                 {""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var list sim.Sequence
				for i := range 12 {
					list = append(list, sim.Behaviour{Model: models[i%len(models)]})
				}
				g := begin(t, setup{yaml: twoPools, sims: map[string]sim.Script{"v": {On: map[string]sim.Sequence{"glm-5": list}}}})
				for range 12 {
					g.askFor("a", true)
				}
				if got := g.app.merges.List(); len(got) != 0 {
					t.Errorf("merged by %q: %+v", models, got)
				}
			})
		})
	}
}
