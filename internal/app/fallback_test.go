package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// steps is a configuration of n backends s1 to sn, each with the model m, and a route over them; more are lines at the top.
func steps(n int, more ...string) string {
	var backends, pools strings.Builder
	var list []string
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&backends, "  s%d: {url: \"http://s%d.sim\", tier: gpu}\n", i, i)
		fmt.Fprintf(&pools, "  s%d: {backend: s%d, cap: 8, models: [m]}\n", i, i)
		list = append(list, fmt.Sprintf("s%d/m", i))
	}
	return strings.Join(more, "\n") + "\nbackends:\n" + backends.String() + "pools:\n" + pools.String() +
		"routes:\n  way: {steps: [" + strings.Join(list, ", ") + "]}\naliases: {oai-m: way}\n"
}

// scripts gives s1, s2, … a behaviour each; a nil one is a server that refuses connections.
func scripts(list ...*sim.Behaviour) map[string]sim.Script {
	m := map[string]sim.Script{}
	for i, b := range list {
		if b != nil {
			m[fmt.Sprintf("s%d", i+1)] = sim.Script{On: map[string]sim.Sequence{"m": {*b}}}
		}
	}
	return m
}

// Whatever fails before the first content, the next step answers and the client sees nothing of it but headers.
func TestFallbackBeforeFirstContent(t *testing.T) {
	for name, c := range map[string]struct {
		b    *sim.Behaviour
		kind string
	}{
		"nobody listens":           {nil, "refused"},
		"500":                      {&sim.Behaviour{Status: 500}, "refused"},
		"503, asked to wait long":  {&sim.Behaviour{Status: 503, RetryAfter: "30"}, "unavailable"},
		"429, asked to wait long":  {&sim.Behaviour{Status: 429, RetryAfter: "30"}, "busy"},
		"429 without a time":       {&sim.Behaviour{Status: 429}, "busy"},
		"529":                      {&sim.Behaviour{Status: 529, RetryAfter: "3"}, "busy"},
		"loading":                  {&sim.Behaviour{Loading: time.Hour}, "loading"},
		"401":                      {&sim.Behaviour{Status: 401}, "denied"},
		"402":                      {&sim.Behaviour{Status: 402}, "denied"},
		"404":                      {&sim.Behaviour{Status: 404}, "gone"},
		"a redirect":               {&sim.Behaviour{Redirect: "http://s2.sim/"}, "refused"},
		"a page":                   {&sim.Behaviour{HTML: true}, "refused"},
		"no body":                  {&sim.Behaviour{NoBody: true}, "refused"},
		"closed at once":           {&sim.Behaviour{Drop: "fin"}, "refused"},
		"reset at once":            {&sim.Behaviour{Drop: "rst"}, "refused"},
		"a role, then a reset":     {&sim.Behaviour{Cut: &sim.Cut{Of: "chunks", How: "rst"}}, "refused"},
		"a role, then a clean end": {&sim.Behaviour{Cut: &sim.Cut{Of: "chunks", How: "end"}}, "stalled"},
		"a role, then silence":     {&sim.Behaviour{Cut: &sim.Cut{Of: "chunks", How: "stall"}}, "slow"},
		"silence":                  {&sim.Behaviour{Hang: true}, "slow"},
		"comments alone":           {&sim.Behaviour{FirstDelay: time.Hour, Ping: time.Second}, "slow"},
		"an overload in a 200":     {&sim.Behaviour{StreamError: &sim.StreamError{Error: []byte(`{"message":"engine down","code":503}`)}}, "unavailable"},
		"broken JSON":              {&sim.Behaviour{Insert: []sim.Insert{{Raw: "data: {\"cho\n\n"}}}, "stalled"},
		"no HTTP":                  {&sim.Behaviour{Raw: "SSH-2.0-OpenSSH_9.9\r\n"}, "refused"},
		"a torn gzip":              {&sim.Behaviour{Gzip: "cut", Cut: &sim.Cut{}}, "refused"},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", name, stream), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: steps(2), sims: scripts(c.b, &sim.Behaviour{Text: "from s2 {nonce}"})})
					start := time.Now()
					r := g.chat(stream)
					if got, want := r.text(), "from s2 s2-000001"; got != want { // I7
						t.Errorf("text %q, want %q", got, want)
					}
					if took := time.Since(start); c.kind == "slow" && took > 15200*time.Millisecond || c.kind != "slow" && took > time.Second {
						t.Errorf("the answer took %v", took)
					}
					for h, want := range map[string]string{
						"X-Weir-Reroute": "fallback from s1/m", "X-Weir-Route": "way", "X-Weir-Pool": "s2", "X-Weir-Model": "m", "X-Weir-Tier": "gpu",
					} {
						if got := r.header.Get(h); got != want {
							t.Errorf("%s: %q, want %q", h, got, want)
						}
					}
					e := g.end(r.id())
					if e.Status != 200 || e.Kind != "" || e.Reroute == nil || *e.Reroute != "fallback" || *e.Pool != "s2" || e.Attempts[0].Kind != c.kind {
						t.Errorf("want a first attempt of kind %s and success: %s", c.kind, e.Raw)
					}
					if got := r.header.Get("X-Weir-Attempts"); got != fmt.Sprint(len(e.Attempts)) {
						t.Errorf("X-Weir-Attempts: %s with %d attempts recorded", got, len(e.Attempts))
					}
					want := []string{"start", "routing", "skip:failed", "reroute:fallback", "end"}
					if diff := cmp.Diff(want, g.events(r.id())); diff != "" {
						t.Errorf("events (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// Three steps are walked in order, each visited once.
func TestFallbackOverThreeSteps(t *testing.T) {
	g := begin(t, setup{yaml: steps(3), sims: scripts(&sim.Behaviour{Status: 500}, nil, &sim.Behaviour{Text: "third"})})
	r := g.chat(true)
	if got := r.text(); got != "third" || r.header.Get("X-Weir-Reroute") != "fallback from s1/m" || r.header.Get("X-Weir-Attempts") != "3" {
		t.Errorf("text %q, headers %v", got, r.header)
	}
	e := g.end(r.id())
	var pools []string
	for _, a := range e.Attempts {
		pools = append(pools, a.Pool)
	}
	if !slices.Equal(pools, []string{"s1", "s2", "s3"}) || e.From != "" {
		t.Errorf("attempts at %v", pools)
	}
	for _, l := range g.lines.all() {
		if l.Event == "reroute" && (l.From != "s1/m" || l.To != "s3/m") {
			t.Errorf("reroute %s", l.Raw)
		}
	}
	if n := len(g.sims["s1"].Calls("")); n != 1 {
		t.Errorf("s1 was called %d times", n)
	}
}

// When every step fails the client gets the failure that ends soonest, else the first one's; never more than three
// generations were spent on it (I3).
func TestEveryStepFails(t *testing.T) {
	bad, busy := &sim.Behaviour{Status: 500}, &sim.Behaviour{Status: 429, RetryAfter: "7"}
	for _, c := range []struct {
		name   string
		list   []*sim.Behaviour
		status int
		code   string
		after  string
		calls  []int
	}{
		{"500 everywhere", []*sim.Behaviour{bad, bad, bad, bad, bad}, 502, "upstream_refused", "", []int{1, 1, 1, 0, 0}},
		{"refusals are no generations", []*sim.Behaviour{nil, nil, nil, nil, bad}, 502, "upstream_refused", "", []int{0, 0, 0, 0, 1}},
		{"one is only busy", []*sim.Behaviour{bad, busy, bad}, 429, "upstream_busy", "7", []int{1, 1, 1}},
		{"the client's own fault ends the walk", []*sim.Behaviour{bad, {Status: 400}, bad}, 400, "", "", []int{1, 1, 0}},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", c.name, stream), func(t *testing.T) {
				g := begin(t, setup{yaml: steps(len(c.list)), sims: scripts(c.list...)})
				r := g.chat(stream)
				if f := r.failed(); r.status != c.status || c.code != "" && f.Code != c.code || r.header.Get("Retry-After") != c.after {
					t.Errorf("%d %s, Retry-After %q", r.status, r.body, r.header.Get("Retry-After"))
				}
				for i, want := range c.calls {
					if s := g.sims[fmt.Sprintf("s%d", i+1)]; s != nil && len(s.Calls("")) != want {
						t.Errorf("s%d was called %d times, want %d", i+1, len(s.Calls("")), want)
					}
				}
			})
		}
	}
}

// After the first content nothing else is tried: the client gets one error.
func TestNoFallbackAfterContent(t *testing.T) {
	for name, b := range map[string]sim.Behaviour{
		"a reset":     {Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "rst"}},
		"silence":     {Deltas: []string{"one ", "two"}, Cut: &sim.Cut{After: 1, Of: "chunks", How: "stall"}},
		"an error":    {Deltas: []string{"one ", "two"}, StreamError: &sim.StreamError{After: 1}},
		"broken JSON": {Deltas: []string{"one ", "two"}, Insert: []sim.Insert{{After: 1, Raw: "data: nonsense\n\n"}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: steps(2), sims: scripts(&b, &sim.Behaviour{})})
				start := time.Now()
				r := g.chat(true)
				r.broke("one ")
				if took := time.Since(start); took > 30*time.Second+250*time.Millisecond { // I4
					t.Errorf("the error came after %v", took)
				}
				if n := len(g.sims["s2"].Calls("")); n != 0 {
					t.Errorf("s2 was called %d times after content had left", n)
				}
				// A client who wants one answer has seen nothing yet: for it the next step answers.
				if got := g.chat(false).text(); len(g.sims["s2"].Calls("")) != 1 || got == "" {
					t.Errorf("assembled: text %q, s2 called %d times", got, len(g.sims["s2"].Calls("")))
				}
			})
		})
	}
}

