package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

func text(s string) llm.Part { return llm.Part{Kind: llm.PartText, Text: llm.Escaped(s)} }

func target() *llm.Target { return &llm.Target{Model: "up", Quoted: []byte(`"up"`)} }

// foreign is a request of another dialect: of it, Compose asks for no more than this.
func foreign(name string) *llm.Request {
	return &llm.Request{Op: llm.Chat, Dialect: name, Body: []byte(`{}`)}
}

// input composes c and returns the items.
func input(t *testing.T, c *llm.Conversation, tg *llm.Target) string {
	t.Helper()
	out, err := Dialect{}.Compose(c, foreign("anthropic"), tg)
	if err != nil {
		t.Fatal(err)
	}
	if !llm.IsObject(out) {
		t.Fatalf("no JSON object: %s", out)
	}
	return strings.ReplaceAll(string(member(out, "input")), "},{", "},\n{")
}

func TestCompose(t *testing.T) {
	golden(t, "compose", "want", func(t *testing.T, file func(string) string) string {
		c, r := conversation(t, file("request.json"))
		out, err := Dialect{}.Compose(c, r, target())
		if err != nil {
			t.Fatal(err)
		}
		again, err := Dialect{}.Decode(llm.Chat, out, 100)
		if err != nil {
			t.Fatalf("not a request: %v\n%s", err, out)
		}
		if _, err := (Dialect{}).Conversation(again); err != nil {
			t.Errorf("cannot be read again: %v", err)
		}
		return strings.NewReplacer("},{", "},\n{", `,"input":`, ",\n\"input\":", `,"instructions":`, ",\n\"instructions\":").Replace(string(out))
	})
}

