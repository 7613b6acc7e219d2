package openai

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"weir/internal/llm"
)

// What other dialects need of a message and Chat Completions itself has no use for.
func TestConversationTurns(t *testing.T) {
	text := func(s string) llm.Part { return llm.Part{Kind: llm.PartText, Text: llm.Text(s)} }
	for _, tt := range []struct {
		name, message string
		want          llm.Turn
	}{
		{"C051 blocks of thinking that the client carries stand first, whatever the order of members",
			`{"content":"a","role":"assistant","reasoning_content":"x","thinking_blocks":[{"type":"thinking","thinking":"t\n","signature":"S=="},{"type":"redacted_thinking","data":"R"},{"type":"reasoning","encrypted_content":"E"}]}`,
			llm.Turn{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartThinking, Text: llm.Text(`t\n`), Signature: llm.Text("S==")}, {Kind: llm.PartThinking, Redacted: llm.Text("R")}, {Kind: llm.PartThinking, Encrypted: llm.Text("E")}, text("a")}}},
		{"thinking as text", `{"role":"assistant","content":"a","reasoning":"x"}`, llm.Turn{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartThinking, Text: llm.Text("x")}, text("a")}}},
		{"marks for a cache", `{"role":"user","name":"n","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},"b"]}`,
			llm.Turn{Role: llm.User, Name: llm.Text("n"), Parts: []llm.Part{{Kind: llm.PartText, Text: llm.Text("a"), Cache: llm.Raw(`{"type":"ephemeral"}`)}, text("b")}}},
		{"a mark for a cache on a message", `{"role":"system","content":"a","cache_control":{"type":"ephemeral"}}`,
			llm.Turn{Role: llm.System, Parts: []llm.Part{{Kind: llm.PartText, Text: llm.Text("a"), Cache: llm.Raw(`{"type":"ephemeral"}`)}}}},
		{"a mark within a result is the result's", `{"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"a","cache_control":{}}]}`,
			llm.Turn{Role: llm.User, Parts: []llm.Part{{Kind: llm.PartResult, ID: llm.Text("1"), Cache: llm.Raw(`{}`), Parts: []llm.Part{text("a")}}}}},
		{"C031 arguments as an object stay one", `{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f","arguments":{"n":1.0}}}]}`,
			llm.Turn{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartCall, ID: llm.Text("1"), Name: llm.Text("f"), Input: llm.Input{Object: llm.Raw(`{"n":1.0}`)}}}}},
		{"a refusal, and what is empty", `{"role":"assistant","content":[{"type":"refusal","refusal":"no"},{"type":"text","text":""}],"refusal":null,"annotations":[]}`,
			llm.Turn{Role: llm.Assistant, Parts: []llm.Part{{Kind: llm.PartRefusal, Text: llm.Text("no")}}}},
		{"an image whose data stands in its URL, and one that lies elsewhere", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image\/jpeg;base64,\/9j","detail":"low"}},{"type":"image_url","image_url":"https://a.example/b"}]}`,
			llm.Turn{Role: llm.User, Parts: []llm.Part{{Kind: llm.PartImage, Media: llm.Text("image/jpeg"), Data: llm.Text(`\/9j`), Detail: llm.Text("low")}, {Kind: llm.PartImage, URL: llm.Text("https://a.example/b")}}}},
		{"a file without its scheme", `{"role":"user","content":[{"type":"file","file":{"filename":"A.PDF","file_data":"aGk="}}]}`,
			llm.Turn{Role: llm.User, Parts: []llm.Part{{Kind: llm.PartDocument, Name: llm.Text("A.PDF"), Data: llm.Text("aGk="), Media: llm.Text("application/pdf")}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := decode(t, llm.Chat, `{"model":"m","messages":[`+tt.message+`]}`)
			c, err := Dialect{}.Conversation(r)
			if err != nil {
				t.Fatal(err)
			}
			got := c.Turns[0]
			if string(got.At.Of(r.Body)) != tt.message {
				t.Errorf("At is %s", got.At.Of(r.Body))
			}
			ignore := cmp.Options{cmpopts.IgnoreFields(llm.Turn{}, "At"), cmpopts.IgnoreFields(llm.Part{}, "At"), cmpopts.EquateEmpty()}
			if diff := cmp.Diff(tt.want, got, ignore); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeTellsOfCalls(t *testing.T) {
	for body, want := range map[string]bool{
		`{"role":"user","content":"x"}`:                                    false,
		`{"role":"assistant","content":"x","tool_calls":null}`:             false,
		`{"role":"assistant","tool_calls":[]}`:                             true,
		`{"role":"assistant","function_call":{"name":"f"}}`:                true,
		`{"role":"tool","tool_call_id":"1","content":"x"}`:                 true,
		`{"role":"function","name":"f","content":"x"}`:                     true,
		`{"role":"user","content":"tool_calls \"tool\" {\"tool_calls\"}"}`: false,
	} {
		r := decode(t, llm.Chat, `{"model":"m","messages":[`+body+`]}`)
		if r.Calls != want || r.Speaks == nil {
			t.Errorf("%s: calls %v, want %v; speaks %v", body, r.Calls, want, r.Speaks)
		}
	}
	if r := decode(t, llm.Embeddings, `{"model":"m","input":"x"}`); r.Speaks != nil {
		t.Error("embeddings are spoken by one API alone")
	}
}
