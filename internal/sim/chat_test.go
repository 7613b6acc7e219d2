package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const toolsMember = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}}},{"type":"function","function":{"name":"clock","parameters":{"type":"object","properties":{}}}}]`

// assembled is a chat answer as a client puts it together from either form.
type assembled struct {
	Content, Reasoning, Finish string
	Calls                      []string // name(arguments)
	Usage                      bool
}

// assemble reads a whole answer, or a stream by index as the SDKs do.
func assemble(t *testing.T, body string) assembled {
	t.Helper()
	type part struct {
		Content          string
		Reasoning        string
		ReasoningContent string `json:"reasoning_content"`
		ToolCalls        []struct {
			Index    int
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	var out assembled
	names, args := map[int]string{}, map[int]string{}
	take := func(data string) {
		var o struct {
			Choices []struct {
				Index          int
				Message, Delta part
				FinishReason   string `json:"finish_reason"`
			}
			Usage *struct{}
		}
		if err := json.Unmarshal([]byte(data), &o); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		out.Usage = out.Usage || o.Usage != nil
		for _, c := range o.Choices {
			if c.Index > 0 {
				continue
			}
			out.Finish += c.FinishReason
			for _, p := range []part{c.Message, c.Delta} {
				out.Content += p.Content
				out.Reasoning += p.Reasoning + p.ReasoningContent
				for i, call := range p.ToolCalls {
					at := call.Index
					if c.Message.ToolCalls != nil {
						at = i
					}
					names[at] += call.Function.Name
					args[at] += call.Function.Arguments
				}
			}
		}
	}
	if strings.HasPrefix(body, "{") {
		take(body)
	} else {
		for _, p := range payloads(body) {
			if p != "[DONE]" {
				take(p)
			}
		}
	}
	for i := range len(names) {
		out.Calls = append(out.Calls, names[i]+"("+args[i]+")")
	}
	return out
}

func TestChatBehaviours(t *testing.T) {
	user := `"messages":[{"role":"user","content":"hi"}]`
	after := `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"weather","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"rain"}]`
	call := []string{`weather({"city":"simulated"})`}
	tests := []struct {
		name string
		b    Behaviour
		body string
		want assembled
	}{
		{"a given text", Behaviour{Text: "Hello, {nonce}!"}, user, assembled{Content: "Hello, sim-000001!", Finish: "stop"}},
		{"a text in chunks", Behaviour{Text: "北京 is far", Chunks: 4}, user, assembled{Content: "北京 is far", Finish: "stop"}},
		{"a text in pieces of bytes", Behaviour{Text: "北京 is far", ChunkSize: 2}, user, assembled{Content: "北京 is far", Finish: "stop"}},
		{"an empty answer", Behaviour{Empty: true}, user, assembled{Finish: "stop"}},
		{"max_tokens ends it", Behaviour{Deltas: []string{"a", "b", "c"}}, user + `,"max_tokens":2`, assembled{Content: "ab", Finish: "length"}},
		{"max_completion_tokens ends it", Behaviour{Deltas: []string{"a", "b"}}, user + `,"max_completion_tokens":1`, assembled{Content: "a", Finish: "length"}},
		{"reasoning first", Behaviour{Reasoning: "let me see", Text: "ok"}, user, assembled{Reasoning: "let me see", Content: "ok", Finish: "stop"}},
		{"tools offered but not used", Behaviour{Text: "no"}, user + "," + toolsMember, assembled{Content: "no", Finish: "stop"}},
		{"a tool call", Behaviour{Tool: "call"}, user + "," + toolsMember, assembled{Calls: call, Finish: "tool_calls"}},
		{"a tool call because it is required", Behaviour{}, user + `,"tool_choice":"required",` + toolsMember, assembled{Calls: call, Finish: "tool_calls"}},
		{"a tool call by name", Behaviour{}, user + `,"tool_choice":{"type":"function","function":{"name":"clock"}},` + toolsMember, assembled{Calls: []string{"clock({})"}, Finish: "tool_calls"}},
		{"text after the tool's result", Behaviour{Tool: "call"}, after + "," + toolsMember, assembled{Content: "This is a simulated answer (nonce sim-000001) after the tool's result: rain", Finish: "stop"}},
		{"two calls", Behaviour{Tool: "parallel"}, user + "," + toolsMember, assembled{Calls: append(call, "clock({})"), Finish: "tool_calls"}},
		{"a wrong name (F72)", Behaviour{Tool: "wrong_name"}, user + "," + toolsMember, assembled{Calls: []string{`no_such_tool({"city":"simulated"})`}, Finish: "tool_calls"}},
		{"wrong arguments (F72)", Behaviour{Tool: "bad_args"}, user + "," + toolsMember, assembled{Calls: []string{`weather({"no_such_argument":1})`}, Finish: "tool_calls"}},
		{"arguments cut (F28)", Behaviour{Tool: "cut_args"}, user + "," + toolsMember, assembled{Calls: []string{`weather({"city":"s)`}, Finish: "tool_calls"}},
		{"arguments that are no JSON", Behaviour{Tool: "not_json"}, user + "," + toolsMember, assembled{Calls: []string{`weather({city: Paris)`}, Finish: "tool_calls"}},
		{"narration instead (F72)", Behaviour{Tool: "narrate"}, user + "," + toolsMember, assembled{Content: "I will now call the weather tool to find that out. (simulated, nonce sim-000001)", Finish: "stop"}},
		{"a call as text (C043)", Behaviour{Tool: "tags"}, user + "," + toolsMember, assembled{Content: `<tool_call>{"name":"weather","arguments":{"city":"simulated"}}</tool_call>`, Finish: "stop"}},
		{"text and call", Behaviour{Tool: "text_and_call", Text: "ok"}, user + "," + toolsMember, assembled{Content: "ok", Calls: call, Finish: "tool_calls"}},
		{"calls by script", Behaviour{Calls: []Call{{"f", `{"n":"{nonce}"}`}}}, user, assembled{Calls: []string{`f({"n":"sim-000001"})`}, Finish: "tool_calls"}},
		{"a JSON schema", Behaviour{}, user + `,"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}`, assembled{Content: `{"a":1}`, Finish: "stop"}},
		{"no usage", Behaviour{Text: "x", Usage: "none"}, user + `,"stream_options":{"include_usage":true}`, assembled{Content: "x", Finish: "stop"}},
		{"usage", Behaviour{Text: "x"}, user + `,"stream_options":{"include_usage":true}`, assembled{Content: "x", Finish: "stop", Usage: true}},
	}
	for _, flavour := range []Flavour{OpenAI, LlamaCPP, Ollama} {
		for _, stream := range []bool{false, true} {
			for _, tt := range tests {
				t.Run(fmt.Sprintf("%s/%s, stream %v", flavour, tt.name, stream), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, Options{Script: Script{Server: flavour, On: map[string]Sequence{"m": {tt.b}}}})
						_, body, err := w.ask(t, "/v1/chat/completions", fmt.Sprintf(`{"model":"m","stream":%v,%s}`, stream, tt.body))
						if err != nil {
							t.Fatal(err)
						}
						got, want := assemble(t, body), tt.want
						if !stream {
							want.Usage = tt.b.Usage != "none" // always there
						}
						if d := cmp.Diff(want, got); d != "" {
							t.Errorf("(-want +got):\n%s\n%s", d, body)
						}
					})
				})
			}
		}
	}
}

