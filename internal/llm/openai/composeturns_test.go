package openai

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// The parts of these tests, as another dialect would make them.
func says(t string) llm.Part { return llm.Part{Kind: llm.PartText, Text: llm.Text(t)} }

func asks(id string) llm.Part {
	return llm.Part{Kind: llm.PartCall, ID: llm.Text(id), Name: llm.Text("f"), Input: llm.Input{Object: llm.Raw(`{"n":1.0}`)}}
}

func answers(id string, parts ...llm.Part) llm.Part {
	return llm.Part{Kind: llm.PartResult, ID: llm.Text(id), Parts: parts}
}

func turn(role llm.Role, parts ...llm.Part) llm.Turn { return llm.Turn{Role: role, Parts: parts} }

var (
	picture = llm.Part{Kind: llm.PartImage, Media: llm.Text("image/png"), Data: llm.Text("aGk=")}
	letter  = llm.Part{Kind: llm.PartDocument, Name: llm.Text("T"), Text: llm.Text("plain")}
	failed  = llm.Part{Kind: llm.PartResult, ID: llm.Text("1"), Failed: true, Parts: []llm.Part{says("no such file")}}
)

const callOne = `{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"n\":1.0}"}}]}`

func TestComposeTurnsOfOtherDialects(t *testing.T) {
	for _, tt := range []struct {
		name   string
		target llm.Target
		turns  []llm.Turn
		want   string
		lost   []string
	}{
		{"the system's blocks are one text, without the line that changes", llm.Target{Attribution: true},
			[]llm.Turn{turn(llm.System, says("x-anthropic-billing-header: cc_version=1"), says(""), says("A"), says("B")), turn(llm.User, says("hi"))},
			`{"role":"system","content":"A\n\nB"},{"role":"user","content":"hi"}`, nil},
		{"a system turn that is empty is none", llm.Target{}, []llm.Turn{turn(llm.System, says("")), turn(llm.User, says("hi"))}, `{"role":"user","content":"hi"}`, nil},
		{"C055 results come first, in their order, and what is said beside them after", llm.Target{},
			[]llm.Turn{turn(llm.User, says("go")), turn(llm.Assistant, asks("1"), asks("2")), turn(llm.User, says("be brief"), answers("2", says("r2")), answers("1", says("r1")))},
			`{"role":"user","content":"go"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"n\":1.0}"}},{"id":"2","type":"function","function":{"name":"f","arguments":"{\"n\":1.0}"}}]},` +
				`{"role":"tool","tool_call_id":"2","content":"r2"},{"role":"tool","tool_call_id":"1","content":"r1"},{"role":"user","content":"be brief"}`, nil},
		{"C047 text and image beside a result stay", llm.Target{},
			[]llm.Turn{turn(llm.Assistant, asks("1")), turn(llm.User, answers("1", says("ok")), says("Reply now"), picture)},
			callOne + `,{"role":"tool","tool_call_id":"1","content":"ok"},{"role":"user","content":[{"type":"text","text":"Reply now"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]}`, nil},
		{"images of a result follow it", llm.Target{},
			[]llm.Turn{turn(llm.Assistant, asks("1")), turn(llm.User, answers("1", picture), says("and?"))},
			callOne + `,{"role":"tool","tool_call_id":"1","content":"The result follows in the next message."},{"role":"user","content":[{"type":"text","text":"From the result of the tool call 1:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}},{"type":"text","text":"and?"}]}`, nil},
		{"images of a result come before what the system or the assistant says next", llm.Target{},
			[]llm.Turn{turn(llm.Assistant, asks("1")), turn(llm.User, answers("1", says("x"), picture)), turn(llm.Assistant, says("I see"))},
			callOne + `,{"role":"tool","tool_call_id":"1","content":"x"},{"role":"user","content":[{"type":"text","text":"From the result of the tool call 1:"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]},{"role":"assistant","content":"I see"}`, nil},
		{"a failed result says so", llm.Target{}, []llm.Turn{turn(llm.Assistant, asks("1")), turn(llm.User, failed)},
			callOne + `,{"role":"tool","tool_call_id":"1","content":"Error: no such file"}`, nil},
		{"C055 what the system says between calls and results comes after them", llm.Target{},
			[]llm.Turn{turn(llm.Assistant, asks("1")), turn(llm.System, says("note")), turn(llm.User, answers("1", says("x")))},
			callOne + `,{"role":"tool","tool_call_id":"1","content":"x"},{"role":"system","content":"note"}`, nil},
		{"C069 words and calls that stood apart are one message", llm.Target{},
			[]llm.Turn{turn(llm.User, says("go")), turn(llm.Assistant, says("Let me look")), turn(llm.Assistant, asks("1")), turn(llm.User, answers("1", says("r")))},
			`{"role":"user","content":"go"},` + strings.Replace(callOne, `""`, `"Let me look"`, 1) + `,{"role":"tool","tool_call_id":"1","content":"r"}`, nil},
		{"C054 C068 sealed thinking goes to nobody else", llm.Target{Reasoning: "reasoning_content"},
			[]llm.Turn{turn(llm.User, says("1+1")), turn(llm.Assistant, llm.Part{Kind: llm.PartThinking, Text: llm.Text("secret"), Signature: llm.Text("AAA=")},
				llm.Part{Kind: llm.PartThinking, Redacted: llm.Text("BBB=")}, llm.Part{Kind: llm.PartThinking, Encrypted: llm.Text("CCC=")}, says("2"))},
			`{"role":"user","content":"1+1"},{"role":"assistant","content":"2","reasoning_content":"secret"}`, nil},
		{"a plain document is text", llm.Target{}, []llm.Turn{turn(llm.User, letter, says("sum up"))}, `{"role":"user","content":"Document \"T\":\n\nplain\n\nsum up"}`, nil},
		{"content may have to be null", llm.Target{NullContent: "null"}, []llm.Turn{turn(llm.Assistant, asks("1"))}, strings.Replace(callOne, `""`, "null", 1), nil},
		{"content may have to be absent", llm.Target{NullContent: "omit"}, []llm.Turn{turn(llm.Assistant, asks("1"))}, strings.Replace(callOne, `"content":"",`, "", 1), nil},
		{"a refusal is what the model said", llm.Target{}, []llm.Turn{turn(llm.Assistant, llm.Part{Kind: llm.PartRefusal, Text: llm.Text("no")})}, `{"role":"assistant","content":"no"}`, nil},
		{"blocks of the vendor's own tools are lost, and named", llm.Target{}, []llm.Turn{turn(llm.Assistant, llm.Part{Kind: llm.PartOther, Type: "server_tool_use"}, says("x"))}, `{"role":"assistant","content":"x"}`, []string{"messages[0].content[0]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &llm.Conversation{Turns: tt.turns}
			tt.target.Quoted = []byte(`"up"`)
			out, err := Dialect{}.Compose(c, &llm.Request{Dialect: "anthropic"}, &tt.target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(`{"model":"up","messages":[`+tt.want+`]}`, string(out)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.lost, c.Lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
		})
	}
}

func TestComposeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, dialect, want string
		part                llm.Part
	}{
		{"the files of another vendor", "anthropic", "messages[0].content[0]", llm.Part{Kind: llm.PartDocument, FileID: llm.Text("file_1")}},
		{"a document of another kind", "anthropic", "messages[0].content[0]", llm.Part{Kind: llm.PartDocument, Data: llm.Text("aGk="), Media: llm.Text("application/zip")}},
		{"C068 a block that is not known", "responses", "input[0].content[0]", llm.Part{Kind: llm.PartOther, Type: "computer_screenshot"}},
		{"an image by the id of a file", "responses", "input[0].content[0]", llm.Part{Kind: llm.PartImage, FileID: llm.Text("f")}},
	} {
		c := &llm.Conversation{Turns: []llm.Turn{turn(llm.User, tt.part, says("x"))}}
		_, err := Dialect{}.Compose(c, &llm.Request{Dialect: tt.dialect}, new(llm.Target))
		if e := refusal(t, err); e.Kind != llm.Invalid || e.Param != tt.want {
			t.Errorf("%s: got %v of %q, want invalid of %q", tt.name, e, e.Param, tt.want)
		}
	}
}

// C049: the messages of one turn are the first ones of the next.
func TestComposeKeepsThePrefix(t *testing.T) {
	turns := []llm.Turn{turn(llm.System, says("S")), turn(llm.User, says("hi"))}
	for _, target := range []llm.Target{{}, {SystemTurns: "user"}, {Developer: "system"}} {
		last := ""
		turns := turns
		for range 4 {
			turns = append(turns, turn(llm.Assistant, asks("1")), turn(llm.User, answers("1", says("r"), picture)), turn(llm.System, says("900 tokens left")))
			out, err := Dialect{}.Compose(&llm.Conversation{Turns: turns}, &llm.Request{Dialect: "anthropic"}, &target)
			if err != nil {
				t.Fatal(err)
			}
			now := strings.TrimSuffix(string(out), "]}")
			if !strings.HasPrefix(now, last) {
				t.Errorf("%+v: %s\ndoes not go on with\n%s", target, now, last)
			}
			last = now
		}
	}
}
