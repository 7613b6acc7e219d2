package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// tongues are backends of every kind: c speaks Chat Completions, m Messages, r Responses, and l is a llama-server. Their
// models are oai-m, ant-m, res-m and loc-m for clients.
const tongues = `
backends:
  c: {url: "http://c.sim", tier: gpu, server: openai}
  m: {url: "http://m.sim", tier: gpu, server: anthropic}
  r: {url: "http://r.sim", tier: gpu, server: openai, dialect: responses}
  l: {url: "http://l.sim", tier: gpu, server: llamacpp}
pools:
  c: {backend: c, cap: 8, models: [m, emb]}
  m: {backend: m, cap: 8, models: [m, emb]}
  r: {backend: r, cap: 8, models: [m, emb]}
  l: {backend: l, cap: 8, models: [m, emb]}
aliases: {m: c/m, oai-m: c/m, ant-m: m/m, res-m: r/m, loc-m: l/m, ant-emb: m/emb}
`

var tongueOf = map[string]string{"oai-m": "c", "ant-m": "m", "res-m": "r", "loc-m": "l"}

// polyglot starts a gateway over tongues, whose servers all behave as b.
func polyglot(t *testing.T, b ...sim.Behaviour) *gateway {
	t.Helper()
	s := setup{yaml: tongues, sims: map[string]sim.Script{}}
	for name, server := range map[string]sim.Flavour{"c": sim.OpenAI, "m": sim.Anthropic, "r": sim.OpenAI, "l": sim.LlamaCPP} {
		s.sims[name] = sim.Script{Server: server, On: map[string]sim.Sequence{}}
		if len(b) > 0 {
			s.sims[name].On["m"] = b
		}
	}
	return begin(t, s)
}

// behave makes the server of a model behave so.
func (g *gateway) behave(model string, b sim.Behaviour) {
	g.t.Helper()
	if err := g.sims[tongueOf[model]].Set("m", b); err != nil {
		g.t.Fatal(err)
	}
}

// upstream returns the last call that the server of a model had.
func (g *gateway) upstream(model string) sim.Attempt {
	g.t.Helper()
	calls := g.sims[tongueOf[model]].Calls("")
	if len(calls) == 0 {
		g.t.Fatalf("nothing has reached the server of %s", model)
	}
	return calls[len(calls)-1]
}

// rawMember returns a member of an object as it was written.
func rawMember(t *testing.T, body []byte, name string) string {
	t.Helper()
	var o map[string]json.RawMessage
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("%v: %.300q", err, body)
	}
	return string(o[name])
}

// backs are the models of tongues by what their backends speak.
var backs = map[*api]string{chatAPI: "oai-m", messagesAPI: "ant-m", responsesAPI: "res-m"}

// offer is the tool f, as a member of a request of the API.
func (a *api) offer() string {
	const schema = `{"type":"object","properties":{}}`
	switch a {
	case messagesAPI:
		return `"tools":[{"name":"f","input_schema":` + schema + `}]`
	case responsesAPI:
		return `"tools":[{"type":"function","name":"f","parameters":` + schema + `,"strict":false}]`
	}
	return `"tools":[{"type":"function","function":{"name":"f","parameters":` + schema + `}}]`
}

// everyPair runs f for each pair and both of a client's wishes, one gateway for each pair.
func everyPair(t *testing.T, f func(t *testing.T, g *gateway, client *api, model string, stream bool)) {
	across(t, func(t *testing.T, client, back *api) {
		g := polyglot(t)
		for _, stream := range []bool{true, false} {
			f(t, g, client, backs[back], stream)
		}
	})
}

// C005, C017, C031: bytes that come torn, packed or oddly framed say the same, in texts and in arguments, for each pair.
func TestC017BytesSurviveEachPair(t *testing.T) {
	const text, args = "北京 🌍 \"Köln\" \\ tail", `{"p":"北京 🌍","n":12345678901234567890,"f":1.0,"e":1e2,"deep":{"a":[1,{}]}}`
	everyPair(t, func(t *testing.T, g *gateway, client *api, model string, stream bool) {
		for name, b := range map[string]sim.Behaviour{
			"byte by byte": {Slice: 1}, "packed (C005)": {Gzip: "ok"}, "CRLF and comments": {SSE: sim.SSE{LineEnd: "mixed", Comments: true, BOM: true}},
			"many data lines": {SSE: sim.SSE{Multiline: true}}, "no event lines": {SSE: sim.SSE{NoEvent: true, NoSpace: true}}, "one write": {SSE: sim.SSE{OneBlob: true}},
		} {
			said, called := b, b
			said.Text = text
			g.behave(model, said)
			r, got := g.talk(client, client.ask(model, stream))
			if got.text != text || r.header.Get("Content-Encoding") != "" {
				t.Errorf("%s, stream %v: text %q of %.700q", name, stream, got.text, r.body)
			}
			called.Calls = []sim.Call{{Name: "f", Arguments: args}}
			g.behave(model, called)
			r, got = g.talk(client, client.ask(model, stream, client.offer()))
			if len(got.calls) != 1 || got.calls[0].name != "f" || got.calls[0].input != args || got.calls[0].id == "" {
				t.Errorf("%s, stream %v: calls %+v of %.1500q", name, stream, got.calls, r.body)
			}
		}
	})
}