func TestChatToolDeltasOfOddServers(t *testing.T) {
	tests := []struct{ tool, has, lacks string }{
		{"index_zero", `"tool_calls":[{"index":0,"id":"call_sim-000001_1"`, `"index":1,"id"`},                      // C034
		{"no_index", `"tool_calls":[{"id":"call_sim-000001_0","type":"function"`, `"tool_calls":[{"index"`},        // C037
		{"no_id", `"tool_calls":[{"index":0,"type":"function"`, `"id":"call`},                                      // C039
		{"null_id", `"tool_calls":[{"index":0,"id":null`, `"id":"call`},                                            // C039
		{"text_and_call", `"delta":{"content":"both","tool_calls":[{"index":0,"id"`, `"delta":{"content":"both"}`}, // one delta holds both
	}
	for _, tt := range tests {
		t.Run(tt.tool, func(t *testing.T) {
			s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Tool: tt.tool, Text: "both"}}}}}).Start(t)
			h := rawAsk(t, s, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],`+toolsMember+`}`)
			if !strings.Contains(h.body, tt.has) || strings.Contains(h.body, tt.lacks) {
				t.Errorf("%q must be in, and %q not in:\n%s", tt.has, tt.lacks, h.body)
			}
		})
	}
}

func TestUsageOddities(t *testing.T) { // F32
	for usage, want := range map[string]string{
		"partial":               `{"completion_tokens":1}`,
		"negative":              `"total_tokens":-`,
		"huge":                  `"prompt_tokens":9223372036854775808`,
		`{"prompt_tokens":"?"}`: `"usage":{"prompt_tokens":"?"}`,
		"every":                 `"total_tokens"`,
	} {
		s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Text: "x", Usage: usage}}}}}).Start(t)
		for _, body := range []string{askWhole, strings.Replace(askStream, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)} {
			if h := rawAsk(t, s, "/v1/chat/completions", body); !strings.Contains(h.body, want) {
				t.Errorf("%s: %s lacks %s", usage, h.body, want)
			}
		}
	}
}

func TestSeveralChoicesWithLogprobs(t *testing.T) { // C158
	s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Deltas: []string{"a", "b"}}}}}}).Start(t)
	h := rawAsk(t, s, "/v1/chat/completions", `{"model":"m","stream":true,"n":2,"logprobs":true,"top_logprobs":2,"messages":[]}`)
	for _, has := range []string{
		`{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"a"`,
		`{"index":1,"delta":{"content":"b"},"logprobs":{`,
	} {
		if !strings.Contains(h.body, has) {
			t.Errorf("%s is not in\n%s", has, h.body)
		}
	}
	if got := strings.Count(h.body, `"finish_reason":"stop"`); got != 2 {
		t.Errorf("%d choices finished, want 2", got)
	}
	if got := s.Attempts()[0].Chunks; got != 2 {
		t.Errorf("recorded %d chunks, want 2", got)
	}
}

func TestLlamaSpeaksItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Behaviour{FirstDelay: 4 * time.Second, Reasoning: "hm", Text: "yes"}
		w := newWorld(t, Options{Script: Script{Server: LlamaCPP, Models: []string{"tiny"}, On: map[string]Sequence{"*": {b}}}})
		_, stream, err := w.ask(t, "/v1/chat/completions", `{"model":"any","stream":true,"return_progress":true,"messages":[{"role":"user","content":"hi"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		list := payloads(stream)
		if got := dig(t, list[3], "prompt_progress", "processed"); got != dig(t, list[3], "prompt_progress", "total") {
			t.Errorf("the fourth chunk is not the end of the prompt's progress: %s", list[3])
		}
		if got := dig(t, list[4], "choices", 0, "delta"); !cmp.Equal(got, map[string]any{"role": "assistant", "content": nil}) {
			t.Errorf("role chunk %v, want content null", got)
		}
		if got := dig(t, list[5], "choices", 0, "delta", "reasoning_content"); got != "hm" {
			t.Errorf("reasoning chunk %s", list[5])
		}
		last := list[len(list)-2]
		if dig(t, last, "timings", "predicted_n") != 2.0 || dig(t, last, "timings", "prompt_ms") != 4000.0 || dig(t, last, "model") != "tiny" {
			t.Errorf("last chunk %s", last)
		}
		_, whole, _ := w.ask(t, "/v1/chat/completions", askWhole)
		if dig(t, whole, "timings", "prompt_n") == nil || dig(t, whole, "choices", 0, "message", "reasoning_content") != "hm" {
			t.Errorf("whole answer %s", whole)
		}
	})
}

func TestCompletions(t *testing.T) {
	s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Deltas: []string{"one ", "two"}}}}}}).Start(t)
	h := rawAsk(t, s, "/v1/completions", `{"model":"m","prompt":["p",[1,2]],"echo":true,"logprobs":5,"max_tokens":9}`)
	if got := []any{dig(t, h.body, "choices", 0, "text"), dig(t, h.body, "choices", 1, "text")}; !cmp.Equal(got, []any{"pone two", "[1,2]one two"}) {
		t.Errorf("texts %q", got)
	}
	if got := dig(t, h.body, "choices", 0, "logprobs", "text_offset", 1); got != 4.0 {
		t.Errorf("text_offset %v, want 4", got)
	}
	h = rawAsk(t, s, "/v1/completions", `{"model":"m","prompt":"p","stream":true,"stream_options":{"include_usage":true}}`)
	list := payloads(h.body)
	if len(list) != 5 || dig(t, list[1], "choices", 0, "text") != "two" || dig(t, list[2], "choices", 0, "finish_reason") != "stop" || dig(t, list[3], "usage", "completion_tokens") != 2.0 || list[4] != "[DONE]" {
		t.Errorf("stream %q", list)
	}
}

