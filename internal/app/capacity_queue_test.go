package app

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/key"
	"weir/internal/sim"
)

// Heartbeats, by their alias or by their key, wait behind people who came later, are put out of a full queue before them, and
// get their turn all the same; who waits is told in an event where it stands and for how long that is expected.
func TestHeartbeatsNeverDelayPeople(t *testing.T) {
	yaml := `
backends:
  a: {url: "http://a.sim", tier: gpu}
pools:
  a: {backend: a, cap: 1, queue: 3, models: [m]}
aliases:
  talk: a/m
  beat: {route: a/m, priority: -10}
`
	for name, low := range map[string]bool{"by the alias": false, "by the key": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"a": {On: map[string]sim.Sequence{"m": {{FirstDelay: 2 * time.Second}}}}}})
				beat := g.key
				if low {
					beat = g.newKey(key.Spec{Name: "beats", Priority: -10})
				}
				var mu sync.Mutex
				var order []string
				var all sync.WaitGroup
				ask := func(who string) {
					all.Go(func() {
						alias, token := "talk", g.key
						if strings.HasPrefix(who, "beat") {
							if token = beat; !low {
								alias = "beat"
							}
						}
						r := g.post("/v1/chat/completions", strings.Replace(chatBody(true), "oai-m", alias, 1), "Authorization", "Bearer "+token)
						mu.Lock()
						defer mu.Unlock()
						if r.status != 200 {
							who += " refused"
						}
						order = append(order, who)
					})
					time.Sleep(10 * time.Millisecond)
				}
				ask("first")
				ask("beat 1")
				ask("person 1")
				ask("beat 2")
				ask("person 2") // the queue of three is full: the newest heartbeat goes
				all.Wait()
				want := []string{"beat 2 refused", "first", "person 1", "person 2", "beat 1"}
				if !slices.Equal(order, want) {
					t.Errorf("the order is %q, want %q", order, want)
				}
				var told []string
				for _, l := range g.lines.all() {
					if l.Event == "queue" {
						told = append(told, l.Detail)
					}
				}
				if len(told) != 4 || told[0] != "place 1 of 1, about 0.0 s" || !strings.HasPrefix(told[1], "place 1 of 2") {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}

// The place in the queue and the expected wait stand in the attempt too.
func TestAnAttemptTellsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: strings.Replace(oneBackend(""), "cap: 64", "cap: 1", 1), sims: oai(sim.Behaviour{FirstDelay: 4 * time.Second})})
		g.chat(true) // one has shown how long they take
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { g.chat(true) })
		}
		all.Wait()
		time.Sleep(time.Second)
		var places []int
		for _, l := range g.lines.all() {
			if l.Event != "end" {
				continue
			}
			a := l.Attempts[0]
			if a.Place > 0 {
				places = append(places, a.Place)
				if want := time.Duration(a.Place) * 4 * time.Second; (a.Guess-want).Abs() > 300*time.Millisecond || (a.Queue-want).Abs() > 100*time.Millisecond {
					t.Errorf("place %d: expected %v, waited %v, want %v", a.Place, a.Guess, a.Queue, want)
				}
			}
		}
		if slices.Sort(places); !slices.Equal(places, []int{1, 2}) {
			t.Errorf("places %v, want 1 and 2", places)
		}
	})
}
