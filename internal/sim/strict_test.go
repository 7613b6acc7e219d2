package sim

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

func TestAnthropicIsAsStrictAsTheRealOne(t *testing.T) {
	user := `{"role":"user","content":"hi"}`
	turns := func(list ...string) string {
		return `"max_tokens":5000,"messages":[` + strings.Join(list, ",") + `]`
	}
	asst := func(blocks ...string) string {
		return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	}
	usr := func(blocks ...string) string {
		return `{"role":"user","content":[` + strings.Join(blocks, ",") + `]}`
	}
	const (
		use      = `{"type":"tool_use","id":"a","name":"f","input":{}}`
		use2     = `{"type":"tool_use","id":"b","name":"f","input":{}}`
		result   = `{"type":"tool_result","tool_use_id":"a","content":"ok"}`
		result2  = `{"type":"tool_result","tool_use_id":"b"}`
		text     = `{"type":"text","text":"t"}`
		thinking = `,"thinking":{"type":"enabled","budget_tokens":1024}`
		tools    = `,"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	)
	think := fmt.Sprintf(`{"type":"thinking","thinking":"hm","signature":%q}`, Signature("hm"))
	forged := `{"type":"thinking","thinking":"hm","signature":"sig_0"}`
	image := func(media string) string {
		return `{"type":"image","source":{"type":"base64","media_type":"` + media + `","data":"AA=="}}`
	}
	tests := []struct {
		name, body, want string // want "" is 200
	}{
		{"a plain question", turns(user), ""},
		{"no max_tokens", `"messages":[` + user + `]`, "max_tokens: Field required"},
		{"max_tokens of none", `"max_tokens":0,"messages":[` + user + `]`, "max_tokens: Input should be greater"},
		{"no messages", `"max_tokens":5`, "messages: Field required"},
		{"an empty list of messages", turns(), "at least one message is required"},
		{"a member of another API", turns(user) + `,"stop":["x"]`, "stop: Extra inputs are not permitted"},
		{"a beta's member without its header", turns(user) + `,"context_management":{}`, "context_management: Extra inputs"},
		{"a warm temperature", turns(user) + `,"temperature":1.5`, "temperature: range: 0..1"},
		{"a blank stop sequence", turns(user) + `,"stop_sequences":["x"," "]`, "stop_sequences.1: each stop sequence must contain non-whitespace"},
		{"the assistant speaks first", turns(asst(text)), `first message must use the \"user\" role`},
		{"the system speaks first", turns(`{"role":"system","content":"x"}`, user), `first message must use the \"user\" role`},
		{"the system speaks in the middle", turns(user, `{"role":"system","content":"x"}`), ""},
		{"an unknown role", turns(user, `{"role":"tool","content":"x"}`), "messages.1.role: Input should be"},
		{"an empty text block", turns(usr(`{"type":"text","text":""}`)), "messages: text content blocks must be non-empty"},
		{"a blank text block", turns(usr(`{"type":"text","text":" \n"}`)), "messages: text content blocks must contain non-whitespace text"},
		{"a blank string", turns(`{"role":"user","content":" "}`), "must contain non-whitespace text"},
		{"an empty content", turns(`{"role":"user","content":[]}`), "messages.0: all messages must have non-empty content"},
		{"a null content", turns(`{"role":"user","content":null}`), "messages.0.content: "},
		{"an empty last turn of the assistant", turns(user, `{"role":"assistant","content":""}`), ""},
		{"a prefill that ends in a space", turns(user, `{"role":"assistant","content":"so "}`), "cannot end with trailing whitespace"},
		{"an empty system text", turns(user) + `,"system":[{"type":"text","text":""}]`, "system: text content blocks must be non-empty"},
		{"an image in the system text", turns(user) + `,"system":[` + image("image/png") + `]`, "system.0: `image` blocks are not allowed here"},
		{"an unknown block", turns(usr(`{"type":"input_text","text":"x"}`)), "messages.0.content.0: Input tag 'input_text' found using 'type'"},
		{"an unknown member of a block", turns(usr(`{"type":"text","text":"x","annotations":[]}`)), "messages.0.content.0.text.annotations: Extra inputs"},
		{"a block that lacks a member", turns(user, asst(`{"type":"tool_use","id":"a","name":"f"}`)), "messages.1.content.0.tool_use.input: Field required"},
		{"an image", turns(usr(image("image/png"), text)), ""},
		{"an image of an odd kind", turns(usr(image("image/bmp"))), "base64.media_type: Input should be 'image/jpeg'"},
		{"an image as Chat has it", turns(usr(`{"type":"image_url","image_url":{"url":"x"}}`)), "Input tag 'image_url'"},
		{"a cache mark on a result", turns(user, asst(use), usr(`{"type":"tool_result","tool_use_id":"a","content":"x","cache_control":{"type":"ephemeral"}}`)), ""},
		{"a cache mark inside a result", turns(user, asst(use), usr(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}`)), "tool_result.content.0.text.cache_control: Extra inputs"},
		{"an error result without content", turns(user, asst(use), usr(`{"type":"tool_result","tool_use_id":"a","is_error":true}`)), "content cannot be empty if `is_error` is true"},

		{"a call and its result", turns(user, asst(text, use), usr(result)), ""},
		{"text before the result", turns(user, asst(use), usr(text, result)), ""},
		{"results in two messages", turns(user, asst(use, use2), usr(result), usr(result2)), ""},
		{"a result of no call", turns(user, asst(text), usr(result)), "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: a."},
		{"a result at the start", turns(usr(result)), "messages.0.content.0: unexpected `tool_use_id`"},
		{"a result two turns late", turns(user, asst(use), usr(result), asst(text), usr(result)), "messages.4.content.0: unexpected `tool_use_id`"},
		{"a call without its result", turns(user, asst(use, use2), usr(result)), "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b."},
		{"a call at the end", turns(user, asst(use)), "messages.1: `tool_use` ids were found without"},
		{"a result twice", turns(user, asst(use), usr(result, result)), "each tool_use must have a single result"},
		{"a call's id twice", turns(user, asst(use), usr(result), asst(use), usr(result)), "`tool_use` ids must be unique"},
		{"a call by the user", turns(usr(use)), "messages.0.content.0: `tool_use` blocks are not allowed here"},
		{"a result by the assistant", turns(user, asst(result)), "messages.1.content.0: `tool_result` blocks are not allowed here"},
		{"a call's id with a dot", turns(user, asst(`{"type":"tool_use","id":"a.b","name":"f","input":{}}`)), "tool_use.id: String should match pattern"},
		{"an input that is text", turns(user, asst(`{"type":"tool_use","id":"a","name":"f","input":"{}"}`)), "tool_use.input: Input should be a valid dictionary"},

		{"a tool", turns(user) + tools, ""},
		{"a tool as Chat has it", turns(user) + `,"tools":[{"type":"function","function":{"name":"f"}}]`, "tools.0: Input tag 'function'"},
		{"a tool without a schema", turns(user) + `,"tools":[{"name":"f"}]`, "tools.0.custom.input_schema: Field required"},
		{"a schema without a type", turns(user) + `,"tools":[{"name":"f","input_schema":{}}]`, "input_schema.type: Field required"},
		{"a tool's name with a dot", turns(user) + `,"tools":[{"name":"f.g","input_schema":{"type":"object"}}]`, "tools.0.custom.name: String should match pattern"},
		{"a tool of Responses", turns(user) + `,"tools":[{"name":"f","parameters":{}}]`, "tools.0.custom.parameters: Extra inputs"},
		{"a tool twice", turns(user) + `,"tools":[{"name":"f","input_schema":{"type":"object"}},{"name":"f","input_schema":{"type":"object"}}]`, "Tool names must be unique"},
		{"a server's tool", turns(user) + `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`, ""},
		{"a choice as Chat has it", turns(user) + tools + `,"tool_choice":"auto"`, "tool_choice: Input should be a valid dictionary"},
		{"a choice without tools", turns(user) + `,"tool_choice":{"type":"auto"}`, "may only be specified while providing tools"},
		{"a choice of no tool", turns(user) + tools + `,"tool_choice":{"type":"tool","name":"g"}`, "Tool 'g' not found"},
		{"a choice of a function", turns(user) + tools + `,"tool_choice":{"type":"function","name":"f"}`, "tool_choice: Input tag 'function'"},

		{"thinking", turns(user) + thinking, ""},
		{"thinking without a budget", turns(user) + `,"thinking":{"type":"enabled"}`, "budget_tokens: Field required"},
		{"thinking beyond max_tokens", turns(user) + `,"thinking":{"type":"enabled","budget_tokens":5000}`, "must be greater than `thinking.budget_tokens`"},
		{"thinking and a temperature", turns(user) + thinking + `,"temperature":0.5`, "may only be set to 1 when thinking is enabled"},
		{"thinking and a demanded call", turns(user) + thinking + tools + `,"tool_choice":{"type":"any"}`, "Thinking may not be enabled when tool_choice forces tool use"},
		{"a tool turn that begins with its thinking", turns(user, asst(think, use), usr(result)) + thinking, ""},
		{"a tool turn that lost its thinking", turns(user, asst(use), usr(result)) + thinking, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`"},
		{"a tool turn whose thinking stands last", turns(user, asst(use, think), usr(result)) + thinking, "Expected `thinking`"},
		{"a tool turn without thinking when none is asked", turns(user, asst(use), usr(result)), ""},
		{"an older turn without thinking", turns(user, asst(text), usr(text)) + thinking, ""},
		{"a forged signature", turns(user, asst(forged, use), usr(result)) + thinking, "messages.1.content.0: Invalid `signature` in `thinking` block"},
		{"thinking without a signature", turns(user, asst(`{"type":"thinking","thinking":"hm"}`, text)), "thinking.signature: Field required"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{Script: Script{Server: Anthropic}}).Start(t)
			h := rawAsk(t, s, "/v1/messages", `{"model":"m",`+tt.body+`}`)
			if tt.want == "" {
				if h.status != 200 {
					t.Errorf("%d %s, want 200", h.status, h.body)
				}
				return
			}
			if h.status != 400 || !strings.HasPrefix(h.body, `{"type":"error","error":{"type":"invalid_request_error","message":"`) || !strings.Contains(h.body, tt.want) {
				t.Errorf("%d %s, want 400 with %q", h.status, h.body, tt.want)
			}
		})
	}
}

