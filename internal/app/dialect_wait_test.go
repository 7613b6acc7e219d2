package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"weir/internal/sim"
)

// C106: whole answers and clients who leave before the first byte, amid a stream or in the queue leave no slot behind,
// whatever the APIs.
func TestC106NoPairLeaksSlots(t *testing.T) {
	across(t, func(t *testing.T, client, back *api) {
		yaml := strings.Replace(bridge(back, ""), "s1, cap: 8", "s1, cap: 2", 1)
		g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"s1": {Server: back.server}, "s2": {}}})
		pool := g.app.graph.pools["s1"]
		for name, b := range map[string]sim.Behaviour{
			"before the first byte": {Hang: true}, "amid the answer": {Endless: true, Gap: 10 * time.Millisecond}, "a whole answer": {Text: "ok"},
		} {
			for _, stream := range []bool{true, false} {
				if err := g.sims["s1"].Set("m", b); err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				for range 5 { // two of them at work, three in the queue
					go func() {
						defer func() { done <- struct{}{} }()
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						resp, err := g.open(ctx, "POST", client.path, strings.NewReader(client.ask("alone", stream)))
						if err == nil {
							g.read(resp)
						}
					}()
				}
				for range 5 {
					<-done
				}
				time.Sleep(time.Second)
				if u := pool.Slots.Usage(); u.Held+u.Waiting != 0 {
					t.Errorf("%s, stream %v: %d slots held, %d waiting", name, stream, u.Held, u.Waiting)
				}
			}
		}
		if err := g.sims["s1"].Set("m", sim.Behaviour{Text: "ok"}); err != nil {
			t.Fatal(err)
		}
		for _, stream := range []bool{true, false} {
			if _, got := g.talk(client, client.ask("alone", stream)); got.text != "ok" {
				t.Errorf("stream %v: %+v", stream, got)
			}
		}
	})
}

// C079, C089: a client who waits gets signs of life of its own API, then the answer, or one error in the stream that
// keeps the class of what happened.
func TestC079EveryPairWaits(t *testing.T) {
	const wait = 40 * time.Second
	across(t, func(t *testing.T, client, back *api) {
		yaml := "commit_after: 2s\nlimits: {first_content: 50s}\n" + bridge(back, "")
		g := begin(t, setup{yaml: yaml, quiet: true, sims: map[string]sim.Script{"s1": {Server: back.server}, "s2": {}}})
		for _, c := range []struct {
			name, kind string
			b          sim.Behaviour
		}{
			{"a slow head", "", sim.Behaviour{HeaderDelay: wait, Text: "at last"}},
			{"a slow prefill", "", sim.Behaviour{FirstDelay: wait, Text: "at last"}},
			{"a late 503", "unavailable", sim.Behaviour{HeaderDelay: wait, Status: 503, RetryAfter: "30"}},
			{"a late 429", "busy", sim.Behaviour{HeaderDelay: wait, Status: 429, RetryAfter: "30"}},
			{"a late 529", "full", sim.Behaviour{HeaderDelay: wait, Status: 529, RetryAfter: "30"}},
			{"a late 500", "refused", sim.Behaviour{HeaderDelay: wait, Status: 500}},
			{"silence", "slow", sim.Behaviour{Hang: true}},
		} {
			if err := g.sims["s1"].Set("m", c.b); err != nil {
				t.Fatal(err)
			}
			last := time.Now()
			r, got := g.talk(client, client.ask("alone", true))
			for _, at := range r.at {
				if gap := at.Sub(last); gap > 13*time.Second {
					t.Errorf("%s: %v without a byte", c.name, gap)
				}
				last = at
			}
			signs := strings.Count(string(r.body), ": waiting\n\n")
			if client == messagesAPI {
				if signs != 0 {
					t.Errorf("%s: comments on Messages: %.300q", c.name, r.body)
				}
				signs = strings.Count(string(r.body), "event: ping\ndata: {\"type\":\"ping\"}\n\n")
			}
			switch {
			case signs < 3 || !r.isStream():
				t.Errorf("%s: %d signs of life: %.500q", c.name, signs, r.body)
			case c.kind == "" && got.text != "at last":
				t.Errorf("%s: text %q", c.name, got.text)
			case c.kind != "" && got.failure == nil:
				t.Errorf("%s: no error: %.500q", c.name, r.body)
			case c.kind != "":
				if fault := classes[c.kind].check(client, r, got.failure); fault != "" || strings.Contains(got.failure.Message, "<") {
					t.Errorf("%s: %s; %+v", c.name, fault, got.failure)
				}
			}
			time.Sleep(31 * time.Second) // the pause that was asked for
		}
	})
}
