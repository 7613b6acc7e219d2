package anthropic

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		shape      llm.Shape
		stream     bool
		calls      bool
	}{
		{"the smallest request", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`,
			llm.Shape{Messages: 1, MaxTokens: 1, TokensEst: 6}, false, false},
		{"a stream", `{"stream":true,"model":"m","max_tokens":0,"messages":[{"role":"user","content":"hi"}]}`,
			llm.Shape{Messages: 1, Stream: true, TokensEst: 6}, true, false},
		{"system blocks and tools count", `{"model":"m","max_tokens":9,"system":[{"type":"text","text":"` + strings.Repeat("s", 398) + `"}],"tools":[{"name":"` + strings.Repeat("t", 388) + `"}],"messages":[{"role":"user","content":"hi"}]}`,
			llm.Shape{Messages: 1, MaxTokens: 9, Tools: 1, TokensEst: 206}, false, false},
		{"an image counts by the piece, within a result too", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"source":{"type":"base64","media_type":"image/png","data":"` + strings.Repeat("A", 4000) + `"},"type":"image"},
			{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"u"}}]}]}]}`,
			llm.Shape{Messages: 1, MaxTokens: 9, Images: 2, TokensEst: 1606}, false, true},
		{"plain documents count as text, others by less", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"` + strings.Repeat("A", 398) + `"}},
			{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"` + strings.Repeat("A", 3198) + `"}}]}]}`,
			llm.Shape{Messages: 1, MaxTokens: 9, TokensEst: 205}, false, false},
		{"a call in the history", `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}]}`,
			llm.Shape{Messages: 1, MaxTokens: 9, TokensEst: 8}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := decode(t, tt.body)
			tt.shape.Bytes = len(tt.body)
			if diff := cmp.Diff(tt.shape, r.Shape); diff != "" {
				t.Errorf("shape (-want +got):\n%s", diff)
			}
			if r.Stream != tt.stream || r.Calls != tt.calls || r.Model != "m" || r.Choices != 1 || !r.IncludeUsage || r.Dialect != "anthropic" || r.Speaks == nil {
				t.Errorf("got %+v", r)
			}
			if got := r.MessagesAt.Of(r.Body); got[0] != '[' || got[len(got)-1] != ']' {
				t.Errorf("messages are %s", got)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	const ok = `"messages":[{"role":"user","content":"hi"}]`
	for _, tt := range []struct{ name, body, param, msg string }{
		{"no body", ``, "", "it is empty"},
		{"no object", `[]`, "", "one JSON object"},
		{"no model", `{"max_tokens":1,` + ok + `}`, "model", "missing"},
		{"a model that is no string", `{"model":1,"max_tokens":1,` + ok + `}`, "model", "string"},
		{"no max_tokens, C059", `{"model":"m",` + ok + `}`, "max_tokens", "max_tokens is missing"},
		{"null for max_tokens, C059", `{"model":"m","max_tokens":null,` + ok + `}`, "max_tokens", "missing"},
		{"negative max_tokens, C059", `{"model":"m","max_tokens":-1,` + ok + `}`, "max_tokens", "whole number"},
		{"max_tokens with a fraction", `{"model":"m","max_tokens":1.5,` + ok + `}`, "max_tokens", "whole number"},
		{"no messages", `{"model":"m","max_tokens":1}`, "messages", "missing"},
		{"empty messages", `{"model":"m","max_tokens":1,"messages":[]}`, "messages", "at least one"},
		{"messages that are no list", `{"model":"m","max_tokens":1,"messages":{}}`, "messages", "array"},
		{"a message that is no object", `{"model":"m","max_tokens":1,"messages":["x"]}`, "messages[0]", "object"},
		{"a role that is no string", `{"model":"m","max_tokens":1,"messages":[{"role":1}]}`, "messages[0].role", "string"},
		{"a system prompt that is a number", `{"model":"m","max_tokens":1,"system":1,` + ok + `}`, "system", "text blocks"},
		{"tools that are no list", `{"model":"m","max_tokens":1,"tools":{},` + ok + `}`, "tools", "array"},
		{"stream that is a string", `{"model":"m","max_tokens":1,"stream":"yes",` + ok + `}`, "stream", "true or false"},
		{"a member twice, S17", `{"model":"m","model":"n","max_tokens":1,` + ok + `}`, "model", "twice"},
		{"a member twice in other case, S17", `{"x":1,"X":1,"model":"m","max_tokens":1,` + ok + `}`, "X", "twice"},
		{"a misspelt member, S17", `{"Model":"m","max_tokens":1,` + ok + `}`, "Model", "write it model"},
		{"a message's member twice, S17", `{"model":"m","max_tokens":1,"messages":[{"role":"user","Role":"user","content":"hi"}]}`, "messages[0].Role", "twice"},
		{"a block's member twice", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a","text":"b"}]}]}`, "messages[0].content[0].text", "twice"},
		{"a fault deep in a block", `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a` + "\x01" + `"}]}]}`, "messages[0].content[0].text", "not valid JSON"},
		{"a base of the client's own", `{"model":"m","max_tokens":1,"api_base":"http://x",` + ok + `}`, "api_base", "refused"},
		{"headers of the client's own", `{"model":"m","max_tokens":1,"extra_headers":{},` + ok + `}`, "extra_headers", "refused"},
		{"text behind the object", `{"model":"m","max_tokens":1,` + ok + `} x`, "", "more text follows"},
		{"nesting without an end", `{"model":"m","max_tokens":1,"metadata":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `,` + ok + `}`, "metadata", "nested too deeply"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Dialect{}.Decode(llm.Chat, []byte(tt.body), 100)
			e := refusal(t, err)
			if e.Kind != llm.Invalid || e.Param != tt.param || !strings.Contains(e.Msg, tt.msg) {
				t.Errorf("got %v %q %q, want invalid %q %q", e.Kind, e.Param, e.Msg, tt.param, tt.msg)
			}
		})
	}
}

func TestACountNeedsNoLimit(t *testing.T) {
	r, err := Dialect{}.Decode(llm.Count, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`), 100)
	if err != nil || r.Op != llm.Count {
		t.Errorf("got %v, %v", r, err)
	}
}
