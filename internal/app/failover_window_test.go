package app

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/sim"
)

// windows is a route over pools s1, s2, … with these context windows; 0 is unknown.
func windowsYAML(windows ...int) string {
	yaml := steps(len(windows))
	for i, w := range windows {
		if w > 0 {
			yaml = strings.Replace(yaml, fmt.Sprintf("{backend: s%d, cap: 8", i+1), fmt.Sprintf("{backend: s%d, cap: 8, window: %d", i+1, w), 1)
		}
	}
	return yaml
}

// long prompts: n tokens by the estimate.
func (g *gateway) prompt(n int, stream bool) *reply {
	g.t.Helper()
	return g.post("/v1/chat/completions", fmt.Sprintf(`{"model":"oai-m","stream":%v,"messages":[{"role":"user","content":"%s"}]}`, stream, strings.Repeat("word", n-4)))
}

// C095, F34: a step whose window is surely too small is passed over for a larger one; a prompt too long for all is refused
// before a slot is taken; what the estimate cannot tell the server does, and its word leads to a larger window only.
func TestWindows(t *testing.T) {
	ok := func(text string) *sim.Behaviour { return &sim.Behaviour{Text: text} }
	over := func(tokens int) *sim.Behaviour { return &sim.Behaviour{Context: tokens} }
	for _, c := range []struct {
		name    string
		windows []int
		list    []*sim.Behaviour
		tokens  int
		text    string // the answer; empty: an error
		status  int
		code    string
		says    []string
		after   string
		skips   []string
		calls   []int
	}{
		{name: "it fits", windows: []int{8192, 131072}, list: []*sim.Behaviour{ok("first"), ok("second")}, tokens: 7000, text: "first", calls: []int{1, 0}},
		{name: "the first is too small", windows: []int{8192, 131072}, list: []*sim.Behaviour{ok("first"), ok("second")}, tokens: 10000, text: "second", skips: []string{"window s1/m"}, calls: []int{0, 1}},
		{name: "C095 the first is busy, the second too small", windows: []int{131072, 8192, 131072}, list: []*sim.Behaviour{{Status: 429, RetryAfter: "30"}, ok("no"), ok("third")}, tokens: 10000,
			text: "third", skips: []string{"window s2/m", "failed s1/m busy"}, calls: []int{1, 0, 1}},
		{name: "C095 the first is busy, the rest too small", windows: []int{131072, 8192}, list: []*sim.Behaviour{{Status: 429, RetryAfter: "30"}, ok("no")}, tokens: 10000,
			status: 429, code: "upstream_busy", after: "30", skips: []string{"window s2/m", "failed s1/m busy"}, calls: []int{1, 0}},
		{name: "C095 a fallback that is too small after all", windows: []int{0, 0, 0}, list: []*sim.Behaviour{{Status: 429, RetryAfter: "30"}, over(8192), ok("third")}, tokens: 10000,
			text: "third", skips: []string{"failed s1/m busy", "failed s2/m too_long"}, calls: []int{1, 1, 1}},
		{name: "C095 nothing fits in the end", windows: []int{0, 0}, list: []*sim.Behaviour{{Status: 429, RetryAfter: "30"}, over(8192)}, tokens: 10000,
			status: 429, code: "upstream_busy", after: "30", says: []string{"s1/m busy", "s2/m too_long"}, calls: []int{1, 1}},
		{name: "surely too long for all", windows: []int{8192, 4096}, list: []*sim.Behaviour{ok("no"), ok("no")}, tokens: 20000,
			status: 400, code: "context_length_exceeded", says: []string{"20000", "8192"}, calls: []int{0, 0}},
		{name: "perhaps too long for all: the server is asked", windows: []int{4096, 8192}, list: []*sim.Behaviour{ok("no"), over(8192)}, tokens: 10000,
			status: 400, code: "context_length_exceeded", says: []string{"8192", "9999"}, skips: []string{"window s1/m", "failed s2/m too_long"}, calls: []int{0, 1}},
		{name: "perhaps too long, and it fits", windows: []int{9500}, list: []*sim.Behaviour{ok("it did")}, tokens: 10000, text: "it did", calls: []int{1}},
		{name: "F34 the server's word goes to a larger window", windows: []int{10000, 131072}, list: []*sim.Behaviour{over(8000), ok("second")}, tokens: 9800,
			text: "second", skips: []string{"failed s1/m too_long"}, calls: []int{1, 1}},
		{name: "F34 and passes a smaller one over", windows: []int{10000, 8000, 131072}, list: []*sim.Behaviour{over(8500), ok("no"), ok("third")}, tokens: 8700,
			text: "third", skips: []string{"failed s1/m too_long", "window s2/m"}, calls: []int{1, 0, 1}},
		{name: "F34 with no larger one", windows: []int{10000, 8000}, list: []*sim.Behaviour{over(8200), ok("no")}, tokens: 8700,
			status: 400, code: "context_length_exceeded", says: []string{"8200", "8699", "s2/m window"}, calls: []int{1, 0}},
		{name: "F34 the larger one refuses too", windows: []int{10000, 10000}, list: []*sim.Behaviour{over(8000), over(9000)}, tokens: 9800,
			status: 400, code: "context_length_exceeded", says: []string{"9799"}, calls: []int{1, 1}},
		{name: "F34 of unknown windows each is asked", windows: []int{0, 0, 0}, list: []*sim.Behaviour{over(8000), over(9000), ok("third")}, tokens: 9800,
			text: "third", skips: []string{"failed s1/m too_long", "failed s2/m too_long"}, calls: []int{1, 1, 1}},
		{name: "a larger one that is broken", windows: []int{8192, 131072}, list: []*sim.Behaviour{ok("no"), {Status: 500}}, tokens: 10000,
			status: 502, code: "upstream_refused", skips: []string{"window s1/m", "failed s2/m refused"}, calls: []int{0, 1}},
	} {
		for _, stream := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, stream %v", c.name, stream), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := begin(t, setup{yaml: windowsYAML(c.windows...), sims: scripts(c.list...)})
					r := g.prompt(c.tokens, stream)
					if c.text != "" {
						if got := r.text(); got != c.text {
							t.Errorf("text %q, want %q", got, c.text)
						}
					} else if f := r.failed(); r.status != c.status || f.Code != c.code || r.header.Get("Retry-After") != c.after {
						t.Errorf("%d, Retry-After %q, %s", r.status, r.header.Get("Retry-After"), r.body)
					} else {
						for _, s := range c.says {
							if !strings.Contains(f.Message, s) {
								t.Errorf("message %q lacks %q", f.Message, s)
							}
						}
					}
					e := g.end(r.id())
					if got := g.skips(r.id()); c.skips != nil && !slices.Equal(got, c.skips) {
						t.Errorf("skipped %q, want %q: %s", got, c.skips, e.Raw)
					}
					for i, want := range c.calls {
						if n := g.callsOf(fmt.Sprintf("s%d", i+1), r.id()); n != want {
							t.Errorf("s%d was called %d times, want %d", i+1, n, want)
						}
					}
				})
			})
		}
	}
}

