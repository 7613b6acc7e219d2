package app

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/sim"
)

// object reads a JSON object.
func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%.300q: %v", data, err)
	}
	return o
}

// last returns the body of the last call that a server saw.
func last(s *sim.Server) []byte {
	calls := s.Calls("")
	return calls[len(calls)-1].Body
}

// vector returns the first embedding of an answer, whichever way it is written.
func (r *reply) vector() (v []float32, encoded bool) {
	r.t.Helper()
	var a struct {
		Data []struct{ Embedding json.RawMessage }
	}
	if err := json.Unmarshal(r.body, &a); r.status != 200 || err != nil || len(a.Data) == 0 {
		r.t.Fatalf("no embeddings: status %d, %.300q", r.status, r.body)
	}
	var text string
	if json.Unmarshal(a.Data[0].Embedding, &text) != nil {
		if err := json.Unmarshal(a.Data[0].Embedding, &v); err != nil {
			r.t.Fatal(err)
		}
		return v, false
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		r.t.Fatal(err)
	}
	for ; len(raw) >= 4; raw = raw[4:] {
		v = append(v, math.Float32frombits(binary.LittleEndian.Uint32(raw)))
	}
	return v, true
}

// C154: an absent or null encoding_format stays away from the backend; base64 that a backend refuses is made here;
// anything else is refused by name.
func TestC154EncodingFormat(t *testing.T) {
	strict := map[string]sim.Script{"a": {On: map[string]sim.Sequence{"emb": {{Refuse: []string{"base64"}}}}}}
	open := map[string]sim.Script{"a": {}}
	for _, c := range []struct {
		name, yaml, format string
		sims               map[string]sim.Script
		up                 []any // encoding_format of each upstream call
		encoded            bool
	}{
		{"absent", oneBackend(""), "", strict, []any{nil}, false},
		{"null", oneBackend(""), `,"encoding_format":null`, strict, []any{nil}, false},
		{"null in front", oneBackend(""), `,"encoding_format":null,"x":1`, strict, []any{nil}, false},
		{"float", oneBackend(""), `,"encoding_format":"float"`, strict, []any{"float"}, false},
		{"base64 that the backend knows", oneBackend(""), `,"encoding_format":"base64"`, open, []any{"base64"}, true},
		{"base64 that the backend refuses", oneBackend(""), `,"encoding_format":"base64"`, strict, []any{"base64", "float", "float"}, true},
		{"base64 for a backend that takes plain numbers", oneBackend(", base64: float"), `,"encoding_format":"base64"`, strict, []any{"float"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := begin(t, setup{yaml: c.yaml, sims: c.sims})
			plain, _ := g.post("/v1/embeddings", `{"model":"emb","input":"two words"}`).vector()
			g.forget()
			for i := 0; i == 0 || i < len(c.up)-1; i++ {
				v, encoded := g.post("/v1/embeddings", `{"model":"emb","input":"two words"`+c.format+`}`).vector()
				if encoded != c.encoded || len(v) == 0 || !slices.Equal(v, plain) {
					t.Errorf("encoded %v, %d numbers (as plain numbers %d)", encoded, len(v), len(plain))
				}
			}
			var up []any
			for _, a := range g.sim().Calls("") {
				body := object(t, a.Body)
				if v, ok := body["encoding_format"]; ok && v == nil {
					t.Error("null was sent on")
				}
				up = append(up, body["encoding_format"])
			}
			if diff := cmp.Diff(c.up, up); diff != "" {
				t.Errorf("encoding_format upstream (-want +got):\n%s", diff)
			}
		})
	}
	g := begin(t, setup{sims: open})
	for _, bad := range []string{`"int8"`, `"Float"`, `1`, `true`, `["base64"]`, `""`} {
		r := g.post("/v1/embeddings", `{"model":"emb","input":"x","encoding_format":`+bad+`}`)
		if f := r.failed(); r.status != 400 || f.Param == nil || *f.Param != "encoding_format" {
			t.Errorf("encoding_format %s: status %d, %s", bad, r.status, r.body)
		}
	}
	if n := len(g.sim().Calls("")); n != 0 {
		t.Errorf("%d refused requests went upstream", n)
	}
}

