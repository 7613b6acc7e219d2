package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/sim"
)

// whileOneHangs sends a request that hangs and returns once it has the only slot; stop ends it and waits for that.
func (g *gateway) whileOneHangs() (stop func()) {
	g.t.Helper()
	ctx, leave := context.WithCancel(g.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if resp, err := g.open(ctx, "POST", chatAPI.path, strings.NewReader(chatAPI.ask("oai-m", false))); err == nil {
			g.read(resp)
		}
	}()
	limit, end := context.WithTimeout(ctx, 5*time.Second)
	defer end()
	if err := g.sims["c"].WaitActive(limit, 1); err != nil {
		g.t.Error(err)
	}
	return func() { leave(); <-done }
}

// details returns what the events of a name say for a request; call end first.
func (g *gateway) details(id, name string) (list []string) {
	for _, r := range g.lines.all() {
		if r.Request == id && r.Event == name {
			list = append(list, r.Reason+" "+r.Detail)
		}
	}
	return list
}

// poisons are histories that a strict server refuses, at every turn again, in each client's API; each with a word of the
// note that its repair leaves.
var poisons = map[*api][]struct{ name, history, note string }{
	chatAPI: {
		{"malformed arguments", `{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"p\":"}}]},{"role":"tool","tool_call_id":"a","content":"1"}`, "tool_calls[0]"},
		{"C039 null ids", `{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":null,"type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":null,"content":"1"}`, "given an id"},
		{"an empty name", `{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"}`, "no name"},
		{"an orphan", `{"role":"user","content":"x"},{"role":"tool","tool_call_id":"lost","content":"1"}`, "messages[1]"},
		{"a result twice", `{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"tool","tool_call_id":"a","content":"2"}`, "messages[3]"},
		{"no result", `{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`, "messages["},
	},
	messagesAPI: {
		{"an orphan", `{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"lost","content":"1"}]}`, "messages[2]"},
		{"a result twice", `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"},{"type":"tool_result","tool_use_id":"a","content":"2"}]}`, "messages[2]"},
		{"an empty name", `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}`, "no name"},
		{"no result", `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`, "messages["},
		{"an input that is text", `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":"{\"p\":"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}`, "tool_calls[0]"},
	},
	responsesAPI: {
		{"malformed arguments", `{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{\"p\":"},{"type":"function_call_output","call_id":"a","output":"1"}`, "tool_calls[0]"},
		{"an orphan", `{"role":"user","content":"x"},{"type":"function_call_output","call_id":"lost","output":"1"}`, "["},
		{"a result twice", `{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"1"},{"type":"function_call_output","call_id":"a","output":"2"}`, "["},
		{"no result", `{"role":"user","content":"x"},{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, "["},
	},
}

// A history that no server would take any more goes on, whatever the client and the server speak, and each repair is an
// event that names its place and none of its words.
func TestPoisonedHistoriesGoOn(t *testing.T) {
	for _, client := range apis {
		for _, p := range poisons[client] {
			for _, model := range []string{"oai-m", "ant-m", "res-m", "loc-m"} {
				t.Run(client.name+" to "+model+", "+p.name, func(t *testing.T) {
					g := polyglot(t, sim.Behaviour{Text: "fine", Refuse: []string{"tool_order", "bad_arguments"}})
					history := p.history + `,{"role":"user","content":"go on"}`
					member := "messages"
					if client == responsesAPI {
						member = "input"
					}
					body := fmt.Sprintf(`{"model":%q,%q:[%s],"max_tokens":50,%s}`, model, member, history, client.offer())
					if client == responsesAPI {
						body = strings.Replace(body, "max_tokens", "max_output_tokens", 1)
					}
					r, got := g.talk(client, body)
					up := g.upstream(model)
					if got.text != "fine" {
						t.Fatalf("%d %s\nupstream %s", r.status, r.body, up.Body)
					}
					g.end(r.id())
					notes := g.details(r.id(), "repair")
					if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "history ") && strings.Contains(n, p.note) }) {
						t.Errorf("repairs %q, want one with %q; upstream %s", notes, p.note, up.Body)
					}
					if strings.Contains(string(up.Body), `id":null`) {
						t.Errorf("null ids went up: %s", up.Body)
					}
				})
			}
		}
	}
}