// A prompt that is surely too long waits for no slot: it is refused at once where every slot is taken and nobody may wait.
func TestTooLongBeforeASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yaml := strings.Replace(windowsYAML(4096), "cap: 8", "cap: 1, queue: 0", 1)
		g := begin(t, setup{yaml: yaml, sims: scripts(&sim.Behaviour{Gap: time.Second, Chunks: 10})})
		wait := g.live(1)
		for _, stream := range []bool{true, false} {
			start := time.Now()
			r := g.prompt(9000, stream)
			if f := r.failed(); r.status != 400 || f.Code != "context_length_exceeded" || !strings.Contains(f.Message, "9000") || !strings.Contains(f.Message, "4096") || f.Param == nil || time.Since(start) != 0 {
				t.Errorf("after %v: %d %s", time.Since(start), r.status, r.body)
			}
			if e := g.end(r.id()); e.Kind != "too_long" || len(e.Attempts) != 0 {
				t.Errorf("%s", e.Raw)
			}
		}
		wait()
	})
}

// A larger window that cannot serve now is no reason to shorten the prompt: the client gets 503, and when to come again.
func TestLargerWindowThatIsOut(t *testing.T) {
	for name, b := range map[string]*sim.Behaviour{"denied": {Status: 401}, "gone": {Status: 404}, "paused": {Status: 503, RetryAfter: "30"}} {
		for _, known := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, window known %v", name, known), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					first := 0
					if known {
						first = 8192
					}
					g := begin(t, setup{yaml: windowsYAML(first, 131072), sims: scripts(&sim.Behaviour{Context: 8192}, b)})
					g.prompt(10000, true).failed()              // takes s2 out
					for _, tokens := range []int{10000, 8900} { // passed over by the estimate, refused by the server
						r := g.prompt(tokens, true)
						f := r.failed()
						if r.status != 503 || f.Code != "no_backend" || r.header.Get("Retry-After") == "" || !strings.Contains(f.Message, "s2/m "+name) {
							t.Errorf("%d tokens: %d %s", tokens, r.status, r.body)
						}
					}
				})
			})
		}
	}
}

