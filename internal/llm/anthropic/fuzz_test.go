package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/llm"
)

// bodies are requests to begin with.
var bodies = []string{
	`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`,
	`{"model":"m","max_tokens":1,"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":""},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA=="}}]},{"role":"system","content":"n"}],"thinking":{"type":"adaptive"},"tools":[{"name":"f","input_schema":{}}],"tool_choice":{"type":"any"}}`,
	`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"tool_use","id":"a.b","name":"f","input":{"a":1.0}},{"type":"text","text":"t"}]},{"role":"user","content":[{"type":"text","text":"first"},{"type":"tool_result","tool_use_id":"a.b","content":[{"type":"text","text":"r"}],"is_error":true},{"type":"mid_conv_system","content":[{"type":"text","text":"m"}]}]}]}`,
	`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"","name":"","input":"{"},{"type":"tool_use","id":"b","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"x"}]}]}`,
}

// FuzzDecode holds that no body breaks the reading, that what is taken is sent on whole, and that what is written of it for
// a backend can be read again and says the same.
func FuzzDecode(f *testing.F) {
	for _, b := range bodies {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Dialect{}.Decode(llm.Chat, body, 50)
		if err != nil {
			refusal(t, err)
			return
		}
		e, err := Dialect{}.Edits(r, &llm.Target{Model: r.Model, Quoted: r.Value("model"), Attribution: true})
		if err != nil {
			t.Fatal(err)
		}
		sent := e.Apply(nil, r)
		if !json.Valid(sent) {
			t.Fatalf("sent %s", sent)
		}
		again, err := Dialect{}.Decode(llm.Chat, sent, 60) // what was no object is kept in one
		if err != nil {
			t.Fatalf("%v: sent %s", err, sent)
		}
		if r.Calls {
			if r.Repair != nil && len(r.Repair.Notes) == 0 && !bytes.Contains(body, []byte("billing")) && !bytes.Equal(sent, body) {
				t.Fatalf("nothing to mend, and sent %s", sent)
			}
		}
		keepsMeaning(t, again)
	})
}

// keepsMeaning writes a request as another dialect's would be, and reads that again: what was said stays what it was.
func keepsMeaning(t *testing.T, r *llm.Request) {
	t.Helper()
	c, err := Dialect{}.Conversation(r)
	if err != nil {
		refusal(t, err)
		return
	}
	c.Mend()
	r.Dialect = "openai"
	body, err := Dialect{}.Compose(c, r, target())
	if err != nil {
		refusal(t, err)
		return
	}
	second, err := Dialect{}.Decode(llm.Chat, body, 60)
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	d, err := Dialect{}.Conversation(second)
	if err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	if diff := cmp.Diff(words(c), words(d)); diff != "" {
		t.Fatalf("(-before +after):\n%s\n%s", diff, body)
	}
}

// words is all that is said in a conversation, role by role and without regard to order, blanks and seals.
func words(c *llm.Conversation) map[string]int {
	said := map[string]int{}
	for _, t := range c.Turns {
		role := roleOf(t.Role)
		for _, p := range t.Parts {
			switch p.Kind {
			case llm.PartText:
				if s := strings.Trim(string(llm.Unescaped(p.Text)), " \t\r\n"); s != "" {
					said[role+" "+s]++
				}
			case llm.PartCall:
				said[role+" calls "+string(p.Name)+string(p.Input.AppendObject(nil))]++
			case llm.PartResult:
				said[role+" result"]++
			case llm.PartImage, llm.PartDocument:
				said[role+" shows "+string(p.URL)+string(p.Data)+string(p.Text)]++
			}
		}
	}
	return said
}