// Embeddings go to another step only when it serves the same model; the skipped one is an event.
func TestEmbeddingsFallBackToTheSameModelOnly(t *testing.T) {
	yaml := strings.Replace(steps(3), "s2, cap: 8, models: [m]", "s2, cap: 8, models: [other]", 1)
	yaml = strings.Replace(yaml, "s2/m", "s2/other", 1)
	g := begin(t, setup{yaml: yaml, sims: scripts(&sim.Behaviour{Status: 500}, &sim.Behaviour{}, &sim.Behaviour{})})
	for _, c := range []struct{ path, body string }{
		{"/v1/embeddings", `{"model":"oai-m","input":"x"}`}, {"/v1/rerank", `{"model":"oai-m","query":"q","documents":["a","b"]}`},
	} {
		r := g.post(c.path, c.body)
		if r.status != 200 || r.header.Get("X-Weir-Pool") != "s3" || r.header.Get("X-Weir-Reroute") != "fallback from s1/m" {
			t.Errorf("%s: %d %s, headers %v", c.path, r.status, r.body, r.header)
		}
		g.end(r.id())
		if got := g.events(r.id()); !slices.Equal(got, []string{"start", "skip:model", "routing", "skip:failed", "reroute:fallback", "end"}) {
			t.Errorf("events %v", got)
		}
	}
	if n := len(g.sims["s2"].Calls("")); n != 0 {
		t.Errorf("the pool of another model was called %d times", n)
	}
}