func TestAnthropicsHeaders(t *testing.T) {
	s := New(Options{Script: Script{Server: Anthropic, Key: "k-1"}}).Start(t)
	ask := func(body string, headers ...string) (int, string) {
		req, _ := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/v1/messages?beta=true", strings.NewReader(body))
		req.Close = true
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b strings.Builder
		_ = resp.Write(&b)
		return resp.StatusCode, b.String()
	}
	plain := `{"model":"m",` + dialects[0].ask + `}`
	beta := `{"model":"m","context_management":{"edits":[]},` + dialects[0].ask + `}`
	key, version := []string{"X-Api-Key", "k-1"}, []string{"Anthropic-Version", "2026-10-21"}
	tests := []struct {
		name    string
		body    string
		headers []string
		status  int
		has     string
	}{
		{"no version", plain, key, 400, "anthropic-version: header is required"},
		{"any version", plain, append(key, version...), 200, `"type":"message"`},
		{"no key", plain, version, 401, `"type":"authentication_error"`},
		{"a bearer's key", plain, append([]string{"Authorization", "Bearer k-1"}, version...), 200, "Request-Id: req_"},
		{"a beta's member with a header", beta, append([]string{"Anthropic-Beta", "context-management-2025-06-27"}, append(key, version...)...), 200, ""},
		{"no JSON", `{"model":`, append(key, version...), 400, `"type":"invalid_request_error"`},
	}
	for _, tt := range tests {
		if status, got := ask(tt.body, tt.headers...); status != tt.status || !strings.Contains(got, tt.has) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, status, got, tt.status, tt.has)
		}
	}
	a := s.Calls("m")[4]
	if a.API != Messages || a.Query != "beta=true" || a.Header.Get("Anthropic-Version") != "2026-10-21" || a.Header.Get("Anthropic-Beta") == "" || string(a.Body) != beta {
		t.Errorf("recorded %+v", a)
	}
}

