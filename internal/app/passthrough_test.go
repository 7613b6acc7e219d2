package app

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// What Weir does not know passes as it is: up byte for byte, but for the model's id, and down in streams and assembled
// answers alike; what it asked for itself does not.
func TestUnknownMembersPass(t *testing.T) {
	const in = `{ "top_k": 40, "cache_prompt":true,"chat_template_kwargs" : {"enable_thinking":false}, "model":"oai-m", "big":12345678901234567890, "f":1.10, "x":{"a":[1,2,null]},"messages":[{"role":"user","content":"h\u0069","extra":1}] }`
	g := begin(t, setup{yaml: strings.Replace(oneBackend(", stream: as_asked"), "[oai-m, emb]", "[{id: oai-m, served_as: real-m}, emb]", 1), sims: map[string]sim.Script{"a": {}}})
	g.post("/v1/chat/completions", in).text()
	if got, want := string(last(g.sim())), strings.Replace(in, `"oai-m"`, `"real-m"`, 1); got != want {
		t.Errorf("upstream got\n%s\nwant\n%s", got, want)
	}
	if g.cfg.Resolve(); g.end(g.post("/v1/chat/completions", in).id()).Served == nil {
		t.Error("the served model is not recorded")
	}

	llama := map[string]sim.Script{"a": {Server: sim.LlamaCPP, On: map[string]sim.Sequence{"oai-m": {{Text: "hi", Reasoning: "hm"}}}}}
	for _, stream := range []bool{true, false} {
		g := begin(t, setup{yaml: oneBackend(", server: llamacpp"), sims: llama})
		r := g.chat(stream)
		if got := r.text(); got != "hi" || r.said().reasoning[0] != "hm" {
			t.Errorf("text %q, reasoning %q", got, r.said().reasoning[0])
		}
		all := string(r.body)
		if !strings.Contains(all, `"timings"`) || !strings.Contains(all, `"system_fingerprint"`) || strings.Contains(all, "prompt_progress") {
			t.Errorf("stream %v: timings, fingerprint or progress: %s", stream, all)
		}
	}
	body := chatBody(true, `"return_progress":true`, `"x_sim":{"text":"seen","times":0}`)
	if got := begin(t, setup{sims: oai(sim.Behaviour{})}).post("/v1/chat/completions", body).text(); got != "seen" {
		t.Errorf("an unknown member did not arrive: %q", got)
	}
}

// content: null in history is sent as the backend takes it.
func TestNullContentOfHistory(t *testing.T) {
	const history = `{"model":"oai-m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"1"},{"tool_calls":[],"role":"assistant","content" : null }]}`
	for more, want := range map[string]any{
		", null_content: empty": []any{"", ""}, ", null_content: omit": []any{"absent", "absent"}, ", null_content: keep": []any{nil, nil},
		", null_content: \"null\"": []any{nil, nil}, ", server: llamacpp": []any{"", ""}, ", server: openai": []any{nil, nil},
	} {
		for _, stream := range []string{"as_asked", "auto"} {
			var refuse []string
			if want.([]any)[0] == "" {
				refuse = []string{"null_content"}
			}
			g := begin(t, setup{yaml: oneBackend(more + ", stream: " + stream), sims: oai(sim.Behaviour{Refuse: refuse})})
			g.post("/v1/chat/completions", history).text()
			var got []any
			for _, m := range object(t, last(g.sim()))["messages"].([]any) {
				if m := m.(map[string]any); m["role"] == "assistant" {
					c, there := m["content"]
					if !there {
						c = "absent"
					}
					got = append(got, c)
				}
			}
			if diff := cmp.Diff(want, any(got)); diff != "" {
				t.Errorf("%s, contents upstream (-want +got):\n%s", more, diff)
			}
		}
	}
}

// A pool's sampling defaults, forces and strips, and leaves everything else.
func TestSamplingOfAPool(t *testing.T) {
	yaml := strings.Replace(oneBackend(""), "models: [oai-m, emb]}", `models: [oai-m, emb], sampling: {temperature: {default: 0.2}, top_p: {force: 0.9}, logit_bias: {strip: true}, min_p: {strip: true}}}`, 1)
	g := begin(t, setup{yaml: yaml, sims: oai(sim.Behaviour{})})
	for _, c := range []struct {
		sent string
		want map[string]any
	}{
		{`"seed":1`, map[string]any{"temperature": 0.2, "top_p": 0.9, "seed": 1.0}},
		{`"temperature":1.5,"top_p":0.1,"logit_bias":{"5":-100},"min_p":0.05,"stop":["x"]`, map[string]any{"temperature": 1.5, "top_p": 0.9, "stop": []any{"x"}}},
		{`"temperature":null,"top_p":null`, map[string]any{"temperature": 0.2, "top_p": 0.9}},
		{`"temperature":0`, map[string]any{"temperature": 0.0, "top_p": 0.9}},
	} {
		for _, stream := range []bool{true, false} {
			g.chat(stream, c.sent).text()
			up := object(t, last(g.sim()))
			for _, own := range []string{"model", "messages", "stream", "stream_options"} {
				delete(up, own)
			}
			if diff := cmp.Diff(c.want, up); diff != "" {
				t.Errorf("%s, stream %v, upstream (-want +got):\n%s", c.sent, stream, diff)
			}
		}
	}
}

// Tool calls are exact in every way of answering, whatever the server does with index and id.
func TestToolCalls(t *testing.T) {
	const tools = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`
	for _, tool := range []string{"call", "parallel", "text_and_call"} {
		var want string
		for _, k := range kindsOfAnswer {
			g := begin(t, setup{yaml: k.yaml, sims: oai(sim.Behaviour{Tool: tool})})
			s := g.chat(k.stream, tools).said()
			if s.finish[0] != "tool_calls" || len(s.calls) == 0 {
				t.Fatalf("%s, %s: finish %q, calls %v", tool, k.name, s.finish[0], s.calls)
			}
			var got []string
			for i := range len(s.calls) {
				id, call, _ := strings.Cut(s.calls[i], " ")
				if _, arguments, _ := strings.Cut(call, "weather"); id == "" || !json.Valid([]byte(arguments)) {
					t.Errorf("%s, %s: call %q", tool, k.name, s.calls[i])
				}
				got = append(got, call)
			}
			slices.Sort(got)
			if all := strings.Join(got, "; ") + s.texts[0]; want == "" {
				want = all
			} else if all != want {
				t.Errorf("%s, %s: %s, in a stream %s", tool, k.name, all, want)
			}
		}
	}
}
