package app

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/config"
	"weir/internal/key"
	"weir/internal/sim"
)

// live opens n streams and returns what each got, once all of them have ended.
func (g *gateway) live(n int) (wait func() []*reply) {
	g.t.Helper()
	replies := make([]*reply, n)
	var all sync.WaitGroup
	for i := range n {
		resp, err := g.open(g.t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
		if err != nil || resp.StatusCode != 200 {
			g.t.Fatalf("stream %d: %v %v", i, resp, err)
		}
		all.Go(func() { replies[i] = g.read(resp) })
	}
	return func() []*reply { all.Wait(); return replies }
}

func wide() string { return strings.Replace(oneBackend(""), "cap: 64", "cap: 200", 1) }

// ended waits for Run and returns how long that took.
func (g *gateway) runEnds() time.Duration {
	g.t.Helper()
	start := time.Now()
	select {
	case err := <-g.ended:
		if err != nil {
			g.t.Errorf("Run: %v", err)
		}
	case <-time.After(time.Hour):
		g.t.Fatal("Run does not return")
	}
	g.stopped = true
	return time.Since(start)
}

// F58, C125: on SIGTERM running streams go on, new requests are refused in words, readiness ends at once.
func TestDrainLetsStreamsFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: wide(), sims: oai(sim.Behaviour{Chunks: 12, Gap: time.Second})})
		wait := g.live(100)
		time.Sleep(3500 * time.Millisecond)
		g.app.Drain()
		synctest.Wait()
		for _, path := range []string{g.url + "/readyz", g.admin + "/readyz"} {
			if r := g.get(path); r.status != 503 {
				t.Errorf("%s: %d", path, r.status)
			}
		}
		if r := g.get("/livez"); r.status != 200 {
			t.Errorf("livez: %d", r.status)
		}
		r := g.chat(true)
		if f := r.failed(); r.status != 503 || f.Code != "shutting_down" || r.header.Get("Retry-After") == "" {
			t.Errorf("a new request: %d %s", r.status, r.body)
		}
		for _, r := range wait() {
			if r.text() == "" {
				t.Error("a stream was dropped inside the time to drain")
			}
		}
		if took := g.runEnds(); took > time.Second {
			t.Errorf("Run returned %v after the last stream", took)
		}
		if _, err := g.open(t.Context(), "GET", "/livez", nil); err == nil {
			t.Error("the listener is still open")
		}
	})
}

// F58: what has not ended at the limit, or at a second SIGTERM, gets one error in its stream; Run ends within a second.
func TestDrainHasAnEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		after   time.Duration // from Drain to Halt; 0: never
		at      time.Duration // the end of the streams
		waiting bool          // the streams have seen no content yet
	}{
		{"at the limit", 0, 5 * time.Second, false},
		{"at a second signal", 2 * time.Second, 2 * time.Second, false},
		{"before content", 0, 5 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := sim.Behaviour{Endless: true, Gap: 700 * time.Millisecond}
				if c.waiting {
					b = sim.Behaviour{Hang: true}
				}
				g := begin(t, setup{yaml: strings.Replace(wide(), "cap: 200", "cap: 50", 1), sims: oai(b), edit: func(c *config.Config) {
					c.Drain = config.Duration(5 * time.Second)
					c.CommitAfter = config.Duration(time.Second)
					c.Limits.FirstContent, c.Limits.Wait = config.Duration(time.Hour), config.Duration(time.Hour)
				}})
				var wait func() []*reply
				var queued *reply
				var asked sync.WaitGroup
				wait = g.live(50)
				asked.Go(func() { queued = g.chat(false) }) // has no slot: it waits in the queue
				time.Sleep(2 * time.Second)
				start := time.Now()
				g.app.Drain()
				if c.after > 0 {
					time.AfterFunc(c.after, g.app.Halt)
				}
				for _, r := range wait() {
					if s := r.said(); s.failure == nil || s.failure.Code != "shutting_down" || c.waiting != (s.texts[0] == "") {
						t.Errorf("a stream ended with %+v, text %.50q", s.failure, s.texts[0])
					}
					if e := g.end(r.id()); e.Kind != "draining" {
						t.Errorf("event %s", e.Raw)
					}
				}
				if got := time.Since(start); got < c.at || got > c.at+time.Second {
					t.Errorf("the streams ended %v after the signal, want %v", got, c.at)
				}
				asked.Wait()
				if f := queued.failed(); queued.status != 503 || f.Code != "shutting_down" {
					t.Errorf("who waited for a slot got %d %s", queued.status, queued.body)
				}
				if g.runEnds(); time.Since(start) > c.at+time.Second {
					t.Errorf("Run returned %v after the signal", time.Since(start))
				}
			})
		})
	}
}

// A client that does not read cannot hold up the end.
func TestDrainDoesNotWaitForADeafClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Endless: true, Gap: time.Millisecond, ChunkSize: 4096}), edit: func(c *config.Config) {
			c.Drain = config.Duration(5 * time.Second)
			c.Server.WriteTimeout = config.Duration(time.Hour)
		}})
		resp, err := g.open(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		time.Sleep(time.Minute) // every buffer is full
		g.app.Drain()
		if took := g.runEnds(); took > 6*time.Second+100*time.Millisecond {
			t.Errorf("Run returned after %v", took)
		}
	})
}

