package sim

import (
	"fmt"
	"strings"
	"testing"
)

// TestAgentTakesItsTurns plays the two turns of a coding agent on every API.
func TestAgentTakesItsTurns(t *testing.T) {
	read := map[API]func(*testing.T, string) assembled{Chat: assemble, Messages: assembleMessages, Responses: assembleResponse}
	const bash = `{"type":"object","properties":{"command":{"type":"string"},"description":{"type":"string"}},"required":["command"]}`
	const cmd = `{"type":"object","properties":{"cmd":{"type":"string"}},"required":["cmd"]}`
	const list = `{"type":"object","properties":{"command":{"type":"array","items":{"type":"string"}}},"required":["command"]}`
	messages := `"max_tokens":9,"messages":[{"role":"user","content":"x"}`
	tests := []struct {
		name   string
		server Flavour
		path   string
		body   string
		call   string
		text   string
	}{
		{"Claude Code is offered Bash", Anthropic, "/v1/messages", messages + `],"tools":[{"name":"Agent","input_schema":` + clockSchema + `},{"name":"Bash","input_schema":` + bash + `}]`,
			`Bash({"command":"echo weir-tool-ok"})`, ""},
		{"Claude Code has its result, and a system turn behind it", Anthropic, "/v1/messages", messages + `,{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"Bash","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"weir-tool-ok"}]},{"role":"system","content":"be brief"}],"tools":[{"name":"Bash","input_schema":` + bash + `}]`,
			"", "The tool said: weir-tool-ok"},
		{"Codex is offered exec_command", OpenAI, "/v1/responses", `"input":"x","tools":[{"type":"namespace","name":"n","tools":[]},{"type":"function","name":"exec_command","parameters":` + cmd + `}]`,
			`exec_command({"cmd":"echo weir-tool-ok"})`, ""},
		{"an older Codex is offered shell", OpenAI, "/v1/responses", `"input":"x","tools":[{"type":"function","name":"shell","parameters":` + list + `}]`,
			`shell({"command":["echo","weir-tool-ok"]})`, ""},
		{"Codex has its result", OpenAI, "/v1/responses", `"input":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"weir-tool-ok"}]`,
			"", "The tool said: weir-tool-ok"},
		{"opencode is offered bash", OpenAI, "/v1/chat/completions", `"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"bash","parameters":` + bash + `}}]`,
			`bash({"command":"echo weir-tool-ok"})`, ""},
		{"opencode has its result", OpenAI, "/v1/chat/completions", `"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"weir-tool-ok"}]`,
			"", "The tool said: weir-tool-ok"},
		{"no shell among the tools", OpenAI, "/v1/chat/completions", `"messages":[{"role":"user","content":"x"}],` + toolsMember, `weather({"city":"simulated"})`, ""},
		{"no tools, as for a title", OpenAI, "/v1/chat/completions", `"messages":[{"role":"user","content":"x"}]`, "", "without tools"},
	}
	for _, tt := range tests {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %v", tt.name, stream), func(t *testing.T) {
				s := New(Options{Script: Script{Server: tt.server, On: map[string]Sequence{"*": {{Agent: true}}}}}).Start(t)
				h := rawAsk(t, s, tt.path, fmt.Sprintf(`{"model":"m","stream":%v,%s}`, stream, tt.body))
				got := read[apiOf("POST", tt.path)](t, h.body)
				if strings.Join(got.Calls, " ") != tt.call || !strings.Contains(got.Content, tt.text) || (tt.call == "") != (got.Finish == "stop") {
					t.Errorf("got %+v, want the call %q or the text %q", got, tt.call, tt.text)
				}
			})
		}
	}
}
