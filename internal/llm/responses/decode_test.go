package responses

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

func TestDecode(t *testing.T) {
	body := `{"model":"m","input":[{"role":"developer","content":"be brief"},{"role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]},` +
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}],"tools":[{"type":"function","name":"f"},{"type":"web_search"}],"stream":true,"max_output_tokens":50,"x":[1]}`
	r := decode(t, body)
	want := llm.Shape{Bytes: len(body), Messages: 3, Tools: 2, Images: 1, Stream: true, MaxTokens: 50, TokensEst: r.Shape.TokensEst}
	if d := cmp.Diff(want, r.Shape); d != "" {
		t.Error(d)
	}
	if r.Dialect != "responses" || r.Model != "m" || !r.Stream || !r.IncludeUsage || r.Choices != 1 || !r.Calls || !r.Developer || r.Speaks != (Dialect{}) {
		t.Errorf("got %+v", r)
	}
	if at := r.MessagesAt.Of(r.Body); at[0] != '[' || at[len(at)-1] != ']' {
		t.Errorf("input stands at %s", at)
	}
	if r.Shape.TokensEst < 800 || r.Shape.TokensEst > 900 {
		t.Errorf("estimated %d tokens", r.Shape.TokensEst)
	}
}

func TestDecodeTakes(t *testing.T) {
	for name, members := range map[string]string{
		"a text":                           `"input":"hi"`,
		"what other servers know":          `"input":"hi","min_p":0.1,"cache_prompt":true`,
		"nulls":                            `"input":"hi","background":null,"conversation":null,"prompt":null,"previous_response_id":null,"stream":null,"max_output_tokens":null`,
		"background that is off":           `"input":"hi","background":false`,
		"no input where it goes on":        `"previous_response_id":"resp_1"`,
		"an item type that is not known":   `"input":[{"type":"time_travel"}]`,
		"a message without a type (C068)":  `"input":[{"role":"user","content":"a"}]`,
		"no limit, as llama.cpp spells it": `"input":"a","max_output_tokens":-1`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, op := range []llm.Op{llm.Chat, llm.Count} {
				if _, err := (Dialect{}).Decode(op, []byte(`{"model":"m",`+members+`}`), 100); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ body, param, says string }{
		"no object":                   {`[]`, "", "one JSON object"},
		"nothing":                     {` `, "", "empty"},
		"no model":                    {`{"input":"a"}`, "model", "missing"},
		"no input":                    {`{"model":"m"}`, "input", "missing"},
		"an empty input":              {`{"model":"m","input":[]}`, "input", "at least one"},
		"input that is an object":     {`{"model":"m","input":{}}`, "input", "string or an array"},
		"an item that is a text":      {`{"model":"m","input":["a"]}`, "input[0]", "object"},
		"an item that is nothing":     {`{"model":"m","input":[{"content":"a"}]}`, "input[0].type", "type"},
		"background":                  {`{"model":"m","input":"a","background":true}`, "background", "stream"},
		"a kept conversation":         {`{"model":"m","input":"a","conversation":"conv_1"}`, "conversation", "input"},
		"a stored prompt":             {`{"model":"m","input":"a","prompt":{"id":"p"}}`, "prompt", "instructions"},
		"a member twice (S17)":        {`{"model":"m","input":"a","model":"n"}`, "model", "twice"},
		"a member in other case":      {`{"model":"m","input":"a","Stream":true}`, "Stream", "write it stream"},
		"a member of an item twice":   {`{"model":"m","input":[{"role":"user","role":"system"}]}`, "input[0].role", "twice"},
		"where the call is to go":     {`{"model":"m","input":"a","api_base":"x"}`, "api_base", "refused"},
		"stream that is a text":       {`{"model":"m","input":"a","stream":"yes"}`, "stream", "true or false"},
		"a limit that is a text":      {`{"model":"m","input":"a","max_output_tokens":"9"}`, "max_output_tokens", "whole number"},
		"a previous id of a number":   {`{"model":"m","input":"a","previous_response_id":1}`, "previous_response_id", "string"},
		"broken JSON within an item":  {`{"model":"m","input":[{"role":"user","content":tru}]}`, "input[0].content", "not valid JSON"},
		"broken JSON within a part":   {`{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"\x"}]}]}`, "input[0].content[0].text", "not valid JSON"},
		"more text behind the object": {`{"model":"m","input":"a"}x`, "", "more text"},
		"a role of a number":          {`{"model":"m","input":[{"role":1}]}`, "input[0].role", "string"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dialect{}.Decode(llm.Chat, []byte(tc.body), 20)
			e := refusal(t, err)
			if e.Kind != llm.Invalid || e.Param != tc.param || !strings.Contains(e.Msg, tc.says) {
				t.Errorf("got %v of %q, want one of %q that says %q", e, e.Param, tc.param, tc.says)
			}
		})
	}
}

// FuzzDecode holds that whatever is taken can be read as a conversation or is refused with a reason, that a conversation
// can be composed to a request which says the same, and that nothing breaks on the way.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","input":"hi"}`,
		`{"model":"m","instructions":"i","input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AA"}]}]}`,
		`{"model":"m","input":[{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"Z"},{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}]}`,
		`{"model":"m","input":[{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"y"},{"type":"web_search_call"}],"tools":[{"type":"custom","name":"f"}],"tool_choice":"auto"}`,
		`{"model":"m","input":[{"type":"function_call","name":"","arguments":"{"},{"type":"function_call_output","call_id":"z","output":"y"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Dialect{}.Decode(llm.Chat, body, 50)
		if err != nil {
			refusal(t, err)
			return
		}
		tg := target()
		e, err := Dialect{}.Edits(r, tg)
		if err != nil {
			t.Fatal(err)
		}
		if out := e.Apply(nil, r); !llm.IsObject(out) {
			t.Fatalf("edited to %s", out)
		}
		c, err := Dialect{}.Conversation(r)
		if err != nil {
			refusal(t, err)
			return
		}
		c.Mend()
		out, err := Dialect{}.Compose(c, r, tg)
		if err != nil {
			refusal(t, err)
			return
		}
		again, err := Dialect{}.Decode(llm.Chat, out, 100)
		if err != nil {
			t.Fatalf("composed to %s: %v", out, err)
		}
		d, err := Dialect{}.Conversation(again)
		if err != nil {
			t.Fatalf("composed to %s: %v", out, err)
		}
		if diff := cmp.Diff(meaning(c), meaning(d)); diff != "" {
			t.Errorf("%s\ncomposed to %s\n%s", body, out, diff)
		}
	})
}

// meaning returns what a conversation says, whatever the turns that it is cut into.
func meaning(c *llm.Conversation) []string {
	var out []string
	for i := range c.Turns {
		t := &c.Turns[i]
		parts := t.Parts
		if t.Role == llm.User { // results come before what else is said
			parts = nil
			for _, p := range t.Parts {
				if p.Kind == llm.PartResult {
					parts = append(parts, p)
				}
			}
			for _, p := range t.Parts {
				if p.Kind != llm.PartResult {
					parts = append(parts, p)
				}
			}
		}
		for _, p := range parts {
			var b strings.Builder
			p.Detail = nil
			if p.Kind == llm.PartCall && !p.Custom {
				p.Input = llm.Input{Spelt: p.Input.AppendSpelt(nil)}
			}
			if p.Kind == llm.PartDocument && len(p.Data) > 0 {
				p.Name, p.URL, p.FileID = nil, nil, nil
			}
			dumpParts(&b, []llm.Part{p}, "")
			s := string(rune('0'+t.Role)) + " " + b.String()
			if p.Kind == llm.PartText && t.Role == llm.System && len(out) > 0 && strings.HasPrefix(out[len(out)-1], "1 text") {
				continue // the instructions are one text
			}
			out = append(out, s)
		}
	}
	return out
}
