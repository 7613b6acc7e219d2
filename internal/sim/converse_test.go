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

// dialect is how a test speaks one of the two younger APIs.
type dialect struct {
	path    string
	flavour Flavour
	ask     string // the members of a first question
	tools   string // the members that offer weather and clock
	after   string // the members of a conversation that a tool has answered
	read    func(t *testing.T, body string) assembled
}

const (
	weatherSchema = `{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]}`
	clockSchema   = `{"type":"object","properties":{}}`
)

var dialects = []dialect{
	{
		path: "/v1/messages", flavour: Anthropic, read: assembleMessages,
		ask:   `"max_tokens":1000,"messages":[{"role":"user","content":"hi"}]`,
		tools: `"tools":[{"name":"weather","input_schema":` + weatherSchema + `},{"name":"clock","input_schema":` + clockSchema + `}]`,
		after: `"max_tokens":1000,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"weather","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"rain"}]},{"type":"text","text":"go on"}]}]`,
	},
	{
		path: "/v1/responses", flavour: OpenAI, read: assembleResponse,
		ask:   `"input":"hi"`,
		tools: `"tools":[{"type":"web_search"},{"type":"function","name":"weather","parameters":` + weatherSchema + `},{"type":"function","name":"clock","parameters":` + clockSchema + `}]`,
		after: `"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"weather","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"rain"}]`,
	},
}

// forcing is the member that demands a call: of any tool, or of the clock.
func (d dialect) forcing(clock bool) string {
	switch {
	case d.flavour == Anthropic && clock:
		return `"tool_choice":{"type":"tool","name":"clock"}`
	case d.flavour == Anthropic:
		return `"tool_choice":{"type":"any"}`
	case clock:
		return `"tool_choice":{"type":"function","name":"clock"}`
	}
	return `"tool_choice":"required"`
}

// names checks that each event's name is its type, and returns the types in order.
func names(t *testing.T, stream string) []string {
	t.Helper()
	var list []string
	for _, ev := range strings.Split(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		name, data, ok := strings.Cut(ev, "\ndata: ")
		var o struct{ Type string }
		if err := json.Unmarshal([]byte(data), &o); !ok || err != nil || name != "event: "+o.Type {
			t.Fatalf("event %q: %v", ev, err)
		}
		list = append(list, o.Type)
	}
	return list
}

// assembleMessages puts a Messages answer together as the SDKs do, in Chat's finish words
// where there are such.
func assembleMessages(t *testing.T, body string) assembled {
	t.Helper()
	type blk struct {
		Type, Text, Name, Thinking, Signature string
		Input                                 json.RawMessage
	}
	type usage struct {
		Output *int `json:"output_tokens"`
	}
	var whole struct {
		Content    []blk
		StopReason string `json:"stop_reason"`
		Usage      *usage
	}
	var out assembled
	if strings.HasPrefix(body, "{") {
		if err := json.Unmarshal([]byte(body), &whole); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	} else {
		stop := ""
		for _, p := range payloads(body) {
			var e struct {
				Type         string
				Index        int
				ContentBlock blk `json:"content_block"`
				Delta        struct {
					Text, Thinking, Signature string
					PartialJSON               string `json:"partial_json"`
					StopReason                string `json:"stop_reason"`
				}
				Usage *usage
			}
			if err := json.Unmarshal([]byte(p), &e); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			switch e.Type {
			case "content_block_start":
				if e.Index != len(whole.Content) {
					t.Errorf("block %d opened, want %d", e.Index, len(whole.Content))
				}
				e.ContentBlock.Input = nil
				whole.Content = append(whole.Content, e.ContentBlock)
			case "content_block_delta":
				b := &whole.Content[e.Index]
				b.Text += e.Delta.Text
				b.Thinking += e.Delta.Thinking
				b.Signature += e.Delta.Signature
				b.Input = append(b.Input, e.Delta.PartialJSON...)
			case "message_delta":
				whole.StopReason, whole.Usage = e.Delta.StopReason, e.Usage
			}
			stop = e.Type
		}
		if stop != "message_stop" {
			t.Errorf("the stream ends with %s", stop)
		}
	}
	out.Finish, out.Usage = whole.StopReason, whole.Usage != nil && whole.Usage.Output != nil
	for _, b := range whole.Content {
		out.Content += b.Text
		out.Reasoning += b.Thinking
		if b.Type == "thinking" && b.Signature != Signature(b.Thinking) {
			t.Errorf("thinking %q is signed %q", b.Thinking, b.Signature)
		}
		if b.Type == "tool_use" {
			out.Calls = append(out.Calls, b.Name+"("+string(b.Input)+")")
		}
	}
	for chat, reason := range map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"} {
		if out.Finish == reason {
			out.Finish = chat
		}
	}
	return out
}