// FuzzSource holds that no stream breaks the reading, and that what one dialect's writer makes of its deltas is a
// well-formed stream of this one.
func FuzzSource(f *testing.F) {
	f.Add([]byte(evWhole), 3)
	f.Add([]byte("event: error\ndata: {\"type\":\"error\"}\n\n"), 1)
	f.Add([]byte("data: {\"type\":\"content_block_start\",\"index\":9,\"content_block\":{\"type\":\"tool_use\",\"input\":{\"a\":1}}}\n\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"x\"}}\n\n"), 5)
	f.Fuzz(func(t *testing.T, body []byte, size int) {
		size = max(1, size%64)
		for _, stream := range []bool{true, false} {
			r := &llm.Request{Op: llm.Chat, Stream: stream}
			out, err := feed(llm.Translated(Dialect{}.Source(), Dialect{}.Writer(r, "m"), stream), body, size)
			checkAnswer(t, out, err, stream)
			out, err = feed(Dialect{}.Stream(r, "m"), body, size)
			if err == nil && !stream && !json.Valid(out) {
				t.Fatalf("assembled %s", out)
			}
			if whole, wholeErr := feed(Dialect{}.Stream(r, "m"), body, len(body)+1); stream && (err == nil) != (wholeErr == nil) || stream && !bytes.Equal(out, whole) {
				t.Fatalf("in pieces of %d: %v\n%q\nat once: %v\n%q", size, err, out, wholeErr, whole)
			}
		}
		_, _, err := llm.TranslateWhole(Dialect{}.Source(), Dialect{}.Writer(&llm.Request{}, "m"), body)
		known(t, err)
		_, _, err = Dialect{}.Whole(&llm.Request{Op: llm.Chat}, "m", body, false)
		known(t, err)
	})
}

func checkAnswer(t *testing.T, out []byte, err error, stream bool) {
	t.Helper()
	switch {
	case err != nil:
		known(t, err)
	case stream:
		if err := wellFormed(out); err != nil {
			t.Fatalf("%v:\n%s", err, out)
		}
	case !json.Valid(out):
		t.Fatalf("not JSON: %s", out)
	}
}

// known checks that an error is one of the two kinds that the contract names.
func known(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	_, fault := errors.AsType[*llm.Fault](err)
	if _, ok := errors.AsType[*llm.Error](err); !ok && !fault {
		t.Fatalf("an error without a kind: %v", err)
	}
}

// FuzzWriter holds that any deltas in any order make a well-formed stream, and that it says what the whole message says.
func FuzzWriter(f *testing.F) {
	f.Add([]byte("\x01\x02a\x06\x00\x07\x00\x07\x01\x08"))
	f.Add([]byte("\x03\x04\x03\x05\x02\x06\x01\x06\x02\x07\x12\x07\x01\x02\x09"))
	f.Fuzz(func(t *testing.T, ops []byte) {
		live := Dialect{}.Writer(&llm.Request{Stream: true}, "m")
		held := Dialect{}.Writer(&llm.Request{}, "m")
		pieces := []llm.Text{llm.Text(`{`), llm.Text(`\"a\":1`), llm.Text(`}`), llm.Text(`{\"b\":[\"}\"]}`), llm.Text(` `), nil, llm.Text(`x`)}
		var stream []byte
		for i := 0; i+1 < len(ops); i += 2 {
			d := llm.Delta{Kind: llm.DeltaKind(ops[i] % 12), Call: int(ops[i+1] % 4), Text: pieces[int(ops[i+1]/4)%len(pieces)],
				Stop: llm.Stop(ops[i+1] % 8), Name: llm.Text("redacted"), ID: llm.Text("i"), Usage: llm.NoUsage}
			live.Put(&d)
			stream = append(stream, live.Take()...)
			held.Put(&d)
		}
		stream = append(stream, live.End()...)
		if err := wellFormed(stream); err != nil {
			t.Fatalf("%v:\n%s", err, stream)
		}
		whole := held.End()
		if !json.Valid(whole) {
			t.Fatalf("not JSON: %s", whole)
		}
		assembled, err := feed(streaming(false), stream, len(stream))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := kinds(t, assembled), kinds(t, whole); got != want {
			t.Fatalf("streamed %s, whole %s", got, want)
		}
	})
}

// kinds tells the blocks of a message, texts included, and why it ended.
func kinds(t *testing.T, message []byte) string {
	t.Helper()
	var m struct {
		Content []struct{ Type, Text, Thinking, Name, ID string }
		Stop    string `json:"stop_reason"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		t.Fatal(err)
	}
	s := m.Stop
	for _, b := range m.Content {
		s += " " + b.Type + ":" + b.Text + b.Thinking + b.Name + b.ID
	}
	return s
}