// A smaller one that cannot serve changes nothing: the prompt is too long.
func TestSmallerWindowThatIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: windowsYAML(8000, 8500), sims: scripts(&sim.Behaviour{Status: 401}, &sim.Behaviour{Context: 8500})})
		g.askFor("s1/m", true).failed()
		r := g.prompt(8750, true)
		if f := r.failed(); r.status != 400 || f.Code != "context_length_exceeded" || !strings.Contains(f.Message, "s1/m window") {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

// One that live traffic has taken out is the last usable step for a prompt that is too long for the others.
func TestLargerWindowThatRestsIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: windowsYAML(8192, 131072), sims: scripts(&sim.Behaviour{Context: 8192}, &sim.Behaviour{Status: 500})})
		for range 5 {
			g.askFor("s2/m", true).failed()
		}
		if err := g.sims["s2"].Set("m", sim.Behaviour{Text: "second"}); err != nil {
			t.Fatal(err)
		}
		for _, tokens := range []int{8900, 10000} {
			if got := g.prompt(tokens, true).text(); got != "second" {
				t.Errorf("%d tokens: text %q", tokens, got)
			}
		}
	})
}

// C083, F34: an overflow in each server's words and place is one kind: another step where there is a larger one, else 400
// with the upstream's words; nobody's health suffers.
func TestC083OverflowInEveryShape(t *testing.T) {
	whole := func(status int, body string) sim.Behaviour {
		return sim.Behaviour{Status: status, Headers: map[string]string{"Content-Type": "application/json"}, Body: sim.Bytes(body)}
	}
	type shape struct {
		name   string
		b      sim.Behaviour
		server sim.Flavour
		says   string
	}
	shapes := []shape{
		{"a code alone", whole(400, `{"error":{"code":"context_length_exceeded","message":"x"}}`), "", "x"},
		{"vLLM, flat", whole(400, `{"object":"error","message":"This model's maximum context length is 32768 tokens. However, you requested 33077 tokens","code":400}`), "", "33077"},
		{"llama.cpp", whole(400, `{"error":{"code":400,"type":"exceed_context_size_error","message":"the request exceeds the available context size","n_ctx":4096}}`), "", "exceeds the available context size"},
		{"a 200 stream", sim.Behaviour{StreamError: &sim.StreamError{Error: []byte(`{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens).","code":400}`)}}, "", "9000"},
		{"Anthropic", whole(400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`), "", "210000"},
	}
	for _, server := range []sim.Flavour{sim.OpenAI, sim.LlamaCPP, sim.VLLM, sim.SGLang, sim.LMStudio} {
		for _, status := range []int{400, 500, 200} {
			shapes = append(shapes, shape{fmt.Sprintf("%s with %d", server, status), sim.Behaviour{Context: 2, ContextStatus: status}, server, "2"})
		}
	}
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := waysSims(&c.b)
				for _, name := range []string{"s1", "s2"} {
					script := s[name]
					script.Server = c.server
					s[name] = script
				}
				g := begin(t, setup{yaml: waysYAML("http", ""), sims: s})
				for round := range 2 { // in the second the window is known where the refusal named it
					for _, w := range ways() {
						r := g.askWay(w)
						e := g.end(r.id())
						if w.steps > 1 {
							if got := r.text(); !strings.HasPrefix(got, "healthy") || round == 0 && e.Attempts[0].Kind != "too_long" {
								t.Errorf("%v: text %q: %s", w, got, e.Raw)
							}
							continue
						}
						if f := r.failed(); r.status != 400 || f.Code != "context_length_exceeded" || round == 0 && !strings.Contains(f.Message, c.says) || r.header.Get("X-Should-Retry") != "false" {
							t.Errorf("%v: %d %s", w, r.status, r.body)
						}
						if round == 0 && len(e.Attempts) != 1 || e.Kind != "too_long" {
							t.Errorf("%v: %s", w, e.Raw)
						}
					}
				}
				for range 12 {
					g.askFor("judge/m", true).failed()
				}
				if list := g.facts("health"); len(list) > 0 {
					t.Errorf("I12: health events %q", list)
				}
			})
		})
	}
}