// A route or key of the boundary local never leaves; the answer says why.
func TestBoundaryIsKept(t *testing.T) {
	yaml := strings.Replace(steps(2), `s1.sim", tier: gpu`, `s1.sim", tier: cloud`, 1)
	yaml = strings.Replace(yaml, "aliases: {", "aliases: {cloud: s1/m, ", 1)
	g := begin(t, setup{yaml: yaml, sims: scripts(&sim.Behaviour{}, &sim.Behaviour{Text: "inside"})})
	local := []string{"Authorization", "Bearer " + g.newKey(keySpec("local"))}
	r := g.post("/v1/chat/completions", chatBody(true), local...)
	if got := r.text(); got != "inside" || len(g.sims["s1"].Calls("")) != 0 {
		t.Errorf("text %q; the cloud was called %d times", got, len(g.sims["s1"].Calls("")))
	}
	g.end(r.id())
	if got := g.events(r.id()); !slices.Contains(got, "skip:boundary") {
		t.Errorf("events %v", got)
	}
	r = g.post("/v1/chat/completions", strings.Replace(chatBody(false), "oai-m", "cloud", 1), local...)
	if f := r.failed(); r.status != 503 || f.Code != "no_backend" || !strings.Contains(f.Message, "s1/m is outside") || r.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// After commit_after a streaming client gets headers and comments, other steps are still tried, and what the headers
// could not say any more comes in one comment before the end.
func TestCommitAfter(t *testing.T) {
	slow := func(d time.Duration) *sim.Behaviour { return &sim.Behaviour{HeaderDelay: d, Text: "at last"} }
	yaml := func(n int) string { return steps(n, "commit_after: 2s", "limits: {first_content: 30s}") }
	late := func(t *testing.T, s *said) map[string]string {
		t.Helper()
		var found []string
		waiting := 0
		for _, c := range s.comments {
			if text, ok := strings.CutPrefix(c, "weir "); ok {
				found = append(found, text)
			} else if c == "waiting" {
				waiting++
			}
		}
		m := map[string]string{}
		if len(found) != 1 || waiting == 0 || json.Unmarshal([]byte(found[0]), &m) != nil {
			t.Fatalf("comments %q: want some that say waiting and one with the headers", s.comments)
		}
		return m
	}
	for _, c := range []struct {
		name    string
		list    []*sim.Behaviour
		reroute string
		code    any
	}{
		{"a slow first step", []*sim.Behaviour{slow(20 * time.Second)}, "", nil},
		{"a fallback after headers were sent", []*sim.Behaviour{{Hang: true}, slow(3 * time.Second)}, "fallback from s1/m", nil},
		{"all fail after headers were sent", []*sim.Behaviour{{HeaderDelay: 5 * time.Second, Status: 500}, {HeaderDelay: 5 * time.Second, Status: 500}}, "", "upstream_refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: yaml(len(c.list)), sims: scripts(c.list...)})
				start := time.Now()
				r := g.chat(true)
				if got := r.at[0].Sub(start); got != 2*time.Second {
					t.Errorf("the first comment came after %v", got)
				}
				s := r.said()
				if c.code != nil {
					if s.failure == nil || s.failure.Code != c.code {
						t.Errorf("failure %+v", s.failure)
					}
					return
				}
				if s.texts[0] != "at last" || !s.done {
					t.Errorf("text %q, done %v", s.texts[0], s.done)
				}
				m := late(t, s)
				if m["X-Weir-Pool"] != fmt.Sprintf("s%d", len(c.list)) || m["X-Weir-Attempts"] != fmt.Sprint(len(c.list)) || m["X-Weir-Reroute"] != c.reroute || m["X-Weir-Overhead-Ms"] == "" {
					t.Errorf("late headers %v", m)
				}
				for i := 1; i < len(r.at); i++ {
					if gap := r.at[i].Sub(r.at[i-1]); gap > 12*time.Second {
						t.Errorf("%v without a sign of life", gap)
					}
				}
			})
		})
	}
	t.Run("one answer waits in silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := begin(t, setup{yaml: yaml(1), sims: scripts(slow(20 * time.Second))})
			if r := g.chat(false); r.text() != "at last" || r.header.Get("X-Weir-Pool") != "s1" {
				t.Errorf("headers %v", r.header)
			}
		})
	})
}
