package openai

import (
	"testing"

	"weir/internal/llm"
)

// target is a backend of no habits under the model's name up.
func target(change func(*llm.Target)) *llm.Target {
	t := &llm.Target{Model: "up", Quoted: []byte(`"up"`)}
	if change != nil {
		change(t)
	}
	return t
}

// targets are backends of every habit.
func targets() (list []llm.Target) {
	for _, nulls := range []string{"", "keep", "empty", "null", "omit"} {
		for _, developer := range []string{"keep", "system"} {
			for _, limit := range []string{"keep", "max_tokens", "max_completion_tokens"} {
				list = append(list, *target(func(t *llm.Target) {
					t.NullContent, t.Developer, t.MaxTokens = nulls, developer, limit
					t.Stream, t.Usage, t.Progress, t.Base64 = limit != "keep", developer == "keep", nulls == "empty", "float"
					t.Sampling = []llm.Sampling{{Name: "max_tokens", Force: []byte("9")}, {Name: "temperature", Default: []byte("0.5")}, {Name: "top_p", Strip: true}}
				}))
			}
		}
	}
	return list
}

func TestEditsMakeTheBodyWhatTheBackendWants(t *testing.T) {
	habits := func(change func(*llm.Target)) *llm.Target { return target(change) }
	for _, c := range []struct {
		name string
		op   llm.Op // 0: chat
		body string
		to   *llm.Target
		want string
	}{
		{"only the model changes, all else is kept byte for byte", 0,
			` { "top_k" : 5, "model":"m" , "seed":12345678901234567890,"messages":[ {"role":"user","content":"\u0068i\/"} ],"x":1.50e+1 } `, habits(nil),
			` { "top_k" : 5, "model":"up" , "seed":12345678901234567890,"messages":[ {"role":"user","content":"\u0068i\/"} ],"x":1.50e+1 } `},
		{"the same model: nothing changes", 0, `{"model":"up","messages":[{}]}`, habits(nil), `{"model":"up","messages":[{}]}`},
		{"a stream that the client did not ask for", 0, `{"model":"m","messages":[{}]}`, habits(func(t *llm.Target) { t.Stream, t.Usage = true, true }),
			`{"stream":true,"stream_options":{"include_usage":true},"model":"up","messages":[{}]}`},
		{"a stream where the client refused one", 0, `{"stream":false,"model":"m","messages":[{}]}`, habits(func(t *llm.Target) { t.Stream = true }),
			`{"stream":true,"model":"up","messages":[{}]}`},
		{"usage beside other options", 0, `{"model":"m","stream":true,"messages":[{}],"stream_options":{ "include_obfuscation":false,"include_usage":false,"x\"":[1]}}`,
			habits(func(t *llm.Target) { t.Stream, t.Usage = true, true }),
			`{"model":"up","stream":true,"messages":[{}],"stream_options":{"include_usage":true,"include_obfuscation":false,"x\"":[1]}}`},
		{"usage in place of null options", 0, `{"model":"m","stream":true,"messages":[{}],"stream_options":null}`, habits(func(t *llm.Target) { t.Stream, t.Usage = true, true }),
			`{"model":"up","stream":true,"messages":[{}],"stream_options":{"include_usage":true}}`},
		{"usage that was asked for already", 0, `{"model":"m","stream":true,"messages":[{}],"stream_options":{ "include_usage" : true }}`, habits(func(t *llm.Target) { t.Stream, t.Usage = true, true }),
			`{"model":"up","stream":true,"messages":[{}],"stream_options":{ "include_usage" : true }}`},
		{"no usage where the backend streams nothing", 0, `{"model":"m","messages":[{}]}`, habits(func(t *llm.Target) { t.Usage = true }), `{"model":"up","messages":[{}]}`},
		{"progress", 0, `{"model":"m","stream":true,"messages":[{}]}`, habits(func(t *llm.Target) { t.Stream, t.Progress = true, true }),
			`{"return_progress":true,"model":"up","stream":true,"messages":[{}]}`},

		{"C157a the new name for an old backend", 0, `{"model":"m","max_completion_tokens" : 5,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","max_tokens":5,"messages":[{}]}`},
		{"C157b the old name for a new backend", 0, `{"model":"m","max_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_completion_tokens" }),
			`{"model":"up","max_completion_tokens":5,"messages":[{}]}`},
		{"C157 the right name stays", 0, `{"model":"m","max_tokens": 5 ,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","max_tokens": 5 ,"messages":[{}]}`},
		{"C157c both for an old backend: the newer wins", 0, `{"model":"m","max_tokens":7,"messages":[{}],"max_completion_tokens":5}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","max_tokens":5,"messages":[{}]}`},
		{"C157c both for a new backend", 0, `{"model":"m","max_tokens":7,"messages":[{}],"max_completion_tokens":5}`, habits(func(t *llm.Target) { t.MaxTokens = "max_completion_tokens" }),
			`{"model":"up","messages":[{}],"max_completion_tokens":5}`},
		{"C157 one is null", 0, `{"model":"m","max_tokens":7,"max_completion_tokens":null,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_completion_tokens" }),
			`{"model":"up","max_completion_tokens":7,"messages":[{}]}`},
		{"C157 the unwanted one is null", 0, `{"model":"m","max_completion_tokens":null,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","messages":[{}]}`},
		{"C157 zero is not absent", 0, `{"model":"m","max_completion_tokens":0,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","max_tokens":0,"messages":[{}]}`},
		{"C157 no habit: both go on", 0, `{"model":"m","max_tokens":7,"max_completion_tokens":5,"messages":[{}]}`, habits(nil),
			`{"model":"up","max_tokens":7,"max_completion_tokens":5,"messages":[{}]}`},
		{"C157 other limits are untouched", 0, `{"model":"m","max_new_tokens":5,"max_output_tokens":6,"messages":[{}]}`, habits(func(t *llm.Target) { t.MaxTokens = "max_tokens" }),
			`{"model":"up","max_new_tokens":5,"max_output_tokens":6,"messages":[{}]}`},

		{"sampling: a default where the client says nothing", 0, `{"model":"m","messages":[{}],"top_p":null}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "temperature", Default: []byte("0.2")}, {Name: "top_p", Default: []byte("0.9")}}
		}), `{"temperature":0.2,"model":"up","messages":[{}],"top_p":0.9}`},
		{"sampling: the client's value stays", 0, `{"model":"m","messages":[{}],"temperature":1.0}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "temperature", Default: []byte("0.2")}}
		}), `{"model":"up","messages":[{}],"temperature":1.0}`},
		{"sampling: forced", 0, `{"model":"m","messages":[{}],"temperature":1.0}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "temperature", Force: []byte("0")}, {Name: "stop", Force: []byte(`["a"]`)}}
		}), `{"stop":["a"],"model":"up","messages":[{}],"temperature":0}`},
		{"S17 sampling: the client's in another case gives way", 0, `{"model":"m","messages":[{}],"Temperature":1.0,"topK":1}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "temperature", Force: []byte("0")}}
		}), `{"temperature":0,"model":"up","messages":[{}],"topK":1}`},
		{"sampling: stripped", 0, `{"model":"m","messages":[{}],"temperature":1.0}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "temperature", Strip: true}, {Name: "top_p", Strip: true}}
		}), `{"model":"up","messages":[{}]}`},
		{"sampling: a limit is forced under the one name that the backend takes", 0, `{"model":"m","max_tokens":7,"max_completion_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) {
			t.MaxTokens, t.Sampling = "max_tokens", []llm.Sampling{{Name: "max_tokens", Force: []byte("9")}}
		}), `{"model":"up","max_tokens":9,"messages":[{}]}`},
		{"sampling: a limit is forced where the client sent the other name", 0, `{"model":"m","max_completion_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) {
			t.MaxTokens, t.Sampling = "max_tokens", []llm.Sampling{{Name: "max_tokens", Force: []byte("9")}}
		}), `{"max_tokens":9,"model":"up","messages":[{}]}`},
		{"sampling: a limit is forced on a backend without a habit", 0, `{"model":"m","max_completion_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) {
			t.Sampling = []llm.Sampling{{Name: "max_tokens", Force: []byte("9")}}
		}), `{"model":"up","max_completion_tokens":9,"messages":[{}]}`},
		{"sampling: a default limit gives way to the client's under either name", 0, `{"model":"m","max_completion_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) {
			t.MaxTokens, t.Sampling = "max_tokens", []llm.Sampling{{Name: "max_tokens", Default: []byte("9")}}
		}), `{"model":"up","max_tokens":5,"messages":[{}]}`},
		{"sampling: a default limit", 0, `{"model":"m","messages":[{}]}`, habits(func(t *llm.Target) {
			t.MaxTokens, t.Sampling = "max_completion_tokens", []llm.Sampling{{Name: "max_tokens", Default: []byte("9")}}
		}), `{"max_completion_tokens":9,"model":"up","messages":[{}]}`},
		{"sampling: a limit is stripped under both names", 0, `{"model":"m","max_completion_tokens":5,"max_tokens":5,"messages":[{}]}`, habits(func(t *llm.Target) {
			t.MaxTokens, t.Sampling = "max_tokens", []llm.Sampling{{Name: "max_tokens", Strip: true}}
		}), `{"model":"up","messages":[{}]}`},

		{"C160 leading system turns are merged in order", 0,
			`{"model":"m","messages":[{"role":"developer","content":"Be brief"}, {"role":"system","content":"S\n"},{"role":"user","content" : "hi"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"role":"system","content":"Be brief\n\nS\n"},{"role":"user","content" : "hi"}]}`},
		{"C160 a backend that knows the role gets it unchanged", 0, `{"model":"m","messages":[{"role":"developer","content":"a"},{"role":"system","content":"b"}]}`, habits(nil),
			`{"model":"up","messages":[{"role":"developer","content":"a"},{"role":"system","content":"b"}]}`},
		{"C160 one alone keeps its other members", 0, `{"model":"m","messages":[{"content":[{"type":"text","text":"a"}], "name":"n","role" : "developer"},{"role":"user"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"content":[{"type":"text","text":"a"}], "name":"n","role" : "system"},{"role":"user"}]}`},
		{"C160 later ones keep their place", 0, `{"model":"m","messages":[{"role":"user","content":"u"},{"role":"developer","content":"d"},{"role":"system","content":"s"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"role":"user","content":"u"},{"role":"system","content":"d"},{"role":"system","content":"s"}]}`},
		{"C160 parts and text become parts", 0, `{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"} ]},{"role":"developer","content":"b\u00e9"},{"role":"system","content":[]},{"role":"system"},{"role":"user"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"bé"}]},{"role":"user"}]}`},
		{"C160 a content of an odd kind is not merged", 0, `{"model":"m","messages":[{"role":"developer","content":5},{"role":"system","content":{"a":1}},{"role":"developer","content":"x"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"role":"system","content":5},{"role":"system","content":{"a":1}},{"role":"system","content":"x"}]}`},
		{"C160 null contents in and behind the merged turns", 0, `{"model":"m","messages":[{"role":"developer","content":null},{"role":"system","content":"b"},{"role":"assistant","content":null}]}`,
			habits(func(t *llm.Target) { t.Developer, t.NullContent = "system", "omit" }),
			`{"model":"up","messages":[{"role":"system","content":"b"},{"role":"assistant"}]}`},
		{"C160 without a developer nothing is merged", 0, `{"model":"m","messages":[{"role":"system","content":"a"},{"role":"system","content":"b"}]}`, habits(func(t *llm.Target) { t.Developer = "system" }),
			`{"model":"up","messages":[{"role":"system","content":"a"},{"role":"system","content":"b"}]}`},

		{"a null content becomes empty", 0, `{"model":"m","messages":[{"role":"assistant","content": null,"tool_calls":[]},{"content":null}]}`, habits(func(t *llm.Target) { t.NullContent = "empty" }),
			`{"model":"up","messages":[{"role":"assistant","content": "","tool_calls":[]},{"content":""}]}`},
		{"a null content is left out", 0, `{"model":"m","messages":[{"role":"assistant", "content":null , "a":1},{"content":null},{"role":"x" ,"content":null}]}`, habits(func(t *llm.Target) { t.NullContent = "omit" }),
			`{"model":"up","messages":[{"role":"assistant",  "a":1},{},{"role":"x" }]}`},
		{"a null content stays", 0, `{"model":"m","messages":[{"content":null}]}`, habits(func(t *llm.Target) { t.NullContent = "null" }), `{"model":"up","messages":[{"content":null}]}`},

		{"C158c a legacy completion is unchanged", llm.Completions, `{"model":"up","prompt":["a",[1,2]],"echo":true,"logprobs":5,"max_tokens":0,"suffix":"z"}`, habits(nil),
			`{"model":"up","prompt":["a",[1,2]],"echo":true,"logprobs":5,"max_tokens":0,"suffix":"z"}`},
		{"C154a no encoding", llm.Embeddings, `{"model":"m","input":"x"}`, habits(func(t *llm.Target) { t.Base64, t.Stream, t.Usage = "float", true, true }), `{"model":"up","input":"x"}`},
		{"C154b a null encoding is left out", llm.Embeddings, `{"model":"m","encoding_format":null,"input":"x"}`, habits(nil), `{"model":"up","input":"x"}`},
		{"C154c base64 for a backend that has only numbers", llm.Embeddings, `{"model":"m","input":"x","encoding_format":"base64"}`, habits(func(t *llm.Target) { t.Base64 = "float" }),
			`{"model":"up","input":"x","encoding_format":"float"}`},
		{"C154 base64 for one that can", llm.Embeddings, `{"model":"m","input":"x","encoding_format":"base64"}`, habits(func(t *llm.Target) { t.Base64 = "keep" }),
			`{"model":"up","input":"x","encoding_format":"base64"}`},
		{"rerank: only the model", llm.Rerank, `{"model":"m","query":"q","documents":[]}`, habits(func(t *llm.Target) {
			t.Stream, t.Sampling = true, []llm.Sampling{{Name: "top_n", Force: []byte("1")}}
		}), `{"model":"up","query":"q","documents":[]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			op := c.op
			if op == 0 {
				op = llm.Chat
			}
			r := decode(t, op, c.body)
			e, err := Dialect{}.Edits(r, c.to)
			if err != nil {
				t.Fatal(err)
			}
			got := string(e.Apply(nil, r))
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if e.Empty() != (c.want == c.body) {
				t.Errorf("Empty is %v", e.Empty())
			}
			decode(t, op, got)
		})
	}
}

func TestPaths(t *testing.T) {
	for op, want := range map[llm.Op]string{
		llm.Chat: "/v1/chat/completions", llm.Completions: "/v1/completions", llm.Embeddings: "/v1/embeddings", llm.Rerank: "/v1/rerank",
	} {
		if got := (Dialect{}).Path(op); got != want {
			t.Errorf("Path(%v) = %s, want %s", op, got, want)
		}
	}
	if got := (Dialect{}).Name(); got != "openai" {
		t.Errorf("Name is %s", got)
	}
}
