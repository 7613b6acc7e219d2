package app

import (
	"sync"
	"testing"
	"testing/synctest"

	"weir/internal/sim"
)

// A pool that others take out while a request waits for its retry, or for a slot, is passed over: the next step answers
// (F47, found by the drill).
func TestAPoolThatGoesOutMeanwhileIsPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: steps(2), sims: scripts(&sim.Behaviour{Status: 503, HeaderDelay: 1}, &sim.Behaviour{Text: "from s2"})})
		var all sync.WaitGroup
		for range 16 { // of whom eight wait for a slot, and three may try again
			all.Go(func() {
				if r := g.chat(true); r.status != 200 || r.text() != "from s2" {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		}
		all.Wait()
	})
}
