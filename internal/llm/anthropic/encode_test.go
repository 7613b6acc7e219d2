package anthropic

import (
	"testing"

	"weir/internal/llm"
)

func TestEdits(t *testing.T) {
	const said = `"messages":[{"role":"user","content":[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]}]`
	const line = `x-anthropic-billing-header: cc_version=2.1;`
	for _, tt := range []struct {
		name, body string
		t          llm.Target
		want       string
	}{
		{"only the model changes", `{ "model": "a",  "max_tokens": 5, "n": 1.0, ` + said + `}`, llm.Target{}, `{ "model": "m",  "max_tokens": 5, "n": 1.0, ` + said + `}`},
		{"a stream is asked for", `{"model":"a","max_tokens":5,` + said + `}`, llm.Target{Stream: true}, `{"stream":true,"model":"m","max_tokens":5,` + said + `}`},
		{"a pool's rules", `{"model":"a","max_tokens":5,"top_p":0.1,"temperature":0.5,` + said + `}`,
			llm.Target{Sampling: []llm.Sampling{{Name: "top_k", Force: []byte("9")}, {Name: "top_p", Strip: true}, {Name: "temperature", Default: []byte("1")}, {Name: "max_completion_tokens", Force: []byte("7")}}},
			`{"top_k":9,"model":"m","max_tokens":7,"temperature":0.5,` + said + `}`},
		{"max_tokens cannot be left out", `{"model":"a","max_tokens":5,` + said + `}`, llm.Target{Sampling: []llm.Sampling{{Name: "max_tokens", Strip: true}}},
			`{"model":"m","max_tokens":32000,` + said + `}`},
		{"the changing line is a block", `{"model":"a","max_tokens":5,"system":[{"type":"text","text":"` + line + `"}, {"type":"text","text":"b"}],` + said + `}`, llm.Target{Attribution: true},
			`{"model":"m","max_tokens":5,"system":[{"type":"text","text":"b"}],` + said + `}`},
		{"the changing line is all of the system prompt", `{"model":"a","max_tokens":5,"system":[{"type":"text","text":"` + line + `"}],` + said + `}`, llm.Target{Attribution: true},
			`{"model":"m","max_tokens":5,` + said + `}`},
		{"the changing line begins a text", `{"model":"a","max_tokens":5,"system":"` + line + `\n\nYou are",` + said + `}`, llm.Target{Attribution: true},
			`{"model":"m","max_tokens":5,"system":"You are",` + said + `}`},
		{"the changing line begins a block", `{"model":"a","max_tokens":5,"system":[{"text":"` + line + `\nYou are","type":"text"}],` + said + `}`, llm.Target{Attribution: true},
			`{"model":"m","max_tokens":5,"system":[{"text":"You are","type":"text"}],` + said + `}`},
		{"the changing line stays where nobody minds", `{"model":"a","max_tokens":5,"system":"` + line + `",` + said + `}`, llm.Target{},
			`{"model":"m","max_tokens":5,"system":"` + line + `",` + said + `}`},
		{"the user's words are no such line", `{"model":"a","max_tokens":5,"system":"You are",` + said + `}`, llm.Target{Attribution: true},
			`{"model":"m","max_tokens":5,"system":"You are",` + said + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := edited(t, decode(t, tt.body), &tt.t); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func edited(t *testing.T, r *llm.Request, tg *llm.Target) string {
	t.Helper()
	tg.Model, tg.Quoted = "m", []byte(`"m"`)
	e, err := Dialect{}.Edits(r, tg)
	if err != nil {
		t.Fatal(err)
	}
	return string(e.Apply(nil, r))
}

// TestRepair holds that a history that servers choke on is mended in place, all else byte for byte.
func TestRepair(t *testing.T) {
	const call = `{"role":"assistant","content":[{"type":"text","text":"a","x":1.0}, {"type":"tool_use","id":"t1","name":"f","input":{"n":1.0},"caller":{}}]}`
	const result = `{"content":[{"tool_use_id":"t1","type":"tool_result","content":"r"}],"role":"user"}`
	for _, tt := range []struct{ name, messages, want string }{
		{"nothing is wrong", `[` + call + ` , ` + result + `]`, ``},
		{"a call without a name", `[{"role":"assistant","content":[{"type":"text","text":"a","x":1.0},{"type":"tool_use","id":"t1","name":"","input":{"n":1.0},"caller":{}}]} , ` + result + `]`,
			`[{"role":"assistant","content":[{"type":"text","text":"a","x":1.0},{"type":"tool_use","id":"t1","name":"unknown_tool","input":{"n":1.0},"caller":{}}]} , ` + result + `]`},
		{"arguments that are a string", `[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":"{\"a\":1}"}]},` + result + `]`,
			`[{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"f","input":{"a":1}}]},` + result + `]`},
		{"a call without a result gets one", `[` + call + `, {"role":"user","content":"on"}]`,
			`[` + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"No result was recorded."}]},{"role":"user","content":"on"}]`},
		{"a result without a call becomes text", `[{"role":"user","content":"a"}, {"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","content":"r"}]}]`,
			`[{"role":"user","content":"a"}, {"role":"user","content":[{"type":"text","text":"Result of a tool call that is not in this conversation:"},{"type":"text","text":"r"}]}]`},
		{"a result that comes too early waits for the right one",
			`[` + call + ` , {"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","content":"lost"}]} , ` + result + ` , {"role":"assistant","content":"b"}]`,
			`[` + call + `,` + result + `,{"role":"user","content":[{"type":"text","text":"Result of a tool call that is not in this conversation:"},{"type":"text","text":"lost"}]},{"role":"assistant","content":"b"}]`},
		{"a lost result at the end", `[` + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","content":"lost"}]}]`,
			`[` + call + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"No result was recorded."}]},{"role":"user","content":[{"type":"text","text":"Result of a tool call that is not in this conversation:"},{"type":"text","text":"lost"}]}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := decode(t, `{"model":"m","max_tokens":5,"messages":`+tt.messages+`,"z":1}`)
			if tt.want == "" {
				tt.want = tt.messages
			}
			got := edited(t, r, &llm.Target{})
			if want := `{"model":"m","max_tokens":5,"messages":` + tt.want + `,"z":1}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if changed := tt.want != tt.messages; changed != (len(r.Repair.Notes) > 0) {
				t.Errorf("notes are %q", r.Repair.Notes)
			}
			if again := edited(t, decode(t, got), &llm.Target{}); again != got {
				t.Errorf("mended again:\n%s\nfrom\n%s", again, got)
			}
		})
	}
}

func TestPath(t *testing.T) {
	for op, want := range map[llm.Op]string{llm.Chat: "/v1/messages", llm.Count: "/v1/messages/count_tokens", llm.Embeddings: ""} {
		if got := (Dialect{}).Path(op); got != want {
			t.Errorf("%v: got %q, want %q", op, got, want)
		}
	}
}

// TestACountIsLeftAlone holds that neither a stream nor a limit is asked for where tokens are counted.
func TestACountIsLeftAlone(t *testing.T) {
	r, err := Dialect{}.Decode(llm.Count, []byte(`{"model":"a","messages":[{"role":"user","content":"hi"}]}`), 100)
	if err != nil {
		t.Fatal(err)
	}
	got := edited(t, r, &llm.Target{Stream: true, Sampling: []llm.Sampling{{Name: "top_k", Force: []byte("1")}}})
	if want := `{"model":"m","messages":[{"role":"user","content":"hi"}]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