func TestInstanceFitsItsSchema(t *testing.T) {
	tests := []struct{ name, schema, want string }{
		{"nothing", ``, `{}`},
		{"not a schema", `7`, `{}`},
		{"required members in their order", `{"type":"object","properties":{"b":{"type":"string"},"a":{"type":"number"},"c":{}},"required":["b","a"]}`, `{"b":"simulated","a":1}`},
		{"an enum", `{"enum":["x","y"]}`, `"x"`},
		{"a constant", `{"const":5}`, `5`},
		{"a type or null", `{"type":["null","boolean"]}`, `true`},
		{"null alone", `{"type":"null"}`, `null`},
		{"a choice", `{"anyOf":[{"type":"integer","minimum":3},{"type":"null"}]}`, `3`},
		{"a reference", `{"$ref":"#/$defs/n","$defs":{"n":{"type":"array","minItems":2,"items":{"type":"boolean"}}}}`, `[true,true]`},
		{"lengths", `{"type":"object","properties":{"s":{"type":"string","maxLength":3},"l":{"type":"string","minLength":11}},"required":["s","l"]}`, `{"s":"sim","l":"simulated--"}`},
		{"formats", `{"type":"string","format":"date"}`, `"2026-01-01"`},
		{"a list that may be empty", `{"type":"array","items":{"type":"string"}}`, `[]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(instance(json.RawMessage(tt.schema))); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	loop := `{"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"required":["next"]}}}`
	if got := instance(json.RawMessage(loop)); !json.Valid(got) {
		t.Errorf("a schema that refers to itself: %s", got)
	}
}
