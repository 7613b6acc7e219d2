package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// dump writes a conversation as lines, one for each part and each setting that says something.
func dump(c *llm.Conversation) string {
	var b strings.Builder
	roles := [...]string{llm.System: "system", llm.Developer: "developer", llm.User: "user", llm.Assistant: "assistant"}
	for i := range c.Turns {
		t := &c.Turns[i]
		fmt.Fprintf(&b, "%s %d\n", roles[t.Role], t.N)
		dumpParts(&b, t.Parts, "  ")
	}
	for i := range c.Tools {
		t := &c.Tools[i]
		fmt.Fprintf(&b, "tool %d %s %q schema=%s strict=%s format=%s\n", t.Kind, t.Name, t.Description, t.Schema, t.Strict, t.Format)
	}
	set := func(name string, v any) {
		if s := fmt.Sprintf("%s", v); s != "" && s != "[]" && s != "%!s(bool=false)" && s != "%!s(llm.Mode=0)" {
			fmt.Fprintf(&b, "%s %s\n", name, strings.NewReplacer("%!s(bool=true)", "yes", "%!s(llm.Mode=", "", ")", "").Replace(s))
		}
	}
	set("choice", c.Choice.Mode)
	set("choice.name", c.Choice.Name)
	set("choice.custom", c.Choice.Custom)
	set("choice.allowed", c.Choice.Allowed)
	set("parallel", c.Parallel)
	set("schema", c.Output.Schema)
	set("schema.name", c.Output.Name)
	set("schema.strict", c.Output.Strict)
	set("json", c.Output.JSON)
	set("verbosity", c.Output.Verbosity)
	set("limit", c.Taste.MaxTokens)
	set("temperature", c.Taste.Temperature)
	set("top_p", c.Taste.TopP)
	set("top_k", c.Taste.TopK)
	set("user", c.Settings.User)
	set("tier", c.Settings.Tier)
	set("metadata", c.Settings.Metadata)
	set("cache", c.Settings.CacheKey)
	set("think.off", c.Think.Off)
	set("think.effort", c.Think.Effort)
	set("think.shown", c.Think.Shown)
	for _, l := range c.Lost {
		fmt.Fprintf(&b, "lost %s\n", l)
	}
	return b.String()
}

func dumpParts(b *strings.Builder, parts []llm.Part, indent string) {
	kinds := [...]string{"", "text", "refusal", "thinking", "image", "document", "audio", "call", "result", "other"}
	for i := range parts {
		p := &parts[i]
		fmt.Fprintf(b, "%s%s", indent, kinds[p.Kind])
		for _, f := range [...]struct {
			name string
			v    []byte
		}{{"text", p.Text}, {"id", p.ID}, {"name", p.Name}, {"object", p.Input.Object}, {"spelt", p.Input.Spelt}, {"media", p.Media},
			{"data", p.Data}, {"url", p.URL}, {"file", p.FileID}, {"detail", p.Detail}, {"encrypted", p.Encrypted}} {
			if len(f.v) > 0 {
				fmt.Fprintf(b, " %s=%s", f.name, f.v)
			}
		}
		if p.Custom {
			b.WriteString(" custom")
		}
		b.WriteByte('\n')
		dumpParts(b, p.Parts, indent+"  ")
	}
}

func conversation(t testing.TB, body string) (*llm.Conversation, *llm.Request) {
	t.Helper()
	r := decode(t, body)
	c, err := Dialect{}.Conversation(r)
	if err != nil {
		t.Fatal(err)
	}
	return c, r
}

// TestConversation holds C068 and C069 (its reverse) and the request of a coding agent as testdata has them.
func TestConversation(t *testing.T) {
	golden(t, "conversation", "want", func(t *testing.T, file func(string) string) string {
		c, _ := conversation(t, file("request.json"))
		return dump(c)
	})
}

func TestConversationKnowsThePlaces(t *testing.T) {
	body := `{"model":"m","instructions":"be brief","input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}, {"role":"assistant","content":[{"type":"output_text","text":"b"}]}]}`
	c, r := conversation(t, body)
	var got []string
	for i := range c.Turns {
		got = append(got, string(c.Turns[i].At.Of(r.Body)))
	}
	want := []string{`"be brief"`, `{"role":"user","content":"a"}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}, {"role":"assistant","content":[{"type":"output_text","text":"b"}]}`}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestConversationRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ members, param, says string }{
		"C068: an item of a type that is not known":  {`"input":[{"type":"time_travel","x":1}]`, "input[0].type", "time_travel"},
		"a reference to an item":                     {`"input":[{"role":"user","content":"a"},{"type":"item_reference","id":"x"}]`, "input[1]", "send it whole"},
		"what only its vendor can read":              {`"input":[{"type":"compaction","encrypted_content":"x"}]`, "input[0]", "compaction"},
		"a part of a type that is not known":         {`"input":[{"role":"user","content":[{"type":"input_smell","x":1}]}]`, "input[0].content[0].type", "input_smell"},
		"a role that is not known":                   {`"input":[{"role":"tool","content":"x"}]`, "input[0].role", "tool"},
		"content that is a number":                   {`"input":[{"role":"user","content":1}]`, "input[0].content", "string"},
		"instructions that are a list":               {`"input":"a","instructions":[]`, "instructions", "string"},
		"a tool that must be called and is left out": {`"input":"a","tools":[{"type":"web_search"}],"tool_choice":"required"`, "tool_choice", "tool"},
		"a choice of a hosted tool":                  {`"input":"a","tool_choice":{"type":"web_search"}`, "tool_choice", "web_search"},
		"a choice of a tool that is not there":       {`"input":"a","tool_choice":{"type":"function","name":"g"}`, "tool_choice", `"g"`},
		"a tool without a name":                      {`"input":"a","tools":[{"type":"function"}]`, "tools[0].name", "name"},
		"a format that is not known":                 {`"input":"a","text":{"format":{"type":"grammar"}}`, "text.format.type", "grammar"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Dialect{}.Conversation(decode(t, `{"model":"m",`+tc.members+`}`))
			e := refusal(t, err)
			if e.Kind != llm.Invalid || e.Param != tc.param || !strings.Contains(e.Msg, tc.says) {
				t.Errorf("got %v of %q, want one of %q that says %q", e, e.Param, tc.param, tc.says)
			}
		})
	}
}