// C026: each piece arrives as it comes, for each pair.
func TestC026EachPairFlushes(t *testing.T) {
	across(t, func(t *testing.T, client, back *api) {
		g := polyglot(t, sim.Behaviour{Chunks: 20, ChunkSize: 30, Gap: 100 * time.Millisecond})
		r, _ := g.talk(client, client.ask(backs[back], true))
		late := 0
		for i := 1; i < len(r.at); i++ {
			if r.at[i].Sub(r.at[i-1]) > 110*time.Millisecond {
				late++
			}
		}
		if took := r.at[len(r.at)-1].Sub(r.at[0]); late > 0 || len(r.at) < 20 || took < 1900*time.Millisecond {
			t.Errorf("the stream came in %d reads over %v, %d late", len(r.at), took, late)
		}
		if h := r.header; !strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") || h.Get("X-Accel-Buffering") != "no" || !strings.HasPrefix(h.Get("Cache-Control"), "no-cache") {
			t.Errorf("headers %v", h)
		}
	})
}

// chunks makes a stream of Chat Completions of deltas and finishes.
func chunks(list ...string) sim.Bytes {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(`data: {"choices":[{"index":0,` + c + `}]}` + "\n\n")
	}
	return sim.Bytes(b.String())
}

func delta(content string) string { return `"delta":{` + content + `},"finish_reason":null` }

// C033, C034, C039: calls of a Chat backend that are interleaved, all under index 0, or without ids are whole calls of
// their own for each client.
func TestC033OddCallsAreWhole(t *testing.T) {
	call := func(s string) string { return delta(`"tool_calls":[` + s + `]`) }
	const end = `"delta":{},"finish_reason":"tool_calls"`
	x, y := toldCall{"a", "f", `{"x":1}`}, toldCall{"b", "g", `{"y":2}`}
	for name, c := range map[string]struct {
		b    sim.Behaviour
		want []toldCall
		text string
	}{
		"C033 interleaved": {sim.Behaviour{Fill: true, Body: chunks(delta(`"content":"ok "`),
			call(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""}}`),
			call(`{"index":1,"function":{"arguments":"{\"y\":2}"}}`), call(`{"index":0,"function":{"arguments":"{\"x\":1}"}}`), end)}, []toldCall{x, y}, "ok "},
		"C034 all under index 0": {sim.Behaviour{Fill: true, Body: chunks(
			call(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}`),
			call(`{"index":0,"id":"b","type":"function","function":{"name":"g","arguments":"{\"y\":2}"}}`), end)}, []toldCall{x, y}, ""},
		"a call without arguments": {sim.Behaviour{Fill: true, Body: chunks(
			call(`{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}`), end)}, []toldCall{{"a", "f", "{}"}}, ""},
		"C039 no id":     {sim.Behaviour{Tool: "no_id"}, []toldCall{{"", "f", "{}"}}, ""},
		"C039 a null id": {sim.Behaviour{Tool: "null_id"}, []toldCall{{"", "f", "{}"}}, ""},
		"two calls":      {sim.Behaviour{Tool: "interleaved"}, []toldCall{{"", "f", "{}"}, {"", "f", "{}"}}, ""},
	} {
		for _, client := range apis {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s, stream %v", name, client.name, stream), func(t *testing.T) {
					g := polyglot(t, c.b)
					r, got := g.talk(client, client.ask("oai-m", stream, client.offer()))
					seen := map[string]bool{}
					for i := range got.calls {
						id := &got.calls[i].id
						if *id == "" || seen[*id] {
							t.Errorf("call %d has the id %q", i, *id)
						}
						if seen[*id] = true; i < len(c.want) && c.want[i].id == "" {
							*id = ""
						}
						if client == chatAPI && got.calls[i].input == "" {
							got.calls[i].input = "{}" // its bytes are passed on
						}
					}
					if diff := cmp.Diff(c.want, got.calls, cmp.AllowUnexported(toldCall{})); diff != "" || got.text != c.text {
						t.Errorf("text %q, calls (-want +got):\n%s%.1500q", got.text, diff, r.body)
					}
					if want := map[*api]string{chatAPI: "tool_calls", messagesAPI: "tool_use", responsesAPI: "completed"}[client]; got.finish != want {
						t.Errorf("finish %q, want %q", got.finish, want)
					}
				})
			}
		}
	}
}