// assembleResponse puts a Responses answer together, and holds a stream's deltas and its
// final response together.
func assembleResponse(t *testing.T, body string) assembled {
	t.Helper()
	type response struct {
		Status string
		Output []struct {
			Type, Name, Arguments string
			Content, Summary      []struct{ Text string }
		}
		Incomplete struct{ Reason string } `json:"incomplete_details"`
		Usage      *struct{}
	}
	var out, heard assembled
	final := body
	if !strings.HasPrefix(body, "{") {
		calls := map[int]string{}
		for i, p := range payloads(body) {
			var e struct {
				Type, Delta string
				Sequence    int `json:"sequence_number"`
				Index       int `json:"output_index"`
				Response    json.RawMessage
				Item        struct{ Type, Name string }
			}
			if err := json.Unmarshal([]byte(p), &e); err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			if e.Sequence != i {
				t.Errorf("event %d has the number %d", i, e.Sequence)
			}
			switch {
			case e.Type == "response.output_text.delta":
				heard.Content += e.Delta
			case strings.Contains(e.Type, "reasoning") && strings.HasSuffix(e.Type, ".delta"):
				heard.Reasoning += e.Delta
			case e.Type == "response.output_item.added" && e.Item.Type == "function_call":
				calls[e.Index] = e.Item.Name + "("
			case e.Type == "response.function_call_arguments.delta":
				calls[e.Index] += e.Delta
			}
			final = string(e.Response)
		}
		for i := range 4 {
			if calls[i] != "" {
				heard.Calls = append(heard.Calls, calls[i]+")")
			}
		}
	}
	var r response
	if err := json.Unmarshal([]byte(final), &r); err != nil {
		t.Fatalf("%s: %v\n%s", final, err, body)
	}
	out.Usage = r.Usage != nil
	out.Finish = map[string]string{"completed": "stop", "incomplete": "length"}[r.Status]
	for _, item := range r.Output {
		for _, p := range item.Content {
			out.Content += p.Text
		}
		for _, p := range item.Summary {
			out.Reasoning += p.Text
		}
		if item.Type == "function_call" {
			out.Calls, out.Finish = append(out.Calls, item.Name+"("+item.Arguments+")"), "tool_calls"
		}
	}
	if final != body {
		heard.Finish, heard.Usage = out.Finish, out.Usage
		if d := cmp.Diff(out, heard); d != "" {
			t.Errorf("the final response and the deltas differ (-final +deltas):\n%s", d)
		}
	}
	return out
}

func TestMessagesAndResponsesBehave(t *testing.T) {
	call := []string{`weather({"city":"simulated"})`}
	type at int
	const (
		asked at = iota
		offered
		forced
		forcedClock
		answered
	)
	tests := []struct {
		name string
		b    Behaviour
		at   at
		more string
		want assembled
	}{
		{"a given text", Behaviour{Text: "Hello, {nonce}!"}, asked, "", assembled{Content: "Hello, sim-000001!", Finish: "stop"}},
		{"a text in pieces of bytes", Behaviour{Text: "北京 is far", ChunkSize: 2}, asked, "", assembled{Content: "北京 is far", Finish: "stop"}},
		{"an empty answer", Behaviour{Empty: true}, asked, "", assembled{Finish: "stop"}},
		{"it was cut by its length", Behaviour{Text: "x", Finish: "length"}, asked, "", assembled{Content: "x", Finish: "length"}},
		{"reasoning first", Behaviour{Reasoning: "let me see", Text: "ok"}, asked, "", assembled{Reasoning: "let me see", Content: "ok", Finish: "stop"}},
		{"tools offered but not used", Behaviour{Text: "no"}, offered, "", assembled{Content: "no", Finish: "stop"}},
		{"a tool call", Behaviour{Tool: "call"}, offered, "", assembled{Calls: call, Finish: "tool_calls"}},
		{"reasoning, text and a call", Behaviour{Tool: "text_and_call", Text: "ok", Reasoning: "hm"}, offered, "", assembled{Reasoning: "hm", Content: "ok", Calls: call, Finish: "tool_calls"}},
		{"a call because it is demanded", Behaviour{}, forced, "", assembled{Calls: call, Finish: "tool_calls"}},
		{"a call by name", Behaviour{}, forcedClock, "", assembled{Calls: []string{"clock({})"}, Finish: "tool_calls"}},
		{"text after the tool's result", Behaviour{Tool: "call"}, answered, "", assembled{Content: "This is a simulated answer (nonce sim-000001) after the tool's result: rain", Finish: "stop"}},
		{"two calls", Behaviour{Tool: "parallel"}, offered, "", assembled{Calls: append(call, "clock({})"), Finish: "tool_calls"}},
		{"two calls in turn", Behaviour{Tool: "interleaved"}, offered, "", assembled{Calls: append(call, "clock({})"), Finish: "tool_calls"}},
		{"a wrong name (F72)", Behaviour{Tool: "wrong_name"}, offered, "", assembled{Calls: []string{`no_such_tool({"city":"simulated"})`}, Finish: "tool_calls"}},
		{"wrong arguments (F72)", Behaviour{Tool: "bad_args"}, offered, "", assembled{Calls: []string{`weather({"no_such_argument":1})`}, Finish: "tool_calls"}},
		{"narration instead (F72)", Behaviour{Tool: "narrate"}, offered, "", assembled{Content: "I will now call the weather tool to find that out. (simulated, nonce sim-000001)", Finish: "stop"}},
		{"calls by script", Behaviour{Calls: []Call{{"f", `{"n":"{nonce}"}`}}}, asked, "", assembled{Calls: []string{`f({"n":"sim-000001"})`}, Finish: "tool_calls"}},
		{"no usage", Behaviour{Text: "x", Usage: "none"}, asked, "", assembled{Content: "x", Finish: "stop"}},
	}
	for _, d := range dialects {
		members := map[at]string{asked: d.ask, offered: d.ask + "," + d.tools, forced: d.ask + "," + d.tools + "," + d.forcing(false),
			forcedClock: d.ask + "," + d.tools + "," + d.forcing(true), answered: d.after + "," + d.tools}
		for _, stream := range []bool{false, true} {
			for _, tt := range tests {
				t.Run(fmt.Sprintf("%s/%s, stream %v", d.path, tt.name, stream), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, Options{Script: Script{Server: d.flavour, On: map[string]Sequence{"m": {tt.b}}}})
						status, body, err := w.ask(t, d.path, fmt.Sprintf(`{"model":"m","stream":%v,%s}`, stream, members[tt.at]))
						if err != nil || status != 200 {
							t.Fatal(status, body, err)
						}
						if stream {
							names(t, body)
						}
						want := tt.want
						want.Usage = tt.b.Usage != "none"
						if diff := cmp.Diff(want, d.read(t, body)); diff != "" {
							t.Errorf("(-want +got):\n%s\n%s", diff, body)
						}
					})
				})
			}
		}
	}
}

