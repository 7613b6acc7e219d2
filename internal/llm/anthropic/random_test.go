package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weir/internal/llm"
)

// anyBlock draws a block of an assistant's or a user's turn, sound or not.
func anyBlock(assistant bool) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		words := rapid.SampledFrom([]string{"", " ", "a", "b\\n", "\\u00e9\\\"", "\\\\n"}).Draw(t, "words")
		id := rapid.SampledFrom([]string{"t1", "t2", "t3", "", "f.0:1"}).Draw(t, "id")
		kinds := []string{"text", "text", "image", "result", "result", "mid"}
		if assistant {
			kinds = []string{"text", "thinking", "redacted", "call", "call", "server"}
		}
		switch rapid.SampledFrom(kinds).Draw(t, "kind") {
		case "image":
			return `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}`
		case "result":
			content := rapid.SampledFrom([]string{``, `,"content":""`, `,"content":"r"`, `,"content":[{"type":"text","text":"q","cache_control":{"type":"ephemeral"}}]`}).Draw(t, "content")
			return fmt.Sprintf(`{"type":"tool_result","tool_use_id":"%s"%s}`, id, content)
		case "mid":
			return `{"type":"mid_conv_system","content":[{"type":"text","text":"` + words + `"}]}`
		case "thinking":
			return `{"type":"thinking","thinking":"` + words + `","signature":"` + rapid.SampledFrom([]string{"", "AAA="}).Draw(t, "signature") + `"}`
		case "redacted":
			return `{"type":"redacted_thinking","data":"BBB="}`
		case "call":
			name := rapid.SampledFrom([]string{"f", "g", ""}).Draw(t, "name")
			input := rapid.SampledFrom([]string{`{}`, `{"n":1.0}`, `"{\"a\":1}"`, `"{"`, `null`, `[1]`}).Draw(t, "input")
			return fmt.Sprintf(`{"type":"tool_use","id":"%s","name":"%s","input":%s}`, id, name, input)
		case "server":
			return `{"type":"server_tool_use","id":"s","name":"web_search","input":{}}`
		}
		return `{"type":"text","text":"` + words + `"}`
	})
}

// TestAnyHistory holds of any history: mending it in place leaves nothing to mend and only JSON, and writing it anew keeps
// its meaning.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var list []string
		for range rapid.IntRange(1, 7).Draw(rt, "turns") {
			role := rapid.SampledFrom([]string{"user", "assistant", "system"}).Draw(rt, "role")
			content := `"s"`
			if role != "system" {
				content = "[" + strings.Join(rapid.SliceOfN(anyBlock(role == "assistant"), 0, 4).Draw(rt, "blocks"), ", ") + "]"
			}
			list = append(list, fmt.Sprintf(`{"role":"%s","content":%s}`, role, content))
		}
		body := `{"model":"m","max_tokens":5,"messages":[ ` + strings.Join(list, " , ") + ` ]}`
		r := decode(t, body)
		sent := edited(t, r, &llm.Target{})
		if !json.Valid([]byte(sent)) {
			rt.Fatalf("no JSON: %s\nfrom %s", sent, body)
		}
		if !r.Calls && sent != body || r.Calls && len(r.Repair.Notes) == 0 && sent != body {
			rt.Fatalf("nothing to mend, and changed: %s\nfrom %s", sent, body)
		}
		again := decode(t, sent)
		if twice := edited(t, again, &llm.Target{}); twice != sent {
			rt.Fatalf("mended twice: %s\nonce %s\nfrom %s", twice, sent, body)
		}
		safe := strings.ReplaceAll(body, "f.0:1", "f01") // ids made safe may meet others
		keepsMeaning(t, decode(t, safe))
	})
}