// C157: the backend gets the one name of the limit that it takes; both: the newer name's value.
func TestC157MaxTokensName(t *testing.T) {
	const kept = `"max_output_tokens":9,"max_new_tokens":8`
	for _, c := range []struct {
		name, limit string
		want        any // value upstream under the one name; nil: none
	}{
		{"the newer name", `"max_completion_tokens":5`, 5.0},
		{"the older name", `"max_tokens":5`, 5.0},
		{"both, equal", `"max_tokens":5,"max_completion_tokens":5`, 5.0},
		{"both, different", `"max_tokens":50,"max_completion_tokens":7`, 7.0},
		{"both, the other way round", `"max_completion_tokens":7,"max_tokens":50`, 7.0},
		{"zero is not absent", `"max_tokens":0`, 0.0},
		{"null beside a value", `"max_completion_tokens":null,"max_tokens":6`, 6.0},
		{"a value beside null", `"max_tokens":null,"max_completion_tokens":6`, 6.0},
		{"none", `"top_p":1`, nil},
	} {
		for wanted, other := range map[string]string{"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"} {
			for _, stream := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s for %s, stream %v", c.name, wanted, stream), func(t *testing.T) {
					g := begin(t, setup{yaml: oneBackend(", max_tokens_name: " + wanted), sims: oai(sim.Behaviour{Refuse: []string{other}})})
					r := g.chat(stream, c.limit, kept)
					if r.said(); r.status != 200 {
						t.Fatalf("status %d: %s", r.status, r.body)
					}
					up := object(t, last(g.sim()))
					if _, both := up[other]; both || !cmp.Equal(up[wanted], c.want) {
						t.Errorf("upstream: %s %v, %s %v; want %v and none", wanted, up[wanted], other, up[other], c.want)
					}
					if up["max_output_tokens"] != 9.0 || up["max_new_tokens"] != 8.0 {
						t.Errorf("other limits were touched: %v", up)
					}
				})
			}
		}
		t.Run(c.name+" without a setting", func(t *testing.T) {
			g := begin(t, setup{yaml: oneBackend(", stream: as_asked"), sims: oai(sim.Behaviour{})})
			body := chatBody(false, c.limit, kept)
			g.post("/v1/chat/completions", body)
			if got := string(last(g.sim())); got != body {
				t.Errorf("upstream got %s, want the client's bytes %s", got, body)
			}
		})
	}
}