func TestTheOrderOfNamedEvents(t *testing.T) {
	b := Behaviour{Reasoning: "hm", Text: "ok", Tool: "text_and_call"}
	summary := "response.reasoning_summary_"
	want := map[string][]string{
		"/v1/messages": {"message_start", "ping",
			"content_block_start", "content_block_delta", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_stop",
			"content_block_start", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_delta", "content_block_stop",
			"message_delta", "message_stop"},
		"/v1/responses": {"response.created", "response.in_progress",
			"response.output_item.added", summary + "part.added", summary + "text.delta", summary + "text.done", summary + "part.done", "response.output_item.done",
			"response.output_item.added", "response.content_part.added", "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
			"response.output_item.added", "response.function_call_arguments.delta", "response.function_call_arguments.delta", "response.function_call_arguments.delta",
			"response.function_call_arguments.done", "response.output_item.done",
			"response.completed"},
	}
	for _, d := range dialects {
		s := New(Options{Script: Script{Server: d.flavour, On: map[string]Sequence{"m": {b}}}}).Start(t)
		h := rawAsk(t, s, d.path, `{"model":"m","stream":true,`+d.ask+","+d.tools+`}`)
		if diff := cmp.Diff(want[d.path], names(t, h.body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", d.path, diff)
		}
	}
}

func TestInterleavedArgumentsAlternate(t *testing.T) {
	b := Behaviour{Tool: "interleaved"}
	offered := strings.ReplaceAll(dialects[1].tools, `"name":"clock","parameters":`+clockSchema, `"name":"clock","parameters":`+weatherSchema)
	order := func(stream, kind, index string) []any {
		var got []any
		for _, p := range payloads(stream) {
			if strings.Contains(p, kind) {
				_, rest, _ := strings.Cut(p, index)
				got = append(got, rest[:1])
			}
		}
		return got
	}
	want := []any{"0", "1", "0", "1", "0", "1"}
	s := New(Options{Script: Script{On: map[string]Sequence{"m": {b}}}}).Start(t)
	h := rawAsk(t, s, "/v1/responses", `{"model":"m","stream":true,"input":"x",`+offered+`}`)
	if d := cmp.Diff(want, order(h.body, `arguments.delta"`, `"output_index":`)); d != "" {
		t.Errorf("Responses (-want +got):\n%s", d)
	}
	chat := strings.ReplaceAll(toolsMember, `"parameters":{"type":"object","properties":{}}`, `"parameters":`+weatherSchema)
	h = rawAsk(t, s, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],`+chat+`}`)
	if d := cmp.Diff(append([]any{"0", "1"}, want...), order(h.body, `"tool_calls":[`, `"index":0,"delta":{"tool_calls":[{"index":`)); d != "" {
		t.Errorf("Chat (-want +got):\n%s", d)
	}
}

func TestStructuredAnswersOfBothAPIs(t *testing.T) {
	schema := `{"type":"json_schema","name":"x","schema":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}`
	for i, more := range []string{`,"output_config":{"format":` + schema + `}`, `,"text":{"format":` + schema + `}`} {
		d := dialects[i]
		s := New(Options{Script: Script{Server: d.flavour}}).Start(t)
		h := rawAsk(t, s, d.path, `{"model":"m",`+d.ask+more+`}`)
		if got := d.read(t, h.body).Content; got != `{"a":1}` {
			t.Errorf("%s: %q", d.path, h.body)
		}
	}
}

func TestBothAPIsKeepTheScriptsTimes(t *testing.T) {
	b := Behaviour{HeaderDelay: time.Second, FirstDelay: 2 * time.Second, Gap: 500 * time.Millisecond, Deltas: []string{"a", "b", "c"}}
	for _, d := range dialects {
		for _, flavour := range []Flavour{d.flavour, LlamaCPP} {
			t.Run(d.path+" "+string(flavour), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, Options{Script: Script{Server: flavour, On: map[string]Sequence{"m": {b}}}})
					start := time.Now()
					if _, _, err := w.ask(t, d.path, `{"model":"m","stream":true,`+d.ask+`}`); err != nil {
						t.Fatal(err)
					}
					a := w.Calls("m")[0]
					head := time.Second
					if flavour == LlamaCPP { // its headers wait for the first token
						head = 3 * time.Second
					}
					got := []time.Duration{a.FirstByte.Sub(start), a.FirstContent.Sub(start), a.Ended.Sub(start)}
					if diff := cmp.Diff([]time.Duration{head, 3 * time.Second, 4 * time.Second}, got); diff != "" {
						t.Errorf("first byte, first content and end (-want +got):\n%s", diff)
					}
					if a.Chunks != 3 {
						t.Errorf("recorded %d chunks, want 3", a.Chunks)
					}
				})
			})
		}
	}
}

func TestLlamaSpeaksTheYoungerAPIsItsOwnWay(t *testing.T) {
	s := New(Options{Script: Script{Server: LlamaCPP, Context: 300, On: map[string]Sequence{
		"m": {{Tool: "call", Reasoning: "hm"}}, "long": {{Finish: "length"}}, "bad": {{StreamError: &StreamError{After: 1}}}}}}).Start(t)
	tests := []struct {
		name, path, body string
		check            func(heard) error
	}{
		{"a tool block lacks its input", "/v1/messages", `{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],` + dialects[0].tools + `}`,
			all(status(200), holds(`"content_block":{"type":"tool_use","id":"0000`), lacks(`"input":{}`), lacks("ping"), holds(`"id":"chatcmpl-sim-`), holds(`"output_tokens":0`))},
		{"no messages is its own fault", "/v1/messages", `{"model":"m"}`, all(status(500), starts(`{"error":{"code":500`))},
		{"a system turn in the middle is taken", "/v1/messages", `{"model":"m","messages":[{"role":"user","content":"x"},{"role":"system","content":""}]}`, status(200)},
		{"its overflow is in its words", "/v1/messages", `{"model":"m","stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 400) + `"}]}`,
			all(status(400), holds(`"type":"exceed_context_size_error","n_prompt_tokens":500,"n_ctx":300`))},
		{"an error amid Messages is its own", "/v1/messages", `{"model":"bad","stream":true,"messages":[]}`, all(status(200), holds("event: error\ndata: {\"error\":{\"code\":503"), lacks("message_stop"))},
		{"an error amid Responses has no name", "/v1/responses", `{"model":"bad","stream":true,"input":"x"}`, all(holds("\n\ndata: {\"error\":{\"code\":503"), lacks("response.failed"))},
		{"Responses has no numbers", "/v1/responses", `{"model":"m","stream":true,"input":"x"}`,
			all(lacks("sequence_number"), lacks("output_index"), lacks("content_index"), starts("event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_sim-000007\",\"object\":\"response\",\"status\":\"in_progress\"}}\n"),
				holds("response.reasoning_text.delta"))},
		{"Responses is complete whatever cut it", "/v1/responses", `{"model":"long","input":"x"}`, holds(`"status":"completed"`)},
		{"nothing can be continued", "/v1/responses", `{"model":"m","input":"x","previous_response_id":"resp_1"}`, all(status(400), holds("previous_response_id"))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := rawAsk(t, s, tt.path, tt.body)
			if err := tt.check(h); err != nil {
				t.Errorf("%v\n%d %s", err, h.status, h.body)
			}
		})
	}
}