func TestOpenAIChecksTheItemsOfResponses(t *testing.T) {
	call, output := `{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}`, `{"type":"function_call_output","call_id":"a","output":"ok"}`
	reasoning := func(sealed string) string {
		return `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"` + sealed + `"}`
	}
	tests := []struct{ name, members, want string }{
		{"text", `"input":"x"`, ""},
		{"no input", `"instructions":"x"`, "'input' is required"},
		{"a call and its result", `"input":[` + call + "," + output + `]`, ""},
		{"a result of no call", `"input":[` + output + `]`, "No tool call found for function call output with call_id a"},
		{"a call without its result", `"input":[` + call + `]`, "No tool output found for function call a"},
		{"an unknown item", `"input":[{"type":"tool_use"}]`, "Invalid value: 'tool_use'"},
		{"reasoning that comes back", `"input":[` + reasoning(Signature("hm")) + `]`, ""},
		{"reasoning that was made up", `"input":[` + reasoning("x") + `]`, "could not be verified"},
		{"a response to continue", `"input":"x","previous_response_id":"resp_1"`, "not found"},
		{"none to continue", `"input":"x","previous_response_id":null`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Options{}).Start(t)
			h := rawAsk(t, s, "/v1/responses", `{"model":"m",`+tt.members+`}`)
			if (h.status == 200) != (tt.want == "") || !strings.Contains(h.body, tt.want) {
				t.Errorf("%d %s, want %q", h.status, h.body, tt.want)
			}
		})
	}
	t.Run("what it sealed itself it takes back", func(t *testing.T) {
		s := New(Options{Script: Script{On: map[string]Sequence{"m": {{Reasoning: "hm"}}}}}).Start(t)
		h := rawAsk(t, s, "/v1/responses", `{"model":"m","input":"x","include":["reasoning.encrypted_content"]}`)
		sealed, _ := dig(t, h.body, "output", 0, "encrypted_content").(string)
		if h := rawAsk(t, s, "/v1/responses", `{"model":"m","input":[`+reasoning(sealed)+`]}`); sealed == "" || h.status != 200 {
			t.Errorf("%q: %d %s", sealed, h.status, h.body)
		}
	})
}

