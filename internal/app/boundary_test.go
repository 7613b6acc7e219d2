package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"weir/internal/key"
	"weir/internal/llm"
	"weir/internal/sim"
)

// boundaryYAML has an inside and an outside step in both orders, and a local route.
const boundaryYAML = `
backends:
  in:  {url: "http://in.sim", tier: floor, server: llamacpp}
  out: {url: "http://out.sim", tier: cloud}
  far: {url: "http://far.sim", tier: gpu, outside: true}
pools:
  in:  {backend: in, cap: 4, models: [m, emb]}
  out: {backend: out, cap: 4, models: [m, emb]}
  far: {backend: far, cap: 4, models: [m]}
routes:
  first: {steps: [out/m, far/m, in/m]}
  last:  {steps: [in/m, out/m]}
  local: {steps: [in/m], boundary: local}
  cloud: {steps: [out/m, far/m]}
aliases: {first: first, last: last, local: local, cloud: cloud, far: far/m, emb: out/emb}
`

// A request whose key, route or header says local never leaves, whatever it asks for and whatever fails inside: streamed or
// not, by every API, and where a count of tokens is asked for; nothing left says so.
func TestABoundaryIsNeverCrossed(t *testing.T) {
	ways := map[string]struct {
		spec    key.Spec
		headers []string
		alias   string // asked for in place of every other one
	}{
		"the key":                       {spec: key.Spec{Boundary: key.Local}},
		"the header":                    {headers: []string{"X-Weir-Boundary", "local"}},
		"the route":                     {alias: "local"},
		"the key, a header that widens": {spec: key.Spec{Boundary: key.Local}, headers: []string{"X-Weir-Boundary", "any"}},
	}
	for name, w := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: boundaryYAML, quiet: true, sims: map[string]sim.Script{"in": {Server: sim.LlamaCPP}, "out": {}, "far": {}}})
				// The outside backends are warm: an idle connection waits at each.
				for _, alias := range []string{"cloud", "far"} {
					if r := g.askFor(alias, false); r.status != 200 {
						t.Fatalf("%s: %d %s", alias, r.status, r.body)
					}
				}
				g.forget()
				w.spec.Name = "limited"
				token := g.newKey(w.spec)
				headers := append([]string{"Authorization", "Bearer " + token}, w.headers...)
				ask := func(alias string) {
					if w.alias != "" {
						alias = w.alias
					}
					for _, client := range []*api{chatAPI, messagesAPI, responsesAPI} {
						for _, stream := range []bool{true, false} {
							g.talk(client, client.ask(alias, stream), headers...)
						}
					}
					count := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, alias)
					g.post("/v1/messages/count_tokens", count, headers...)
				}
				aliases := []string{"first", "last", "cloud", "far", "local", "out/m", "far/m"}
				for _, b := range []sim.Behaviour{{}, {Status: 500}, {Hang: true}, {Status: 429}} {
					must(t, g.sims["in"].Set("m", b))
					for _, alias := range aliases {
						ask(alias)
					}
				}
				g.post("/v1/embeddings", `{"model":"emb","input":"hi"}`, headers...)
				for _, server := range []string{"out", "far"} {
					if n := len(g.sims[server].Calls("")); n != 0 && !(w.alias != "" && server == "out" && n == 1) {
						t.Errorf("%d calls reached %s", n, server)
					}
				}
				if w.alias != "" {
					return
				}
				must(t, g.sims["in"].Set("m", sim.Behaviour{}))
				r := g.post("/v1/chat/completions", strings.Replace(chatBody(false), "oai-m", "cloud", 1), headers...)
				if e := g.end(r.id()); e.Kind != "none" || r.status != 503 || !strings.Contains(string(r.body), "may not leave the machines you own") {
					t.Errorf("nothing left: kind %s, %d %s", e.Kind, r.status, r.body)
				}
				if got := g.skips(r.id()); len(got) != 2 || !strings.Contains(got[0], "boundary") {
					t.Errorf("skips %q", got)
				}
			})
		})
	}
}

// A mistake of planning that hands a local request to an outside step sends no byte, over a warm connection either.
func TestAPlanThatCrossesTheBoundarySendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: boundaryYAML, quiet: true, sims: map[string]sim.Script{"in": {Server: sim.LlamaCPP}, "out": {}, "far": {}}})
		if r := g.askFor("cloud", false); r.status != 200 {
			t.Fatalf("%d %s", r.status, r.body)
		}
		g.forget()
		for _, s := range []string{"first", "cloud"} { // the mistake: the table forgets what is outside
			route, ok := g.app.graph.table.Find(s)
			if !ok {
				t.Fatal(s)
			}
			for i := range route.Steps {
				route.Steps[i].Outside = false
			}
		}
		for _, stream := range []bool{true, false} {
			r := g.post("/v1/chat/completions", strings.Replace(chatBody(stream), "oai-m", "first", 1), "X-Weir-Boundary", "local")
			g.end(r.id())
			if r.status != 200 || r.header.Get("X-Weir-Pool") != "in" || !strings.Contains(strings.Join(g.skips(r.id()), ";"), "boundary out/m") {
				t.Errorf("stream %v: %d from %q, skips %q", stream, r.status, r.header.Get("X-Weir-Pool"), g.skips(r.id()))
			}
			r = g.post("/v1/chat/completions", strings.Replace(chatBody(stream), "oai-m", "cloud", 1), "X-Weir-Boundary", "local")
			if e := g.end(r.id()); r.status != 503 || e.Kind != llm.None.String() {
				t.Errorf("stream %v: %d %s", stream, r.status, r.body)
			}
		}
		if n := len(g.sims["out"].Calls("")) + len(g.sims["far"].Calls("")); n != 0 {
			t.Errorf("%d calls went out", n)
		}
	})
}

// A line that a proxy adds does not hide the client's own: each that says local narrows.
func TestTheBoundaryHeaderTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := begin(t, setup{yaml: boundaryYAML, sims: map[string]sim.Script{"in": {Server: sim.LlamaCPP}, "out": {}, "far": {}}})
		for _, lines := range [][]string{{"any", "local"}, {"local", "any"}, {"local", "local"}} {
			req, err := http.NewRequestWithContext(t.Context(), "POST", g.url+"/v1/chat/completions", strings.NewReader(strings.Replace(chatBody(false), "oai-m", "cloud", 1)))
			must(t, err)
			req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + g.key}, "X-Weir-Boundary": lines}
			resp, err := g.client.Do(req)
			must(t, err)
			if r := g.read(resp); r.status != 503 {
				t.Errorf("%q: %d %s", lines, r.status, r.body)
			}
		}
		if n := len(g.sims["out"].Calls("")) + len(g.sims["far"].Calls("")); n != 0 {
			t.Errorf("%d calls went out", n)
		}
	})
}