// C064, C067: what streams are made of, event by event.
func TestC064C067StreamsInOrder(t *testing.T) {
	odd := sim.Behaviour{Fill: true, Body: chunks(delta(`"role":"assistant"`), delta(`"role":"assistant","content":""`), delta(`"role":"assistant","content":"hi"`),
		`"delta":{"content":""},"finish_reason":"stop"`)}
	plain := sim.Behaviour{Deltas: []string{"Hel", "lo"}, Usage: `{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}`}
	open := []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"}
	shut := []string{"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"}
	for _, c := range []struct {
		client *api
		b      sim.Behaviour
		want   []string
		text   string
	}{
		{messagesAPI, odd, []string{"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}, "hi"},
		{messagesAPI, plain, []string{"message_start", "content_block_start", "content_block_delta", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}, "Hello"},
		{responsesAPI, odd, slices.Concat(open, []string{"response.output_text.delta"}, shut), "hi"},
		{responsesAPI, plain, slices.Concat(open, []string{"response.output_text.delta", "response.output_text.delta"}, shut), "Hello"},
	} {
		g := polyglot(t, c.b)
		_, got := g.talk(c.client, c.client.ask("oai-m", true))
		if diff := cmp.Diff(c.want, slices.DeleteFunc(got.names, func(n string) bool { return n == "ping" })); diff != "" || got.text != c.text {
			t.Errorf("%s: text %q, events (-want +got):\n%s", c.client.name, got.text, diff)
		}
		if c.text == "Hello" && (got.in != 2 || got.out != 2) {
			t.Errorf("%s: usage %d, %d", c.client.name, got.in, got.out)
		}
	}
}

// C149: totals that come again are not added up, whatever the client speaks.
func TestC149TotalsAreNotAddedUp(t *testing.T) {
	const start = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":25,"output_tokens":1}}}

`
	total := func(usage string) string {
		return "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":" + usage + "}\n\n"
	}
	const end = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	for name, body := range map[string]string{
		"one":      start + total(`{"input_tokens":25,"output_tokens":15}`) + end,
		"two":      start + total(`{"input_tokens":25,"output_tokens":8}`) + total(`{"input_tokens":25,"output_tokens":15}`) + end,
		"no input": start + total(`{"output_tokens":15}`) + end,
	} {
		for _, client := range apis {
			for _, stream := range []bool{true, false} {
				g := begin(t, setup{yaml: strings.Replace(tongues, "server: anthropic", "server: anthropic, stream: always", 1),
					sims: map[string]sim.Script{"m": {Server: sim.Anthropic, On: map[string]sim.Sequence{"m": {{Body: sim.Bytes(body)}}}}}})
				more := `"metadata":{}`
				if client == chatAPI && stream {
					more = `"stream_options":{"include_usage":true}`
				}
				r, got := g.talk(client, client.ask("ant-m", stream, more))
				e := g.end(r.id())
				if got.in != 25 || got.out != 15 || *e.Tokens.In != 25 || *e.Tokens.Out != 15 || e.Tokens.Estimated {
					t.Errorf("%s, %s, stream %v: %d and %d, the event %s: %.900q", name, client.name, stream, got.in, got.out, e.Raw, r.body)
				}
			}
		}
	}
}

// C152: the tokens of a cache are counted once, in the answer by its API's own rule and in the record as part of the prompt.
func TestC152CachedTokensOnce(t *testing.T) {
	usage := map[string]string{
		"ant-m": `{"input_tokens":10,"cache_creation_input_tokens":20,"cache_read_input_tokens":300,"output_tokens":5}`,
		"oai-m": `{"prompt_tokens":330,"completion_tokens":5,"total_tokens":335,"prompt_tokens_details":{"cached_tokens":300,"cache_write_tokens":20}}`,
		"res-m": `{"input_tokens":330,"output_tokens":5,"total_tokens":335,"input_tokens_details":{"cached_tokens":300,"cache_write_tokens":20},"output_tokens_details":{"reasoning_tokens":0}}`,
	}
	everyPair(t, func(t *testing.T, g *gateway, client *api, model string, stream bool) {
		g.behave(model, sim.Behaviour{Text: "ok", Usage: usage[model]})
		more := `"metadata":{}`
		if client == chatAPI && stream {
			more = `"stream_options":{"include_usage":true}`
		}
		r, got := g.talk(client, client.ask(model, stream, more))
		in := 330
		if client == messagesAPI {
			in = 10
		}
		e := g.end(r.id())
		if got.in != in || got.out != 5 || got.cached != 300 {
			t.Errorf("stream %v: in %d, out %d, cached %d, want %d, 5, 300: %.900q", stream, got.in, got.out, got.cached, in, r.body)
		}
		if *e.Tokens.In != 330 || *e.Tokens.Out != 5 || e.Tokens.Cached == nil || *e.Tokens.Cached != 300 || e.Tokens.Estimated {
			t.Errorf("stream %v: the event %s", stream, e.Raw)
		}
	})
}

// C161: reasoning under either name comes whole and once, apart from the content; so does that of the other APIs.
func TestC161ReasoningOfEachPair(t *testing.T) {
	odd := sim.Behaviour{Fill: true, Body: chunks(delta(`"role":"assistant","reasoning":"a"`), delta(`"reasoning":"b"`), delta(`"reasoning_content":"c","content":""`),
		`"delta":{"content":"ok"},"finish_reason":"stop"`)}
	blocks := map[*api][]string{messagesAPI: {"thinking", "text"}, responsesAPI: {"reasoning", "message"}}
	for _, client := range apis {
		for _, stream := range []bool{true, false} {
			g := polyglot(t, odd)
			if r, got := g.talk(client, client.ask("oai-m", stream)); got.text != "ok" || got.thinking != "abc" || !slices.Equal(got.blocks, blocks[client]) {
				t.Errorf("%s, stream %v: thinking %q, text %q, blocks %q: %.900q", client.name, stream, got.thinking, got.text, got.blocks, r.body)
			}
		}
	}
	everyPair(t, func(t *testing.T, g *gateway, client *api, model string, stream bool) {
		for _, field := range []string{"", "both"} {
			g.behave(model, sim.Behaviour{Reasoning: "let me see", ReasoningField: field, Text: "ok"})
			r, got := g.talk(client, client.ask(model, stream))
			own := client == chatAPI && field == "both" // its bytes are passed on, both members of them
			if got.text != "ok" || got.thinking != "let me see" && !own || !slices.Equal(got.blocks, blocks[client]) {
				t.Errorf("stream %v, %q: thinking %q, text %q, blocks %q: %.900q", stream, field, got.thinking, got.text, got.blocks, r.body)
			}
		}
	})
}

// C073: an answer that a limit or a filter ended is an answer, with that reason.
func TestC073WhyItEnded(t *testing.T) {
	want := map[string]map[*api]string{
		"stop":           {chatAPI: "stop", messagesAPI: "end_turn", responsesAPI: "completed"},
		"length":         {chatAPI: "length", messagesAPI: "max_tokens", responsesAPI: "incomplete: max_output_tokens"},
		"content_filter": {chatAPI: "content_filter", messagesAPI: "refusal", responsesAPI: "incomplete: content_filter"},
	}
	everyPair(t, func(t *testing.T, g *gateway, client *api, model string, stream bool) {
		for finish, of := range want {
			g.behave(model, sim.Behaviour{Text: "abc", Finish: finish})
			if r, got := g.talk(client, client.ask(model, stream)); got.finish != of[client] || got.text != "abc" {
				t.Errorf("%s, stream %v: finish %q, want %q, text %q: %.700q", finish, stream, got.finish, of[client], got.text, r.body)
			}
		}
	})
}

// C158 b: what a backend's API cannot do, and what would change the answer in silence, is refused by name.
func TestC158RefusedByName(t *testing.T) {
	g := polyglot(t)
	for _, c := range []struct{ model, more, param string }{
		{"ant-m", `"n":2`, "n"}, {"ant-m", `"logprobs":true,"top_logprobs":2`, "logprobs"}, {"res-m", `"n":2`, "n"},
	} {
		r := g.post(chatAPI.path, chatAPI.ask(c.model, false, c.more))
		if f := r.failed(); r.status != 400 || f.Param == nil || *f.Param != c.param || f.Type != "invalid_request_error" {
			t.Errorf("%s: %d %s", c.more, r.status, r.body)
		}
	}
	if n := len(g.sims["m"].Calls("")) + len(g.sims["r"].Calls("")); n != 0 {
		t.Errorf("%d calls upstream", n)
	}
	if r := g.post(chatAPI.path, chatAPI.ask("ant-m", false, `"n":1,"logprobs":false`)); r.text() == "" {
		t.Errorf("what changes nothing is refused: %s", r.body)
	}
}