func TestChatCanBeAsStrictAsATemplate(t *testing.T) {
	user, system := `{"role":"user","content":"x"}`, `{"role":"system","content":"x"}`
	call := func(args string) string {
		return fmt.Sprintf(`{"role":"assistant","content":"","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":%q}}]}`, args)
	}
	result := `{"role":"tool","tool_call_id":"a","content":"ok"}`
	tests := []struct {
		refuse, bad, good string
		status            int
	}{
		{"late_system", user + "," + system, system + "," + user, 400},
		{"same_role", user + "," + user, user + "," + call("{}") + "," + result + "," + user, 400},
		{"tool_order", user + "," + call("{}") + "," + user + "," + result, user + "," + call("{}") + "," + result + "," + user, 400},
		{"tool_order", user + "," + result, call("{}") + "," + result, 400},
		{"tool_order", call("{}") + "," + user, user, 400},
		{"tool_order", `{"role":"assistant","tool_calls":[{"id":"b","function":{"name":"f"}}]},` + result, user, 400},
		{"bad_arguments", call("{x") + "," + result, call("{}") + "," + result, 500},
		{"developer", `{"role":"developer","content":"x"}`, system, 400},
		{"empty_content", `{"role":"system","content":""}`, system, 400},
	}
	for _, tt := range tests {
		t.Run(tt.refuse, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				script := Script{Refuse: []string{tt.refuse}, On: map[string]Sequence{"m": {{}}}}
				w := newWorld(t, Options{Script: script})
				for messages, want := range map[string]int{tt.bad: tt.status, tt.good: 200} {
					status, body, err := w.ask(t, "/v1/chat/completions", `{"model":"m","messages":[`+messages+`]}`)
					if err != nil || status != want {
						t.Errorf("%s: %d %s %v, want %d", messages, status, body, err, want)
					}
				}
			})
		})
	}
}
