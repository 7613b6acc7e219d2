package anthropic

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// said is a conversation of one turn of the user.
func said(parts ...llm.Part) []llm.Turn { return []llm.Turn{{Role: llm.User, Parts: parts}} }

func text(s string) llm.Part { return llm.Part{Kind: llm.PartText, Text: llm.Text(s)} }

// TestComposeOthers holds what only other dialects' requests have.
func TestComposeOthers(t *testing.T) {
	hi := said(text("hi"))
	const content, head = `"messages":[{"role":"user","content":"hi"}]`, `{"model":"m","max_tokens":32000,`
	for _, tt := range []struct {
		name string
		c    llm.Conversation
		t    llm.Target
		want string // the body
		lost string
	}{
		{"a default limit, C059 a", llm.Conversation{Turns: hi}, llm.Target{}, head + content + `}`, ``},
		{"no limit is the default, C059 a", llm.Conversation{Turns: hi, Taste: llm.Taste{MaxTokens: llm.Raw("-1")}}, llm.Target{}, head + content + `}`, ``},
		{"the client's limit, C059 b", llm.Conversation{Turns: hi, Taste: llm.Taste{MaxTokens: llm.Raw("77")}}, llm.Target{}, `{"model":"m","max_tokens":77,` + content + `}`, ``},
		{"the pool's limit under another name", llm.Conversation{Turns: hi}, llm.Target{Sampling: []llm.Sampling{{Name: "max_completion_tokens", Default: []byte("99")}}},
			`{"model":"m","max_tokens":99,` + content + `}`, ``},
		{"a limit cannot be stripped", llm.Conversation{Turns: hi, Taste: llm.Taste{MaxTokens: llm.Raw("77")}}, llm.Target{Sampling: []llm.Sampling{{Name: "max_tokens", Strip: true}}}, head + content + `}`, ``},
		{"a stream", llm.Conversation{Turns: hi}, llm.Target{Stream: true}, `{"model":"m","stream":true,"max_tokens":32000,` + content + `}`, ``},
		{"temperature ends at 1", llm.Conversation{Turns: hi, Taste: llm.Taste{Temperature: llm.Raw("1.7")}}, llm.Target{}, `{"model":"m","temperature":1,"max_tokens":32000,` + content + `}`, ``},
		{"a temperature below stays as it was", llm.Conversation{Turns: hi, Taste: llm.Taste{Temperature: llm.Raw("0.70")}}, llm.Target{}, `{"model":"m","temperature":0.70,"max_tokens":32000,` + content + `}`, ``},
		{"minimal effort is low", llm.Conversation{Turns: hi, Think: llm.Think{Effort: llm.Text("minimal")}}, llm.Target{}, `{"model":"m","output_config":{"effort":"low"},"max_tokens":32000,` + content + `}`, ``},
		{"no effort is no thinking", llm.Conversation{Turns: hi, Think: llm.Think{Effort: llm.Text("none")}}, llm.Target{}, `{"model":"m","thinking":{"type":"disabled"},"max_tokens":32000,` + content + `}`, ``},
		{"an unknown effort is lost", llm.Conversation{Turns: hi, Think: llm.Think{Effort: llm.Text("huge")}}, llm.Target{}, head + content + `}`, `reasoning_effort`},
		{"any JSON cannot be asked for", llm.Conversation{Turns: hi, Output: llm.Output{JSON: true}}, llm.Target{}, head + content + `}`, `response_format`},
		{"what has no place is lost", llm.Conversation{Turns: hi, Taste: llm.Taste{Seed: llm.Raw("1"), PresencePenalty: llm.Raw("1"), FrequencyPenalty: llm.Raw("1")},
			Settings: llm.Settings{Tier: llm.Raw(`"flex"`), Store: llm.Raw("true"), LogitBias: llm.Raw(`{"1":2}`), Metadata: llm.Raw(`{}`), Choices: llm.Raw("1"), LogProbs: llm.Raw("false")}},
			llm.Target{}, head + content + `}`, `seed presence_penalty frequency_penalty service_tier metadata store logit_bias`},
		{"tools of other vendors are lost", llm.Conversation{Turns: hi, Tools: []llm.Tool{{Kind: llm.ToolHosted, Type: "web_search"}, {Kind: llm.ToolCustom, Name: llm.Text("c")}}, Choice: llm.Choice{Mode: llm.ModeAuto}},
			llm.Target{}, head + content + `}`, `tools[0] tools[1]`},
		{"only the allowed tools go on", llm.Conversation{Turns: hi, Tools: []llm.Tool{{Kind: llm.ToolFunction, Name: llm.Text("f")}, {Kind: llm.ToolFunction, Name: llm.Text("g")}},
			Choice: llm.Choice{Mode: llm.ModeAny, Allowed: []llm.Text{llm.Text("g")}}}, llm.Target{},
			`{"model":"m","tool_choice":{"type":"any"},"max_tokens":32000,"tools":[{"name":"g","input_schema":{"type":"object","properties":{}}}],` + content + `}`, ``},
		{"one call at a time", llm.Conversation{Turns: hi, Tools: []llm.Tool{{Kind: llm.ToolFunction, Name: llm.Text("f")}}, Parallel: llm.Raw("false")}, llm.Target{},
			`{"model":"m","tool_choice":{"type":"auto","disable_parallel_tool_use":true},"max_tokens":32000,"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],` + content + `}`, ``},
		{"a named tool", llm.Conversation{Turns: hi, Tools: []llm.Tool{{Kind: llm.ToolFunction, Name: llm.Text("f")}}, Choice: llm.Choice{Mode: llm.ModeNamed, Name: llm.Text("f")}, Think: llm.Think{On: true}}, llm.Target{},
			`{"model":"m","thinking":{"type":"disabled"},"tool_choice":{"type":"tool","name":"f"},"max_tokens":32000,"tools":[{"name":"f","input_schema":{"type":"object","properties":{}}}],` + content + `}`, ``},
		{"a name of the speaker is lost", llm.Conversation{Turns: []llm.Turn{{Role: llm.User, Name: llm.Text("ann"), Parts: []llm.Part{text("hi")}}}}, llm.Target{}, head + content + `}`, `messages[0].name`},
		{"a developer is the system", llm.Conversation{Turns: append([]llm.Turn{{Role: llm.Developer, Parts: []llm.Part{text("d")}}}, hi...)}, llm.Target{}, head + `"system":"d",` + content + `}`, ``},
		{"calls that are spelt, numbers kept, C031", llm.Conversation{Turns: append(hi,
			llm.Turn{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartRefusal, Text: llm.Text("no")}, {Kind: llm.PartCall, ID: llm.Text("a"), Name: llm.Text("f"), Input: llm.Input{Spelt: llm.Text(`{\"n\":12345678901234567890}`)}}}},
			llm.Turn{Role: llm.User, Parts: []llm.Part{{Kind: llm.PartResult, ID: llm.Text("a"), Parts: []llm.Part{text("r")}}}})}, llm.Target{},
			head + `"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"text","text":"no"},{"type":"tool_use","id":"a","name":"f","input":{"n":12345678901234567890}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"r"}]}]}`, ``},
		{"images and documents", llm.Conversation{Turns: said(llm.Part{Kind: llm.PartImage, Data: llm.Text("/9j/AA")}, llm.Part{Kind: llm.PartImage, URL: llm.Text("https://x.example/a")},
			llm.Part{Kind: llm.PartDocument, Data: llm.Text("JVBE"), Name: llm.Text("a.pdf")}, llm.Part{Kind: llm.PartDocument, Media: llm.Text("text/plain"), Data: llm.Text("YSJi")})}, llm.Target{},
			head + `"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"/9j/AA"}},{"type":"image","source":{"type":"url","url":"https://x.example/a"}},` +
				`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBE"},"title":"a.pdf"},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"a\"b"}}]}]}`, ``},
		{"what only another vendor knows is lost", llm.Conversation{Turns: said(text("hi"), llm.Part{Kind: llm.PartOther, Type: "web_search_call", Raw: llm.Raw("{}")})}, llm.Target{}, head + content + `}`, `messages[0]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.t.Quoted = []byte(`"m"`)
			got, err := Dialect{}.Compose(&tt.c, &llm.Request{Op: llm.Chat, Dialect: "openai"}, &tt.t)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := strings.Join(tt.c.Lost, " "); got != tt.lost {
				t.Errorf("lost %q, want %q", got, tt.lost)
			}
		})
	}
}

// TestComposeRefuses holds what would change the meaning in silence (C158 b).
func TestComposeRefuses(t *testing.T) {
	hi := said(text("hi"))
	for _, tt := range []struct {
		name  string
		c     llm.Conversation
		param string
	}{
		{"several choices, C158", llm.Conversation{Turns: hi, Settings: llm.Settings{Choices: llm.Raw("2")}}, "n"},
		{"log probabilities, C158", llm.Conversation{Turns: hi, Settings: llm.Settings{LogProbs: llm.Raw("true")}}, "logprobs"},
		{"top log probabilities, C158", llm.Conversation{Turns: hi, Settings: llm.Settings{TopLogProbs: llm.Raw("3")}}, "top_logprobs"},
		{"a named tool of free text", llm.Conversation{Turns: hi, Choice: llm.Choice{Mode: llm.ModeNamed, Custom: true}}, "tool_choice"},
		{"sound", llm.Conversation{Turns: said(llm.Part{Kind: llm.PartAudio})}, "messages[0]"},
		{"a file of another server", llm.Conversation{Turns: said(llm.Part{Kind: llm.PartImage, FileID: llm.Text("f")})}, "messages[0]"},
		{"sound in a result", llm.Conversation{Turns: said(llm.Part{Kind: llm.PartResult, Parts: []llm.Part{{Kind: llm.PartAudio}}})}, "messages[0]"},
		{"a system prompt alone, C066", llm.Conversation{Turns: []llm.Turn{{Role: llm.System, Parts: []llm.Part{text("s")}}}}, "messages"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Dialect{}.Compose(&tt.c, &llm.Request{Op: llm.Chat, Dialect: "openai"}, &llm.Target{Quoted: []byte(`"m"`)})
			if e := refusal(t, err); e.Kind != llm.Invalid || e.Param != tt.param {
				t.Errorf("got %v %q, want %q", e.Kind, e.Param, tt.param)
			}
		})
	}
}

// TestPrefixStays holds that a later turn begins with what the earlier ones were (C049).
func TestPrefixStays(t *testing.T) {
	turn := `{"role":"assistant","content":[{"type":"tool_use","id":"t%","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%","content":"r"}]},{"role":"system","content":"% left"}`
	history := `{"role":"user","content":"go"}`
	var before []byte
	for _, n := range []string{"1", "2", "3"} {
		history += "," + strings.ReplaceAll(turn, "%", n)
		r := decode(t, `{"model":"m","max_tokens":5,"system":"s","messages":[`+history+`]}`)
		c, err := Dialect{}.Conversation(r)
		if err != nil {
			t.Fatal(err)
		}
		c.Mend()
		r.Dialect = "openai"
		body, err := Dialect{}.Compose(c, r, target())
		if err != nil {
			t.Fatal(err)
		}
		if now := bytes.TrimSuffix(body, []byte("]}")); !bytes.HasPrefix(now, before) {
			t.Errorf("turn %s is\n%s\nwhich does not begin with\n%s", n, now, before)
		} else {
			before = now
		}
	}
}
