package app

import (
	"encoding/json"
	"strings"
	"testing"

	"weir/internal/sim"
)

// countTokens asks for the tokens of a request with words and a tool.
func (g *gateway) countTokens(model string) (n int, estimated bool) {
	g.t.Helper()
	say := strings.Repeat("The river is quiet today. ", 40)
	body := `{"model":"` + model + `","system":"be brief","messages":[{"role":"user","content":"` + say + `"}],"tools":[{"name":"f","description":"what it does","input_schema":{"type":"object","properties":{}}}]}`
	r := g.post(countPath+"?beta=true", body, "Anthropic-Version", "2023-06-01")
	var o struct {
		In *int `json:"input_tokens"`
	}
	if err := json.Unmarshal(r.body, &o); r.status != 200 || err != nil || o.In == nil || r.header.Get("Request-Id") == "" {
		g.t.Fatalf("%s: %d %s", model, r.status, r.body)
	}
	e := g.end(r.id())
	estimated = r.header.Get("X-Weir-Estimated") == "true"
	if e.Kind != "" || e.Tokens.In == nil || *e.Tokens.In != int64(*o.In) || e.Tokens.Estimated != estimated {
		g.t.Errorf("%s: the event %s", model, e.Raw)
	}
	return *o.In, estimated
}

// count_tokens asks the backend's own counter where there is one and estimates elsewhere, marked as such; a counter that
// is not there is not asked again, and nobody is blamed.
func TestCountTokens(t *testing.T) {
	g := begin(t, setup{yaml: tongues, sims: map[string]sim.Script{
		"c": {Server: sim.OpenAI}, "m": {Server: sim.Anthropic}, "r": {Server: sim.OpenAI}, "l": {Server: sim.LlamaCPP}}})
	count := func(model string) (int, bool) { return g.countTokens(model) }
	counted := func(name string) (n int) {
		for _, a := range g.sims[name].Attempts() {
			if a.API == sim.CountTokens {
				n++
			}
		}
		return n
	}
	for model, native := range map[string]bool{"ant-m": true, "loc-m": true, "oai-m": false, "res-m": false} {
		n, estimated := count(model)
		if estimated == native || n < 150 || n > 400 {
			t.Errorf("%s: %d tokens, estimated %v", model, n, estimated)
		}
		want := 0
		if native {
			want = 1
		}
		if got := counted(tongueOf[model]); got != want {
			t.Errorf("%s: its server's counter was asked %d times", model, got)
		}
	}
	if n := len(g.sims["c"].Attempts()) + len(g.sims["r"].Attempts()); n != 0 {
		t.Errorf("%d requests to servers without a counter", n)
	}
	t.Run("a counter that fails", func(t *testing.T) {
		for _, b := range []sim.Behaviour{{Status: 500}, {Status: 529}, {Drop: "rst"}} {
			if err := g.sims["m"].Set(countPath, b); err != nil {
				t.Fatal(err)
			}
			if n, estimated := count("ant-m"); !estimated || n < 150 {
				t.Errorf("%d, %v", n, estimated)
			}
		}
		if _, got := g.talk(messagesAPI, messagesAPI.ask("ant-m", false)); got.failure != nil {
			t.Errorf("its backend is blamed: %+v", got.failure)
		}
	})
	t.Run("a counter that is not there", func(t *testing.T) {
		g = begin(t, setup{yaml: tongues, sims: map[string]sim.Script{"m": {Server: sim.Anthropic, APIs: []sim.API{sim.Messages}}}})
		for i := range 3 {
			if n, estimated := count("ant-m"); !estimated || n < 150 {
				t.Errorf("ask %d: %d, %v", i, n, estimated)
			}
		}
		asked := 0
		for _, a := range g.sims["m"].Attempts() {
			if a.Path == countPath {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("it was asked %d times", asked)
		}
		if _, got := g.talk(messagesAPI, messagesAPI.ask("ant-m", true)); got.failure != nil {
			t.Errorf("its backend is blamed: %+v", got.failure)
		}
		for _, l := range g.lines.all() {
			if l.Event == "health" || l.Event == "alert" {
				t.Errorf("%s", l.Raw)
			}
		}
	})
}