// C123, F41, F42: clients that leave, at any time and in either way, close the upstream connection at once and leave nothing.
func TestC123ClientsThatLeave(t *testing.T) {
	const clients = 60
	stall := sim.Behaviour{Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "stall"}}
	for _, c := range []struct {
		name string
		b    sim.Behaviour
	}{
		{"amid the answer", stall}, {"before the headers", sim.Behaviour{Hang: true}}, {"while it streams", sim.Behaviour{Endless: true, Gap: 50 * time.Millisecond}},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", c.name, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: wide(), sims: oai(c.b), quiet: true})
					var gone sync.WaitGroup
					for range clients {
						ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
						gone.Go(func() {
							defer cancel()
							resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(chatBody(stream)))
							if err == nil {
								_, _ = io.Copy(io.Discard, resp.Body)
								resp.Body.Close()
							}
						})
					}
					gone.Wait()
					left := time.Now()
					g.settle()
					if took := time.Since(left); took > 100*time.Millisecond {
						t.Errorf("all was quiet %v after the clients left", took)
					}
					calls := g.sim().Calls("")
					for _, a := range calls {
						if a.End != sim.Left || a.Left.Sub(left) > 100*time.Millisecond {
							t.Errorf("upstream: %s, left %v", a.End, a.Left.Sub(left))
						}
					}
					time.Sleep(time.Second)
					n := 0
					for _, e := range g.lines.all() {
						if e.Event == "end" {
							n++
							if e.Kind != "canceled" || e.Status != 499 && e.Status != 200 {
								t.Errorf("event %s", e.Raw)
							}
						}
					}
					if n != clients || len(calls) != clients {
						t.Errorf("%d ends and %d calls of %d requests", n, len(calls), clients)
					}
				})
			})
		}
	}
}

// The same on real sockets: no file descriptor stays open (I8).
func TestC123LeavesNoSockets(t *testing.T) {
	g := begin(t, setup{real: true, yaml: wide(), sims: oai(sim.Behaviour{Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "stall"}})})
	before := openFiles(t)
	for range 30 {
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(chatBody(true)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		cancel()
		resp.Body.Close()
	}
	g.settle()
	deadline := time.Now().Add(2 * time.Second)
	for openFiles(t) > before+2 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	if after := openFiles(t); after > before+2 {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

// A half close counts as leaving, and nothing that looks like an answer is sent.
func TestHalfCloseIsLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Hang: true})})
		c, err := g.dial(t.Context(), "tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		body := chatBody(false)
		fmt.Fprintf(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", g.key, len(body), body)
		time.Sleep(time.Second)
		start := time.Now()
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		got, _ := io.ReadAll(c)
		if len(got) > 0 || time.Since(start) > 100*time.Millisecond {
			t.Errorf("after %v the client got %q", time.Since(start), got)
		}
		g.settle()
		if a := g.sim().Calls("")[0]; a.End != sim.Left || a.Left.Sub(start) > 100*time.Millisecond {
			t.Errorf("upstream: %+v", a)
		}
	})
}

// F40: who leaves while waiting for a slot is out of the queue at once and never reaches the backend.
func TestLeavingTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: strings.Replace(oneBackend(""), "cap: 64", "cap: 1, queue: 1", 1), sims: oai(sim.Behaviour{Deltas: []string{"do", "ne"}, Gap: 5 * time.Second})})
		first := g.live(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.open(ctx, "POST", "/v1/chat/completions", strings.NewReader(chatBody(true))); err == nil {
			t.Error("a second call got through a cap of 1")
		}
		synctest.Wait()
		if u := g.app.graph.pools["a"].Slots.Usage(); u.Waiting != 0 || u.Held != 1 {
			t.Errorf("slots %+v", u)
		}
		if got := first()[0].text(); got != "done" || len(g.sim().Calls("")) != 1 {
			t.Errorf("text %q, %d calls upstream", got, len(g.sim().Calls("")))
		}
	})
}

// F50, F51: a full queue and a wait that is too long are answered 503 with a time, at once and at the limit.
func TestFullAndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: strings.Replace(oneBackend(""), "cap: 64", "cap: 1, queue: 1", 1), sims: oai(sim.Behaviour{Gap: 12 * time.Second, Chunks: 4})})
		first := g.live(1)
		start := time.Now()
		var all sync.WaitGroup
		var late *reply
		all.Go(func() { late = g.chat(true) })
		synctest.Wait()
		r := g.chat(true)
		if f := r.failed(); r.status != 503 || f.Code != "queue_full" || r.header.Get("Retry-After") == "" || time.Since(start) != 0 {
			t.Errorf("a full queue: after %v %d %s", time.Since(start), r.status, r.body)
		}
		all.Wait()
		if f := late.failed(); late.status != 503 || f.Code != "queue_full" || time.Since(start) != 20*time.Second {
			t.Errorf("a long wait: after %v %d %s", time.Since(start), late.status, late.body)
		}
		first()[0].text()
	})
}

// A key's limit of concurrent requests is given back however a request ends.
func TestConcurrentLimitOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{sims: oai(sim.Behaviour{Gap: time.Second, Chunks: 3}, sim.Behaviour{Status: 500}, sim.Behaviour{Text: "ok"})})
		g.key = g.newKey(key.Spec{Name: "one", Concurrent: 1})
		first := g.live(1)
		if r := g.chat(true); r.status != 429 || r.header.Get("Retry-After") == "" {
			t.Errorf("a second request: %d %s", r.status, r.body)
		}
		first()[0].text()
		g.chat(true).failed()
		if got := g.chat(true).text(); got != "ok" {
			t.Errorf("text %q", got)
		}
	})
}