// What is well formed and of the backend's own API goes up byte by byte, without a note.
func TestGoodHistoryIsUntouched(t *testing.T) {
	bodies := map[*api]string{
		chatAPI:      `{ "model": "m" , "temperature":1.0,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{ \"n\" : 12345678901234567890 }"}}]},{"role":"tool","tool_call_id":"a","content":"1"},{"role":"user","content":"\u4eac go on"}],"future":{"x":[1e2]},"stream":false}`,
		messagesAPI:  `{ "model": "m" ,"max_tokens":50, "temperature":1.0,"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{ "n" : 12345678901234567890 }}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1","cache_control":{"type":"ephemeral"}},{"type":"text","text":"\u4eac go on"}]}],"stream":false}`,
		responsesAPI: `{ "model": "m" ,"store":false,"input":[{"role":"user","content":"x"},{"type":"function_call","id":"fc_1","call_id":"a","name":"f","arguments":"{ \"n\" : 1 }"},{"type":"function_call_output","call_id":"a","output":"1"},{"role":"user","content":"\u4eac go on"}],"stream":false}`,
	}
	for _, client := range apis {
		yaml := strings.Replace(strings.ReplaceAll(tongues, "tier: gpu", "tier: gpu, stream: as_asked, usage: leave"), "aliases: {m: c/m", "aliases: {m: "+tongueOf[backs[client]]+"/m", 1)
		g := begin(t, setup{yaml: yaml, sims: map[string]sim.Script{"c": {}, "m": {Server: sim.Anthropic}, "r": {}}})
		r, got := g.talk(client, bodies[client])
		if up := g.upstream(backs[client]); got.failure != nil || string(up.Body) != bodies[client] {
			t.Errorf("%s: %d %s; the server had\n%s\nwant\n%s", client.name, r.status, r.body, up.Body, bodies[client])
		}
		g.end(r.id())
		if notes := append(g.details(r.id(), "repair"), g.details(r.id(), "drop")...); len(notes) > 0 {
			t.Errorf("%s: %q", client.name, notes)
		}
	}
}

// What a backend's API has no place for is an event that names it, and never stops the request.
func TestWhatIsDroppedIsNamed(t *testing.T) {
	for _, c := range []struct {
		client *api
		model  string
		more   string
		want   []string
	}{
		{responsesAPI, "oai-m", `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}}},{"type":"namespace","name":"n","tools":[]},{"type":"web_search","external_web_access":true}]`, []string{"tools[1]", "tools[2]"}},
		{responsesAPI, "ant-m", `"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}}},{"type":"web_search"}]`, []string{"tools[1]"}},
		{messagesAPI, "res-m", `"top_k":5`, []string{"top_k"}},
		{messagesAPI, "oai-m", `"context_management":{"edits":[]}`, []string{"context_management"}},
		{chatAPI, "ant-m", `"logit_bias":{"1":2}`, []string{"logit_bias"}},
		{chatAPI, "res-m", `"seed":7`, []string{"seed"}},
	} {
		g := polyglot(t, sim.Behaviour{Text: "fine"})
		for _, stream := range []bool{true, false} {
			r, got := g.talk(c.client, c.client.ask(c.model, stream, c.more))
			if got.text != "fine" {
				t.Errorf("%s to %s: %d %s", c.client.name, c.model, r.status, r.body)
			}
			g.end(r.id())
			notes := g.details(r.id(), "drop")
			for _, w := range c.want {
				if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "dialect ") && strings.Contains(n, w) }) {
					t.Errorf("%s to %s, %s: drops %q", c.client.name, c.model, c.more, notes)
				}
			}
		}
	}
}