// C158: several choices and their logprobs come through whole; what a completion asks for is sent on as it is.
func TestC158ChoicesAndLogprobs(t *testing.T) {
	lp := func(token string) string {
		return `{"content":[{"token":"` + token + `","logprob":-0.1,"bytes":null,"top_logprobs":[{"token":"` + token + `","logprob":-0.1,"bytes":null}]}]}`
	}
	chunk := func(i int, text, finish string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{"content":"%s"},"logprobs":%s,"finish_reason":%s}]}`+"\n\n", i, text, lp(text), finish)
	}
	b := sim.Transcript(chunk(0, "a", "null") + chunk(1, "x", "null") + chunk(1, "y", `"length"`) + chunk(0, "b", `"stop"`) +
		`data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}` + "\n\ndata: [DONE]\n\n")
	for _, k := range kindsOfAnswer[:2] {
		t.Run(k.name, func(t *testing.T) {
			g := begin(t, setup{yaml: k.yaml, sims: oai(b)})
			r := g.chat(k.stream, `"n":2,"logprobs":true,"top_logprobs":2,"stream_options":{"include_usage":true}`)
			s := r.said()
			if !maps.Equal(s.texts, map[int]string{0: "ab", 1: "xy"}) || !maps.Equal(s.finish, map[int]string{0: "stop", 1: "length"}) || s.usage["total_tokens"] != 7.0 {
				t.Errorf("texts %v, finish %v, usage %v", s.texts, s.finish, s.usage)
			}
			tokens := map[int]string{}
			for _, c := range s.chunks {
				for _, o := range c["choices"].([]any) {
					o := o.(map[string]any)
					for _, l := range o["logprobs"].(map[string]any)["content"].([]any) {
						l := l.(map[string]any)
						tokens[int(o["index"].(float64))] += l["token"].(string)
						if len(l["top_logprobs"].([]any)) != 1 {
							t.Errorf("top_logprobs: %v", l)
						}
					}
				}
			}
			if !maps.Equal(tokens, map[int]string{0: "ab", 1: "xy"}) {
				t.Errorf("logprobs of the tokens %v", tokens)
			}
		})
	}
	for _, yaml := range []string{oneBackend(""), oneBackend(", stream: as_asked")} {
		const answer = `{"id":"cmpl-1","object":"text_completion","created":1,"model":"oai-m","choices":[{"text":"ab","index":0,"logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1.5],"top_logprobs":[null,{"b":-1.5}],"text_offset":[0,1]},"finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":0,"total_tokens":3}}`
		g := begin(t, setup{yaml: yaml, sims: oai(sim.Behaviour{Body: answer, Status: 200, Headers: map[string]string{"Content-Type": "application/json"}})})
		const body = `{"model":"oai-m","prompt":["a",[1,2]],"echo":true,"logprobs":5,"max_tokens":0,"suffix":"z"}`
		r := g.post("/v1/completions", body)
		if got := string(last(g.sim())); got != body {
			t.Errorf("upstream got %s, want the client's bytes %s", got, body)
		}
		if string(r.body) != answer {
			t.Errorf("the client got %s, want the upstream's bytes", r.body)
		}
	}
}

// C160: developer turns become system turns only where the backend needs it; leading ones are merged in order.
func TestC160DeveloperRole(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"the example", `[{"role":"developer","content":"Be brief"},{"role":"system","content":"S"},{"role":"user","content":"hi"}]`,
			`[{"role":"system","content":"Be brief\n\nS"},{"role":"user","content":"hi"}]`},
		{"one alone", `[{"role":"developer","content":"Be brief"},{"role":"user","content":"hi"}]`,
			`[{"role":"system","content":"Be brief"},{"role":"user","content":"hi"}]`},
		{"one in the middle", `[{"role":"system","content":"S"},{"role":"user","content":"hi"},{"content":"short","role":"developer","name":"x"},{"role":"user","content":"go"}]`,
			`[{"role":"system","content":"S"},{"role":"user","content":"hi"},{"content":"short","role":"system","name":"x"},{"role":"user","content":"go"}]`},
		{"parts", `[{"role":"developer","content":[{"type":"text","text":"P"}]},{"role":"system","content":"S"},{"role":"user","content":"hi"}]`,
			`[{"role":"system","content":[{"type":"text","text":"P"},{"type":"text","text":"S"}]},{"role":"user","content":"hi"}]`},
		{"escapes", `[{"role":"developer","content":"\u00e9 \"q\"\n"},{"role":"system","content":"\ud83c\udf0d"},{"role":"user","content":"hi"}]`,
			`[{"role":"system","content":"é \"q\"\n\n\n🌍"},{"role":"user","content":"hi"}]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, refuses := range []bool{true, false} {
				yaml, b, want := oneBackend(""), sim.Behaviour{}, c.in
				if refuses {
					yaml, b, want = oneBackend(", developer: system"), sim.Behaviour{Refuse: []string{"developer"}}, c.want
				}
				g := begin(t, setup{yaml: yaml, sims: oai(b)})
				if r := g.post("/v1/chat/completions", `{"messages":`+c.in+`,"model":"oai-m","stream":true}`); r.status != 200 {
					t.Fatalf("status %d: %s", r.status, r.body)
				}
				if diff := cmp.Diff(object(t, []byte(`{"m":`+want+`}`))["m"], object(t, last(g.sim()))["messages"]); diff != "" {
					t.Errorf("refuses %v, messages upstream (-want +got):\n%s", refuses, diff)
				}
				if !refuses && !strings.Contains(string(last(g.sim())), c.in) {
					t.Errorf("the messages' bytes were changed: %s", last(g.sim()))
				}
			}
		})
	}
}

// C161: reasoning under either name passes unchanged, chunk by chunk; it is life for the limits and never content.
func TestC161Reasoning(t *testing.T) {
	b := sim.Transcript(`data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning":"a"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"reasoning":"b"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"reasoning_content":"c","content":""},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}

data: [DONE]

`)
	b.Gap = 20 * time.Second // under the idle limit of 30 s, a minute together
	for _, k := range kindsOfAnswer[:2] {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(b)})
				s := g.chat(k.stream).said()
				if s.texts[0] != "ok" || s.finish[0] != "stop" {
					t.Errorf("content %q, finish %q", s.texts[0], s.finish[0])
				}
				got := map[string]string{}
				for _, c := range s.chunks {
					o := c["choices"].([]any)[0].(map[string]any)
					for _, m := range []string{"delta", "message"} {
						if m, ok := o[m].(map[string]any); ok {
							for _, f := range []string{"reasoning", "reasoning_content"} {
								text, _ := m[f].(string)
								got[f] += text
							}
						}
					}
				}
				if want := map[string]string{"reasoning": "ab", "reasoning_content": "c"}; !maps.Equal(got, want) {
					t.Errorf("reasoning %v, want %v", got, want)
				}
			})
		})
	}
}

// C165: one id, one time, the right object and no file's path, in a stream, assembled and whole.
func TestC165OneIDPerStream(t *testing.T) {
	const path = "/models/foo.gguf"
	for _, c := range []struct {
		name string
		b    sim.Behaviour
		id   string // expected; "": a made one
	}{
		{"changing ids", sim.Behaviour{Text: "a b c", IDs: "change"}, "first"},
		{"no ids", sim.Behaviour{Text: "a b c", IDs: "none"}, ""},
		{"empty ids", sim.Behaviour{Text: "a b c", IDs: "empty"}, ""},
		{"no object and no time", sim.Behaviour{Text: "a b c", Omit: []string{"object", "created"}}, "first"},
		{"a path as model", sim.Behaviour{Text: "a b c", Model: path}, "first"},
		{"a path on Windows", sim.Behaviour{Text: "a b c", Model: `C:\models\foo.gguf`}, "first"},
		{"a time of 0", sim.Transcript(`data: {"id":"x1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"content":"a "},"finish_reason":null}]}

data: {"id":"x2","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":{"content":"b c"},"finish_reason":"stop"}]}

`), "x1"},
		{"nothing at all", sim.Behaviour{Events: []string{`{"choices":[{"delta":{"content":"a "}}]}`, `{"choices":[{"delta":{"content":"b c"},"finish_reason":"stop"}]}`}}, ""},
	} {
		for i, k := range kindsOfAnswer {
			if i == 2 && (c.b.Body != "" || c.b.Events != nil) {
				continue // these are streams
			}
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				g := begin(t, setup{yaml: k.yaml, sims: oai(c.b)})
				r := g.chat(k.stream)
				if got := r.text(); got != "a b c" {
					t.Errorf("text %q", got)
				}
				s, object := r.said(), "chat.completion"
				if k.stream {
					object = "chat.completion.chunk"
				}
				if len(s.ids) != 1 || len(s.created) != 1 || len(s.models) != 1 || len(s.objects) != 1 || !s.objects[object] {
					t.Errorf("ids %v, times %v, models %v, objects %v", s.ids, s.created, s.models, s.objects)
				}
				for id := range s.ids {
					if len(id) < 2 || c.id == "" && !strings.HasPrefix(id, "chatcmpl-") || c.id == "x1" && id != "x1" {
						t.Errorf("id %q", id)
					}
				}
				for at := range s.created {
					if at <= 0 {
						t.Errorf("time %v", at)
					}
				}
				if strings.Contains(string(r.body), "gguf") || strings.Contains(fmt.Sprint(r.header), "gguf") {
					t.Errorf("the file's path reached the client: %.300q", r.body)
				}
			})
		}
	}
}