func TestComposeTurns(t *testing.T) {
	call := func(id string) llm.Part {
		return llm.Part{Kind: llm.PartCall, ID: llm.Text(id), Name: llm.Text("f"), Input: llm.Input{Object: llm.Raw(`{"a":"b"}`)}}
	}
	result := func(id string, parts ...llm.Part) llm.Part {
		return llm.Part{Kind: llm.PartResult, ID: llm.Text(id), Parts: parts}
	}
	png := llm.Part{Kind: llm.PartImage, Media: llm.Text("image/png"), Data: llm.Text("iVBO")}
	failed := result("c1", text("no such file"))
	failed.Failed = true
	for name, tc := range map[string]struct {
		turns []llm.Turn
		t     llm.Target
		want  string
	}{
		"C047: text and image beside a result follow it": {turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{text("go")}},
			{Role: llm.Assistant, Parts: []llm.Part{call("c1")}},
			{Role: llm.User, Parts: []llm.Part{result("c1", text("ok")), text("Reply now"), png}}},
			want: `[{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":\"b\"}"},
{"type":"function_call_output","call_id":"c1","output":"ok"},
{"type":"message","role":"user","content":[{"type":"input_text","text":"Reply now"},
{"type":"input_image","image_url":"data:image/png;base64,iVBO","detail":"auto"}]}]`},
		"C047: text before a result comes after it": {turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{text("be brief"), result("c2", text("r2")), result("c1")}}},
			want: `[{"type":"function_call_output","call_id":"c2","output":"r2"},
{"type":"function_call_output","call_id":"c1","output":""},
{"type":"message","role":"user","content":[{"type":"input_text","text":"be brief"}]}]`},
		"C054: thinking is a reasoning item before the message, sealed thinking of another vendor is not sent": {turns: []llm.Turn{
			{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartThinking, Text: llm.Text("secret"), Signature: llm.Text("AAA=")},
				{Kind: llm.PartThinking, Redacted: llm.Text("BBB=")}, text("2")}}},
			want: `[{"type":"reasoning","summary":[{"type":"summary_text","text":"secret"}]},
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"2"}]}]`},
		"C054: thinking for a server that reads it": {t: llm.Target{Reasoning: "reasoning_content"}, turns: []llm.Turn{
			{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartThinking, Text: llm.Text("secret")}, text("2")}}},
			want: `[{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"secret"}]},
{"type":"message","role":"assistant","content":[{"type":"output_text","text":"2"}]}]`},
		"C069: what the assistant said stands before its call": {turns: []llm.Turn{
			{Role: llm.Assistant, Parts: []llm.Part{text("Let me look"), call("c1")}},
			{Role: llm.User, Parts: []llm.Part{result("c1", text("x"))}}},
			want: `[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look"}]},
{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":\"b\"}"},
{"type":"function_call_output","call_id":"c1","output":"x"}]`},
		"a result with an image, and one of a tool that failed": {turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{result("c0", text("a"), png), failed}}},
			want: `[{"type":"function_call_output","call_id":"c0","output":[{"type":"input_text","text":"a"},
{"type":"input_image","image_url":"data:image/png;base64,iVBO","detail":"auto"}]},
{"type":"function_call_output","call_id":"c1","output":"Error: no such file"}]`},
		"C049: a system turn in the middle stays there": {turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{text("a")}}, {Role: llm.System, Parts: []llm.Part{text("b")}}},
			want: `[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
{"type":"message","role":"system","content":[{"type":"input_text","text":"b"}]}]`},
		"a system turn in the middle for a template that refuses it": {t: llm.Target{SystemTurns: "user"}, turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{text("a")}}, {Role: llm.System, Parts: []llm.Part{text("b")}}},
			want: `[{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
{"type":"message","role":"user","content":[{"type":"input_text","text":"b"}]}]`},
		"a developer's turn for a server that does not know the role": {t: llm.Target{Developer: "system"}, turns: []llm.Turn{
			{Role: llm.Developer, Parts: []llm.Part{text("a")}}},
			want: `[{"type":"message","role":"system","content":[{"type":"input_text","text":"a"}]}]`},
		"the system's words alone are input": {turns: []llm.Turn{{Role: llm.System, Parts: []llm.Part{text("a")}}},
			want: `[{"type":"message","role":"system","content":[{"type":"input_text","text":"a"}]}]`},
		"C066: empty texts and turns are left out": {turns: []llm.Turn{
			{Role: llm.User, Parts: []llm.Part{text(""), text("hi")}}, {Role: llm.Assistant, Parts: []llm.Part{text("")}}, {Role: llm.User}},
			want: `[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]`},
		"a call of free text and its result": {turns: []llm.Turn{
			{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartCall, ID: llm.Text("c9"), Name: llm.Text("p"), Custom: true, Input: llm.Input{Spelt: llm.Text(`x\"`)}}}},
			{Role: llm.User, Parts: []llm.Part{result("c9", text("y"))}}},
			want: `[{"type":"custom_tool_call","call_id":"c9","name":"p","input":"x\""},
{"type":"custom_tool_call_output","call_id":"c9","output":"y"}]`},
		"documents": {turns: []llm.Turn{{Role: llm.User, Parts: []llm.Part{
			{Kind: llm.PartDocument, Media: llm.Text("application/pdf"), Data: llm.Text("JVBE")},
			{Kind: llm.PartDocument, Name: llm.Text("T"), Text: llm.Text("plain")}}}},
			want: `[{"type":"message","role":"user","content":[{"type":"input_file","filename":"document.pdf","file_data":"data:application/pdf;base64,JVBE"},
{"type":"input_text","text":"T\n\nplain"}]}]`},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Quoted = []byte(`"up"`)
			if d := cmp.Diff(tc.want, input(t, &llm.Conversation{Turns: tc.turns}, &tc.t)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestComposeMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		c     llm.Conversation
		t     llm.Target
		op    llm.Op
		want  []string // pieces of the body
		never []string
		lost  []string
	}{
		"the system's leading words are the instructions": {
			c:    llm.Conversation{Turns: []llm.Turn{{Role: llm.System, Parts: []llm.Part{text("a"), text("b")}}, {Role: llm.System, Parts: []llm.Part{text("c")}}}},
			want: []string{`"instructions":"a\n\nb\n\nc"`}, never: []string{`"role":"system"`}},
		"the changing line of the system's words": {t: llm.Target{Attribution: true},
			c:    llm.Conversation{Turns: []llm.Turn{{Role: llm.System, Parts: []llm.Part{text(llm.AttributionLine + " v=1;"), text("b")}}}},
			want: []string{`"instructions":"b"`}},
		"C035: a tool without strict or parameters": {c: llm.Conversation{Tools: []llm.Tool{{Kind: llm.ToolFunction, Name: llm.Text("f")},
			{Kind: llm.ToolHosted, Type: "web_search_20250305"}}},
			want: []string{`"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"strict":false}]`},
			lost: []string{"tools[1] (web_search_20250305)"}},
		"C035: a schema survives byte for byte": {c: llm.Conversation{Tools: []llm.Tool{{Kind: llm.ToolFunction, Name: llm.Text("f"), Schema: llm.Raw(`{"$defs":{},"n":1.0}`), Strict: llm.Raw(`true`), Description: llm.Text("d")}},
			Choice: llm.Choice{Mode: llm.ModeNamed, Name: llm.Text("f")}, Parallel: llm.Raw("false")},
			want: []string{`"parameters":{"$defs":{},"n":1.0},"strict":true,"description":"d"`, `"tool_choice":{"type":"function","name":"f"}`, `"parallel_tool_calls":false`}},
		"a grammar stands flat": {c: llm.Conversation{Tools: []llm.Tool{{Kind: llm.ToolCustom, Name: llm.Text("p"), Format: llm.Raw(`{"type":"grammar","grammar":{"syntax":"lark","definition":"x"}}`)}},
			Choice: llm.Choice{Mode: llm.ModeAny, Allowed: []llm.Text{llm.Text("p")}}},
			want: []string{`"format":{"type":"grammar","syntax":"lark","definition":"x"}`, `{"type":"allowed_tools","mode":"required","tools":[{"type":"custom","name":"p"}]}`}},
		"a choice without tools is not sent": {c: llm.Conversation{Choice: llm.Choice{Mode: llm.ModeNone}}, never: []string{"tool_choice"}},
		"nothing is stored":                  {want: []string{`"store":false`}, never: []string{`"stream"`}},
		"a stream is asked for":              {t: llm.Target{Stream: true}, want: []string{`"stream":true`}},
		"a count asks for the prompt alone": {op: llm.Count, t: llm.Target{Stream: true}, c: llm.Conversation{Taste: llm.Taste{Temperature: llm.Raw("1")}},
			never: []string{"store", "stream", "temperature"}},
		"limits and taste": {c: llm.Conversation{Taste: llm.Taste{MaxTokens: llm.Raw("9"), Temperature: llm.Raw("0.20"), TopP: llm.Raw("1"), TopK: llm.Raw("3"), Seed: llm.Raw("1"),
			Stop: []llm.Text{llm.Text("x")}, PresencePenalty: llm.Raw("0.0")}},
			want: []string{`"max_output_tokens":9`, `"temperature":0.20`, `"top_p":1`}, lost: []string{"top_k", "seed", "stop_sequences"}},
		"the pool's rules": {t: llm.Target{Sampling: []llm.Sampling{{Name: "max_tokens", Default: []byte("7")}, {Name: "temperature", Strip: true}}},
			c:    llm.Conversation{Taste: llm.Taste{Temperature: llm.Raw("1")}},
			want: []string{`"max_output_tokens":7`}, never: []string{"temperature", "max_tokens"}},
		"a schema": {c: llm.Conversation{Output: llm.Output{Schema: llm.Raw(`{"a":1}`), Strict: llm.Raw("true"), Verbosity: llm.Raw(`"low"`)}},
			want: []string{`"text":{"format":{"type":"json_schema","name":"answer","schema":{"a":1},"strict":true},"verbosity":"low"}`}},
		"any object":         {c: llm.Conversation{Output: llm.Output{JSON: true}}, want: []string{`"text":{"format":{"type":"json_object"}}`}},
		"a budget to think":  {c: llm.Conversation{Think: llm.Think{On: true, Budget: llm.Raw("8000")}}, want: []string{`"reasoning":{"effort":"medium","summary":"auto"}`}},
		"thinking unseen":    {c: llm.Conversation{Think: llm.Think{On: true, Effort: llm.Text("high"), Shown: llm.Text("omitted")}}, want: []string{`"reasoning":{"effort":"high"}`}},
		"no thinking":        {c: llm.Conversation{Think: llm.Think{Off: true}}, want: []string{`"reasoning":{"effort":"none"}`}},
		"who asks, and keys": {c: llm.Conversation{Settings: llm.Settings{User: llm.Text("u"), CacheKey: llm.Raw(`"k"`), Tier: llm.Raw(`"standard_only"`)}}, want: []string{`"user":"u"`, `"prompt_cache_key":"k"`}, never: []string{"service_tier"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.t.Quoted = []byte(`"up"`)
			tc.c.Turns = append(tc.c.Turns, llm.Turn{Role: llm.User, Parts: []llm.Part{text("hi")}})
			r := foreign("anthropic")
			if tc.op != 0 {
				r.Op = tc.op
			}
			out, err := Dialect{}.Compose(&tc.c, r, &tc.t)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range append(tc.want, `"model":"up"`) {
				if !strings.Contains(string(out), w) {
					t.Errorf("%s lacks %s", out, w)
				}
			}
			for _, n := range tc.never {
				if strings.Contains(string(out), n) {
					t.Errorf("%s has %s", out, n)
				}
			}
			if !slices.Equal(tc.c.Lost, tc.lost) {
				t.Errorf("lost %q, want %q", tc.c.Lost, tc.lost)
			}
		})
	}
}

func TestComposeRefuses(t *testing.T) {
	hi := []llm.Turn{{Role: llm.User, N: 3, Parts: []llm.Part{text("hi")}}}
	for name, tc := range map[string]struct {
		c     llm.Conversation
		param string
	}{
		"C159: several choices":   {llm.Conversation{Turns: hi, Settings: llm.Settings{Choices: llm.Raw("2")}}, "n"},
		"C159: log probabilities": {llm.Conversation{Turns: hi, Settings: llm.Settings{LogProbs: llm.Raw("true")}}, "logprobs"},
		"C066: nothing to say":    {llm.Conversation{Turns: []llm.Turn{{Role: llm.User}}}, ""},
		"a file of another vendor": {llm.Conversation{Turns: []llm.Turn{{Role: llm.User, N: 3, Parts: []llm.Part{{Kind: llm.PartDocument, FileID: llm.Text("x")}}}}},
			"messages[3].content"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dialect{}.Compose(&tc.c, foreign("anthropic"), target())
			if e := refusal(t, err); e.Kind != llm.Invalid || e.Param != tc.param {
				t.Errorf("got %v of %q, want one of %q", e, e.Param, tc.param)
			}
		})
	}
}
